-- As matching.sql, among given rows; all of them are looked at. $1 bigint before which id, $2 text queue, $3 text status, $4 text submitter, $5 text batch, $6 jsonb labels, $7 text template; NULL matches every row. $8 int most that match, $9 int ids of a page, $10 bigint[] ids.
WITH found AS MATERIALIZED (
    SELECT id FROM dispatch.tasks WHERE id = ANY ($10::bigint[]) AND id < $1 AND (($2::text IS NULL OR queue = $2) AND ($3::text IS NULL OR status = $3) AND ($4::text IS NULL OR submitted_by = $4)
           AND ($5::text IS NULL OR batch = $5) AND ($6::jsonb IS NULL OR labels @> $6) AND ($7::text IS NULL OR template = $7))
    ORDER BY id DESC LIMIT $8
)
SELECT ARRAY(SELECT id FROM found LIMIT $9) AS ids, (SELECT count(*)::int FROM found) AS matching, NULL::bigint AS looked_to
