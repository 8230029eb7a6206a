-- When the next row with a time becomes due. $1 text[] queues, $2 timestamptz now.
SELECT min(head.run_at) AS run_at
FROM unnest($1::text[]) AS q(name)
CROSS JOIN LATERAL (
    SELECT run_at FROM dispatch.tasks
    WHERE status = 'waiting' AND run_at IS NOT NULL AND run_at > $2 AND queue = q.name
    ORDER BY run_at LIMIT 1
) AS head
