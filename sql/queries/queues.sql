-- The overview, the page of a queue, and the templates, in the dashboard and its API.

-- name: counts
-- Number of waiting rows of each queue, and of at most 100 undeclared ones, since when its oldest due row waits, and starts and ends of the last five minutes; columns in the order of model.tasks.QueueCount. Ids are in the order of their inserts, so the lowest id is the oldest row. Nothing tells since when a row waits that somebody has retried. $1 timestamptz now, $2 bigint[] rows whose containers run: they count, but wait for nothing.
WITH RECURSIVE named (name) AS ( -- from one queue with rows to the next, through the index
    (SELECT queue FROM dispatch_private.tasks WHERE status = 'waiting' AND run_at IS NULL ORDER BY queue LIMIT 1)
    UNION ALL
    SELECT (SELECT t.queue FROM dispatch_private.tasks AS t
            WHERE t.status = 'waiting' AND t.run_at IS NULL AND t.queue > named.name ORDER BY t.queue LIMIT 1)
    FROM named WHERE named.name IS NOT NULL
)
SELECT q.name AS queue, (ready.n + late.n)::int AS due, early.n::int AS not_due,
       least((SELECT created_at FROM dispatch_private.tasks WHERE id = ready.first), late.first) AS oldest, q.note,
       begun.n::int AS starts, coalesce(ended.n, 0)::int AS ends
FROM (SELECT name, note FROM dispatch_private.queues WHERE name <> '*'
      UNION ALL
      (SELECT name, NULL FROM named WHERE name NOT IN (SELECT name FROM dispatch_private.queues WHERE name <> '*') LIMIT 100)) AS q
CROSS JOIN LATERAL (SELECT count(*) AS n, min(id) FILTER (WHERE attempt = 1 AND id NOT IN (SELECT unnest($2::bigint[]))) AS first
                    FROM dispatch_private.tasks
                    WHERE status = 'waiting' AND run_at IS NULL AND queue = q.name) AS ready
CROSS JOIN LATERAL (SELECT count(*) AS n, min(greatest(run_at, created_at)) FILTER (WHERE id NOT IN (SELECT unnest($2::bigint[]))) AS first
                    FROM dispatch_private.tasks
                    WHERE status = 'waiting' AND run_at IS NOT NULL AND run_at <= $1 AND queue = q.name) AS late
CROSS JOIN LATERAL (SELECT count(*) AS n FROM dispatch_private.tasks
                    WHERE status = 'waiting' AND run_at IS NOT NULL AND run_at > $1 AND queue = q.name) AS early
CROSS JOIN LATERAL (SELECT count(*) AS n FROM dispatch_private.task_launches
                    WHERE queue = q.name AND started_at > $1 - interval '5 min') AS begun
LEFT JOIN (SELECT queue || '' AS queue, count(*) AS n FROM dispatch_private.tasks -- no index has this order: it would be read whole
           WHERE finished_at > $1 - interval '5 min' GROUP BY queue || '') AS ended ON ended.queue = q.name
ORDER BY q.name

-- name: ends
-- Number of rows that ended in a time, by queue and status; columns in the order of model.tasks.EndCount. $1 timestamptz since, $2 timestamptz until.
SELECT queue, status, count(*)::int AS rows FROM dispatch_private.tasks WHERE finished_at >= $1 AND finished_at < $2 GROUP BY queue, status

-- name: queue_settings
-- The rows of a queue and of `*`, which has the defaults: the name, then columns in the order of model.history.QueueSettings. A pause without end is cut to what a client can hold. $1 text queue.
SELECT name, weight, max_jobs, max_jobs_per_submitter, max_pending,
       CASE WHEN paused_until > '9999-12-31 UTC' THEN '9999-12-31 UTC'
            WHEN paused_until > '1900-01-01 UTC' THEN paused_until END AS paused_until,
       owner_role::text, submit_role::text, max_waiting_per_submitter, fair_submitters, left(note, 2000) AS note
FROM dispatch_private.queues WHERE name IN ($1, '*')

-- name: queue_ends
-- The rows of a queue that ended last, newest first; columns in the order of model.history.EndedTask. $1 text queue, $2 int most.
SELECT id, status, attempt, submitted_by, finished_at,
       CASE WHEN launch > 0 THEN (extract(epoch FROM finished_at) - extract(epoch FROM started_at))::float8 END AS run_seconds,
       CASE WHEN launch > 0 THEN node_name END AS node_name
FROM dispatch_private.tasks WHERE queue = $1 AND finished_at IS NOT NULL AND status IN ('succeeded', 'failed', 'cancelled')
ORDER BY finished_at DESC LIMIT $2

-- name: queue_times
-- Percentiles 50, 90 and 99 of wait and run time in seconds, of the rows of a queue that ended last and had started. The wait begins when the row is due, and is known of a first launch. An interval between far times would be out of range. $1 text queue, $2 int most rows.
SELECT count(run)::int AS runs, percentile_disc(ARRAY[0.5, 0.9, 0.99]) WITHIN GROUP (ORDER BY run) AS run,
       count(wait)::int AS waits, percentile_disc(ARRAY[0.5, 0.9, 0.99]) WITHIN GROUP (ORDER BY wait) AS wait
FROM (SELECT (extract(epoch FROM finished_at) - extract(epoch FROM started_at))::float8 AS run,
             CASE WHEN launch = 1 AND (attempt = 1 OR run_at IS NOT NULL)
                  THEN (extract(epoch FROM started_at) - extract(epoch FROM greatest(created_at, run_at)))::float8 END AS wait
      FROM (SELECT attempt, launch, created_at, run_at, started_at, finished_at
            FROM dispatch_private.tasks WHERE queue = $1 AND finished_at IS NOT NULL AND status IN ('succeeded', 'failed', 'cancelled')
            ORDER BY finished_at DESC LIMIT $2) AS newest
      WHERE launch > 0 AND started_at IS NOT NULL) AS times

-- name: templates
-- The templates by which INSERT judges rows, as the janitor has written them. No parameters.
SELECT name, row_may_set, bounds, images, machines, sets, note
FROM dispatch_private.templates
ORDER BY name
LIMIT 10000
