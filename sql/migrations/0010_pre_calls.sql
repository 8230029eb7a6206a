-- The calls of containers and submitters, with derived keys. Names that a container reports are checked before they are
-- stored: a name that Kubernetes does not allow becomes NULL. The last attempt is 32,000, below the limit of the column.

CREATE OR REPLACE FUNCTION dispatch.owned_queues() RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT q.name FROM dispatch.queues AS q JOIN pg_roles AS r ON r.rolname = q.owner_role
    WHERE pg_has_role(session_user, r.oid, 'MEMBER')
$$;

CREATE OR REPLACE FUNCTION dispatch.may_act(submitted_by text, queue text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT submitted_by = session_user
        OR pg_has_role(session_user, 'dispatch_operator', 'MEMBER')
        OR queue IN (SELECT dispatch.owned_queues())
$$;

CREATE OR REPLACE FUNCTION dispatch.close_launch(task bigint) RETURNS void
LANGUAGE sql AS $$
    UPDATE dispatch.task_launches SET ended_at = now(), outcome = 'lost' WHERE task_id = task AND ended_at IS NULL
$$;

CREATE FUNCTION dispatch.fits_start_key(id bigint, created_at timestamptz, start_key uuid) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT start_key IN (SELECT dispatch.start_keys(id, created_at))
        OR EXISTS (SELECT FROM dispatch.earlier_start_keys AS e
                   WHERE e.task_id = id AND e.digest = dispatch.token_digest(start_key))
$$;
COMMENT ON FUNCTION dispatch.fits_start_key IS 'True: the key is that of the row, by the newest secret or the one before, or of before the upgrade.';

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
        RETURNING id, attempt, launch, job_uid, node_name, pod_name, started_at, run_digest, payload
    ), opened AS (
        INSERT INTO dispatch.task_launches (task_id, attempt, launch, job_uid, run_digest, node_name, pod_name, started_at)
        SELECT id, attempt, launch, job_uid, run_digest, node_name, pod_name, started_at FROM taken
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

CREATE OR REPLACE FUNCTION dispatch.task_heartbeat(run_token uuid) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    digest bytea := dispatch.token_digest(task_heartbeat.run_token);
    answer text;
BEGIN
    UPDATE dispatch.tasks SET heartbeat_at = now()
    WHERE run_digest = digest AND status = 'processing'
    RETURNING CASE WHEN cancel_requested_at IS NULL THEN 'continue' ELSE 'cancel' END INTO answer;
    RETURN coalesce(answer, 'lost');
END
$$;

CREATE FUNCTION dispatch.last_attempt() RETURNS integer
LANGUAGE sql IMMUTABLE AS $$ SELECT 32000 $$;
COMMENT ON FUNCTION dispatch.last_attempt IS 'The last attempt of a row; a smallint ends a little later.';

DROP FUNCTION dispatch.status_after(text, timestamptz, integer, integer);
CREATE FUNCTION dispatch.status_after(outcome text, cancel_requested_at timestamptz, failures integer, max_failures integer,
                                      attempt integer) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN outcome = 'succeeded' THEN 'succeeded'           -- also when a cancel was asked: the work is done
                WHEN cancel_requested_at IS NOT NULL THEN 'cancelled'
                WHEN outcome = 'retry' AND failures + 1 < max_failures AND attempt < dispatch.last_attempt() THEN 'waiting'
                ELSE 'failed' END
$$;
COMMENT ON FUNCTION dispatch.status_after IS 'The status that a reported outcome leads to.';

CREATE OR REPLACE FUNCTION dispatch.task_finish(run_token uuid, outcome text, error text DEFAULT NULL, result jsonb DEFAULT NULL,
                                                retry_after interval DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    answer text;
    digest bytea := dispatch.token_digest(task_finish.run_token);
    words  text := dispatch.clip(task_finish.error, 8192);
BEGIN
    IF task_finish.outcome IS NULL OR task_finish.outcome NOT IN ('succeeded', 'retry', 'failed') THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'the outcome is unknown', HINT = 'succeeded, retry or failed.';
    ELSIF octet_length(task_finish.result::text) > 65536 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'the result is larger than 64 KiB',
            HINT = 'Put it into object storage and its address into the result, and call again.';
    END IF;
    WITH judged AS (
        SELECT id, dispatch.status_after(task_finish.outcome, cancel_requested_at, failures, max_failures, attempt) AS status,
               now() + CASE WHEN task_finish.retry_after IS NULL
                       THEN least(interval '10 s' * power(2, least(failures, 10)), interval '10 min')
                       -- bounded, so that no container can make its row wait for ever
                       ELSE least(greatest(task_finish.retry_after, interval '0'), interval '30 days') END AS again_at
        FROM dispatch.tasks WHERE run_digest = digest AND status = 'processing' FOR UPDATE
    ), moved AS (
        UPDATE dispatch.tasks SET
            status = judged.status, run_digest = NULL,
            error = coalesce(words, CASE judged.status WHEN 'cancelled' THEN error END), result = task_finish.result,
            failures = failures + (judged.status = 'waiting' OR judged.status = 'failed')::integer,
            attempt = attempt + (judged.status = 'waiting')::integer,
            launch = CASE judged.status WHEN 'waiting' THEN 0 ELSE launch END,
            job_uid = CASE judged.status WHEN 'waiting' THEN NULL ELSE job_uid END,
            run_at = CASE judged.status WHEN 'waiting' THEN judged.again_at ELSE run_at END,
            finished_at = CASE judged.status WHEN 'waiting' THEN NULL ELSE now() END
        FROM judged WHERE tasks.id = judged.id
        RETURNING tasks.status
    ), closed AS (
        UPDATE dispatch.task_launches SET ended_at = now(), error = words,
               outcome = CASE moved.status WHEN 'waiting' THEN 'retry' ELSE moved.status END
        FROM moved WHERE task_launches.run_digest = digest AND task_launches.ended_at IS NULL
    )
    SELECT moved.status INTO answer FROM moved;
    IF answer = 'waiting' THEN
        PERFORM dispatch.announce('dispatch_tasks', 'dispatch.tasks_clock');
    ELSIF answer IS NOT NULL THEN
        PERFORM dispatch.announce('dispatch_done', 'dispatch.done_clock');
    ELSE -- asked again, its answer was lost: what this very run reported before; a run that was replaced gets NULL
        SELECT CASE outcome WHEN 'retry' THEN 'waiting' WHEN 'lost' THEN NULL ELSE outcome END INTO answer
        FROM dispatch.task_launches WHERE run_digest = digest;
    END IF;
    RETURN answer;
END
$$;

CREATE OR REPLACE FUNCTION dispatch.task_cancel(task_id bigint, reason text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    answer text;
BEGIN
    WITH judged AS (
        SELECT id, CASE WHEN status = 'processing' AND heartbeat_at >= now() - interval '60 s' THEN 'processing'
                        ELSE 'cancelled' END AS status
        FROM dispatch.tasks
        WHERE id = task_cancel.task_id AND status IN ('waiting', 'processing') AND dispatch.may_act(submitted_by, queue)
        FOR UPDATE
    )
    UPDATE dispatch.tasks SET
        status = judged.status,
        error = coalesce(dispatch.clip(task_cancel.reason, 8192), error),
        run_digest = CASE judged.status WHEN 'processing' THEN run_digest END,
        cancel_requested_at = CASE judged.status WHEN 'processing' THEN coalesce(cancel_requested_at, now()) ELSE cancel_requested_at END,
        finished_at = CASE judged.status WHEN 'cancelled' THEN now() END
    FROM judged WHERE tasks.id = judged.id
    RETURNING tasks.status INTO answer;
    IF answer = 'cancelled' THEN
        PERFORM dispatch.close_launch(task_cancel.task_id);
        PERFORM dispatch.announce('dispatch_done', 'dispatch.done_clock');
    ELSIF answer IS NULL THEN -- over already, or not to be seen
        SELECT status INTO answer FROM dispatch.tasks WHERE id = task_cancel.task_id AND dispatch.may_act(submitted_by, queue);
        IF NOT FOUND THEN
            RAISE NOTICE 'no task with this id that you may cancel';
        END IF;
    END IF;
    RETURN answer;
END
$$;

CREATE OR REPLACE FUNCTION dispatch.task_retry(task_id bigint, attempt integer DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    answer text;
BEGIN
    IF EXISTS (SELECT FROM dispatch.tasks WHERE id = task_retry.task_id AND dispatch.may_act(submitted_by, queue)
               AND queue NOT IN (SELECT name FROM dispatch.queues)) THEN
        PERFORM dispatch.refuse('DI003', 'queue', 'the queue of this row is not declared any more', 'An operator declares it again; then call again.');
    ELSIF EXISTS (SELECT FROM dispatch.tasks WHERE id = task_retry.task_id AND dispatch.may_act(submitted_by, queue)
                  AND attempt >= dispatch.last_attempt()) THEN
        RAISE EXCEPTION USING ERRCODE = '54000', HINT = 'Insert the task again as a new row.',
            MESSAGE = format('the task has had its %s attempts, which is the most', dispatch.last_attempt()),
            COLUMN = 'attempt', TABLE = 'tasks', SCHEMA = 'dispatch';
    END IF;
    UPDATE dispatch.tasks SET
        status = 'waiting', attempt = attempt + 1, launch = 0, failures = 0, run_at = NULL, run_digest = NULL, job_uid = NULL,
        started_at = NULL, heartbeat_at = NULL, finished_at = NULL, cancel_requested_at = NULL, result = NULL
    WHERE id = task_retry.task_id AND dispatch.may_act(submitted_by, queue)
      AND (task_retry.attempt IS NULL OR attempt = task_retry.attempt)
    RETURNING status INTO answer;
    IF answer = 'waiting' THEN
        PERFORM dispatch.close_launch(task_retry.task_id);
        PERFORM dispatch.announce('dispatch_tasks', 'dispatch.tasks_clock');
    ELSE
        SELECT status INTO answer FROM dispatch.tasks WHERE id = task_retry.task_id AND dispatch.may_act(submitted_by, queue);
        IF NOT FOUND THEN
            RAISE NOTICE 'no task with this id that you may retry';
        END IF;
    END IF;
    RETURN answer;
EXCEPTION WHEN unique_violation THEN -- said anew: the server's own words hold the key
    RAISE EXCEPTION USING ERRCODE = '23505', MESSAGE = 'another live row has the dedupe_key of this one',
        HINT = 'Cancel it, or wait until it is over.', COLUMN = 'dedupe_key', TABLE = 'tasks', SCHEMA = 'dispatch';
END
$$;
