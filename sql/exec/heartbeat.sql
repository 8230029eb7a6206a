-- Sends a sign of life. Gives continue, cancel or lost. $1 text run token.
SELECT dispatch.task_heartbeat($1::text::uuid)
