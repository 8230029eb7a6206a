-- Rows that failed lately, the newest first. Columns in the order of model.history.FailedTask. $1 timestamptz since, $2 int most.
SELECT id, template, kind, left(spec ->> 'image', 300) AS image, finished_at AS at, left(error, 400) AS head, right(error, 400) AS tail
FROM dispatch.tasks WHERE status = 'failed' AND finished_at > $1 ORDER BY finished_at DESC LIMIT $2
