-- The janitor never waits for a row that another transaction holds: its functions answer `locked`, and that row comes last
-- in the next round. The janitor names a run by the digest of its token.

DROP FUNCTION dispatch.janitor_return(bigint, integer, integer, uuid, integer, text);
DROP FUNCTION dispatch.janitor_cancel(bigint, integer, uuid);

CREATE FUNCTION dispatch.is_free(task_id bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    -- The transaction keeps the lock, so no other session can change the row that is read after it.
    PERFORM FROM dispatch.tasks WHERE id = is_free.task_id FOR UPDATE SKIP LOCKED;
    RETURN FOUND OR NOT EXISTS (SELECT FROM dispatch.tasks WHERE id = is_free.task_id);
END
$$;
COMMENT ON FUNCTION dispatch.is_free IS 'Takes the row''s lock without waiting. False: another transaction holds it.';

CREATE FUNCTION dispatch.janitor_return(task_id bigint, attempt integer, launch integer, run_digest bytea, failures integer,
                                        error text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    answer text;
    words  text := dispatch.clip(janitor_return.error, 8192);
BEGIN
    IF NOT dispatch.is_free(janitor_return.task_id) THEN
        RETURN 'locked';
    END IF;
    WITH judged AS (
        SELECT id, least(failures + greatest(janitor_return.failures, 1), 32767)::smallint AS failures,
               failures + greatest(janitor_return.failures, 1) < max_failures AND attempt < dispatch.last_attempt() AS is_again,
               now() + least(interval '10 s' * power(2, least(failures, 10)), interval '10 min') AS again_at
        FROM dispatch.tasks
        WHERE id = janitor_return.task_id AND status = 'processing'
          AND attempt = janitor_return.attempt AND launch = janitor_return.launch
          AND run_digest = janitor_return.run_digest -- the run that was judged, not the one that holds the row by now
          AND cancel_requested_at IS NULL AND heartbeat_at < now() - interval '60 s'
    )
    UPDATE dispatch.tasks SET
        status = CASE WHEN is_again THEN 'waiting' ELSE 'failed' END, run_digest = NULL, error = words,
        failures = judged.failures,
        attempt = attempt + is_again::integer,
        launch = CASE WHEN is_again THEN 0 ELSE launch END,
        job_uid = CASE WHEN is_again THEN NULL ELSE job_uid END,
        run_at = CASE WHEN is_again THEN again_at ELSE run_at END,
        finished_at = CASE WHEN is_again THEN NULL ELSE now() END
    FROM judged WHERE tasks.id = judged.id
    RETURNING tasks.status INTO answer;
    IF answer IS NOT NULL THEN
        PERFORM dispatch.close_launch(janitor_return.task_id);
        PERFORM dispatch.announce(CASE answer WHEN 'waiting' THEN 'dispatch_tasks' ELSE 'dispatch_done' END,
            CASE answer WHEN 'waiting' THEN 'dispatch.tasks_clock'::regclass ELSE 'dispatch.done_clock'::regclass END);
    END IF;
    RETURN answer;
END
$$;
COMMENT ON FUNCTION dispatch.janitor_return IS 'A run whose container is gone: the row''s next attempt, or failed. The new status; NULL: it was somebody else''s by then; locked: another transaction holds the row.';

CREATE OR REPLACE FUNCTION dispatch.janitor_end(task_id bigint, attempt integer, launch integer, job_uid text, outcome text,
                                                error text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    answer text;
    words  text := dispatch.clip(nullif(janitor_end.error, ''), 8192);
BEGIN
    IF janitor_end.outcome IS NULL OR janitor_end.outcome NOT IN ('succeeded', 'failed') THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'the outcome is unknown', HINT = 'succeeded or failed.';
    ELSIF NOT dispatch.is_free(janitor_end.task_id) THEN
        RETURN 'locked';
    END IF;
    UPDATE dispatch.tasks SET
        status = janitor_end.outcome, run_digest = NULL, finished_at = now(),
        error = CASE janitor_end.outcome WHEN 'failed' THEN words END -- none of an earlier attempt either
    WHERE id = janitor_end.task_id AND attempt = janitor_end.attempt
      AND (status = 'waiting'
           -- a run is ended only by the outcome of its own Job
           OR status = 'processing' AND launch = janitor_end.launch AND job_uid = janitor_end.job_uid)
    RETURNING status INTO answer;
    IF answer IS NOT NULL THEN
        UPDATE dispatch.task_launches SET ended_at = now(), outcome = janitor_end.outcome, error = words
        WHERE task_id = janitor_end.task_id AND attempt = janitor_end.attempt AND launch = janitor_end.launch
          AND ended_at IS NULL;
        PERFORM dispatch.announce('dispatch_done', 'dispatch.done_clock');
    END IF;
    RETURN answer;
END
$$;
COMMENT ON FUNCTION dispatch.janitor_end IS 'Ends a parked row, or one whose Job''s exit code is its report. job_uid NULL: no Job was ever made of it. The new status; NULL: it moved on by itself; locked: another transaction holds the row.';

CREATE FUNCTION dispatch.janitor_cancel(task_id bigint, attempt integer, run_digest bytea) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    answer text;
BEGIN
    IF NOT dispatch.is_free(janitor_cancel.task_id) THEN
        RETURN 'locked';
    END IF;
    UPDATE dispatch.tasks SET status = 'cancelled', run_digest = NULL, finished_at = now()
    WHERE id = janitor_cancel.task_id AND status = 'processing' AND attempt = janitor_cancel.attempt
      AND run_digest = janitor_cancel.run_digest AND cancel_requested_at IS NOT NULL
    RETURNING status INTO answer;
    IF answer IS NOT NULL THEN
        PERFORM dispatch.close_launch(janitor_cancel.task_id);
        PERFORM dispatch.announce('dispatch_done', 'dispatch.done_clock');
    END IF;
    RETURN answer;
END
$$;
COMMENT ON FUNCTION dispatch.janitor_cancel IS 'Ends a cancelled run whose container cannot answer any more. The new status; NULL: it was over; locked: another transaction holds the row.';

CREATE OR REPLACE FUNCTION dispatch.janitor_delete(days integer, most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    deleted integer;
BEGIN
    WITH old AS (
        SELECT id FROM dispatch.tasks
        WHERE finished_at < now() - make_interval(days => greatest(janitor_delete.days, 1))
        ORDER BY finished_at LIMIT least(janitor_delete.most, 10000)
        FOR UPDATE SKIP LOCKED -- a second janitor takes the next ones
    ), rows AS (
        DELETE FROM dispatch.tasks USING old WHERE tasks.id = old.id RETURNING tasks.id
    ), launches AS (
        DELETE FROM dispatch.task_launches USING rows WHERE task_launches.task_id = rows.id
    ), keys AS (
        DELETE FROM dispatch.earlier_start_keys USING rows WHERE earlier_start_keys.task_id = rows.id
    )
    SELECT count(*) INTO deleted FROM rows;
    RETURN deleted;
END
$$;
