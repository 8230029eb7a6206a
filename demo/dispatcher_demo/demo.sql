-- The statements of `dispatcher demo`, for its own database.

-- name: database
-- Creates the demo's own database.
CREATE DATABASE demo

-- name: password
-- Sets the password of a login of the demo, for this session. $1 text login, $2 text password.
SELECT set_config('demo.password_' || $1, $2, false)

-- name: logins
-- Creates one login for each role of an installation, each with a random password, which no log shows if a statement fails.
DO $logins$
DECLARE
    wanted record;
BEGIN
    PERFORM set_config('log_error_verbosity', 'terse', true);
    FOR wanted IN SELECT * FROM (VALUES ('demo', 'dispatch_submitter'), ('reader', 'dispatch_reader'),
        ('task', 'dispatch_task'), ('janitor', 'dispatch_janitor'), ('observer', 'dispatch_observer'),
        ('operator', 'dispatch_operator')) AS t (login, role)
    LOOP
        EXECUTE format('CREATE ROLE %I LOGIN PASSWORD %L IN ROLE %I',
                       wanted.login, current_setting('demo.password_' || wanted.login), wanted.role);
    END LOOP;
END
$logins$;

-- name: queue
-- Creates a queue of the demo. $1 text name, $2 int most Jobs at once, $3 text note.
INSERT INTO dispatch.queues (name, max_jobs, note) VALUES ($1, $2, $3)

-- name: insert
-- Inserts a sample row and gives its id. $1 text queue, $2 text template, $3 text spec (JSON), $4 text payload (JSON), $5 text cache key, $6 int failures at most.
INSERT INTO dispatch.tasks (queue, template, spec, payload, cache_key, max_failures)
VALUES ($1, $2, $3::text::jsonb, $4::text::jsonb, $5, $6)
RETURNING id

-- name: insert_default
-- Inserts rows with the default queue and the default template. $1 int number of rows.
INSERT INTO dispatch.tasks (queue) SELECT 'default' FROM generate_series(1, $1)

-- name: try
-- Statements that the demo suggests to a newcomer.
INSERT INTO dispatch.tasks (payload) VALUES ('{"up_to": 1000000}') RETURNING id;
SELECT id, status, attempt, result, error FROM dispatch.tasks ORDER BY id DESC LIMIT 5;

-- name: count
-- Number of rows.
SELECT count(*) FROM dispatch.tasks

-- name: rows
-- The columns that the demo shows of each row. A long result is left out.
SELECT id, queue, status, attempt, error, node_name, progress, note,
       cancel_requested_at IS NOT NULL AS is_stopping, now() AS seen_at,
       CASE WHEN length(result::text) < 2000 THEN result::text END AS result,
       extract(epoch FROM coalesce(finished_at, now()) - started_at)::float8 AS seconds
  FROM dispatch.tasks
 ORDER BY id

-- name: cancel
-- Cancels a task, as its submitter would. $1 bigint task.
SELECT dispatch.task_cancel($1, 'nobody needs it any more')

-- name: retry
-- Retries a task, as its submitter would. $1 bigint task.
SELECT dispatch.task_retry($1)

-- name: pause
-- Pauses a queue of the demo, or lets it go on, as an operator would. True: it is paused now. $1 text queue.
UPDATE dispatch.queues SET paused_until = CASE WHEN paused_until > now() THEN NULL ELSE 'infinity'::timestamptz END
 WHERE name = $1
RETURNING paused_until IS NOT NULL

-- name: report
-- Reports for a sample container. $1 text run token, $2 text outcome, $3 text error, $4 interval until the next run.
SELECT dispatch.task_finish($1::text::uuid, $2, error => $3, retry_after => $4)
