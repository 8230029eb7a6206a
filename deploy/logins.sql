-- Creates the group roles and a login for each program, and prints the logins as Secrets:
--   psql -f deploy/logins.sql -v host=db.example 'postgresql://postgres@db.example/work' | kubectl apply -f -
-- Each login has a random password. Run it again to change all passwords: programs read their Secret at each connect, but
-- tasks that run cannot report any more. "Change passwords" in docs/install.md says what to do first.
--
-- The session needs the right to create roles. Variables, each by `-v NAME=VALUE`:
--   host, port   of Postgres, as Pods reach it; default: those of this session
--   sslmode      default: require; verify-full if the containers have the certificate of the authority
--   ours, jobs   namespaces of our programs and of Jobs; default: dispatcher, dispatcher-jobs
\set QUIET on
\set ON_ERROR_STOP on
\pset tuples_only on
\pset format unaligned
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

-- Statements with passwords must not reach the server's log. Only a superuser may say so. Without that right, look at the
-- server's log_statement and log_min_duration_statement first; by default it logs none of them.
SELECT set_config(name, value, false)
FROM (VALUES ('log_statement', 'none'), ('log_min_duration_statement', '-1')) AS wanted (name, value)
WHERE (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) \g /dev/null
SET client_min_messages = warning;
\ir ../sql/roles.sql

BEGIN;
SELECT format('GRANT CREATE ON DATABASE %I TO dispatch_owner', current_database()) \gexec
CREATE TEMPORARY TABLE logins ON COMMIT DROP AS
SELECT login, of_role, namespace, secret, key, replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', '') AS password
FROM (VALUES ('dispatcher_migrate', 'dispatch_owner', :'ours', 'dispatcher-migrate-database', 'url'),
             ('dispatcher', 'dispatch_reader', :'ours', 'dispatcher-database', 'url'),
             ('dispatcher_janitor', 'dispatch_janitor', :'ours', 'dispatcher-janitor-database', 'url'),
             ('task', 'dispatch_task', :'jobs', 'task-database', 'TASK_DATABASE_URL')
     ) AS wanted (login, of_role, namespace, secret, key);

SELECT format('CREATE ROLE %I', login) FROM logins WHERE login NOT IN (SELECT rolname FROM pg_roles) \gexec
SELECT format('ALTER ROLE %I LOGIN PASSWORD %L', login, password) FROM logins \gexec
SELECT format('GRANT %I TO %I', of_role, login) FROM logins \gexec
SELECT jsonb_pretty(jsonb_build_object(
           'apiVersion', 'v1', 'kind', 'List', 'items', jsonb_agg(jsonb_build_object(
               'apiVersion', 'v1', 'kind', 'Secret', 'metadata', jsonb_build_object('name', secret, 'namespace', namespace),
               'stringData', jsonb_build_object(key, format(
                   'postgresql://%s:%s@%s:%s/%s?sslmode=%s',
                   login, password, :'host', :'port', current_database(), :'sslmode'))))))
FROM logins;
COMMIT;
