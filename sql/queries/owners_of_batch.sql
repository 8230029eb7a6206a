-- Queues and submitters that have a batch of this name. The recursion skips through the index, from one submitter to the next; no other index has this order. $1 text queue, $2 text submitter; NULL: every one. $3 text batch, $4 int most.
SELECT q.name AS queue, found.submitted_by
FROM dispatch.queues AS q
CROSS JOIN LATERAL (
    WITH RECURSIVE owner (submitted_by) AS (
        (SELECT submitted_by FROM dispatch.tasks
         WHERE (queue, batch, submitted_by) >= (q.name, $3, coalesce($2::text, ''))
           AND (queue, batch) <= (q.name, $3) AND batch IS NOT NULL
         ORDER BY queue, batch, submitted_by LIMIT 1)
        UNION ALL
        SELECT (SELECT t.submitted_by FROM dispatch.tasks AS t
                WHERE (t.queue, t.batch, t.submitted_by) > (q.name, $3, owner.submitted_by)
                  AND (t.queue, t.batch) <= (q.name, $3) AND t.batch IS NOT NULL
                ORDER BY t.queue, t.batch, t.submitted_by LIMIT 1)
        FROM owner WHERE owner.submitted_by IS NOT NULL AND $2::text IS NULL
    )
    SELECT submitted_by FROM owner WHERE submitted_by IS NOT NULL LIMIT $4
) AS found
WHERE ($1::text IS NULL OR q.name = $1) AND ($2 IS NULL OR found.submitted_by = $2)
ORDER BY q.name, found.submitted_by LIMIT $4
