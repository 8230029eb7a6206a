-- Who may do what. EXECUTE is everybody's by default and a SECURITY DEFINER function writes: so all of it is taken from
-- PUBLIC first, and for whatever comes later too.
REVOKE ALL ON SCHEMA dispatch FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA dispatch FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA dispatch FROM PUBLIC;
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA dispatch FROM PUBLIC;
-- Without IN SCHEMA: per-schema defaults can only add to the global ones, never take away.
ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;

GRANT USAGE ON SCHEMA dispatch TO dispatch_reader, dispatch_submitter, dispatch_task, dispatch_janitor,
    dispatch_operator, dispatch_observer;

-- The dispatcher: every row, no secret of a run, nothing that belongs to the container alone.
GRANT SELECT (id, queue, priority, run_at, timeout_seconds, max_failures, template, env, spec, cache_key, dedupe_key,
              status, attempt, launch, failures, start_key, job_uid, submitted_by, created_at, started_at, heartbeat_at,
              finished_at, cancel_requested_at, node_name, pod_name, error, kind)
    ON tasks TO dispatch_reader, dispatch_janitor;
GRANT SELECT (run_token) ON tasks TO dispatch_janitor;
GRANT SELECT (task_id, attempt, launch, job_uid, node_name, pod_name, started_at, ended_at, outcome, error)
    ON task_launches TO dispatch_reader, dispatch_janitor, dispatch_observer;
GRANT SELECT ON queues, schema_version TO dispatch_reader, dispatch_janitor, dispatch_observer;

-- Teams.
GRANT INSERT (queue, priority, run_at, timeout_seconds, max_failures, template, env, spec, payload, cache_key, dedupe_key)
    ON tasks TO dispatch_submitter;
GRANT SELECT (id, queue, priority, run_at, timeout_seconds, max_failures, template, env, spec, payload, cache_key,
              dedupe_key, status, attempt, launch, failures, job_uid, submitted_by, created_at, started_at, heartbeat_at,
              finished_at, cancel_requested_at, node_name, pod_name, error, result, kind)
    ON tasks TO dispatch_submitter;
GRANT EXECUTE ON FUNCTION owned_queues() TO dispatch_submitter;
GRANT EXECUTE ON FUNCTION task_cancel(bigint, text), task_retry(bigint, integer) TO dispatch_submitter, dispatch_operator;

-- Containers: three functions, no table.
GRANT EXECUTE ON FUNCTION task_start(bigint, uuid, integer, integer, text, text, text), task_heartbeat(uuid),
    task_finish(uuid, text, text, jsonb, interval) TO dispatch_task;

GRANT SELECT, INSERT, UPDATE, DELETE ON queues TO dispatch_operator;

GRANT SELECT (id, queue, priority, run_at, timeout_seconds, max_failures, template, env, spec, cache_key, dedupe_key,
              status, attempt, launch, failures, job_uid, submitted_by, created_at, started_at, heartbeat_at, finished_at,
              cancel_requested_at, node_name, pod_name, error, result, kind)
    ON tasks TO dispatch_observer;

ALTER TABLE tasks ENABLE ROW LEVEL SECURITY;
CREATE POLICY all_rows ON tasks FOR SELECT TO dispatch_reader, dispatch_janitor, dispatch_observer USING (true);
-- The array is made once a statement, not once a row.
CREATE POLICY own_rows ON tasks FOR SELECT TO dispatch_submitter
    USING (submitted_by = session_user OR queue = ANY (ARRAY(SELECT owned_queues())));
CREATE POLICY new_rows ON tasks FOR INSERT TO dispatch_submitter WITH CHECK (true);
