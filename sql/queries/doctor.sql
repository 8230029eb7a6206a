-- What the doctor asks of the catalog, in a read-only session.

-- name: server
-- What every login may ask of the server: itself, versions, encoding, limits and use of connections, the queue of notifications. A client session of any login counts. Of which type those of other logins are, a plain login is not told: they have a database and a login.
SELECT current_database()::text AS database, session_user::text AS login,
       current_setting('server_version_num')::int AS version, current_setting('search_path') AS search_path,
       getdatabaseencoding()::text AS encoding,
       (SELECT datcollversion::text FROM pg_database WHERE datname = current_database()) AS collation_made,
       (SELECT pg_database_collation_actual_version(oid)::text FROM pg_database WHERE datname = current_database()) AS collation_now,
       current_setting('autovacuum') = 'on' AND current_setting('track_counts') = 'on' AS autovacuum,
       ARRAY(SELECT concat(CASE WHEN s.setrole <> 0 THEN format('ROLE %I', s.setrole::regrole::name) WHEN s.setdatabase = 0 THEN 'ROLE ALL' END,
                           CASE WHEN s.setdatabase <> 0 THEN format('%s DATABASE %I', CASE WHEN s.setrole <> 0 THEN ' IN' END, current_database()) END)
             FROM pg_db_role_setting AS s
             WHERE s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
               AND s.setconfig && ARRAY['session_replication_role=replica', 'session_replication_role=Replica', 'session_replication_role=REPLICA']
             UNION ALL SELECT 'SYSTEM' FROM pg_settings WHERE name = 'session_replication_role' AND setting = 'replica' AND source = 'configuration file'
             ORDER BY 1) AS without_triggers,
       pg_notification_queue_usage() AS queue_usage, clock_timestamp() AS now,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
           - coalesce(current_setting('reserved_connections', true)::int, 0) AS most_of_server,
       used_of_server,
       (SELECT datconnlimit FROM pg_database WHERE datname = current_database()) AS most_of_database,
       used_of_database,
       (SELECT rolconnlimit FROM pg_roles WHERE rolname = session_user) AS most_of_login,
       used_of_login
FROM (SELECT count(*)::int AS used_of_server, (count(*) FILTER (WHERE datname = current_database()))::int AS used_of_database,
             (count(*) FILTER (WHERE usename = session_user))::int AS used_of_login
      FROM pg_stat_activity
      WHERE datid IS NOT NULL AND usesysid IS NOT NULL AND coalesce(backend_type, 'client backend') = 'client backend') AS used

-- name: login
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

-- name: records
-- Whether migrations and functions were ever recorded here. The login may lack every right on the schemas.
SELECT coalesce(bool_or(place.nspname = 'dispatch' AND relation.relname = 'schema_version'), false) AS applied,
       coalesce(bool_or(place.nspname = 'dispatch_private' AND relation.relname = 'applied_functions'), false) AS applied_functions
FROM pg_class AS relation JOIN pg_namespace AS place ON place.oid = relation.relnamespace

-- name: elsewhere
-- Objects that the login owns in this database, and rights that were granted to it by name outside of our schemas: in words, and the statement that ends it. Strangers choose the names, and can grant rights to any login. NULL: the kind has no such statement.
SELECT link.deptype = 'o' AS is_owner, pg_describe_object(link.classid, link.objid, link.objsubid) AS what,
       CASE WHEN link.deptype = 'o' THEN
           CASE WHEN object.type IN ('table', 'view', 'materialized view', 'sequence', 'function', 'procedure', 'aggregate', 'type', 'schema', 'large object', 'foreign table')
               THEN format('DROP %s %s', upper(object.type), object.identity) END
       ELSE format('REVOKE ALL%s FROM %I', CASE link.classid
           WHEN 'pg_class'::regclass THEN (
               SELECT format(CASE WHEN link.objsubid = 0 THEN '%3$s ON %1$I.%2$I' ELSE ' (%3$I) ON %1$I.%2$I' END, place.nspname, relation.relname,
                             (SELECT attname FROM pg_attribute WHERE attrelid = link.objid AND attnum = link.objsubid))
               FROM pg_class AS relation JOIN pg_namespace AS place ON place.oid = relation.relnamespace WHERE relation.oid = link.objid)
           WHEN 'pg_proc'::regclass THEN ' ON ROUTINE ' || link.objid::regprocedure
           WHEN 'pg_namespace'::regclass THEN format(' ON SCHEMA %s', object.identity)
           WHEN 'pg_type'::regclass THEN ' ON TYPE ' || link.objid::regtype
           WHEN 'pg_language'::regclass THEN format(' ON LANGUAGE %s', object.identity)
           WHEN 'pg_largeobject'::regclass THEN format(' ON LARGE OBJECT %s', link.objid)
           WHEN 'pg_largeobject_metadata'::regclass THEN format(' ON LARGE OBJECT %s', link.objid)
           WHEN 'pg_foreign_server'::regclass THEN format(' ON FOREIGN SERVER %s', object.identity)
           WHEN 'pg_foreign_data_wrapper'::regclass THEN format(' ON FOREIGN DATA WRAPPER %s', object.identity)
       END, session_user) END AS mend
FROM pg_shdepend AS link, pg_identify_object(link.classid, link.objid, link.objsubid) AS object
WHERE link.refclassid = 'pg_authid'::regclass AND link.refobjid = session_user::regrole
  AND link.deptype IN ('o', 'a')
  AND (link.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
       OR link.dbid = 0 AND link.deptype = 'o')
  AND (link.deptype = 'o'
       OR (object.schema IN ('dispatch', 'dispatch_private')) IS NOT TRUE
          AND object.identity NOT IN ('dispatch', 'dispatch_private')
          AND object.identity NOT LIKE '% on dispatch.%' AND object.identity NOT LIKE '% on dispatch\_private.%')
ORDER BY 2

-- name: prepared
-- Prepared transactions of this database that are older than an hour.
SELECT gid, owner::text AS owner, prepared AS since FROM pg_prepared_xacts
WHERE database = current_database() AND prepared < now() - interval '1 h' ORDER BY prepared

-- name: members
-- Logins of our group roles: the end of the password, and settings by which the server tells what a session works with.
WITH RECURSIVE members AS (
    SELECT m.member FROM pg_auth_members AS m JOIN pg_roles AS r ON r.oid = m.roleid WHERE r.rolname = ANY (ARRAY[
        'dispatch_owner', 'dispatch_reader', 'dispatch_task', 'dispatch_janitor'])
    UNION
    SELECT m.member FROM members AS g JOIN pg_auth_members AS m ON m.roleid = g.member
)
SELECT r.rolname::text AS name, CASE WHEN isfinite(r.rolvaliduntil) THEN r.rolvaliduntil END AS ends,
       ARRAY(SELECT concat(CASE WHEN s.setdatabase <> 0 THEN format('IN DATABASE %I ', current_database()) END, setting.name, '=', setting.value)
             FROM pg_db_role_setting AS s CROSS JOIN unnest(s.setconfig) AS one
             CROSS JOIN LATERAL (SELECT split_part(one, '=', 1), substr(one, strpos(one, '=') + 1)) AS setting (name, value)
             WHERE s.setrole = r.oid AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
               AND (setting.name ~ '^(debug_print_(parse|rewritten|plan)|log_(duration|(parser|planner|executor|statement)_stats))$' AND lower(setting.value) NOT IN ('off', 'false', 'no', '0')
                    OR setting.name ~ '^log_parameter_max_length(_on_error)?$' AND setting.value <> '0'
                    OR setting.name ~ '^log_min_duration_(statement|sample)$' AND setting.value <> '-1'
                    OR setting.name = 'log_statement' AND lower(setting.value) NOT IN ('none', 'ddl'))
             ORDER BY 1) AS talks
FROM members JOIN pg_roles AS r ON r.oid = members.member WHERE r.rolcanlogin ORDER BY 1

-- name: roles_gone
-- Queues whose role is gone, and names whose login is gone while rows of theirs are alive, with the statement that gives them to another one. Rows that have ended are not read: a login may leave millions of them. $1 text[] submitters with waiting rows.
SELECT format('queue %s', q.name) AS what, format('%s %s is gone', one.column_name, one.role) AS said,
       format('UPDATE dispatch.queues SET %1$s = NULL WHERE name = %2$L; UPDATE dispatch.queues SET %1$s = ''ROLE'' WHERE name = %2$L', one.column_name, q.name) AS mend
FROM dispatch_private.queues AS q CROSS JOIN LATERAL (VALUES ('owner_role', q.owner_role, q.owner_oid), ('submit_role', q.submit_role, q.submit_oid)) AS one (column_name, role, its_oid)
WHERE one.role IS NOT NULL AND NOT EXISTS (
    SELECT FROM pg_roles AS r WHERE CASE WHEN one.its_oid IS NULL THEN r.rolname = one.role ELSE r.oid = one.its_oid END)
UNION ALL
SELECT format('submitter %s', s.name), 'its login is gone, and rows of it have not ended', format('SELECT dispatch.rows_move(%L, %L)', s.name, 'LOGIN')
FROM dispatch_private.submitters AS s
WHERE NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.oid = s.role)
  AND s.name IN (SELECT t.submitted_by FROM dispatch_private.tasks AS t WHERE t.status = 'processing' UNION SELECT unnest($1::text[]))
ORDER BY 1

-- name: ids
-- The last value of the sequence of ids, and the largest id.
SELECT pg_sequence_last_value('dispatch_private.tasks_id_seq') AS last, (SELECT max(id) FROM dispatch_private.tasks) AS largest

-- name: pages
-- Pages of the tables that grow with rows; no row without the tables.
SELECT relation.relname::text AS name, (pg_relation_size(relation.oid) / current_setting('block_size')::int)::int AS pages
FROM pg_class AS relation JOIN pg_namespace AS place ON place.oid = relation.relnamespace
WHERE place.nspname = 'dispatch_private' AND relation.relname IN ('tasks', 'task_launches')

-- name: plan
-- The plan of the statement that was prepared as doctor_looks_at; its parameters follow.
EXPLAIN (FORMAT JSON) EXECUTE doctor_looks_at

-- name: forget
-- Forgets the prepared statement.
DEALLOCATE doctor_looks_at

-- name: objects
-- Every object of both schemas, fact by fact. The texts are alike on all versions of Postgres: before 16 it writes the name of the relation before each column, and since 18 NOT NULL is a constraint.
WITH place AS (
    SELECT oid, nspname::text AS name, nspowner AS owner, nspacl AS acl FROM pg_namespace WHERE nspname IN ('dispatch', 'dispatch_private')
), relation AS (
    SELECT c.*, format('%s %s.%s', CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' WHEN 'S' THEN 'sequence' WHEN 'i' THEN 'index' ELSE c.relkind::text END,
                       p.name, c.relname) AS object
    FROM pg_class AS c JOIN place AS p ON p.oid = c.relnamespace WHERE c.relkind <> 'c'
), routine AS (
    SELECT r.*, format('function %s.%s(%s)', p.name, r.proname, oidvectortypes(r.proargtypes)) AS object
    FROM pg_proc AS r JOIN place AS p ON p.oid = r.pronamespace
), held (object, part, owner, acl) AS (
    SELECT format('schema %s', name), '', owner, coalesce(acl, acldefault('n', owner)) FROM place
    UNION ALL SELECT object, '', relowner, coalesce(relacl, acldefault(CASE relkind WHEN 'S' THEN 's'::"char" ELSE 'r'::"char" END, relowner))
    FROM relation WHERE relkind <> 'i'
    UNION ALL SELECT r.object, format(' (%s)', a.attname), r.relowner, a.attacl
    FROM relation AS r JOIN pg_attribute AS a ON a.attrelid = r.oid WHERE a.attacl IS NOT NULL AND NOT a.attisdropped
    UNION ALL SELECT object, '', proowner, coalesce(proacl, acldefault('f', proowner)) FROM routine
), told (object, fact, value) AS (
    SELECT format('schema %s', name), 'owner', pg_get_userbyid(owner)::text FROM place
    UNION ALL SELECT object, 'owner', pg_get_userbyid(relowner)::text FROM relation WHERE relkind <> 'i'
    UNION ALL SELECT object, 'row security', CASE WHEN relrowsecurity AND relforcerowsecurity THEN 'forced' WHEN relrowsecurity THEN 'on' ELSE 'off' END
    FROM relation WHERE relkind = 'r'
    UNION ALL SELECT r.object, format('column %s', a.attname), concat_ws(' ', format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'NOT NULL' END)
    FROM relation AS r JOIN pg_attribute AS a ON a.attrelid = r.oid WHERE r.relkind IN ('r', 'v') AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL SELECT r.object, format('default of %s', a.attname), pg_get_expr(d.adbin, d.adrelid)
    FROM relation AS r JOIN pg_attrdef AS d ON d.adrelid = r.oid JOIN pg_attribute AS a ON (a.attrelid, a.attnum) = (d.adrelid, d.adnum)
    UNION ALL SELECT object, 'autovacuum', CASE WHEN EXISTS (
        SELECT FROM pg_options_to_table(reloptions) WHERE CASE option_name WHEN 'autovacuum_enabled' THEN NOT option_value::boolean END) THEN 'off' ELSE 'on' END
    FROM relation WHERE relkind = 'r'
    UNION ALL SELECT object, 'survives a crash', CASE relpersistence WHEN 'p' THEN 'yes' ELSE 'no' END FROM relation WHERE relkind = 'r'
    UNION ALL SELECT r.object, format('rule %s', w.rulename), pg_get_ruledef(w.oid)
    FROM relation AS r JOIN pg_rewrite AS w ON w.ev_class = r.oid WHERE w.rulename <> '_RETURN'
    UNION ALL SELECT object, 'body', pg_get_viewdef(oid) FROM relation WHERE relkind = 'v'
    UNION ALL SELECT r.object, 'body', pg_get_indexdef(r.oid) FROM relation AS r WHERE relkind = 'i'
    UNION ALL SELECT r.object, 'is valid', (i.indisvalid AND i.indisready)::text FROM relation AS r JOIN pg_index AS i ON i.indexrelid = r.oid
    UNION ALL SELECT r.object, one.fact, one.value
    FROM routine AS r JOIN pg_language AS l ON l.oid = r.prolang CROSS JOIN LATERAL (VALUES
        ('owner', pg_get_userbyid(r.proowner)::text), ('language', l.lanname::text), ('result', pg_get_function_result(r.oid)),
        ('runs as', CASE WHEN r.prosecdef THEN 'its owner' ELSE 'its caller' END), ('volatility', r.provolatile::text),
        ('body', coalesce(pg_get_function_sqlbody(r.oid), r.prosrc)),
        ('settings', ARRAY(SELECT one FROM unnest(r.proconfig) AS one WHERE one NOT LIKE 'enable\_%' ORDER BY 1)::text)
    ) AS one (fact, value)
    UNION ALL SELECT r.object, format('trigger %s', t.tgname), format('%s, %s', CASE t.tgenabled WHEN 'O' THEN 'on' WHEN 'D' THEN 'off' ELSE t.tgenabled::text END,
                                                                      regexp_replace(pg_get_triggerdef(t.oid), '^.*? (BEFORE|AFTER|INSTEAD)', '\1'))
    FROM relation AS r JOIN pg_trigger AS t ON t.tgrelid = r.oid WHERE NOT t.tgisinternal
    UNION ALL SELECT r.object, format('policy %s', p.polname), format('%s %s to %s: %s; %s', CASE WHEN p.polpermissive THEN 'permissive' ELSE 'restrictive' END, p.polcmd,
        ARRAY(SELECT CASE one WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(one)::text END FROM unnest(p.polroles) AS one ORDER BY 1),
        coalesce(pg_get_expr(p.polqual, p.polrelid), ''), coalesce(pg_get_expr(p.polwithcheck, p.polrelid), ''))
    FROM relation AS r JOIN pg_policy AS p ON p.polrelid = r.oid
    UNION ALL SELECT r.object, format('constraint %s', c.conname), concat(pg_get_constraintdef(c.oid), CASE WHEN NOT c.convalidated THEN ' NOT VALID' END)
    FROM relation AS r JOIN pg_constraint AS c ON c.conrelid = r.oid WHERE c.contype <> 'n'
    UNION ALL SELECT h.object, format('right of %s: %s%s', CASE one.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(one.grantee)::text END, one.privilege_type, h.part),
                     CASE WHEN one.is_grantable THEN 'with grant option' ELSE '' END
    FROM held AS h CROSS JOIN aclexplode(h.acl) AS one WHERE one.grantee <> h.owner
)
SELECT object, fact, CASE WHEN fact IN ('body') AND object NOT LIKE 'index %'
    THEN left(encode(sha256(convert_to(regexp_replace(regexp_replace(value, '\m(?!dispatch|pg_|public)[a-z_0-9]+\.', '', 'g'), '[[:space:]()]+', ' ', 'g'), 'UTF8')), 'hex'), 32) ELSE value END AS value
FROM told
ORDER BY object, fact
