-- Whether containers can report. The dispatcher reads with a login of its own, and that login may be well while those of the
-- containers are not. Each launch would be in vain then.

CREATE OR REPLACE FUNCTION dispatch_private.are_logins_read_only() RETURNS boolean
LANGUAGE plpgsql SET default_transaction_read_only = on AS $$
BEGIN
    SET LOCAL default_transaction_read_only TO DEFAULT; -- what the session would have without our SET; restored at the end of the call
    IF current_setting('default_transaction_read_only') = 'off' THEN
        RETURN false;
    END IF;
    -- This view is slow, and is read only where it matters. The last three are settings of this login or session alone.
    RETURN (SELECT source NOT IN ('user', 'database user', 'client', 'session') FROM pg_settings WHERE name = 'default_transaction_read_only');
END
$$;
COMMENT ON FUNCTION dispatch_private.are_logins_read_only() IS 'Whether the server or this database gives each new session read-only transactions.';

CREATE OR REPLACE FUNCTION dispatch_private.setting_of(role oid, database oid, setting text) RETURNS text
LANGUAGE sql STABLE AS $$
    -- A login may give itself settings of 900 MB, and each look of the dispatcher would read them.
    SELECT substr(one, length(setting) + 2)
    FROM pg_db_role_setting AS s CROSS JOIN unnest(CASE WHEN pg_column_size(s.setconfig) < 65536 THEN s.setconfig END) AS one
    WHERE s.setrole = role AND s.setdatabase IN (database, 0) AND starts_with(one, setting || '=')
    ORDER BY s.setdatabase DESC LIMIT 1 -- the setting for this database wins
$$;
COMMENT ON FUNCTION dispatch_private.setting_of(oid, oid, text) IS 'What a login has set for its sessions; NULL: nothing, or its settings are too long to be read.';

CREATE OR REPLACE FUNCTION dispatch_private.task_logins() RETURNS TABLE (login name, refused text)
LANGUAGE sql AS $$
    -- Each OFFSET 0 keeps the planner from a join with all roles of the server, which may be many.
    WITH RECURSIVE users AS NOT MATERIALIZED ( -- since Postgres 16, whoever made a role is a member of it, to administrate it
        SELECT m.roleid, m.member FROM pg_auth_members AS m
        WHERE NOT EXISTS (SELECT FROM pg_auth_members AS a WHERE a.roleid = m.roleid AND a.member = m.member AND a.admin_option OFFSET 0)
    ), members AS (
        SELECT m.member FROM users AS m WHERE m.roleid = to_regrole('dispatch_task')
        UNION
        SELECT one.member FROM members AS g CROSS JOIN LATERAL (SELECT m.member FROM users AS m WHERE m.roleid = g.member OFFSET 0) AS one
    )
    SELECT r.rolname, CASE
        WHEN r.rolsuper THEN NULL
        WHEN NOT r.rolcanlogin THEN 'may not log in (NOLOGIN)'
        WHEN r.rolvaliduntil <= now() THEN 'has a password that was VALID UNTIL ' || to_char(r.rolvaliduntil, 'YYYY-MM-DD HH24:MI TZ')
        WHEN r.rolconnlimit = 0 THEN 'has CONNECTION LIMIT 0'
        WHEN NOT d.datallowconn THEN 'cannot connect: the database has ALLOW_CONNECTIONS false'
        WHEN d.datconnlimit = 0 THEN 'cannot connect: the database has CONNECTION LIMIT 0'
        WHEN NOT has_database_privilege(r.oid, d.oid, 'CONNECT') THEN 'has no right CONNECT on the database'
        WHEN NOT has_schema_privilege(r.oid, 'dispatch', 'USAGE') THEN 'has no right USAGE on schema dispatch'
        WHEN NOT has_function_privilege(r.oid, to_regprocedure('dispatch.task_start(bigint, uuid, integer, integer, text, text, text, text)'), 'EXECUTE')
            THEN 'has no right EXECUTE on dispatch.task_start'
        WHEN EXISTS (SELECT FROM pg_db_role_setting AS s WHERE s.setrole = r.oid AND s.setdatabase IN (d.oid, 0) AND pg_column_size(s.setconfig) >= 65536)
            THEN 'has settings that are too long to be read: ALTER ROLE … RESET ALL'
        WHEN coalesce(dispatch_private.setting_of(r.oid, d.oid, 'default_transaction_read_only')::boolean,
                      dispatch_private.are_logins_read_only()) THEN 'has default_transaction_read_only on'
        -- At least the ten seconds that a call may take, in plain numbers: Postgres reads many other ways to write a time.
        -- The programs set statement_timeout themselves.
        WHEN dispatch_private.setting_of(r.oid, d.oid, 'transaction_timeout') !~ '^0+ *[a-z]*$|^[1-9][0-9]{4,} *(ms)?$|^[1-9][0-9]+ *s$|^[1-9][0-9]* *(min|h|d)$'
            THEN 'has transaction_timeout ' || dispatch_private.setting_of(r.oid, d.oid, 'transaction_timeout')
    END
    FROM members CROSS JOIN LATERAL (SELECT * FROM pg_roles AS one WHERE one.oid = members.member OFFSET 0) AS r
    JOIN pg_database AS d ON d.datname = current_database()
    WHERE NOT EXISTS (SELECT FROM users AS m WHERE m.roleid = r.oid OFFSET 0) -- those with members are groups
$$;
COMMENT ON FUNCTION dispatch_private.task_logins() IS 'Logins of containers, and why each of them could not report; NULL: nothing in the catalog is against it.';

CREATE OR REPLACE FUNCTION dispatch_private.tasks_refused() RETURNS text
LANGUAGE sql AS $$
    -- Which login a container has, its Secret says. So one login that works is enough.
    SELECT CASE WHEN count(*) = 0 THEN CASE WHEN dispatch_private.are_logins_read_only() THEN 'each new session has default_transaction_read_only on' END
                WHEN count(refused) = count(*) THEN left(string_agg(format('login "%s" %s', login, refused), '; ' ORDER BY login), 300) END
    FROM dispatch_private.task_logins()
$$;
COMMENT ON FUNCTION dispatch_private.tasks_refused() IS 'Why no login of containers could report; NULL: one could, as far as the catalog tells.';
