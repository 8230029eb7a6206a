-- Creates the group roles and a login for each program, and prints the logins as Secrets:
--   psql -Xf deploy/logins.sql -v host=db.example 'postgresql://postgres@db.example/work' | kubectl apply -f -
-- -X keeps what ~/.psqlrc prints, such as times, out of them. Each login has a random password. Nothing is changed if
-- something is in the way: the script says what, and what to type.
-- With -v rotate=1 it changes the passwords of the logins that it made. Programs read their Secret at each connect, but tasks
-- that run cannot report any more. "Change passwords" in docs/install.md says what to do first.
--
-- The session needs the right to create roles. Variables, each by `-v NAME=VALUE`:
--   host, port   of Postgres, as Pods reach it; default: those of this session. Several hosts stand as host=a,b, with one port
--   sslmode      default: require; verify-full if the containers have the certificate of the authority
--   ours, jobs   namespaces of our programs and of Jobs; default: dispatcher, dispatcher-jobs
--   prefix       of the names of the logins, which belong to the whole server; default: the name of the database and _
--   installation the value `installation` of the chart: first part of the names of the Secrets; default: dispatcher
--   rotate       1: new passwords for the logins that are there
--   admins       a role whose members may change these passwords, too; Postgres 16 and later need it
--   plain        1: for a server that takes no verifier, such as Neon, or one with credcheck. It may log the passwords
\set QUIET on
\set ON_ERROR_STOP on
\set SHOW_CONTEXT never
\pset tuples_only on
\pset format unaligned
SET search_path = pg_catalog, pg_temp; -- others may create lookalikes in schema public
SET client_min_messages = warning;
SET standard_conforming_strings = on;
SET quote_all_identifiers = off; -- names are compared as they are
SET lock_timeout = '10s'; -- a session of such a login may hold a change of its password open; end it by pg_terminate_backend
\if :{?host}
\else
  \set host :HOST
\endif
\if :{?port}
\else
  \set port :PORT
\endif
\if :{?sslmode}
\else
  \set sslmode require
\endif
\if :{?ours}
\else
  \set ours dispatcher
\endif
\if :{?jobs}
\else
  \set jobs dispatcher-jobs
\endif
\if :{?prefix}
\else
  SELECT current_database() || '_' AS prefix \gset
\endif
\if :{?installation}
\else
  \set installation dispatcher
\endif
\if :{?rotate}
\else
  \set rotate 0
\endif
\if :{?admins}
\else
  \set admins ''
\endif
\if :{?plain}
\else
  \set plain 0
\endif

-- Statements with passwords must not reach the server's log. Only a superuser may say so. What the statements hold is a
-- verifier: nobody can log in with it. But a log of parameters would hold more.
SELECT set_config(name, value, false)
FROM (VALUES ('log_statement', 'none'), ('log_min_duration_statement', '-1')) AS wanted (name, value)
WHERE (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) \g /dev/null

CREATE TEMPORARY TABLE wanted AS
SELECT login, of_role, namespace, secret, key, to_regrole(quote_ident(login)) IS NOT NULL AS is_there,
       format('pg-job-dispatcher, database %I', current_database()) AS mark
FROM (VALUES (:'prefix' || 'dispatcher_migrate', 'dispatch_owner', :'ours', :'installation' || '-migrate-database', 'url'),
             (:'prefix' || 'dispatcher', 'dispatch_reader', :'ours', :'installation' || '-database', 'url'),
             (:'prefix' || 'dispatcher_janitor', 'dispatch_janitor', :'ours', :'installation' || '-janitor-database', 'url'),
             (:'prefix' || 'task', 'dispatch_task', :'jobs',
              CASE :'installation' WHEN 'dispatcher' THEN '' ELSE :'installation' || '-' END || 'task-database', 'TASK_DATABASE_URL')
     ) AS one (login, of_role, namespace, secret, key);
CREATE TEMPORARY TABLE given AS SELECT :'rotate' = '1' AS rotates, nullif(:'admins', '') AS admins, :'plain' = '1' AS is_plain, :'host' AS host, :'port' AS port, :'sslmode' AS sslmode;

DO $checks$ -- everything that could fail later, before the first change
DECLARE
    me    pg_roles := (SELECT r FROM pg_roles AS r WHERE rolname = current_user);
    here  pg_database := (SELECT d FROM pg_database AS d WHERE datname = current_database());
    given pg_temp.given := (SELECT g FROM pg_temp.given AS g);
    one   record;
    needs_admin boolean := NOT me.rolsuper AND current_setting('server_version_num')::integer >= 160000;
BEGIN
    IF given.host IN ('', ':HOST') OR given.host LIKE '/%' THEN
        RAISE EXCEPTION 'Pods cannot reach the server by a socket' USING HINT = 'Give the address of the server: -v host=db.example';
    ELSIF given.host ~ '[^A-Za-z0-9._,:-]' OR given.host ~ ':' AND given.host !~ '^[0-9A-Fa-f.]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*$' THEN
        RAISE EXCEPTION 'host "%" is neither a name nor an address', given.host USING HINT = 'The port stands by itself: -v host=db.example -v port=5433';
    ELSIF given.port !~ '^[0-9]{1,5}$' THEN
        RAISE EXCEPTION 'port "%" is not a number', given.port USING HINT = '-v port=5432';
    ELSIF given.sslmode !~ '^(disable|allow|prefer|require|verify-ca|verify-full)(&|$)' THEN
        RAISE EXCEPTION 'sslmode "%" is none of disable, allow, prefer, require, verify-ca, verify-full', given.sslmode
            USING HINT = 'More parameters follow it: -v sslmode=''verify-full&sslrootcert=FILE''';
    ELSIF getdatabaseencoding() <> 'UTF8' THEN
        RAISE EXCEPTION 'database "%" has the encoding %, and must have UTF8', here.datname, getdatabaseencoding()
            USING HINT = 'CREATE DATABASE work ENCODING ''UTF8'' TEMPLATE template0;';
    END IF;
    FOR one IN SELECT * FROM pg_temp.wanted ORDER BY login LOOP
        IF octet_length(one.login) > 63 THEN
            RAISE EXCEPTION 'the name % has more than 63 bytes', quote_ident(one.login) USING HINT = 'Give a shorter one: -v prefix=NAME_';
        END IF;
    END LOOP;
    FOR one IN SELECT r.*, w.mark, w.of_role, shobj_description(r.oid, 'pg_authid') AS note,
                      ARRAY(SELECT m.roleid::regrole::text FROM pg_auth_members AS m WHERE m.member = r.oid) AS member_of
               FROM pg_temp.wanted AS w JOIN pg_roles AS r ON r.rolname = w.login ORDER BY w.login LOOP
        IF one.note IS DISTINCT FROM one.mark THEN
            RAISE EXCEPTION 'login "%" is there, and this script has not made it for this database', one.rolname
                USING HINT = format('Give other names: -v prefix=NAME_. If the login is the dispatcher''s: COMMENT ON ROLE %I IS %L;', one.rolname, one.mark);
        ELSIF one.rolsuper OR one.rolcreaterole OR one.rolcreatedb OR one.rolreplication OR one.rolbypassrls THEN
            RAISE EXCEPTION 'login "%" has rights that no program of the dispatcher needs', one.rolname
                USING HINT = format('ALTER ROLE %I NOSUPERUSER NOCREATEROLE NOCREATEDB NOREPLICATION NOBYPASSRLS;', one.rolname);
        ELSIF one.member_of IS DISTINCT FROM ARRAY[one.of_role] THEN -- anybody with CREATEROLE could have made it, with our mark
            RAISE EXCEPTION 'login "%" is a member of %, and has to be one of % alone', one.rolname, coalesce(nullif(array_to_string(one.member_of, ', '), ''), 'no role'), one.of_role
                USING HINT = format('See who made it. If nobody needs it: DROP ROLE %I;', one.rolname);
        END IF;
    END LOOP;
    -- Group roles belong to the server. Who administrates one of them can make itself a member of it.
    FOR one IN SELECT r.*, ARRAY(SELECT m.member::regrole::text FROM pg_auth_members AS m JOIN pg_roles AS a ON a.oid = m.member
                                 WHERE m.roleid = r.oid AND m.admin_option AND NOT a.rolsuper AND a.rolname <> current_user
                                   AND NOT coalesce(pg_has_role(a.oid, to_regrole(quote_ident(given.admins)), 'MEMBER'), false)) AS others
               FROM pg_roles AS r
               WHERE r.rolname IN ('dispatch_owner', 'dispatch_reader', 'dispatch_submitter', 'dispatch_task', 'dispatch_janitor', 'dispatch_operator', 'dispatch_observer')
               ORDER BY r.rolname LOOP
        IF one.rolcanlogin OR one.rolsuper OR one.rolcreaterole OR one.rolcreatedb OR one.rolreplication OR one.rolbypassrls THEN
            RAISE EXCEPTION 'role "%" is no group role: it may log in, or has rights of an administrator', one.rolname
                USING HINT = format('See who made it. If nobody needs it: DROP ROLE %I;', one.rolname);
        ELSIF one.others <> '{}' AND NOT given.rotates THEN
            RAISE EXCEPTION '% may give the rights of role "%" to anybody', array_to_string(one.others, ', '), one.rolname
                USING HINT = 'If these administrators are yours, name a role of which they are members: -v admins=NAME. Otherwise drop the role.';
        END IF;
    END LOOP;
    IF given.rotates AND NOT EXISTS (SELECT FROM pg_temp.wanted WHERE is_there) THEN
        RAISE EXCEPTION 'there is no login "%" and none of the other three, so there is no password to change', (SELECT login FROM pg_temp.wanted WHERE of_role = 'dispatch_reader')
            USING HINT = coalesce((SELECT 'Logins of a dispatcher are ' || string_agg(format('"%s" (%s)', r.rolname, shobj_description(r.oid, 'pg_authid')), ', ' ORDER BY r.rolname)
                                          || '. Give their prefix: -v prefix=NAME_'
                                   FROM pg_roles AS r WHERE shobj_description(r.oid, 'pg_authid') LIKE 'pg-job-dispatcher, database %'),
                                  'No login of this server is one of this script. Without rotate=1 it makes them.');
    ELSIF NOT given.rotates AND NOT EXISTS (SELECT FROM pg_temp.wanted WHERE NOT is_there) THEN
        RAISE EXCEPTION 'the logins of this database are there' USING HINT = '-v rotate=1 gives each of them a new password, and prints the Secrets. '
            'See "Change passwords" in docs/install.md first.';
    ELSIF NOT me.rolsuper AND NOT me.rolcreaterole THEN
        RAISE EXCEPTION '"%" may not create roles', current_user
            USING HINT = 'Connect as an administrator with CREATEROLE. "Without the right to create roles" in docs/install.md is the other way.';
    ELSIF NOT (me.rolsuper OR pg_has_role(here.datdba, 'USAGE') OR has_database_privilege(here.oid, 'CREATE WITH GRANT OPTION')
               OR to_regrole('dispatch_owner') IS NOT NULL AND has_database_privilege(to_regrole('dispatch_owner'), here.oid, 'CREATE')) THEN
        RAISE EXCEPTION 'database "%" belongs to "%", so "%" may not let dispatch_owner create its schemas', here.datname, here.datdba::regrole, current_user
            USING HINT = format('Its owner or a superuser runs: GRANT CREATE ON DATABASE %I TO %I WITH GRANT OPTION;', here.datname, current_user);
    ELSIF given.admins IS NOT NULL AND to_regrole(quote_ident(given.admins)) IS NULL THEN
        RAISE EXCEPTION 'there is no role "%"', given.admins USING HINT = 'Name the group of your administrators: -v admins=NAME';
    END IF;
    FOR one IN SELECT r.rolname FROM pg_temp.wanted AS w JOIN pg_roles AS r ON r.rolname = CASE WHEN w.is_there THEN w.login ELSE w.of_role END
               WHERE needs_admin AND NOT pg_has_role(r.oid, 'MEMBER WITH ADMIN OPTION') AND (given.rotates OR NOT w.is_there) LOOP
        RAISE EXCEPTION '"%" may not administrate role "%"', current_user, one.rolname
            USING HINT = format('Whoever made it, or a superuser, runs: GRANT %I TO %I WITH ADMIN OPTION;', one.rolname, current_user);
    END LOOP;
    FOR one IN SELECT d.datname, string_agg(quote_ident(r.rolname), ', ' ORDER BY r.rolname) AS logins
               FROM pg_database AS d JOIN pg_roles AS r ON shobj_description(r.oid, 'pg_authid') = format('pg-job-dispatcher, database %I', d.datname)
                    JOIN pg_auth_members AS m ON m.member = r.oid AND m.roleid IN (SELECT to_regrole(of_role) FROM pg_temp.wanted)
               WHERE d.oid <> here.oid AND (has_database_privilege('public', d.oid, 'CONNECT') OR has_database_privilege('public', here.oid, 'CONNECT'))
               GROUP BY d.oid, d.datname LOOP
        RAISE EXCEPTION 'database "%" of this server has a dispatcher, too, and not only its own logins may connect', regexp_replace(one.datname, '[[:cntrl:]]', '?', 'g')
            USING DETAIL = 'Group roles belong to the whole server: the teams of either database could use the other one.',
                  HINT = format('REVOKE CONNECT ON DATABASE %I, %I FROM PUBLIC; GRANT CONNECT ON DATABASE %I TO %s; and to each team that uses it. '
                                'Then run this script again.', one.datname, here.datname, one.datname, one.logins);
    END LOOP;
END
$checks$;

-- What psql's \password computes: the server keeps it, and nobody can log in with it. Statements with passwords would stand in
-- pg_stat_statements. `password` has at most 64 bytes.
CREATE FUNCTION pg_temp.verifier(password text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    salt     bytea := decode(replace(gen_random_uuid()::text, '-', ''), 'hex');
    key      bytea := convert_to(password, 'UTF8');
    step     bytea := salt || '\x00000001';
    salted   bit(256);
    mac      bytea;
    inner_   bytea := ''; outer_ bytea := '';
BEGIN
    FOR n IN 0..63 LOOP
        inner_ := inner_ || set_byte('\x00', 0, CASE WHEN n < length(key) THEN get_byte(key, n) ELSE 0 END # 54);
        outer_ := outer_ || set_byte('\x00', 0, CASE WHEN n < length(key) THEN get_byte(key, n) ELSE 0 END # 92);
    END LOOP;
    FOR n IN 1..4096 LOOP
        step := sha256(outer_ || sha256(inner_ || step));
        salted := CASE n WHEN 1 THEN ('x' || encode(step, 'hex'))::bit(256) ELSE salted # ('x' || encode(step, 'hex'))::bit(256) END;
    END LOOP;
    key := '';
    FOR n IN 0..7 LOOP
        key := key || int4send(substring(salted FROM n * 32 + 1 FOR 32)::bit(32)::integer);
    END LOOP;
    RETURN format('SCRAM-SHA-256$4096:%s$%s:%s', encode(salt, 'base64'),
                  encode(sha256(pg_temp.mac(key, 'Client Key')), 'base64'), encode(pg_temp.mac(key, 'Server Key'), 'base64'));
END
$$;
CREATE FUNCTION pg_temp.mac(key bytea, message bytea) RETURNS bytea
LANGUAGE sql AS $$
    SELECT sha256(outer_ || sha256(inner_ || message))
    FROM (SELECT string_agg(set_byte('\x00', 0, byte # 54), ''::bytea ORDER BY n) AS inner_, string_agg(set_byte('\x00', 0, byte # 92), ''::bytea ORDER BY n) AS outer_
          FROM (SELECT n, CASE WHEN n < length(key) THEN get_byte(key, n) ELSE 0 END AS byte FROM generate_series(0, 63) AS n) AS bytes) AS pads
$$;
CREATE FUNCTION pg_temp.in_url(text) RETURNS text
LANGUAGE sql AS $$
    SELECT string_agg(CASE WHEN chr(byte) ~ '[A-Za-z0-9_.~-]' AND byte < 128 THEN chr(byte) ELSE '%' || upper(lpad(to_hex(byte), 2, '0')) END, '' ORDER BY n)
    FROM (SELECT n, get_byte(convert_to($1, 'UTF8'), n) AS byte FROM generate_series(0, octet_length(convert_to($1, 'UTF8')) - 1) AS n) AS bytes
$$;

\ir ../sql/roles.sql
BEGIN;
SELECT format('GRANT CREATE ON DATABASE %I TO dispatch_owner', current_database())
WHERE NOT has_database_privilege('dispatch_owner', current_database(), 'CREATE') \gexec
CREATE TEMPORARY TABLE logins ON COMMIT DROP AS
SELECT *, replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', '') AS password
FROM wanted WHERE NOT is_there OR (SELECT rotates FROM given);

SELECT format('CREATE ROLE %I', login) FROM logins WHERE NOT is_there \gexec
SELECT format('COMMENT ON ROLE %I IS %L', login, mark) FROM logins WHERE NOT is_there \gexec
SELECT format('ALTER ROLE %I LOGIN PASSWORD %L', login, CASE WHEN is_plain THEN password ELSE pg_temp.verifier(password) END) FROM logins, given \gexec
SELECT format('GRANT %I TO %I', of_role, login) FROM logins WHERE NOT is_there \gexec
-- A call that waits for a lock behind a pooler would hold its session after the client is gone, and the next client would get another
-- one. A container that forgets a transaction must not keep the dead rows of everybody. A session may change these defaults.
SELECT format('ALTER ROLE %I SET statement_timeout = ''8s''', login) FROM logins WHERE NOT is_there AND of_role = 'dispatch_task' \gexec
SELECT format('ALTER ROLE %I SET idle_in_transaction_session_timeout = ''10min''', login) FROM logins WHERE NOT is_there AND of_role = 'dispatch_task' \gexec
SELECT format('ALTER ROLE %I SET transaction_timeout = ''1h''', login) FROM logins
WHERE NOT is_there AND of_role = 'dispatch_task' AND current_setting('server_version_num')::integer >= 170000 \gexec
SELECT format('GRANT CONNECT ON DATABASE %I TO %I', current_database(), login)
FROM logins WHERE NOT has_database_privilege(login, current_database(), 'CONNECT') \gexec
SELECT format('GRANT %I TO %I WITH ADMIN TRUE, INHERIT FALSE, SET FALSE', role, admins)
FROM given CROSS JOIN (SELECT login FROM wanted UNION SELECT of_role FROM wanted) AS every (role)
WHERE admins IS NOT NULL AND current_setting('server_version_num')::integer >= 160000
  AND NOT EXISTS (SELECT FROM pg_auth_members AS m WHERE m.roleid = to_regrole(quote_ident(role))
                  AND m.member = to_regrole(quote_ident(admins)) AND m.admin_option) \gexec
SELECT jsonb_pretty(jsonb_build_object(
           'apiVersion', 'v1', 'kind', 'List', 'items', jsonb_agg(jsonb_build_object(
               'apiVersion', 'v1', 'kind', 'Secret', 'metadata', jsonb_build_object('name', secret, 'namespace', namespace),
               'stringData', jsonb_build_object(key, format(
                   'postgresql://%s:%s@%s:%s/%s?sslmode=%s',
                   pg_temp.in_url(login), password, CASE WHEN :'host' LIKE '%:%' THEN format('[%s]', :'host') ELSE replace(:'host', ',', ':' || :'port' || ',') END, :'port', pg_temp.in_url(current_database()), :'sslmode')))))) AS secrets
FROM logins \gset
COMMIT; -- some servers refuse a login here. Then kubectl gets nothing
\echo :secrets
