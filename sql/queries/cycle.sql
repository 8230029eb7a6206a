-- What the dispatcher asks in its cycles, in one read-only snapshot of the primary. The janitor asks some of it, too.

-- name: frame
-- First statement of every look: takes the snapshot, tells whether decisions may use it, and gives its frame. The frame is: the declared queues (a few hundred rows at most), the rows that a container holds or held, in no order, and the time at which the next row becomes due. A held row whose Job is gone must be launched again. $1 text[] needed indexes, $2 int most held rows, $3 int newest migration that this program knows.
SELECT pg_is_in_recovery() AS in_recovery, statement_timestamp() AS now, version, database_id::text AS database_id,
       ARRAY(SELECT name FROM unnest($1::text[]) AS name
             WHERE (SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('dispatch_private.' || name)) IS NOT TRUE
       ) AS missing_indexes,
       ARRAY(SELECT name FROM dispatch_private.schema_version WHERE version > $3 ORDER BY version) AS newer,
       ( -- a pause without end is cut to what a client can hold
         SELECT coalesce(json_agg(q), '[]')::text
         FROM (SELECT name, weight, max_jobs, max_jobs_per_submitter, max_pending, fair_submitters,
                      CASE WHEN paused_until > '9999-12-31 UTC' THEN '9999-12-31 UTC'
                           WHEN paused_until > '1900-01-01 UTC' THEN paused_until END AS paused_until
               FROM dispatch_private.queues) AS q
       ) AS queues,
       ARRAY(SELECT id FROM dispatch_private.tasks WHERE status = 'processing' LIMIT $2) AS held,
       (SELECT min(head.run_at)
        FROM dispatch_private.queues AS q
        CROSS JOIN LATERAL (
            SELECT run_at FROM dispatch_private.tasks
            WHERE status = 'waiting' AND run_at IS NOT NULL AND run_at > statement_timestamp() AND queue = q.name
            ORDER BY run_at LIMIT 1
        ) AS head
       ) AS next_due,
       dispatch_private.tasks_refused() AS tasks_refused -- why launches would be in vain
FROM dispatch_private.schema_version ORDER BY version DESC LIMIT 1

-- name: submitters
-- Submitters with waiting rows in each queue. The query skips through two indexes, from one submitter to the next. $1 text[] queues; NULL: every one. $2 int most submitters of each.
SELECT q.name AS queue, found.submitted_by
FROM unnest(coalesce($1::text[], ARRAY(SELECT name FROM dispatch_private.queues))) AS q(name)
CROSS JOIN LATERAL (
    WITH RECURSIVE step (submitted_by) AS (
        SELECT ''
        UNION ALL
        SELECT least((SELECT t.submitted_by FROM dispatch_private.tasks AS t
                      WHERE t.status = 'waiting' AND t.run_at IS NULL AND t.queue = q.name AND t.submitted_by > step.submitted_by
                      ORDER BY t.submitted_by LIMIT 1),
                     (SELECT t.submitted_by FROM dispatch_private.tasks AS t
                      WHERE t.status = 'waiting' AND t.run_at IS NOT NULL AND t.queue = q.name AND t.submitted_by > step.submitted_by
                      ORDER BY t.submitted_by LIMIT 1))
        FROM step WHERE step.submitted_by IS NOT NULL
    )
    SELECT submitted_by FROM step WHERE submitted_by <> '' LIMIT $2
) AS found

-- name: candidates_of
-- The first due waiting rows of each submitter in a queue; columns in the order of model.tasks.IndexedRow. $1 text[] queues, $2 text[] submitters, $3 int[] most rows of each, $4 timestamptz now.
SELECT head.id, head.attempt, head.priority, q.name AS queue, head.kind, q.submitted_by
FROM unnest($1::text[], $2::text[], $3::int[]) AS q(name, submitted_by, most)
CROSS JOIN LATERAL (
    (SELECT id, attempt, priority, kind FROM dispatch_private.tasks
     WHERE status = 'waiting' AND run_at IS NULL AND queue = q.name AND submitted_by = q.submitted_by
     ORDER BY priority, id LIMIT q.most)
    UNION ALL
    (SELECT id, attempt, priority, kind FROM dispatch_private.tasks
     WHERE status = 'waiting' AND run_at IS NOT NULL AND run_at <= $4 AND queue = q.name AND submitted_by = q.submitted_by
     ORDER BY run_at, id LIMIT q.most)
) AS head

-- name: kinds
-- The part of rows that a template's bounds are checked against, from one row of each kind. $1 bigint[] ids.
SELECT kind, template, timeout_seconds, CASE jsonb_typeof(spec) WHEN 'object' THEN (spec - 'command' - 'args')::text END AS spec,
       ARRAY(SELECT jsonb_object_keys(CASE jsonb_typeof(spec) WHEN 'object' THEN spec END)) AS spec_names,
       ARRAY(SELECT jsonb_object_keys(CASE jsonb_typeof(env) WHEN 'object' THEN env END)) AS env_names,
       jsonb_typeof(spec) = 'object' AND jsonb_typeof(env) = 'object' AS are_objects
FROM dispatch_private.tasks WHERE id = ANY ($1::bigint[])

-- name: tasks
-- State of rows, without the columns that only their containers need. $1 bigint[] ids.
SELECT id, queue, priority, run_at, timeout_seconds, max_failures, template, status, attempt, launch, failures, job_uid,
       pod_name, submitted_by, created_at, started_at, heartbeat_at, finished_at, cancel_requested_at, kind, second_process
FROM dispatch_private.tasks WHERE id = ANY ($1::bigint[])

-- name: candidates
-- The first due waiting rows of each queue; columns in the order of model.tasks.IndexedRow. $1 text[] queues, $2 int[] most rows of each, $3 timestamptz now.
SELECT head.id, head.attempt, head.priority, q.name AS queue, head.kind, head.submitted_by
FROM unnest($1::text[], $2::int[]) AS q(name, most)
CROSS JOIN LATERAL (
    (SELECT id, attempt, priority, kind, submitted_by FROM dispatch_private.tasks
     WHERE status = 'waiting' AND run_at IS NULL AND queue = q.name
     ORDER BY priority, id LIMIT q.most)
    UNION ALL
    (SELECT id, attempt, priority, kind, submitted_by FROM dispatch_private.tasks
     WHERE status = 'waiting' AND run_at IS NOT NULL AND run_at <= $3 AND queue = q.name
     ORDER BY run_at, id LIMIT q.most)
) AS head

-- name: contenders
-- State of rows, as tasks, and the columns that their Jobs are made from. $1 bigint[] ids.
SELECT id, queue, priority, run_at, timeout_seconds, max_failures, template, status, attempt, launch, failures, job_uid,
       pod_name, submitted_by, created_at, started_at, heartbeat_at, finished_at, cancel_requested_at, kind, second_process,
       env::text AS env, spec::text AS spec, cache_key
FROM dispatch_private.tasks WHERE id = ANY ($1::bigint[])

-- name: statuses
-- The status and the attempt of rows. $1 bigint[] ids.
SELECT id, status, attempt FROM dispatch_private.tasks WHERE id = ANY ($1::bigint[])

-- name: start_secret
-- The secret that start keys are derived from, as the two blocks of an HMAC key.
SELECT start_inner, start_outer FROM dispatch_private.secrets ORDER BY generation DESC LIMIT 1

-- name: ping
-- A sign of life of the listening session.
SELECT 1
