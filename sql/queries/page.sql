-- Rows that match, the newest first; NULL matches every row. Columns in the order of model.history.ListedTask. $1 bigint before which id, $2 text queue, $3 text status, $4 text submitter, $5 bigint[] ids, $6 int most.
SELECT id, queue, status, attempt, priority, template, submitted_by, created_at, run_at, started_at, finished_at, left(error, 300) AS error
FROM dispatch.tasks
WHERE id < $1 AND ($2::text IS NULL OR queue = $2) AND ($3::text IS NULL OR status = $3)
  AND ($4::text IS NULL OR submitted_by = $4) AND ($5::bigint[] IS NULL OR id = ANY ($5))
ORDER BY id DESC LIMIT $6
