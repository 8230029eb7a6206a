-- Ids of the newest rows that match, and their number. Only the newest rows before $1 are looked at. looked_to: the last row that was looked at; NULL: no row was left out. Columns in the order of model.history.Found. $1 bigint before which id, $2 text queue, $3 text status, $4 text submitter, $5 text batch, $6 jsonb labels, $7 text template; NULL matches every row. $8 int most that match, $9 int ids of a page, $10 int most rows to look at.
WITH found AS MATERIALIZED (
    SELECT id FROM (SELECT id, queue, status, submitted_by, batch, labels, template FROM dispatch.tasks
                    WHERE id < $1 ORDER BY id DESC LIMIT $10) AS looked_at
    WHERE (($2::text IS NULL OR queue = $2) AND ($3::text IS NULL OR status = $3) AND ($4::text IS NULL OR submitted_by = $4)
           AND ($5::text IS NULL OR batch = $5) AND ($6::jsonb IS NULL OR labels @> $6) AND ($7::text IS NULL OR template = $7))
    LIMIT $8
), counted AS (SELECT count(*)::int AS matching FROM found)
SELECT ARRAY(SELECT id FROM found LIMIT $9) AS ids, matching,
       CASE WHEN matching < $8 THEN (SELECT id FROM dispatch.tasks
                                     WHERE id < $1 ORDER BY id DESC OFFSET $10 - 1 LIMIT 1) END AS looked_to
FROM counted
