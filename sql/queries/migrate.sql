-- The statements of the migration itself.

-- name: encoding
-- This database and its encoding.
SELECT current_database()::text AS database, getdatabaseencoding()::text AS encoding

-- name: no_limit
-- The one transaction may take as long as its indexes do, whatever the database or the login allows. Since Postgres 17 there is such a setting.
SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'transaction_timeout'

-- name: lock
-- Takes the lock of the migration: one migration at a time in this database. $1 bigint key.
SELECT pg_advisory_lock($1)

-- name: holders
-- Sessions and prepared transactions that hold the lock of the migration, or our tables and views, the oldest first. $1 bigint key; NULL: the tables.
SELECT DISTINCT coalesce(a.usename, p.owner, CASE WHEN a.usesysid IS NULL THEN 'a worker of the server' ELSE 'a login that is gone' END)::text AS login,
       coalesce('pid ' || a.pid, format('prepared transaction %L', p.gid)) AS what, coalesce(a.xact_start, a.backend_start, p.prepared) AS since
FROM pg_locks AS l LEFT JOIN pg_stat_activity AS a USING (pid) LEFT JOIN pg_class AS c ON c.oid = l.relation AND l.locktype = 'relation'
LEFT JOIN pg_locks AS x ON x.virtualtransaction = l.virtualtransaction AND x.locktype = 'transactionid' AND l.pid IS NULL AND x.pid IS NULL
LEFT JOIN pg_prepared_xacts AS p ON p.transaction = x.transactionid
WHERE l.granted AND l.pid IS DISTINCT FROM pg_backend_pid() AND (a.pid IS NOT NULL OR p.gid IS NOT NULL)
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND CASE WHEN $1::bigint IS NULL THEN c.relnamespace IN (SELECT oid FROM pg_namespace WHERE nspname IN ('dispatch', 'dispatch_private'))
           ELSE l.locktype = 'advisory' AND l.objsubid = 1
                AND l.classid::bigint = $1::bigint >> 32 AND l.objid::bigint = $1::bigint & 4294967295 END
ORDER BY since, what
LIMIT 10

-- name: is_new
-- Whether no migration was ever applied here.
SELECT to_regclass('dispatch_private.schema_version') IS NULL AND to_regclass('dispatch.schema_version') IS NULL

-- name: applied
-- Applied migrations.
SELECT version, name, checksum FROM dispatch.schema_version

-- name: may_create_roles
-- Whether this login may run roles.sql.
SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user

-- name: missing_roles
-- Group roles that do not exist. $1 text[] names.
SELECT name FROM unnest($1::text[]) AS name WHERE to_regrole(name) IS NULL

-- name: why_not_owner
-- Why this login cannot create the schemas for the owner role; NULL: it can.
SELECT CASE
    WHEN NOT pg_has_role('dispatch_owner', CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END)
        THEN format('login "%s" is no member of dispatch_owner: an administrator runs GRANT dispatch_owner TO %I', current_user, current_user)
    WHEN NOT has_database_privilege(current_database(), 'CREATE')
         AND (to_regnamespace('dispatch') IS NULL OR to_regnamespace('dispatch_private') IS NULL)
        THEN format('dispatch_owner may create no schema in database "%s": its owner or a superuser runs GRANT CREATE ON DATABASE %I TO dispatch_owner',
                    current_database(), current_database())
END

-- name: take_rights
-- A login that does not inherit the rights of dispatch_owner acts as that role from now on, if it may.
SELECT set_config('role', 'dispatch_owner', false) FROM pg_roles WHERE rolname = 'dispatch_owner' AND NOT pg_has_role(oid, 'USAGE')
AND pg_has_role(oid, CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END)

-- name: as_itself
-- The login makes roles with its own rights.
RESET ROLE

-- name: schema
-- Creates the schemas, before the first table.
CREATE SCHEMA IF NOT EXISTS dispatch AUTHORIZATION dispatch_owner;
CREATE SCHEMA IF NOT EXISTS dispatch_private AUTHORIZATION dispatch_owner

-- name: schema_owner
-- Owner of each schema of ours that exists.
SELECT s.nspname::text AS schema, r.rolname::text AS owner FROM pg_namespace AS s JOIN pg_roles AS r ON r.oid = s.nspowner
WHERE s.nspname IN ('dispatch', 'dispatch_private') ORDER BY 1

-- name: as_owner
-- Objects belong to the owner role, also with another login; a statement that waits for a lock holds up inserts for two seconds at most.
SET LOCAL ROLE dispatch_owner;
SET LOCAL search_path = dispatch_private, pg_temp;
SET LOCAL lock_timeout = '2s'

-- name: lock_tables
-- Locks every table and view of ours, or none: others wait for half a second at most. That is less than deadlock_timeout, so that nobody who waits for one of them is told of a deadlock. The weaker lock before it stops only a vacuum; an autovacuum ends for whoever waits longer than deadlock_timeout.
DO $lock$
DECLARE
    names text;
BEGIN
    SELECT string_agg(oid::regclass::text, ', ' ORDER BY relkind DESC, relname) INTO names FROM pg_class
    WHERE relnamespace IN (SELECT oid FROM pg_namespace WHERE nspname IN ('dispatch', 'dispatch_private')) AND relkind IN ('r', 'v');
    IF names IS NOT NULL THEN
        EXECUTE format('LOCK TABLE %s IN SHARE UPDATE EXCLUSIVE MODE', names);
        SET LOCAL lock_timeout = '500ms';
        EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', names);
        SET LOCAL lock_timeout = '2s';
    END IF;
END
$lock$

-- name: record
-- Records an applied file. $1 int version, $2 text name, $3 text checksum.
INSERT INTO dispatch_private.schema_version (version, name, checksum, database_id)
VALUES ($1, $2, $3, coalesce((SELECT database_id FROM dispatch_private.schema_version LIMIT 1), gen_random_uuid()))

-- name: forget_earlier
-- Forgets the versions before one that stands for them all. $1 int version.
DELETE FROM dispatch_private.schema_version WHERE version < $1

-- name: has_functions
-- Whether functions were applied here.
SELECT to_regclass('dispatch_private.applied_functions') IS NOT NULL

-- name: applied_functions
-- The files of functions, and the reasons, as they were applied.
SELECT name, checksum FROM dispatch_private.applied_functions

-- name: record_functions
-- Records the files of functions. $1 text[] names, $2 text[] checksums.
WITH gone AS (DELETE FROM dispatch_private.applied_functions WHERE name <> ALL ($1::text[]))
INSERT INTO dispatch_private.applied_functions (name, checksum) SELECT * FROM unnest($1::text[], $2::text[])
ON CONFLICT (name) DO UPDATE SET checksum = excluded.checksum, applied_at = now()
WHERE applied_functions.checksum <> excluded.checksum

-- name: reasons
-- Brings the rows of dispatch.reasons in step with the code. $1 jsonb list of objects with columns of the table.
WITH told AS (
    SELECT * FROM jsonb_to_recordset($1::jsonb) AS one (reason text, whose_turn text, meaning text, next_step text)
), gone AS (DELETE FROM dispatch_private.reasons WHERE reason NOT IN (SELECT reason FROM told))
INSERT INTO dispatch_private.reasons (reason, whose_turn, meaning, next_step)
SELECT reason, whose_turn, meaning, next_step FROM told
ON CONFLICT (reason) DO UPDATE
    SET whose_turn = excluded.whose_turn, meaning = excluded.meaning, next_step = excluded.next_step

-- name: cancel_calls
-- Ends calls of containers that wait for this upgrade, as far as the login may. Their functions of before would fail for what is not there any more. A cancelled call is asked again.
RESET ROLE;
SELECT pg_cancel_backend(pid) FROM pg_stat_activity
WHERE usesysid IN (SELECT member FROM pg_auth_members WHERE roleid = 'dispatch_task'::regrole)
  AND (pg_has_role(usesysid, 'USAGE') OR pg_has_role('pg_signal_backend', 'USAGE'))
  AND pg_backend_pid() = ANY (pg_blocking_pids(pid))

-- name: queues
-- Declares the queues that are missing, and returns their names. A queue that exists keeps all its values: an operator may have changed them. The two that a migration has made, `*` and `default`, take the declared values if nobody has written their rows since. A restore in one transaction gives all rows one xmin, so values that somebody has set tell it, too. $1 jsonb list of objects with columns of the table.
INSERT INTO dispatch_private.queues AS q (name, weight, max_jobs, max_jobs_per_submitter, max_pending, paused_until, owner_role,
                             submit_role, max_waiting_per_submitter, note, fair_submitters)
SELECT name, coalesce(weight, 1), max_jobs, max_jobs_per_submitter, max_pending, paused_until, owner_role,
       submit_role, max_waiting_per_submitter, note, coalesce(fair_submitters, false)
FROM jsonb_to_recordset($1::jsonb) AS declared (
    name text, weight integer, max_jobs integer, max_jobs_per_submitter integer, max_pending integer,
    paused_until timestamptz, owner_role name, submit_role name, max_waiting_per_submitter integer, note text,
    fair_submitters boolean
)
ON CONFLICT (name) DO UPDATE
SET (weight, max_jobs, max_jobs_per_submitter, max_pending, paused_until, owner_role, submit_role, max_waiting_per_submitter, note, fair_submitters)
  = ROW (excluded.weight, excluded.max_jobs, excluded.max_jobs_per_submitter, excluded.max_pending, excluded.paused_until, excluded.owner_role,
         excluded.submit_role, excluded.max_waiting_per_submitter, coalesce(excluded.note, q.note), excluded.fair_submitters)
WHERE q.name IN ('*', 'default') AND q.xmin = (SELECT v.xmin FROM dispatch_private.schema_version AS v WHERE v.version = 27)
  AND q.weight = 1 AND NOT q.fair_submitters AND num_nonnulls(q.max_jobs, q.max_jobs_per_submitter, q.max_pending, q.paused_until, q.owner_role, q.submit_role, q.max_waiting_per_submitter) = 0
RETURNING name
