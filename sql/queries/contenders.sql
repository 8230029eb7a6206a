-- Rows that may be launched in this cycle: their state, and the columns that their Jobs are made from. $1 bigint[] ids.
SELECT id, queue, priority, run_at, timeout_seconds, max_failures, template, status, attempt, launch, failures, job_uid,
       submitted_by, created_at, started_at, heartbeat_at, finished_at, cancel_requested_at, kind,
       env::text AS env, spec::text AS spec, cache_key
FROM dispatch.tasks WHERE id = ANY ($1::bigint[])
