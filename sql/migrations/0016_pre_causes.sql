-- The end of a launch: exit code, a reason in words, and the end of the output. The janitor reads it from Pods and Jobs, because
-- a container that was killed says nothing itself.

ALTER TABLE dispatch.task_launches ADD COLUMN exit_code integer, ADD COLUMN reason text, ADD COLUMN queue text;
ALTER TABLE dispatch.task_launches ALTER COLUMN started_at DROP NOT NULL;
ALTER TABLE dispatch.task_launches DROP CONSTRAINT task_launches_outcome_check;
ALTER TABLE dispatch.task_launches ADD CONSTRAINT task_launches_outcome_check
    CHECK (outcome IN ('succeeded', 'failed', 'retry', 'cancelled', 'lost', 'unstarted')) NOT VALID;
ALTER TABLE dispatch.task_launches ADD CONSTRAINT task_launches_started_check
    CHECK (started_at IS NOT NULL OR outcome = 'unstarted') NOT VALID;
COMMENT ON TABLE dispatch.task_launches IS 'One row per launch: inserted by task_start, or by the janitor if the launch ended without it. Read the view task_history instead.';
COMMENT ON COLUMN dispatch.task_launches.started_at IS 'When task_start was accepted; without it, NULL.';
COMMENT ON COLUMN dispatch.task_launches.outcome IS 'succeeded, failed, retry or cancelled as it reported; lost: taken over, cancelled or retried without a report; unstarted: it ended before task_start.';
COMMENT ON COLUMN dispatch.task_launches.error IS 'The error that it reported, otherwise the end of its output; 8 KiB.';
COMMENT ON COLUMN dispatch.task_launches.exit_code IS 'Exit code of its container; NULL: it runs, it never ran, or nobody knows.';
COMMENT ON COLUMN dispatch.task_launches.reason IS 'What ended it, in words, such as OOMKilled (limit 64Mi); NULL: it ended by itself, or nobody knows.';

COMMENT ON COLUMN dispatch.task_launches.queue IS 'Queue of the row when the launch started; NULL before this column was there.';
-- Starts of the last hour, by which the dispatcher estimates when a row will start. Launches of before are not in it.
CREATE INDEX task_launches_starts ON dispatch.task_launches (queue, started_at) WHERE queue IS NOT NULL;

CREATE OR REPLACE FUNCTION dispatch.task_start(task_id bigint, start_key uuid, attempt integer, launch integer, job_uid text,
                                               node text DEFAULT NULL, pod text DEFAULT NULL)
RETURNS TABLE (run_token uuid, payload jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    host   text   := dispatch.subdomain(task_start.node);
    whose  text   := dispatch.subdomain(task_start.pod);
    uid    text   := left(task_start.job_uid, 253);
    tokens uuid[] := ARRAY(SELECT dispatch.run_tokens(task_start.task_id, task_start.attempt, task_start.launch, uid, whose));
    token  uuid;
    held   dispatch.tasks;
BEGIN
    RETURN QUERY
    WITH taken AS (
        UPDATE dispatch.tasks SET
            status = 'processing', launch = task_start.launch, job_uid = uid, node_name = host, pod_name = whose,
            run_digest = dispatch.token_digest(tokens[1]), started_at = now(), heartbeat_at = now()
        WHERE id = task_start.task_id
          AND attempt = task_start.attempt
          AND task_start.launch > launch -- numbers only grow: a container that is not the newest is refused
          AND task_start.launch <= 32767
          AND cancel_requested_at IS NULL
          AND (status = 'waiting' OR status = 'processing' AND max_failures > 1)
          AND dispatch.fits_start_key(id, created_at, task_start.start_key)
        RETURNING id, attempt, launch, job_uid, node_name, pod_name, started_at, run_digest, payload, queue
    ), opened AS (
        INSERT INTO dispatch.task_launches
            (task_id, attempt, launch, job_uid, run_digest, node_name, pod_name, started_at, queue)
        SELECT id, attempt, launch, job_uid, run_digest, node_name, pod_name, started_at, queue FROM taken
        -- its Job was seen to end, but its container lives on a node that the cluster has lost
        ON CONFLICT (task_id, attempt, launch) DO UPDATE SET
            job_uid = excluded.job_uid, run_digest = excluded.run_digest, node_name = excluded.node_name,
            pod_name = excluded.pod_name, started_at = excluded.started_at, queue = excluded.queue, ended_at = NULL,
            outcome = NULL, exit_code = NULL, reason = NULL, error = NULL
        WHERE task_launches.outcome = 'unstarted'
    )
    SELECT tokens[1], taken.payload FROM taken;
    IF FOUND THEN
        -- A separate statement, because the one above does not see a launch that was committed while it waited for the row.
        UPDATE dispatch.task_launches SET ended_at = now(), outcome = 'lost'
        WHERE task_id = task_start.task_id AND ended_at IS NULL
          AND (attempt, launch) <> (task_start.attempt, task_start.launch);
        RETURN;
    END IF;
    SELECT * INTO held FROM dispatch.tasks -- the same Pod asks again: its answer was lost
    WHERE id = task_start.task_id
      AND attempt = task_start.attempt
      AND launch = task_start.launch
      AND status = 'processing'
      AND job_uid = uid
      AND pod_name IS NOT DISTINCT FROM whose
      AND dispatch.fits_start_key(id, created_at, task_start.start_key)
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT t INTO token FROM unnest(tokens) AS t WHERE dispatch.token_digest(t) = held.run_digest;
    IF NOT FOUND THEN -- the run began before the upgrade, or with a secret that is gone: nothing derives its token any more
        token := tokens[1];
        UPDATE dispatch.tasks SET run_digest = dispatch.token_digest(token) WHERE id = held.id;
        UPDATE dispatch.task_launches SET run_digest = dispatch.token_digest(token)
        WHERE task_id = held.id AND attempt = held.attempt AND launch = held.launch AND ended_at IS NULL;
    END IF;
    RETURN QUERY SELECT token, held.payload;
END
$$;

CREATE FUNCTION dispatch.janitor_ended(ends jsonb) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    number integer;
BEGIN
    IF jsonb_typeof(ends) IS DISTINCT FROM 'array' OR jsonb_array_length(ends) > 200 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'ends are an array of at most 200 launches';
    END IF;
    WITH given AS (
        SELECT one.task, one.attempt, one.launch, left(one.job_uid, 253) AS job_uid, dispatch.subdomain(one.node) AS node,
               dispatch.subdomain(one.pod) AS pod, least(one.ended_at, now()) AS ended_at, one.exit_code,
               dispatch.clip(one.reason, 1024) AS reason, dispatch.clip(nullif(one.output, ''), 2048) AS output
        FROM jsonb_to_recordset(ends) AS one (task bigint, attempt integer, launch integer, job_uid text, node text, pod text,
                                              ended_at timestamptz, exit_code integer, reason text, output text)
        JOIN dispatch.tasks AS t ON t.id = one.task AND t.attempt >= one.attempt
    ), written AS (
        INSERT INTO dispatch.task_launches AS known
            (task_id, attempt, launch, job_uid, node_name, pod_name, ended_at, outcome, exit_code, reason, error)
        SELECT task, attempt, launch, job_uid, node, pod, coalesce(ended_at, now()), 'unstarted', exit_code, reason, output
        FROM given
        -- a launch that had started keeps what it said itself
        ON CONFLICT (task_id, attempt, launch) DO UPDATE
            SET exit_code = excluded.exit_code, reason = excluded.reason, error = coalesce(known.error, excluded.error)
            WHERE known.job_uid = excluded.job_uid AND known.reason IS NULL
        RETURNING 1
    )
    SELECT count(*) INTO number FROM written;
    RETURN number;
END
$$;
COMMENT ON FUNCTION dispatch.janitor_ended IS 'Writes down what ended launches: [{task, attempt, launch, job_uid, node, pod, ended_at, exit_code, reason, output}]. Number of launches that were changed.';

CREATE VIEW dispatch.task_history WITH (security_invoker = true) AS
SELECT l.task_id, l.attempt, l.launch, l.node_name, l.pod_name, l.started_at, l.ended_at, l.outcome, l.exit_code, l.reason,
       l.error
FROM dispatch.task_launches AS l;
COMMENT ON VIEW dispatch.task_history IS 'Every launch of your rows, and what became of it: SELECT * FROM dispatch.task_history WHERE task_id = … ORDER BY attempt, launch';
COMMENT ON COLUMN dispatch.task_history.task_id IS 'tasks.id.';
COMMENT ON COLUMN dispatch.task_history.attempt IS 'Attempt of the row: grows when the row returns to waiting.';
COMMENT ON COLUMN dispatch.task_history.launch IS 'Launch of this attempt: one Job and one Pod each.';
COMMENT ON COLUMN dispatch.task_history.node_name IS 'Node on which it ran; NULL: it got none.';
COMMENT ON COLUMN dispatch.task_history.pod_name IS 'Its Pod: kubectl logs POD, as long as the Pod is there.';
COMMENT ON COLUMN dispatch.task_history.started_at IS 'When its container called task_start; NULL: never.';
COMMENT ON COLUMN dispatch.task_history.ended_at IS 'When it reported, was replaced, or ended without a report; NULL: it runs.';
COMMENT ON COLUMN dispatch.task_history.outcome IS 'succeeded, failed, retry or cancelled as it reported; lost: it did not report; unstarted: it never called task_start; NULL: it runs.';
COMMENT ON COLUMN dispatch.task_history.exit_code IS 'Exit code of its container; NULL: it runs, it never ran, or nobody knows.';
COMMENT ON COLUMN dispatch.task_history.reason IS 'What ended it, in words, such as OOMKilled (limit 64Mi); NULL: it ended by itself, or nobody knows.';
COMMENT ON COLUMN dispatch.task_history.error IS 'The error that it reported, otherwise the end of its output.';

ALTER TABLE dispatch.task_launches ENABLE ROW LEVEL SECURITY;
CREATE POLICY all_launches ON dispatch.task_launches FOR SELECT
    TO dispatch_reader, dispatch_janitor, dispatch_operator, dispatch_observer USING (true);
CREATE POLICY own_launches ON dispatch.task_launches FOR SELECT TO dispatch_submitter
    USING (EXISTS (SELECT FROM dispatch.tasks AS t WHERE t.id = task_id));

REVOKE EXECUTE ON FUNCTION dispatch.janitor_ended(jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION dispatch.janitor_ended(jsonb) TO dispatch_janitor;
GRANT SELECT (exit_code, reason, queue) ON dispatch.task_launches TO dispatch_reader, dispatch_janitor, dispatch_observer;
GRANT SELECT (task_id, attempt, launch, node_name, pod_name, started_at, ended_at, outcome, exit_code, reason, error)
    ON dispatch.task_launches TO dispatch_submitter, dispatch_operator;
GRANT SELECT ON dispatch.task_history TO dispatch_submitter, dispatch_operator, dispatch_observer;
