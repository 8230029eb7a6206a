-- Reports for a sample container. $1 text run token, $2 text outcome, $3 text error, $4 interval until the next run.
SELECT dispatch.task_finish($1::text::uuid, $2, error => $3, retry_after => $4)
