-- Cancels a task, as its submitter would. $1 bigint task.
SELECT dispatch.task_cancel($1, 'nobody needs it any more')
