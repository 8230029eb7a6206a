-- Starts of a queue in the last hour, newest first, and the kind of each row; NULL: the row was deleted. $1 text queue, $2 timestamptz now, $3 int most.
SELECT l.started_at, t.kind
FROM (SELECT task_id, started_at FROM dispatch.task_launches
      WHERE queue = $1 AND started_at > $2::timestamptz - interval '1 hour'
      ORDER BY started_at DESC LIMIT $3) AS l
LEFT JOIN dispatch.tasks AS t ON t.id = l.task_id
