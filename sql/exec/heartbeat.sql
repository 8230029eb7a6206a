-- Sends a sign of life. Gives continue, cancel or lost. $1 text run token. $2 real progress. $3 text note.
SELECT dispatch.task_heartbeat($1::text::uuid, $2::real, $3::text)
