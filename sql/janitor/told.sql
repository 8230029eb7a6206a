-- The reasons of single rows that were brought over. $1 int most.
SELECT task_id, attempt, reason, since, message FROM dispatch.task_reasons LIMIT $1
