-- Where cache keys succeeded: for launches, explanations, the usage of tasks and the page of the nodes.

-- name: histories
-- The last nodes where each queue's cache key succeeded, newest first, and how long ago (s). $1 text[] queues, $2 text[] cache keys, $3 int nodes.
SELECT wanted.queue, wanted.cache_key, found.nodes, found.ages
FROM unnest($1::text[], $2::text[]) AS wanted (queue, cache_key)
CROSS JOIN LATERAL (
    WITH RECURSIVE step (nodes, finished_at, ages) AS (
        SELECT '{}'::text[], 'infinity'::timestamptz, '{}'::text[]
        UNION ALL
        SELECT step.nodes || newest.node_name, newest.finished_at,
            step.ages || extract(epoch FROM now() - newest.finished_at)::text
        FROM step
        CROSS JOIN LATERAL (
            SELECT recent.node_name, recent.finished_at
            FROM (
                SELECT node_name, finished_at FROM dispatch_private.tasks
                WHERE status = 'succeeded' AND queue = wanted.queue AND cache_key = wanted.cache_key
                    AND finished_at <= step.finished_at
                ORDER BY finished_at DESC LIMIT 1000
            ) AS recent
            WHERE recent.node_name <> ALL (step.nodes) AND recent.node_name <> ''
            ORDER BY recent.finished_at DESC LIMIT 1
        ) AS newest
        WHERE cardinality(step.nodes) < $3::int
    )
    SELECT nodes, ages FROM step ORDER BY cardinality(nodes) DESC LIMIT 1
) AS found
WHERE found.nodes <> '{}'

-- name: runs
-- The newest successful runs of each queue's cache key. $1 text[] queues, $2 text[] cache keys, $3 int most runs.
SELECT wanted.queue, wanted.cache_key, run.pod_name, run.started_at, run.finished_at
FROM unnest($1::text[], $2::text[]) AS wanted (queue, cache_key)
CROSS JOIN LATERAL (
    SELECT pod_name, started_at, finished_at FROM dispatch_private.tasks
    WHERE status = 'succeeded' AND queue = wanted.queue AND cache_key = wanted.cache_key
    ORDER BY finished_at DESC LIMIT $3::int
) AS run
WHERE run.pod_name <> '' AND run.started_at < run.finished_at

-- name: warm_keys
-- Number of different cache keys that succeeded on each of these nodes, by queue, of the newest ends of all rows. $1 text[] nodes, $2 int most ends.
SELECT node_name, queue, count(DISTINCT cache_key)::int AS keys
FROM (SELECT node_name, queue, cache_key, status FROM dispatch_private.tasks
      WHERE finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT $2) AS newest
WHERE status = 'succeeded' AND cache_key IS NOT NULL AND node_name = ANY ($1::text[])
GROUP BY node_name, queue ORDER BY node_name, queue
