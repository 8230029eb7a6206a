-- Percentiles 50, 90 and 99 of wait and run time in seconds, of the rows of a queue that ended last and had started. The wait begins when the row is due, and is known of a first launch. $1 text queue, $2 int most rows.
SELECT count(run)::int AS runs, percentile_disc(ARRAY[0.5, 0.9, 0.99]) WITHIN GROUP (ORDER BY run) AS run,
       count(wait)::int AS waits, percentile_disc(ARRAY[0.5, 0.9, 0.99]) WITHIN GROUP (ORDER BY wait) AS wait
FROM (SELECT extract(epoch FROM finished_at - started_at)::float8 AS run,
             CASE WHEN launch = 1 AND (attempt = 1 OR run_at IS NOT NULL)
                  THEN extract(epoch FROM started_at - greatest(created_at, run_at))::float8 END AS wait
      FROM (SELECT attempt, launch, created_at, run_at, started_at, finished_at
            FROM dispatch.tasks WHERE queue = $1 AND finished_at IS NOT NULL AND status IN ('succeeded', 'failed', 'cancelled')
            ORDER BY finished_at DESC LIMIT $2) AS newest
      WHERE launch > 0 AND started_at IS NOT NULL) AS times
