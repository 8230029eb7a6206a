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
                SELECT node_name, finished_at FROM dispatch.tasks
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
