-- The columns that the demo shows of each row. A long result is left out.
SELECT id, queue, status, attempt, error, node_name, progress, note,
       cancel_requested_at IS NOT NULL AS is_stopping, now() AS seen_at,
       CASE WHEN length(result::text) < 2000 THEN result::text END AS result,
       extract(epoch FROM coalesce(finished_at, now()) - started_at)::float8 AS seconds
  FROM dispatch.tasks
 ORDER BY id
