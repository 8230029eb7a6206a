-- The first due waiting rows of each queue; columns in the order of model.tasks.IndexedRow. $1 text[] queues, $2 int[] most rows of each, $3 timestamptz now.
SELECT head.id, head.attempt, head.priority, q.name AS queue, head.kind, head.submitted_by
FROM unnest($1::text[], $2::int[]) AS q(name, most)
CROSS JOIN LATERAL (
    (SELECT id, attempt, priority, kind, submitted_by FROM dispatch.tasks
     WHERE status = 'waiting' AND run_at IS NULL AND queue = q.name
     ORDER BY priority, id LIMIT q.most)
    UNION ALL
    (SELECT id, attempt, priority, kind, submitted_by FROM dispatch.tasks
     WHERE status = 'waiting' AND run_at IS NOT NULL AND run_at <= $3 AND queue = q.name
     ORDER BY run_at, id LIMIT q.most)
) AS head
