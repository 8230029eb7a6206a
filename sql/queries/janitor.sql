-- The calls of the janitor, and the queries that only it may run.

-- name: oldest_snapshot
-- The holder of the oldest dead rows, and what ends it. This session and those that vacuum hold none. A snapshot of this database or of a standby holds rows. An open or prepared transaction of any database does, too: every later snapshot is as old. A replication slot holds rows, and a worker of the server that runs a function of an index for ANALYZE. The column dead: rows that a VACUUM of the last 15 minutes has left, if they are more than twice as many as autovacuum waits for.
WITH holder AS (
    SELECT pid, coalesce(usename::text, 'a worker of the server') AS login, backend_xid AS own, CASE WHEN datname = current_database() OR datname IS NULL THEN backend_xmin END AS seen,
           format('pg_terminate_backend(%s)', pid) AS next_step
    FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND pid NOT IN (SELECT v.pid FROM pg_stat_progress_vacuum AS v)
    UNION ALL SELECT 0, owner::text, transaction, NULL, format('ROLLBACK PREPARED %L', gid) FROM pg_prepared_xacts
    UNION ALL SELECT 0, 'a replication slot', NULL, xmin, format('pg_drop_replication_slot(%L)', slot_name) FROM pg_replication_slots
)
SELECT pid, login, (CASE WHEN age(own) >= coalesce(age(seen), 0) THEN own ELSE seen END)::text AS oldest, next_step,
       greatest(age(own), age(seen)) AS transactions,
       (SELECT s.n_dead_tup FROM pg_stat_all_tables AS s WHERE s.schemaname = 'dispatch_private' AND s.relname = 'tasks'
        AND s.n_dead_tup > 20000 + (SELECT greatest(c.reltuples, 0) FROM pg_class AS c WHERE c.oid = s.relid) / 50
        AND greatest(s.last_vacuum, s.last_autovacuum) > now() - interval '15 min') AS dead
FROM holder WHERE own IS NOT NULL OR seen IS NOT NULL
ORDER BY transactions DESC, own IS NOT NULL DESC, pid LIMIT 1

-- name: run_digests
-- Digest of the run token that holds each row. The janitor's calls name it, so that they never hit the next run. $1 bigint[] ids.
SELECT id, run_digest FROM dispatch_private.tasks WHERE id = ANY ($1::bigint[]) AND status = 'processing'

-- name: return
-- Returns a run whose container is gone. $1 bigint id, $2 int attempt, $3 int launch, $4 bytea digest of the run's token, $5 int failures, $6 text error.
SELECT dispatch_private.janitor_return($1, $2, $3, $4, $5, $6)

-- name: end
-- Ends a parked row, or a row whose Job's exit code is its report; outcome retry: the next attempt, while failures are left. $1 bigint id, $2 int attempt, $3 int launch, $4 text UID of the Job judged, $5 text outcome, $6 text error.
SELECT dispatch_private.janitor_end($1, $2, $3, $4, $5, $6)

-- name: cancel
-- Ends a cancelled run whose container is gone. $1 bigint id, $2 int attempt, $3 bytea digest of the run's token.
SELECT dispatch_private.janitor_cancel($1, $2, $3)

-- name: with_cause
-- The given launches whose end is known. Each is looked up alone: a container may have started its row as 32,767 launches. $1 bigint[] tasks, $2 int[] attempts, $3 int[] launches.
SELECT l.task_id, l.attempt, l.launch FROM unnest($1::bigint[], $2::int[], $3::int[]) AS one (task, attempt, launch)
CROSS JOIN LATERAL (SELECT each.task_id, each.attempt, each.launch, each.reason FROM dispatch_private.task_launches AS each
                    WHERE each.task_id = one.task AND each.attempt = one.attempt AND each.launch = one.launch LIMIT 1) AS l
WHERE l.reason IS NOT NULL

-- name: ended
-- Writes down what ended launches. $1 text ends (JSON).
SELECT dispatch_private.janitor_ended($1::jsonb)

-- name: told
-- The reasons of single rows that were brought over. $1 int most.
SELECT task_id, attempt, reason, since, message FROM dispatch_private.task_reasons LIMIT $1

-- name: tell
-- Brings reasons over. $1 text report (JSON).
SELECT dispatch_private.janitor_tell($1::jsonb)

-- name: templates
-- Brings the table `templates` in step. $1 text templates (JSON array), $2 boolean whether others are deleted.
SELECT dispatch_private.janitor_templates($1::jsonb, $2)

-- name: old
-- Number of rows that a deletion would take, counted up to one batch. $1 int days, $2 int most rows.
SELECT count(*) FROM (
    SELECT FROM dispatch_private.tasks WHERE finished_at < now() - make_interval(days => $1) LIMIT $2
) AS old

-- name: delete
-- Deletes rows that ended more than $1 days ago, and the oids of roles that are gone. $1 int days, $2 int most rows, $3 text[] ids that stay. asyncpg would ask the server about an array of another type.
SELECT deleted, kept::text[], why FROM dispatch_private.janitor_delete($1, $2, $3::text[]::bigint[])
