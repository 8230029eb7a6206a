-- Batch, labels, progress, note and error of one row. $1 bigint id.
SELECT batch, labels::text AS labels, progress, note, error FROM dispatch.tasks WHERE id = $1
