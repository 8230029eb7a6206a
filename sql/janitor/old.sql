-- Number of rows that a deletion would take, counted up to one batch. $1 int days, $2 int most rows.
SELECT count(*) FROM (
    SELECT FROM dispatch.tasks WHERE finished_at < now() - make_interval(days => $1) LIMIT $2
) AS old
