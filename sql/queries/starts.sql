-- Starts of a queue in the last hour, newest first, and whether each row was of the same kind. $1 text queue, $2 timestamptz now, $3 bytea kind, $4 int most.
SELECT l.started_at, coalesce(t.kind = $3, false) AS is_alike
FROM (SELECT task_id, started_at FROM dispatch.task_launches
      WHERE queue = $1 AND started_at > $2::timestamptz - interval '1 hour'
      ORDER BY started_at DESC LIMIT $4) AS l
LEFT JOIN dispatch.tasks AS t ON t.id = l.task_id
