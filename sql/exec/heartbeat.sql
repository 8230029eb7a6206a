-- A sign of life: continue, cancel or lost. $1 text run token.
SELECT dispatch.task_heartbeat($1::text::uuid)
