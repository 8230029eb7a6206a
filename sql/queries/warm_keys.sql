-- Number of different cache keys that succeeded on each of these nodes, by queue, of the newest ends of all rows. $1 text[] nodes, $2 int most ends.
SELECT node_name, queue, count(DISTINCT cache_key)::int AS keys
FROM (SELECT node_name, queue, cache_key, status FROM dispatch.tasks
      WHERE finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT $2) AS newest
WHERE status = 'succeeded' AND cache_key IS NOT NULL AND node_name = ANY ($1::text[])
GROUP BY node_name, queue ORDER BY node_name, queue
