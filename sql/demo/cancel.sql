-- As a submitter does. $1 bigint task.
SELECT dispatch.task_cancel($1, 'nobody needs it any more')
