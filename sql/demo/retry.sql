-- As a submitter does. $1 bigint task.
SELECT dispatch.task_retry($1)
