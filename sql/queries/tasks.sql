-- State of rows, without the columns that only their containers need. $1 bigint[] ids.
SELECT id, queue, priority, run_at, timeout_seconds, max_failures, template, status, attempt, launch, failures, job_uid,
       submitted_by, created_at, started_at, heartbeat_at, finished_at, cancel_requested_at, kind
FROM dispatch.tasks WHERE id = ANY ($1::bigint[])
