-- Batches, and the rows that failed, in the dashboard and its API.

-- name: owners_of_batch
-- Queues and submitters that have a batch of this name. The recursion skips through the index, from one submitter to the next; no other index has this order. $1 text queue, $2 text submitter; NULL: every one. $3 text batch, $4 int most.
SELECT q.name AS queue, found.submitted_by
FROM dispatch_private.queues AS q
CROSS JOIN LATERAL (
    WITH RECURSIVE owner (submitted_by) AS (
        (SELECT submitted_by FROM dispatch_private.tasks
         WHERE (queue, batch, submitted_by) >= (q.name, $3, coalesce($2::text, ''))
           AND (queue, batch) <= (q.name, $3) AND batch IS NOT NULL
         ORDER BY queue, batch, submitted_by LIMIT 1)
        UNION ALL
        SELECT (SELECT t.submitted_by FROM dispatch_private.tasks AS t
                WHERE (t.queue, t.batch, t.submitted_by) > (q.name, $3, owner.submitted_by)
                  AND (t.queue, t.batch) <= (q.name, $3) AND t.batch IS NOT NULL
                ORDER BY t.queue, t.batch, t.submitted_by LIMIT 1)
        FROM owner WHERE owner.submitted_by IS NOT NULL AND $2::text IS NULL
    )
    SELECT submitted_by FROM owner WHERE submitted_by IS NOT NULL LIMIT $4
) AS found
WHERE ($1::text IS NULL OR q.name = $1) AND ($2 IS NULL OR found.submitted_by = $2)
ORDER BY q.name, found.submitted_by LIMIT $4

-- name: batches
-- Rows of batches by status. The columns are the fields of model.history.BatchStatus, with those of by_status. $1 text[] queues, $2 text[] submitters, $3 text batch, $4 int most rows to count of each.
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
    FROM (SELECT status, started_at, finished_at FROM dispatch_private.tasks
          WHERE queue = o.queue AND batch = $3 AND submitted_by = o.submitted_by LIMIT $4 + 1) AS each
) AS counted
ORDER BY o.queue, o.submitted_by

-- name: failed
-- Rows that failed lately, the newest first. Columns in the order of model.history.FailedTask. $1 timestamptz since, $2 int most.
SELECT id, template, kind, left(spec ->> 'image', 300) AS image, finished_at AS at, left(error, 400) AS head, right(error, 400) AS tail
FROM dispatch_private.tasks WHERE status = 'failed' AND finished_at > $1 ORDER BY finished_at DESC LIMIT $2

-- name: failed_of_batch
-- As failed, of one batch. $1 text queue, $2 text batch, $3 text submitter, $4 int most, $5 int most rows to look at, the newest first. Only one index has this order, and it has the status, too.
SELECT t.id, t.template, t.kind, left(t.spec ->> 'image', 300) AS image, coalesce(t.finished_at, t.created_at) AS at, left(t.error, 400) AS head, right(t.error, 400) AS tail
FROM (SELECT id FROM (SELECT id, status FROM dispatch_private.tasks
                      WHERE (submitted_by, queue, batch) >= ($3, $1, $2) AND (submitted_by, queue, batch) <= ($3, $1, $2)
                        AND batch IS NOT NULL
                      ORDER BY submitted_by DESC, queue DESC, batch DESC, id DESC LIMIT $5) AS looked_at
      WHERE status = 'failed' LIMIT $4) AS newest
JOIN dispatch_private.tasks AS t ON t.id = newest.id

-- name: sources
-- What the Jobs of rows are made of. $1 bigint[] ids.
SELECT id, template, kind, left(spec ->> 'image', 300) AS image FROM dispatch_private.tasks WHERE id = ANY ($1::bigint[])
