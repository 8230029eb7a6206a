-- What frames a look: the declared queues (a few hundred rows at most), rows that a container holds or held (one whose Job is gone must be launched again), and when the next row with a time becomes due. $1 int held rows at most, $2 timestamptz now.
SELECT ( -- a pause without end is cut to what a client can hold
         SELECT coalesce(json_agg(q), '[]')::text
         FROM (SELECT name, weight, max_jobs, max_jobs_per_submitter, max_pending,
                      CASE WHEN paused_until > '9999-12-31 UTC' THEN '9999-12-31 UTC'
                           WHEN paused_until > '1900-01-01 UTC' THEN paused_until END AS paused_until
               FROM dispatch.queues) AS q
       ) AS queues,
       ARRAY(SELECT id FROM dispatch.tasks WHERE status = 'processing' ORDER BY id LIMIT $1) AS held,
       (SELECT min(head.run_at)
        FROM dispatch.queues AS q
        CROSS JOIN LATERAL (
            SELECT run_at FROM dispatch.tasks
            WHERE status = 'waiting' AND run_at IS NOT NULL AND run_at > $2 AND queue = q.name
            ORDER BY run_at LIMIT 1
        ) AS head
       ) AS next_due
