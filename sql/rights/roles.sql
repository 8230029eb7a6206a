-- The group roles: attributes, what they are members of, settings. $1 text[] names.
SELECT role.rolname AS name,
       pg_catalog.array_remove(ARRAY[
           CASE WHEN role.rolsuper THEN 'SUPERUSER' END,
           CASE WHEN role.rolcanlogin THEN 'LOGIN' END,
           CASE WHEN role.rolinherit THEN 'INHERIT' END,
           CASE WHEN role.rolcreaterole THEN 'CREATEROLE' END,
           CASE WHEN role.rolcreatedb THEN 'CREATEDB' END,
           CASE WHEN role.rolreplication THEN 'REPLICATION' END,
           CASE WHEN role.rolbypassrls THEN 'BYPASSRLS' END], NULL) AS attributes,
       ARRAY(SELECT pg_catalog.format('%s%s', outer_role.rolname, CASE WHEN membership.admin_option THEN ' (admin)' END)
               FROM pg_catalog.pg_auth_members AS membership
               JOIN pg_catalog.pg_roles AS outer_role ON outer_role.oid = membership.roleid
              WHERE membership.member = role.oid) AS member_of,
       ARRAY(SELECT setting
               FROM pg_catalog.pg_db_role_setting AS kept, pg_catalog.unnest(kept.setconfig) AS setting
              WHERE kept.setrole = role.oid) AS settings
  FROM pg_catalog.pg_roles AS role
 WHERE role.rolname = ANY ($1::text[])
