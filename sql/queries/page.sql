-- Rows by id, the newest first. Columns in the order of model.history.ListedTask. $1 bigint[] ids.
SELECT id, queue, status, attempt, priority, template, submitted_by, created_at, run_at, started_at, finished_at,
       left(error, 300) AS error, batch, progress, note
FROM dispatch.tasks WHERE id = ANY ($1::bigint[]) ORDER BY id DESC
