-- The calls of a task's container. Their right is a key, not a login: all containers share a role. Each checks the key first, with
-- nothing but the key, and looks for the row or derives a token only then.

CREATE OR REPLACE FUNCTION dispatch_private.last_attempt() RETURNS integer
LANGUAGE sql IMMUTABLE AS $$ SELECT 32000 $$;
COMMENT ON FUNCTION dispatch_private.last_attempt() IS 'The last attempt of a row; a smallint ends a little later.';

CREATE OR REPLACE FUNCTION dispatch_private.guard_task() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.status IN ('waiting', 'processing', 'succeeded', 'failed', 'cancelled')
        AND (NEW.status = 'processing') = (NEW.run_digest IS NOT NULL)
        AND (NEW.status IN ('waiting', 'processing')) = (NEW.finished_at IS NULL)
        AND (NEW.status <> 'waiting' OR NEW.launch = 0 AND NEW.cancel_requested_at IS NULL)) IS NOT TRUE
    THEN
        RAISE EXCEPTION USING ERRCODE = '23514', TABLE = 'tasks', SCHEMA = 'dispatch_private',
            MESSAGE = format('task %s would have a state that no task may have: status %s, launch %s', NEW.id, NEW.status, NEW.launch);
    END IF;
    IF NEW.attempt <> OLD.attempt OR NEW.launch <> OLD.launch THEN -- a new attempt or launch has no progress yet
        NEW.progress := NULL;
        NEW.note := NULL;
    END IF;
    IF current_setting('synchronous_commit') = 'off' THEN -- who is told of this state must find it after a crash of the server
        PERFORM set_config('synchronous_commit', 'local', true);
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION dispatch_private.guard_task() IS 'Trigger: guards the functions that change a row against themselves, and lets the commit wait for the disk.';

CREATE OR REPLACE TRIGGER guard_task BEFORE UPDATE OF status, attempt, launch, run_digest, finished_at ON dispatch_private.tasks
    FOR EACH ROW EXECUTE FUNCTION dispatch_private.guard_task();

CREATE OR REPLACE FUNCTION dispatch_private.status_after(outcome text, cancel_requested_at timestamptz, failures integer, max_failures integer, attempt integer) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN outcome = 'succeeded' THEN 'succeeded'           -- also when a cancel was asked: the work is done
                WHEN cancel_requested_at IS NOT NULL THEN 'cancelled'
                WHEN outcome = 'retry' AND failures + 1 < max_failures AND attempt < dispatch_private.last_attempt() THEN 'waiting'
                ELSE 'failed' END
$$;
COMMENT ON FUNCTION dispatch_private.status_after(text, timestamp with time zone, integer, integer, integer) IS 'The status that a reported outcome leads to.';

CREATE OR REPLACE FUNCTION dispatch_private.backoff(failures integer) RETURNS interval
LANGUAGE sql IMMUTABLE AS $$ SELECT least(interval '10 s' * power(2, least(failures, 10)), interval '10 min') $$;
COMMENT ON FUNCTION dispatch_private.backoff(integer) IS 'How long a row waits after a failure that comes after so many: 10 s, doubled each time, 10 min at most.';

CREATE OR REPLACE FUNCTION dispatch.task_start(task_id bigint, start_key uuid, attempt integer, launch integer, job_uid text,
                                               node text DEFAULT NULL, pod text DEFAULT NULL, run_id text DEFAULT NULL)
RETURNS TABLE (run_token uuid, payload jsonb)
LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    made_at CONSTANT timestamptz := dispatch_private.key_time(task_start.task_id, task_start.start_key);
    host    CONSTANT text := dispatch_private.subdomain(task_start.node);
    whose   CONSTANT text := dispatch_private.subdomain(task_start.pod);
    uid     CONSTANT text := dispatch_private.plain_note(task_start.job_uid); -- people read it
    process CONSTANT text := left(nullif(task_start.run_id, ''), 253);
    tokens  uuid[];
    token   uuid;
    held    dispatch_private.tasks;
BEGIN
    IF num_nulls(task_start.task_id, task_start.start_key, task_start.attempt, task_start.launch, uid) > 0 THEN
        -- No row would say that the task is somebody else's.
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'task_start lacks ' || concat_ws(', ',
            CASE WHEN task_start.task_id IS NULL THEN 'task_id' END, CASE WHEN task_start.start_key IS NULL THEN 'start_key' END,
            CASE WHEN task_start.attempt IS NULL THEN 'attempt' END, CASE WHEN task_start.launch IS NULL THEN 'launch' END, CASE WHEN uid IS NULL THEN 'job_uid' END),
            HINT = 'The container has them as TASK_ID, TASK_START_KEY, TASK_ATTEMPT, TASK_LAUNCH and JOB_UID.';
    ELSIF made_at IS NULL THEN
        RETURN; -- not a key of this row
    END IF;
    tokens := ARRAY(SELECT dispatch_private.run_tokens(task_start.task_id, task_start.attempt, task_start.launch, uid, whose));
    RETURN QUERY
    WITH taken AS (
        UPDATE dispatch_private.tasks SET
            status = 'processing', launch = task_start.launch, job_uid = uid, node_name = host, pod_name = whose, run_id = process,
            run_digest = dispatch_private.token_digest(tokens[1]), started_at = now(), heartbeat_at = now(), second_process = false
        WHERE id = task_start.task_id
          AND created_at = made_at
          AND attempt = task_start.attempt
          AND task_start.launch > launch -- numbers only grow: a container that is not the newest is refused
          AND task_start.launch <= 32767
          AND cancel_requested_at IS NULL
          AND (status = 'waiting' OR status = 'processing' AND max_failures > 1)
        RETURNING id, attempt, launch, job_uid, node_name, pod_name, started_at, run_digest, payload, queue
    ), opened AS (
        INSERT INTO dispatch_private.task_launches
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
        UPDATE dispatch_private.task_launches SET ended_at = now(), outcome = 'lost'
        WHERE task_id = task_start.task_id AND ended_at IS NULL
          AND (attempt, launch) <> (task_start.attempt, task_start.launch);
        RETURN;
    END IF;
    SELECT * INTO held FROM dispatch_private.tasks -- the same Pod asks again
    WHERE id = task_start.task_id
      AND created_at = made_at
      AND attempt = task_start.attempt
      AND launch = task_start.launch
      AND status = 'processing'
      AND job_uid = uid
      AND pod_name IS NOT DISTINCT FROM whose
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    -- The same process: its answer was lost. Without a run_id nobody can tell.
    IF (held.run_id = process OR process IS NULL AND held.max_failures > 1) IS NOT TRUE THEN
        -- Another one: the container was started again. The end of its Job will say nothing about the work.
        UPDATE dispatch_private.tasks SET second_process = true WHERE id = held.id AND NOT second_process;
        RETURN;
    END IF;
    SELECT t INTO token FROM unnest(tokens) AS t WHERE dispatch_private.token_digest(t) = held.run_digest;
    IF NOT FOUND THEN -- the run began with a secret that is gone: nothing derives its token any more
        token := tokens[1];
        UPDATE dispatch_private.tasks SET run_digest = dispatch_private.token_digest(token) WHERE id = held.id;
        UPDATE dispatch_private.task_launches SET run_digest = dispatch_private.token_digest(token)
        WHERE task_id = held.id AND attempt = held.attempt AND launch = held.launch AND ended_at IS NULL;
    END IF;
    RETURN QUERY SELECT token, held.payload;
END
$$;
COMMENT ON FUNCTION dispatch.task_start(bigint, uuid, integer, integer, text, text, text, text) IS 'A container takes its row: run_token and payload, or no row: not yours (any more), exit 0.';

CREATE OR REPLACE FUNCTION dispatch.task_heartbeat(run_token uuid, progress real DEFAULT NULL, note text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    digest bytea := dispatch_private.token_digest(task_heartbeat.run_token);
    answer text;
BEGIN
    UPDATE dispatch_private.tasks SET heartbeat_at = now(),
           -- A number that is none from 0 to 1 is ignored: a wrong report must not end a run. NaN is above every number.
           progress = CASE WHEN task_heartbeat.progress BETWEEN 0 AND 1 THEN task_heartbeat.progress ELSE progress END,
           note = coalesce(dispatch_private.plain_note(task_heartbeat.note), note)
    WHERE run_digest = digest AND status = 'processing'
    RETURNING CASE WHEN cancel_requested_at IS NULL THEN 'continue' ELSE 'cancel' END INTO answer;
    RETURN coalesce(answer, 'lost');
END
$$;

CREATE OR REPLACE FUNCTION dispatch.task_finish(run_token uuid, outcome text, error text DEFAULT NULL, result jsonb DEFAULT NULL, retry_after interval DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    answer text;
    whose  text;
    digest bytea := dispatch_private.token_digest(task_finish.run_token);
    words  text := dispatch_private.clip(nullif(task_finish.error, ''), 8192);
BEGIN
    IF task_finish.outcome IS NULL OR task_finish.outcome NOT IN ('succeeded', 'retry', 'failed') THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('the outcome%s is unknown', dispatch_private.shown(task_finish.outcome)), HINT = 'succeeded, retry or failed.';
    ELSIF octet_length(task_finish.result::text) > 98304 OR octet_length(task_finish.result::text) > 65536 AND dispatch_private.compact_bytes(task_finish.result) > 65536 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'the result is larger than 64 KiB',
            HINT = 'Put it into object storage and its address into the result, and call again.';
    END IF;
    WITH judged AS (
        SELECT id, dispatch_private.status_after(task_finish.outcome, cancel_requested_at, failures, max_failures, attempt) AS status,
               now() + CASE WHEN task_finish.retry_after IS NULL THEN dispatch_private.backoff(failures)
                       -- Bounded, so that no container can make its row wait for ever. In seconds: months and days add up to another time than they compare as.
                       ELSE make_interval(secs => least(greatest(extract(epoch FROM task_finish.retry_after)::double precision, 0), 2592000)) END AS again_at
        FROM dispatch_private.tasks WHERE run_digest = digest AND status = 'processing' FOR UPDATE
    ), moved AS (
        UPDATE dispatch_private.tasks SET
            status = judged.status, run_digest = NULL,
            error = coalesce(words, CASE judged.status WHEN 'cancelled' THEN error END), result = task_finish.result,
            failures = failures + (judged.status = 'waiting' OR judged.status = 'failed')::integer,
            attempt = attempt + (judged.status = 'waiting')::integer,
            launch = CASE judged.status WHEN 'waiting' THEN 0 ELSE launch END,
            job_uid = CASE judged.status WHEN 'waiting' THEN NULL ELSE job_uid END,
            run_at = CASE judged.status WHEN 'waiting' THEN judged.again_at ELSE run_at END,
            finished_at = CASE judged.status WHEN 'waiting' THEN NULL ELSE now() END
        FROM judged WHERE tasks.id = judged.id
        RETURNING tasks.status, tasks.submitted_by
    ), closed AS (
        UPDATE dispatch_private.task_launches SET ended_at = now(), error = words,
               outcome = CASE moved.status WHEN 'waiting' THEN 'retry' ELSE moved.status END
        FROM moved WHERE task_launches.run_digest = digest AND task_launches.ended_at IS NULL
    )
    SELECT moved.status, moved.submitted_by INTO answer, whose FROM moved;
    IF answer = 'waiting' THEN
        PERFORM dispatch_private.announce('dispatch_tasks', dispatch_private.clock_of('tasks', whose));
    ELSIF answer IS NOT NULL THEN
        PERFORM dispatch_private.announce('dispatch_done', dispatch_private.clock_of('done', whose));
    ELSE -- asked again, its answer was lost: what this very run reported before; a run that was replaced gets NULL
        SELECT CASE outcome WHEN 'retry' THEN 'waiting' WHEN 'lost' THEN NULL ELSE outcome END INTO answer
        FROM dispatch_private.task_launches WHERE run_digest = digest;
    END IF;
    RETURN answer;
END
$$;
COMMENT ON FUNCTION dispatch.task_finish(uuid, text, text, jsonb, interval) IS 'A container reports succeeded, retry or failed: the row''s new status; NULL: lost, the row is somebody else''s by now.';
