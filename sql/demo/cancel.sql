-- As a submitter does. $1 bigint task, $2 text why.
SELECT dispatch.task_cancel($1, $2)
