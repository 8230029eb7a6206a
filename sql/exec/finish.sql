-- Reports the outcome. Gives the new status, or NULL if the run is lost. $1 text run token, $2 text outcome, $3 text error, $4 text result (JSON).
SELECT dispatch.task_finish($1::text::uuid, $2, $3, $4::text::jsonb)
