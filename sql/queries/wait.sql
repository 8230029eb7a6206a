-- What a submitter asks who inserts rows from a shell, and waits for their end. A login sees its own rows, and those of queues that it owns.

-- name: as_login
-- Lets the session ask as its login. A login may begin as another role (ALTER ROLE … SET role), which sees none of its rows.
SELECT set_config('role', 'none', false) WHERE current_user <> session_user AND has_schema_privilege(session_user, 'dispatch', 'USAGE')

-- name: submit
-- Inserts one row, and returns its id. $1 text: JSON of the columns of dispatch.tasks that it sets.
SELECT dispatch.submit(jsonb_build_array($1::text::jsonb))

-- name: rows
-- Status, error and result of rows, by their ids; without those that are gone or that this login does not see. $1 bigint[].
SELECT t.id, t.status, t.error
FROM unnest($1::bigint[]) AS wanted (id) CROSS JOIN LATERAL dispatch.task(wanted.id) AS t ORDER BY t.id

-- name: queues_of_batch
-- The queues in which this login has a batch of this name. $1 text batch.
SELECT DISTINCT b.queue FROM dispatch.batch_status AS b WHERE b.batch = $1 AND b.submitted_by = (SELECT dispatch.own_name()) ORDER BY b.queue

-- name: batch
-- How far a batch of this login is. Others may use its name. $1 text[] queues, $2 text batch.
SELECT coalesce(sum(b.tasks), 0)::bigint AS tasks, coalesce(sum(b.succeeded), 0)::bigint AS succeeded,
       coalesce(sum(b.failed), 0)::bigint AS failed, coalesce(sum(b.cancelled), 0)::bigint AS cancelled
FROM unnest($1::text[]) AS q (name) CROSS JOIN LATERAL dispatch.batch(q.name, $2) AS b WHERE b.submitted_by = (SELECT dispatch.own_name())

-- name: why
-- Why rows have not ended: status, message and number of rows, the most frequent first. $1 bigint[], at most 1,000.
SELECT e.status, coalesce(e.message, '') AS message, count(*) AS rows
FROM unnest($1::bigint[]) AS wanted (id) CROSS JOIN LATERAL dispatch.task_explain(wanted.id) AS e
WHERE e.status IN ('waiting', 'processing') GROUP BY e.status, e.message ORDER BY count(*) DESC, e.status, e.message LIMIT 10

-- name: rows_of_batch
-- Rows of a batch of this login with one of these statuses, of the first 100,000 of its name. $1 text[] queues, $2 text batch, $3 text[] statuses, $4 int limit.
SELECT t.id, t.status, t.error FROM unnest($1::text[]) AS q (name) CROSS JOIN LATERAL dispatch.tasks_of_batch(q.name, $2, 100000) AS t
WHERE t.status = ANY ($3::text[]) AND t.submitted_by = (SELECT dispatch.own_name()) ORDER BY t.id LIMIT $4
