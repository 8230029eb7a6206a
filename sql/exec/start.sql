-- Starts the row. Gives a run token and the payload. No row: the start is refused. $1 bigint task, $2 text start key, $3 int attempt, $4 int launch, $5 text uid of the Job, $6 text node, $7 text Pod, $8 text id of this process.
SELECT run_token::text, coalesce(payload::text, 'null') AS payload FROM dispatch.task_start($1, $2::text::uuid, $3, $4, $5, $6, $7, $8)
