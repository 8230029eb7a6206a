-- Pages of rows, in the dashboard and its API. Each index has a query of its own.

-- name: page
-- Rows by id, the newest first. Columns in the order of model.history.ListedRow. $1 bigint[] ids.
SELECT id, queue, status, attempt, priority, template, submitted_by, created_at, run_at, started_at, finished_at,
       left(error, 300) AS error, batch, progress, note
FROM dispatch_private.tasks WHERE id = ANY ($1::bigint[]) ORDER BY id DESC

-- name: newest_waiting
-- Ids of the newest waiting rows, and their number; columns in the order of model.history.RowMatches. The query reads rows without a run_at from the end of each priority of a queue, because their index has no other order of ids. The comparison of pairs and `id + 0` keep the plan from reading the primary key from its end. $1 bigint before which id, $2 text[] queues; NULL: every queue. $3 int most that are counted, $4 int most ids, $5 bool whether the rows are due; NULL: both.
WITH RECURSIVE line AS (
    SELECT name AS queue, (SELECT priority FROM dispatch_private.tasks WHERE status = 'waiting' AND run_at IS NULL AND queue = name
                           ORDER BY priority LIMIT 1) AS priority
    FROM dispatch_private.queues WHERE ($2::text[] IS NULL OR name = ANY ($2)) AND $5::bool IS DISTINCT FROM false
    UNION ALL
    SELECT queue, (SELECT priority FROM dispatch_private.tasks WHERE status = 'waiting' AND run_at IS NULL AND queue = line.queue
                   AND priority > line.priority ORDER BY priority LIMIT 1)
    FROM line WHERE priority IS NOT NULL
), found AS MATERIALIZED (
    (SELECT newest.id
     FROM line CROSS JOIN LATERAL (
         SELECT id FROM dispatch_private.tasks
         WHERE status = 'waiting' AND run_at IS NULL AND queue = line.queue
           AND priority >= line.priority AND (priority, id) < (line.priority, $1)
         ORDER BY priority DESC, id DESC LIMIT $3) AS newest)
    UNION ALL
    (SELECT id FROM dispatch_private.tasks
     WHERE status = 'waiting' AND run_at IS NOT NULL AND id + 0 < $1
       AND queue = ANY (ARRAY(SELECT name FROM dispatch_private.queues WHERE $2::text[] IS NULL OR name = ANY ($2)))
       AND ($5 IS NULL OR (run_at <= now()) = $5))
    ORDER BY id DESC LIMIT $3
)
SELECT ARRAY(SELECT id FROM found LIMIT $4) AS ids, (SELECT count(*)::int FROM found) AS matching

-- name: matching
-- Ids of the newest rows that match, and their number. Only the newest rows before $1 are looked at. looked_to: the last row that was looked at; NULL: no row was left out. Columns in the order of model.history.RowMatches. $1 bigint before which id, $2 text queue, $3 text status, $4 text submitter, $5 text batch, $6 jsonb labels, $7 text template; NULL matches every row. $8 int most that match, $9 int ids of a page, $10 int most rows to look at.
WITH found AS MATERIALIZED (
    SELECT id FROM (SELECT id, queue, status, submitted_by, batch, labels, template FROM dispatch_private.tasks
                    WHERE id < $1 ORDER BY id DESC LIMIT $10) AS looked_at
    WHERE (($2::text IS NULL OR queue = $2) AND ($3::text IS NULL OR status = $3) AND ($4::text IS NULL OR submitted_by = $4)
           AND ($5::text IS NULL OR batch = $5) AND ($6::jsonb IS NULL OR labels @> $6) AND ($7::text IS NULL OR template = $7))
    LIMIT $8
), counted AS (SELECT count(*)::int AS matching FROM found)
SELECT ARRAY(SELECT id FROM found LIMIT $9) AS ids, matching,
       CASE WHEN matching < $8 THEN (SELECT id FROM dispatch_private.tasks
                                     WHERE id < $1 ORDER BY id DESC OFFSET $10 - 1 LIMIT 1) END AS looked_to
FROM counted

-- name: matching_among
-- As matching, among given rows; all of them are looked at. $1 bigint before which id, $2 text queue, $3 text status, $4 text submitter, $5 text batch, $6 jsonb labels, $7 text template; NULL matches every row. $8 int most that match, $9 int ids of a page, $10 bigint[] ids.
WITH found AS MATERIALIZED (
    SELECT id FROM dispatch_private.tasks WHERE id = ANY ($10::bigint[]) AND id < $1 AND (($2::text IS NULL OR queue = $2) AND ($3::text IS NULL OR status = $3) AND ($4::text IS NULL OR submitted_by = $4)
           AND ($5::text IS NULL OR batch = $5) AND ($6::jsonb IS NULL OR labels @> $6) AND ($7::text IS NULL OR template = $7))
    ORDER BY id DESC LIMIT $8
)
SELECT ARRAY(SELECT id FROM found LIMIT $9) AS ids, (SELECT count(*)::int FROM found) AS matching, NULL::bigint AS looked_to

-- name: matching_of_submitter
-- As matching, of one submitter ($4), by its index: no other one has the rows in this order. looked_to: the last row that was looked at; NULL: no row was left out. Columns in the order of model.history.RowMatches. $1 bigint before which id, $2 text queue, $3 text status, $4 text submitter, $5 text batch, $6 jsonb labels, $7 text template; NULL matches every row. $8 int most that match, $9 int ids of a page, $10 int most rows to look at.
WITH found AS MATERIALIZED (
    SELECT id FROM (SELECT id, queue, status, submitted_by, batch, labels, template FROM dispatch_private.tasks
                    WHERE (submitted_by, id) < ($4, $1) AND submitted_by >= $4 ORDER BY submitted_by DESC, id DESC LIMIT $10) AS looked_at
    WHERE (($2::text IS NULL OR queue = $2) AND ($3::text IS NULL OR status = $3) AND ($4::text IS NULL OR submitted_by = $4)
           AND ($5::text IS NULL OR batch = $5) AND ($6::jsonb IS NULL OR labels @> $6) AND ($7::text IS NULL OR template = $7))
    LIMIT $8
), counted AS (SELECT count(*)::int AS matching FROM found)
SELECT ARRAY(SELECT id FROM found LIMIT $9) AS ids, matching,
       CASE WHEN matching < $8 THEN (SELECT id FROM dispatch_private.tasks
                                     WHERE (submitted_by, id) < ($4, $1) AND submitted_by >= $4 ORDER BY submitted_by DESC, id DESC OFFSET $10 - 1 LIMIT 1) END AS looked_to
FROM counted

-- name: matching_of_batch
-- As matching, of one batch (of queue $2 and submitter $4), by its index: no other one has the rows in this order. looked_to: the last row that was looked at; NULL: no row was left out. Columns in the order of model.history.RowMatches. $1 bigint before which id, $2 text queue, $3 text status, $4 text submitter, $5 text batch, $6 jsonb labels, $7 text template; NULL matches every row. $8 int most that match, $9 int ids of a page, $10 int most rows to look at.
WITH found AS MATERIALIZED (
    SELECT id FROM (SELECT id, queue, status, submitted_by, batch, labels, template FROM dispatch_private.tasks
                    WHERE (queue, batch, submitted_by, id) < ($2, $5, $4, $1) AND (queue, batch, submitted_by) >= ($2, $5, $4) AND batch IS NOT NULL ORDER BY queue DESC, batch DESC, submitted_by DESC, id DESC LIMIT $10) AS looked_at
    WHERE (($2::text IS NULL OR queue = $2) AND ($3::text IS NULL OR status = $3) AND ($4::text IS NULL OR submitted_by = $4)
           AND ($5::text IS NULL OR batch = $5) AND ($6::jsonb IS NULL OR labels @> $6) AND ($7::text IS NULL OR template = $7))
    LIMIT $8
), counted AS (SELECT count(*)::int AS matching FROM found)
SELECT ARRAY(SELECT id FROM found LIMIT $9) AS ids, matching,
       CASE WHEN matching < $8 THEN (SELECT id FROM dispatch_private.tasks
                                     WHERE (queue, batch, submitted_by, id) < ($2, $5, $4, $1) AND (queue, batch, submitted_by) >= ($2, $5, $4) AND batch IS NOT NULL ORDER BY queue DESC, batch DESC, submitted_by DESC, id DESC OFFSET $10 - 1 LIMIT 1) END AS looked_to
FROM counted

-- name: few_of_status
-- Ids of rows of a status that has an index, in no order. $1 text status: processing or failed. $2 int most.
(SELECT id FROM dispatch_private.tasks WHERE $1 = 'processing' AND status = 'processing' LIMIT $2)
UNION ALL
(SELECT id FROM dispatch_private.tasks WHERE $1 = 'failed' AND status = 'failed' LIMIT $2)

-- name: few_of_batch
-- Ids of rows of a batch, in no order. $1 text queue; NULL: every queue. $2 text batch, $3 int most. Only the index of batches has the inner order.
SELECT found.id
FROM dispatch_private.queues AS q
CROSS JOIN LATERAL (
    SELECT id FROM dispatch_private.tasks
    WHERE (queue, batch) >= (q.name, $2) AND (queue, batch) <= (q.name, $2) AND batch IS NOT NULL
    ORDER BY queue, batch, submitted_by, id LIMIT $3
) AS found
WHERE $1::text IS NULL OR q.name = $1 LIMIT $3

-- name: few_with_labels
-- Ids of rows with these labels, in no order. $1 jsonb labels, $2 int most.
SELECT id FROM dispatch_private.tasks WHERE labels @> $1::jsonb AND labels <> '{}' LIMIT $2

-- name: statement_timeout
-- Sets the longest time of a statement until the transaction ends, or its savepoint is rolled back. $1 text milliseconds.
SELECT set_config('statement_timeout', $1::text, true)
