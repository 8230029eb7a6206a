-- The janitor's functions: the only ones by which a program of ours moves a row. Each is one compare-and-set on what the
-- janitor read and judged; a container, a dispatcher or a second janitor that was faster makes it change nothing (NULL).

CREATE FUNCTION janitor_return(task_id bigint, attempt integer, launch integer, run_token uuid, failures integer,
                               error text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = dispatch, pg_temp AS $$
#variable_conflict use_column
DECLARE
    answer text;
    words  text := clip(janitor_return.error, 8192);
BEGIN
    WITH judged AS (
        SELECT id, least(failures + greatest(janitor_return.failures, 1), 32767)::smallint AS failures,
               failures + greatest(janitor_return.failures, 1) < max_failures AS is_again,
               now() + least(interval '10 s' * power(2, least(failures, 10)), interval '10 min') AS again_at
        FROM tasks
        WHERE id = janitor_return.task_id AND status = 'processing'
          AND attempt = janitor_return.attempt AND launch = janitor_return.launch
          AND run_token = janitor_return.run_token -- the run that was judged, not the one that holds the row by now
          AND cancel_requested_at IS NULL AND heartbeat_at < now() - interval '60 s'
        FOR UPDATE
    )
    UPDATE tasks SET
        status = CASE WHEN is_again THEN 'waiting' ELSE 'failed' END, run_token = NULL, error = words,
        failures = judged.failures,
        attempt = attempt + is_again::integer,
        launch = CASE WHEN is_again THEN 0 ELSE launch END,
        job_uid = CASE WHEN is_again THEN NULL ELSE job_uid END,
        run_at = CASE WHEN is_again THEN again_at ELSE run_at END,
        finished_at = CASE WHEN is_again THEN NULL ELSE now() END
    FROM judged WHERE tasks.id = judged.id
    RETURNING tasks.status INTO answer;
    IF answer IS NOT NULL THEN
        PERFORM close_launch(janitor_return.task_id);
        PERFORM announce(CASE answer WHEN 'waiting' THEN 'dispatch_tasks' ELSE 'dispatch_done' END,
                         CASE answer WHEN 'waiting' THEN 'tasks_clock'::regclass ELSE 'done_clock'::regclass END);
    END IF;
    RETURN answer;
END
$$;
COMMENT ON FUNCTION janitor_return IS 'A run whose container is gone: the row''s next attempt, or failed. The new status; NULL: it was somebody else''s by then.';

CREATE FUNCTION janitor_end(task_id bigint, attempt integer, launch integer, job_uid text, outcome text, error text)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = dispatch, pg_temp AS $$
#variable_conflict use_column
DECLARE
    answer text;
    words  text := clip(nullif(janitor_end.error, ''), 8192);
BEGIN
    IF janitor_end.outcome IS NULL OR janitor_end.outcome NOT IN ('succeeded', 'failed') THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'the outcome is unknown', HINT = 'succeeded or failed.';
    END IF;
    UPDATE tasks SET
        status = janitor_end.outcome, run_token = NULL, finished_at = now(),
        error = CASE janitor_end.outcome WHEN 'failed' THEN words END -- none of an earlier attempt either
    WHERE id = janitor_end.task_id AND attempt = janitor_end.attempt
      AND (status = 'waiting'
           -- a holder is ended on the word of its own Job alone
           OR status = 'processing' AND launch = janitor_end.launch AND job_uid = janitor_end.job_uid)
    RETURNING status INTO answer;
    IF answer IS NOT NULL THEN
        UPDATE task_launches SET ended_at = now(), outcome = janitor_end.outcome, error = words
        WHERE task_id = janitor_end.task_id AND attempt = janitor_end.attempt AND launch = janitor_end.launch
          AND ended_at IS NULL;
        PERFORM announce('dispatch_done', 'done_clock');
    END IF;
    RETURN answer;
END
$$;
COMMENT ON FUNCTION janitor_end IS 'Ends a parked row, or one whose Job''s exit code is its report. job_uid NULL: no Job was ever made of it. The new status; NULL: it moved on by itself.';

CREATE FUNCTION janitor_cancel(task_id bigint, attempt integer, run_token uuid) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = dispatch, pg_temp AS $$
#variable_conflict use_column
DECLARE
    answer text;
BEGIN
    UPDATE tasks SET status = 'cancelled', run_token = NULL, finished_at = now()
    WHERE id = janitor_cancel.task_id AND status = 'processing' AND attempt = janitor_cancel.attempt
      AND run_token = janitor_cancel.run_token AND cancel_requested_at IS NOT NULL
    RETURNING status INTO answer;
    IF answer IS NOT NULL THEN
        PERFORM close_launch(janitor_cancel.task_id);
        PERFORM announce('dispatch_done', 'done_clock');
    END IF;
    RETURN answer;
END
$$;
COMMENT ON FUNCTION janitor_cancel IS 'Ends a cancelled run whose container cannot answer any more.';

CREATE FUNCTION janitor_delete(days integer, most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = dispatch, pg_temp AS $$
DECLARE
    deleted integer;
BEGIN
    WITH old AS (
        SELECT id FROM tasks
        WHERE finished_at < now() - make_interval(days => greatest(janitor_delete.days, 1))
        ORDER BY finished_at LIMIT least(janitor_delete.most, 10000)
        FOR UPDATE SKIP LOCKED -- a second janitor takes the next ones
    ), rows AS (
        DELETE FROM tasks USING old WHERE tasks.id = old.id RETURNING tasks.id
    ), launches AS (
        DELETE FROM task_launches USING rows WHERE task_launches.task_id = rows.id
    )
    SELECT count(*) INTO deleted FROM rows;
    RETURN deleted;
END
$$;
COMMENT ON FUNCTION janitor_delete IS 'Deletes rows that ended so many days ago, and their launches; how many rows.';

REVOKE EXECUTE ON FUNCTION janitor_return(bigint, integer, integer, uuid, integer, text),
    janitor_end(bigint, integer, integer, text, text, text), janitor_cancel(bigint, integer, uuid),
    janitor_delete(integer, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION janitor_return(bigint, integer, integer, uuid, integer, text),
    janitor_end(bigint, integer, integer, text, text, text), janitor_cancel(bigint, integer, uuid),
    janitor_delete(integer, integer) TO dispatch_janitor;
