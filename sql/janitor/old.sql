-- How many rows a deletion would take, counted no further than one batch. $1 int days, $2 int rows at most.
SELECT count(*) FROM (
    SELECT FROM dispatch.tasks WHERE finished_at < now() - make_interval(days => $1) LIMIT $2
) AS old
