-- Rows of batches by status. Columns in the order of model.history.BatchCount. $1 text[] queues, $2 text[] submitters, $3 text batch, $4 int most rows to count of each.
SELECT o.queue, o.submitted_by, $3 AS batch, least(counted.tasks, $4) AS tasks, counted.waiting, counted.processing,
       counted.succeeded, counted.failed, counted.cancelled, counted.first_started_at, counted.last_finished_at,
       counted.tasks <= $4 AS is_whole
FROM unnest($1::text[], $2::text[]) AS o (queue, submitted_by)
CROSS JOIN LATERAL (
    SELECT count(*)::int AS tasks,
           (count(*) FILTER (WHERE status = 'waiting'))::int AS waiting,
           (count(*) FILTER (WHERE status = 'processing'))::int AS processing,
           (count(*) FILTER (WHERE status = 'succeeded'))::int AS succeeded,
           (count(*) FILTER (WHERE status = 'failed'))::int AS failed,
           (count(*) FILTER (WHERE status = 'cancelled'))::int AS cancelled,
           min(started_at) AS first_started_at, max(finished_at) AS last_finished_at
    FROM (SELECT status, started_at, finished_at FROM dispatch.tasks
          WHERE queue = o.queue AND batch = $3 AND submitted_by = o.submitted_by LIMIT $4 + 1) AS each
) AS counted
ORDER BY o.queue, o.submitted_by
