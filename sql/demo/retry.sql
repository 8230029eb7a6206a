-- Retries a task, as its submitter would. $1 bigint task.
SELECT dispatch.task_retry($1)
