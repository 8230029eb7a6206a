-- Number of waiting rows of each queue, and since when its oldest due row waits; columns in the order of model.tasks.QueueCount. Ids are in the order of their inserts, so the lowest id is the oldest row. $1 timestamptz now.
SELECT q.name AS queue, (ready.n + late.n)::int AS due, early.n::int AS not_due,
       least((SELECT created_at FROM dispatch.tasks WHERE id = ready.first), late.first) AS oldest, q.note
FROM dispatch.queues AS q
CROSS JOIN LATERAL (SELECT count(*) AS n, min(id) AS first FROM dispatch.tasks
                    WHERE status = 'waiting' AND run_at IS NULL AND queue = q.name) AS ready
CROSS JOIN LATERAL (SELECT count(*) AS n, min(run_at) AS first FROM dispatch.tasks
                    WHERE status = 'waiting' AND run_at IS NOT NULL AND run_at <= $1 AND queue = q.name) AS late
CROSS JOIN LATERAL (SELECT count(*) AS n FROM dispatch.tasks
                    WHERE status = 'waiting' AND run_at IS NOT NULL AND run_at > $1 AND queue = q.name) AS early
WHERE q.name <> '*'
ORDER BY q.name
