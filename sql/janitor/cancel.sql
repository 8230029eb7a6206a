-- Ends a cancelled run whose container is gone. $1 bigint id, $2 int attempt, $3 bytea digest of the run's token.
SELECT dispatch.janitor_cancel($1, $2, $3)
