-- Launches of which it is known what ended them. $1 bigint[] tasks.
SELECT task_id, attempt, launch FROM dispatch.task_launches WHERE task_id = ANY ($1::bigint[]) AND reason IS NOT NULL
