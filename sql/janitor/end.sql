-- Ends a parked row, or a row whose Job's exit code is its report. $1 bigint id, $2 int attempt, $3 int launch, $4 text UID of the Job judged, $5 text outcome, $6 text error.
SELECT dispatch.janitor_end($1, $2, $3, $4, $5, $6)
