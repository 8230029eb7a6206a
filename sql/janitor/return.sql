-- Returns a run whose container is gone. $1 bigint id, $2 int attempt, $3 int launch, $4 bytea digest of the run's token, $5 int failures, $6 text error.
SELECT dispatch.janitor_return($1, $2, $3, $4, $5, $6)
