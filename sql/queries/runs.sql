-- The newest successful runs of each queue's cache key. $1 text[] queues, $2 text[] cache keys, $3 int most runs.
SELECT wanted.queue, wanted.cache_key, run.pod_name, run.started_at, run.finished_at
FROM unnest($1::text[], $2::text[]) AS wanted (queue, cache_key)
CROSS JOIN LATERAL (
    SELECT pod_name, started_at, finished_at FROM dispatch.tasks
    WHERE status = 'succeeded' AND queue = wanted.queue AND cache_key = wanted.cache_key
    ORDER BY finished_at DESC LIMIT $3::int
) AS run
WHERE run.pod_name <> '' AND run.started_at < run.finished_at
