-- The five functions that move a row. Each is one compare-and-set: a call that hits no row changes nothing, and the same
-- call from the same Pod gives the same answer, because answers get lost too. The state machine is drawn in sql/README.md.

CREATE FUNCTION clip(words text, most integer) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    WHILE octet_length(words) > most LOOP -- a character has at most 4 bytes: a few rounds at most
        words := left(words, length(words) - greatest((octet_length(words) - most) / 4, 1));
    END LOOP;
    RETURN words;
END
$$;
COMMENT ON FUNCTION clip IS 'The longest beginning of a text that fits into so many bytes.';

CREATE FUNCTION owned_queues() RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = dispatch, pg_temp AS $$
    SELECT q.name FROM queues AS q JOIN pg_roles AS r ON r.rolname = q.owner_role
    WHERE pg_has_role(session_user, r.oid, 'MEMBER')
$$;
COMMENT ON FUNCTION owned_queues IS 'The queues whose owner_role the login is a member of.';

CREATE FUNCTION may_act(submitted_by text, queue text) RETURNS boolean
LANGUAGE sql STABLE SET search_path = dispatch, pg_temp AS $$
    SELECT submitted_by = session_user
        OR pg_has_role(session_user, 'dispatch_operator', 'MEMBER')
        OR queue IN (SELECT owned_queues())
$$;
COMMENT ON FUNCTION may_act IS 'True: the login submitted the row, owns its queue, or is an operator.';

CREATE FUNCTION task_start(task_id bigint, start_key uuid, attempt integer, launch integer, job_uid text,
                           node text DEFAULT NULL, pod text DEFAULT NULL)
RETURNS TABLE (run_token uuid, payload jsonb)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = dispatch, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH taken AS (
        UPDATE tasks SET
            status = 'processing', launch = task_start.launch, job_uid = task_start.job_uid,
            node_name = left(task_start.node, 253), pod_name = left(task_start.pod, 253),
            run_token = gen_random_uuid(), started_at = now(), heartbeat_at = now()
        WHERE id = task_start.task_id
          AND start_key = task_start.start_key
          AND attempt = task_start.attempt
          AND task_start.launch > launch -- numbers only grow: whoever is not the newest is refused
          AND task_start.launch <= 32767
          AND cancel_requested_at IS NULL
          AND (status = 'waiting' OR status = 'processing' AND max_failures > 1)
        RETURNING id, attempt, launch, job_uid, node_name, pod_name, started_at, run_token, payload
    ), opened AS (
        INSERT INTO task_launches (task_id, attempt, launch, job_uid, run_token, node_name, pod_name, started_at)
        SELECT id, attempt, launch, job_uid, run_token, node_name, pod_name, started_at FROM taken
    )
    SELECT taken.run_token, taken.payload FROM taken;
    IF FOUND THEN
        -- A statement of its own: the one above does not see a launch that was committed while it waited for the row.
        UPDATE task_launches SET ended_at = now(), outcome = 'lost'
        WHERE task_id = task_start.task_id AND ended_at IS NULL
          AND (attempt, launch) <> (task_start.attempt, task_start.launch);
        RETURN;
    END IF;
    RETURN QUERY -- the same Pod asks again: its answer was lost
    SELECT tasks.run_token, tasks.payload FROM tasks
    WHERE id = task_start.task_id
      AND start_key = task_start.start_key
      AND attempt = task_start.attempt
      AND launch = task_start.launch
      AND status = 'processing'
      AND job_uid = task_start.job_uid
      AND pod_name IS NOT DISTINCT FROM left(task_start.pod, 253);
END
$$;
COMMENT ON FUNCTION task_start IS 'A container takes its row: run_token and payload, or no row: not yours (any more), exit 0.';

CREATE FUNCTION task_heartbeat(run_token uuid) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = dispatch, pg_temp AS $$
#variable_conflict use_column
DECLARE
    answer text;
BEGIN
    UPDATE tasks SET heartbeat_at = now()
    WHERE run_token = task_heartbeat.run_token AND status = 'processing'
    RETURNING CASE WHEN cancel_requested_at IS NULL THEN 'continue' ELSE 'cancel' END INTO answer;
    RETURN coalesce(answer, 'lost');
END
$$;
COMMENT ON FUNCTION task_heartbeat IS 'A sign of life: continue; cancel: stop and call task_finish(''failed''); lost: somebody else has the row, stop.';

CREATE FUNCTION status_after(outcome text, cancel_requested_at timestamptz, failures integer, max_failures integer) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN outcome = 'succeeded' THEN 'succeeded'           -- also when a cancel was asked: the work is done
                WHEN cancel_requested_at IS NOT NULL THEN 'cancelled'
                WHEN outcome = 'retry' AND failures + 1 < max_failures THEN 'waiting'
                ELSE 'failed' END
$$;
COMMENT ON FUNCTION status_after IS 'The status that a reported outcome leads to.';

CREATE FUNCTION task_finish(run_token uuid, outcome text, error text DEFAULT NULL, result jsonb DEFAULT NULL,
                            retry_after interval DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = dispatch, pg_temp AS $$
#variable_conflict use_column
DECLARE
    answer text;
    words  text := clip(task_finish.error, 8192);
BEGIN
    IF task_finish.outcome IS NULL OR task_finish.outcome NOT IN ('succeeded', 'retry', 'failed') THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'the outcome is unknown', HINT = 'succeeded, retry or failed.';
    ELSIF octet_length(task_finish.result::text) > 65536 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'the result is larger than 64 KiB',
            HINT = 'Put it into object storage and its address into the result, and call again.';
    END IF;
    WITH judged AS (
        SELECT id, run_token, status_after(task_finish.outcome, cancel_requested_at, failures, max_failures) AS status,
               now() + CASE WHEN task_finish.retry_after IS NULL
                       THEN least(interval '10 s' * power(2, least(failures, 10)), interval '10 min')
                       -- bounded, so that no row waits for ever by its container's word
                       ELSE least(greatest(task_finish.retry_after, interval '0'), interval '30 days') END AS again_at
        FROM tasks WHERE run_token = task_finish.run_token AND status = 'processing' FOR UPDATE
    ), moved AS (
        UPDATE tasks SET
            status = judged.status, run_token = NULL,
            error = coalesce(words, CASE judged.status WHEN 'cancelled' THEN error END), result = task_finish.result,
            failures = failures + (judged.status = 'waiting' OR judged.status = 'failed')::integer,
            attempt = attempt + (judged.status = 'waiting')::integer,
            launch = CASE judged.status WHEN 'waiting' THEN 0 ELSE launch END,
            job_uid = CASE judged.status WHEN 'waiting' THEN NULL ELSE job_uid END,
            run_at = CASE judged.status WHEN 'waiting' THEN judged.again_at ELSE run_at END,
            finished_at = CASE judged.status WHEN 'waiting' THEN NULL ELSE now() END
        FROM judged WHERE tasks.id = judged.id
        RETURNING tasks.status, judged.run_token
    ), closed AS (
        UPDATE task_launches SET ended_at = now(), error = words,
               outcome = CASE moved.status WHEN 'waiting' THEN 'retry' ELSE moved.status END
        FROM moved WHERE task_launches.run_token = moved.run_token AND task_launches.ended_at IS NULL
    )
    SELECT moved.status INTO answer FROM moved;
    IF answer = 'waiting' THEN
        PERFORM announce('dispatch_tasks', 'tasks_clock');
    ELSIF answer IS NOT NULL THEN
        PERFORM announce('dispatch_done', 'done_clock');
    ELSE -- asked again, its answer was lost: what this very run reported before; a run that was replaced gets NULL
        SELECT CASE outcome WHEN 'retry' THEN 'waiting' WHEN 'lost' THEN NULL ELSE outcome END INTO answer
        FROM task_launches WHERE run_token = task_finish.run_token;
    END IF;
    RETURN answer;
END
$$;
COMMENT ON FUNCTION task_finish IS 'A container reports succeeded, retry or failed: the row''s new status; NULL: lost, the row is somebody else''s by now.';

CREATE FUNCTION close_launch(task bigint) RETURNS void
LANGUAGE sql SET search_path = dispatch, pg_temp AS $$
    UPDATE task_launches SET ended_at = now(), outcome = 'lost' WHERE task_id = task AND ended_at IS NULL
$$;
COMMENT ON FUNCTION close_launch IS 'Ends the record of a run that will not report any more.';

CREATE FUNCTION task_cancel(task_id bigint, reason text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = dispatch, pg_temp AS $$
#variable_conflict use_column
DECLARE
    answer text;
BEGIN
    WITH judged AS (
        SELECT id, CASE WHEN status = 'processing' AND heartbeat_at >= now() - interval '60 s' THEN 'processing'
                        ELSE 'cancelled' END AS status
        FROM tasks WHERE id = task_cancel.task_id AND status IN ('waiting', 'processing') AND may_act(submitted_by, queue)
        FOR UPDATE
    )
    UPDATE tasks SET
        status = judged.status,
        error = coalesce(clip(task_cancel.reason, 8192), error),
        run_token = CASE judged.status WHEN 'processing' THEN run_token END,
        cancel_requested_at = CASE judged.status WHEN 'processing' THEN coalesce(cancel_requested_at, now()) ELSE cancel_requested_at END,
        finished_at = CASE judged.status WHEN 'cancelled' THEN now() END
    FROM judged WHERE tasks.id = judged.id
    RETURNING tasks.status INTO answer;
    IF answer = 'cancelled' THEN
        PERFORM close_launch(task_cancel.task_id);
        PERFORM announce('dispatch_done', 'done_clock');
    ELSIF answer IS NULL THEN -- over already, or not to be seen
        SELECT status INTO answer FROM tasks WHERE id = task_cancel.task_id AND may_act(submitted_by, queue);
        IF NOT FOUND THEN
            RAISE NOTICE 'no task with this id that you may cancel';
        END IF;
    END IF;
    RETURN answer;
END
$$;
COMMENT ON FUNCTION task_cancel IS 'cancelled: at once; processing: its container was asked to stop; another status: it was over already; NULL: no such row of yours.';

CREATE FUNCTION task_retry(task_id bigint, attempt integer DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = dispatch, pg_temp AS $$
#variable_conflict use_column
DECLARE
    answer text;
BEGIN
    IF EXISTS (SELECT FROM tasks WHERE id = task_retry.task_id AND may_act(submitted_by, queue)
               AND queue NOT IN (SELECT name FROM queues)) THEN
        PERFORM refuse('DI003', 'queue', 'the queue of this row is not declared any more', 'An operator declares it again; then call again.');
    END IF;
    UPDATE tasks SET
        status = 'waiting', attempt = attempt + 1, launch = 0, failures = 0, run_at = NULL, run_token = NULL, job_uid = NULL,
        started_at = NULL, heartbeat_at = NULL, finished_at = NULL, cancel_requested_at = NULL, result = NULL
    WHERE id = task_retry.task_id AND may_act(submitted_by, queue)
      AND (task_retry.attempt IS NULL OR attempt = task_retry.attempt)
    RETURNING status INTO answer;
    IF answer = 'waiting' THEN
        PERFORM close_launch(task_retry.task_id);
        PERFORM announce('dispatch_tasks', 'tasks_clock');
    ELSE
        SELECT status INTO answer FROM tasks WHERE id = task_retry.task_id AND may_act(submitted_by, queue);
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
COMMENT ON FUNCTION task_retry IS 'Any row back to waiting, attempt + 1, failures 0; a container that still runs is fenced off. With `attempt` only if the row is at it, so that it may be repeated.';
