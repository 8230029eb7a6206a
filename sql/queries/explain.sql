-- What the explanation and the page of one row read.

-- name: line
-- Place of a waiting row in its queue: due rows that come first by priority and id, those of them that are of the same kind, and all due rows of the queue. Each count stops at $5. The orders name the index to be read. $1 text queue, $2 smallint priority, $3 bigint id, $4 timestamptz now, $5 int most, $6 bytea kind.
SELECT least(count(*) FILTER (WHERE (priority, id) < ($2, $3)), $5)::int AS before, least(count(*), $5)::int AS of,
       (count(*) FILTER (WHERE (priority, id) < ($2, $3) AND kind = $6))::int AS alike
FROM (
    (SELECT priority, id, kind FROM dispatch_private.tasks
     WHERE status = 'waiting' AND run_at IS NULL AND queue = $1
     ORDER BY priority, id LIMIT $5)
    UNION ALL
    (SELECT priority, id, kind FROM dispatch_private.tasks
     WHERE status = 'waiting' AND run_at IS NOT NULL AND run_at <= $4 AND queue = $1
     ORDER BY run_at, id LIMIT $5)
) AS due

-- name: starts
-- Starts of a queue in the last hour, newest first, each with the kind, priority and id of its row; NULL: the row was deleted. $1 text queue, $2 timestamptz now, $3 int most.
SELECT l.started_at, t.kind, t.priority, t.id
FROM (SELECT task_id, started_at FROM dispatch_private.task_launches
      WHERE queue = $1 AND started_at > $2::timestamptz - interval '1 hour'
      ORDER BY started_at DESC LIMIT $3) AS l
LEFT JOIN dispatch_private.tasks AS t ON t.id = l.task_id

-- name: launches
-- The newest launches of a row. $1 bigint id, $2 int most.
SELECT attempt, launch, pod_name AS pod, node_name AS node, started_at, ended_at, outcome, exit_code, reason, error
FROM dispatch_private.task_launches WHERE task_id = $1 ORDER BY attempt DESC, launch DESC LIMIT $2

-- name: marks
-- Batch, labels, progress, note and error of one row. $1 bigint id.
SELECT batch, labels::text AS labels, progress, note, error FROM dispatch_private.tasks WHERE id = $1
