-- The newest launches of a row. $1 bigint id, $2 int most.
SELECT attempt, launch, pod_name, node_name, started_at, ended_at, outcome, exit_code, reason, error
FROM dispatch.task_launches WHERE task_id = $1 ORDER BY attempt DESC, launch DESC LIMIT $2
