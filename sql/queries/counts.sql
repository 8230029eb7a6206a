-- Number of waiting rows of each queue, since when its oldest due row waits, and starts and ends of the last five minutes; columns in the order of model.tasks.QueueCount. Ids are in the order of their inserts, so the lowest id is the oldest row. $1 timestamptz now.
SELECT q.name AS queue, (ready.n + late.n)::int AS due, early.n::int AS not_due,
       least((SELECT created_at FROM dispatch.tasks WHERE id = ready.first), late.first) AS oldest, q.note,
       begun.n::int AS starts, coalesce(ended.n, 0)::int AS ends
FROM dispatch.queues AS q
CROSS JOIN LATERAL (SELECT count(*) AS n, min(id) AS first FROM dispatch.tasks
                    WHERE status = 'waiting' AND run_at IS NULL AND queue = q.name) AS ready
CROSS JOIN LATERAL (SELECT count(*) AS n, min(run_at) AS first FROM dispatch.tasks
                    WHERE status = 'waiting' AND run_at IS NOT NULL AND run_at <= $1 AND queue = q.name) AS late
CROSS JOIN LATERAL (SELECT count(*) AS n FROM dispatch.tasks
                    WHERE status = 'waiting' AND run_at IS NOT NULL AND run_at > $1 AND queue = q.name) AS early
CROSS JOIN LATERAL (SELECT count(*) AS n FROM dispatch.task_launches
                    WHERE queue = q.name AND started_at > $1 - interval '5 min') AS begun
LEFT JOIN (SELECT queue, count(*) AS n FROM dispatch.tasks
           WHERE finished_at > $1 - interval '5 min' GROUP BY queue) AS ended ON ended.queue = q.name
WHERE q.name <> '*'
ORDER BY q.name
