-- Submitters with waiting rows in each queue. The query skips through the index, from one submitter to the next. $1 text[] queues, $2 int most submitters of each.
SELECT DISTINCT q.name AS queue, found.submitted_by
FROM unnest($1::text[]) AS q(name)
CROSS JOIN LATERAL (
    (WITH RECURSIVE ready (submitted_by) AS (
        (SELECT submitted_by FROM dispatch.tasks
         WHERE status = 'waiting' AND run_at IS NULL AND queue = q.name ORDER BY submitted_by LIMIT 1)
        UNION ALL
        SELECT (SELECT t.submitted_by FROM dispatch.tasks AS t
                WHERE t.status = 'waiting' AND t.run_at IS NULL AND t.queue = q.name AND t.submitted_by > ready.submitted_by
                ORDER BY t.submitted_by LIMIT 1)
        FROM ready WHERE ready.submitted_by IS NOT NULL
    )
    SELECT submitted_by FROM ready WHERE submitted_by IS NOT NULL LIMIT $2)
    UNION ALL
    (WITH RECURSIVE due (submitted_by) AS (
        (SELECT submitted_by FROM dispatch.tasks
         WHERE status = 'waiting' AND run_at IS NOT NULL AND queue = q.name ORDER BY submitted_by LIMIT 1)
        UNION ALL
        SELECT (SELECT t.submitted_by FROM dispatch.tasks AS t
                WHERE t.status = 'waiting' AND t.run_at IS NOT NULL AND t.queue = q.name AND t.submitted_by > due.submitted_by
                ORDER BY t.submitted_by LIMIT 1)
        FROM due WHERE due.submitted_by IS NOT NULL
    )
    SELECT submitted_by FROM due WHERE submitted_by IS NOT NULL LIMIT $2)
) AS found
