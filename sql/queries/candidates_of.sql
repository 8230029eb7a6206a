-- The first due waiting rows of each submitter in a queue; columns in the order of model.tasks.IndexedRow. $1 text[] queues, $2 text[] submitters, $3 int[] most rows of each, $4 timestamptz now.
SELECT head.id, head.attempt, head.priority, q.name AS queue, head.kind, q.submitted_by
FROM unnest($1::text[], $2::text[], $3::int[]) AS q(name, submitted_by, most)
CROSS JOIN LATERAL (
    (SELECT id, attempt, priority, kind FROM dispatch.tasks
     WHERE status = 'waiting' AND run_at IS NULL AND queue = q.name AND submitted_by = q.submitted_by
     ORDER BY priority, id LIMIT q.most)
    UNION ALL
    (SELECT id, attempt, priority, kind FROM dispatch.tasks
     WHERE status = 'waiting' AND run_at IS NOT NULL AND run_at <= $4 AND queue = q.name AND submitted_by = q.submitted_by
     ORDER BY run_at, id LIMIT q.most)
) AS head
