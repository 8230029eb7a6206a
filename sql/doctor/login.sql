-- The login: attributes of an administrator, and the roles that it is a member of, directly or through others.
SELECT array_remove(ARRAY[
           CASE WHEN own.rolsuper THEN 'SUPERUSER' END, CASE WHEN own.rolcreaterole THEN 'CREATEROLE' END,
           CASE WHEN own.rolcreatedb THEN 'CREATEDB' END, CASE WHEN own.rolreplication THEN 'REPLICATION' END,
           CASE WHEN own.rolbypassrls THEN 'BYPASSRLS' END], NULL) AS attributes,
       ARRAY(SELECT other.rolname::text FROM pg_roles AS other
              WHERE other.oid <> own.oid AND pg_has_role(own.oid, other.oid, 'MEMBER')
              ORDER BY other.rolname) AS groups,
       ARRAY(SELECT other.rolname::text FROM pg_roles AS other
              WHERE other.oid <> own.oid AND pg_has_role(own.oid, other.oid, 'USAGE')) AS inherited
FROM pg_roles AS own WHERE own.rolname = session_user
