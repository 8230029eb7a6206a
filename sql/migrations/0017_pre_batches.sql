-- Batches, labels and progress: marks by which submitters find their rows again, and what a container says while it works.

ALTER TABLE dispatch.tasks
    ADD COLUMN batch text,
    ADD COLUMN labels jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN progress real,
    ADD COLUMN note text;
COMMENT ON COLUMN dispatch.tasks.batch IS 'You set it. Rows that belong together, 1 to 200 characters; the name is yours alone, in each queue. See the view batch_status.';
COMMENT ON COLUMN dispatch.tasks.labels IS 'You set it. Marks of your own: object of strings, 16 names of 63 characters, values of 200 characters. Find rows by labels @> ''{"name": "value"}''.';
COMMENT ON COLUMN dispatch.tasks.progress IS 'How much is done, from 0 to 1, as the newest container says; NULL: it says nothing.';
COMMENT ON COLUMN dispatch.tasks.note IS 'What the newest container is doing, in its own words; 200 characters.';

-- The status is in the index, so that a batch is counted without a look at its rows.
CREATE INDEX tasks_of_batch ON dispatch.tasks (queue, submitted_by, batch) INCLUDE (status, started_at, finished_at)
    WHERE batch IS NOT NULL;
CREATE INDEX tasks_labels ON dispatch.tasks USING gin (labels jsonb_path_ops);

CREATE FUNCTION dispatch.check_labels(labels jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    seen record;
BEGIN
    IF jsonb_typeof(labels) IS DISTINCT FROM 'object' THEN
        PERFORM dispatch.refuse('DI008', 'labels', 'labels must be a JSON object of strings', 'Write {"name": "value"}, or leave it out.');
    ELSIF octet_length(labels::text) > 16384 THEN -- before they are looked at one by one
        PERFORM dispatch.refuse('DI008', 'labels', 'labels are too many or too long', 'At most 16, with names of 1 to 63 and values of at most 200 characters.');
    END IF;
    SELECT count(*) AS number,
           coalesce(bool_or(jsonb_typeof(value) <> 'string'), false) AS not_text,
           coalesce(bool_or(length(key) NOT BETWEEN 1 AND 63 OR length(value #>> '{}') > 200), false) AS too_long
    INTO seen FROM jsonb_each(labels);
    IF seen.not_text THEN
        PERFORM dispatch.refuse('DI008', 'labels', 'labels must be a JSON object of strings', 'Quote numbers and booleans: {"month": "7"}.');
    ELSIF seen.number > 16 OR seen.too_long THEN
        PERFORM dispatch.refuse('DI008', 'labels', 'labels are too many or too long', 'At most 16, with names of 1 to 63 and values of at most 200 characters.');
    END IF;
END
$$;
COMMENT ON FUNCTION dispatch.check_labels IS 'Refuses labels that are not usable.';

-- A trigger of its own, which runs only for rows that have one of both: other rows pay nothing for it.
CREATE FUNCTION dispatch.check_marks() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF length(NEW.batch) NOT BETWEEN 1 AND 200 THEN
        PERFORM dispatch.refuse('DI008', 'batch', 'batch is empty or too long', '1 to 200 characters; leave it out for a row that belongs to none.');
    END IF;
    PERFORM dispatch.check_labels(NEW.labels);
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION dispatch.check_marks IS 'Trigger: refuses a batch or labels that are not usable.';
CREATE TRIGGER check_marks BEFORE INSERT ON dispatch.tasks FOR EACH ROW
    WHEN (NEW.batch IS NOT NULL OR NEW.labels IS DISTINCT FROM '{}') EXECUTE FUNCTION dispatch.check_marks();

-- The function with one parameter makes room for the new one in the same transaction: two of them would be ambiguous. Calls
-- with the token alone go on.
DROP FUNCTION dispatch.task_heartbeat(uuid);
CREATE FUNCTION dispatch.task_heartbeat(run_token uuid, progress real DEFAULT NULL, note text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    digest bytea := dispatch.token_digest(task_heartbeat.run_token);
    answer text;
BEGIN
    UPDATE dispatch.tasks SET heartbeat_at = now(),
           -- A number that is none from 0 to 1 is ignored: a wrong report must not end a run. NaN is above every number.
           progress = CASE WHEN task_heartbeat.progress BETWEEN 0 AND 1 THEN task_heartbeat.progress ELSE progress END,
           note = coalesce(dispatch.plain_note(task_heartbeat.note), note)
    WHERE run_digest = digest AND status = 'processing'
    RETURNING CASE WHEN cancel_requested_at IS NULL THEN 'continue' ELSE 'cancel' END INTO answer;
    RETURN coalesce(answer, 'lost');
END
$$;

CREATE FUNCTION dispatch.plain_note(words text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT left(regexp_replace(left(words, 1000), '[\x01-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+', ' ', 'g'), 200)
$$;
COMMENT ON FUNCTION dispatch.plain_note IS 'The words on one line, without characters that control a terminal or the direction of text; 200 characters.';

-- What a container said is not true of the next one.
CREATE FUNCTION dispatch.forget_progress() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.progress := NULL;
    NEW.note := NULL;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION dispatch.forget_progress IS 'Trigger: a new attempt or launch has no progress yet.';
CREATE TRIGGER forget_progress BEFORE UPDATE OF attempt, launch ON dispatch.tasks FOR EACH ROW
    WHEN ((OLD.attempt, OLD.launch) <> (NEW.attempt, NEW.launch) AND (OLD.progress IS NOT NULL OR OLD.note IS NOT NULL))
    EXECUTE FUNCTION dispatch.forget_progress();

CREATE FUNCTION dispatch.task_set_priority(task_id bigint, priority integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    answer text;
BEGIN
    IF task_set_priority.priority IS NULL OR task_set_priority.priority NOT BETWEEN 0 AND 1000 THEN
        PERFORM dispatch.refuse('DI004', 'priority', 'priority is out of range', '0..1000, lower first.');
    END IF;
    UPDATE dispatch.tasks SET priority = task_set_priority.priority
    WHERE id = task_set_priority.task_id AND status = 'waiting' AND dispatch.may_act(submitted_by, queue)
    RETURNING status INTO answer;
    IF answer IS NULL THEN
        SELECT status INTO answer FROM dispatch.tasks
        WHERE id = task_set_priority.task_id AND dispatch.may_act(submitted_by, queue);
        IF NOT FOUND THEN
            RAISE NOTICE 'no task with this id that you may change';
        END IF;
    END IF;
    RETURN answer;
END
$$;
COMMENT ON FUNCTION dispatch.task_set_priority IS 'Moves a waiting row in its queue: 0..1000, lower first. Its status; any other than waiting: nothing has changed. NULL: no such row of yours.';

CREATE FUNCTION dispatch.batch_cancel(queue text, batch text) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    one    bigint;
    number integer := 0;
BEGIN
    FOR one IN SELECT id FROM dispatch.tasks
        WHERE queue = batch_cancel.queue AND batch = batch_cancel.batch AND submitted_by = session_user
          AND status IN ('waiting', 'processing') ORDER BY id
    LOOP
        number := number + (dispatch.task_cancel(one) IN ('cancelled', 'processing'))::integer;
    END LOOP;
    RETURN number;
END
$$;
COMMENT ON FUNCTION dispatch.batch_cancel IS 'Cancels every row of your batch that has not ended, as task_cancel does. The number of these rows.';

CREATE FUNCTION dispatch.batch_retry(queue text, batch text) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    one    dispatch.tasks;
    number integer := 0;
BEGIN
    FOR one IN SELECT * FROM dispatch.tasks
        WHERE queue = batch_retry.queue AND batch = batch_retry.batch AND submitted_by = session_user
          AND status IN ('failed', 'cancelled') ORDER BY id
    LOOP
        -- a row with the same dedupe_key is there again: it does the work
        CONTINUE WHEN one.dedupe_key IS NOT NULL AND EXISTS (
            SELECT FROM dispatch.tasks AS living WHERE living.queue = one.queue AND living.submitted_by = one.submitted_by
            AND living.dedupe_key = one.dedupe_key AND living.status IN ('waiting', 'processing'));
        number := number + (dispatch.task_retry(one.id, one.attempt) = 'waiting')::integer;
    END LOOP;
    RETURN number;
END
$$;
COMMENT ON FUNCTION dispatch.batch_retry IS 'Returns every failed or cancelled row of your batch to waiting, as task_retry does; not those whose dedupe_key is live again. The number of these rows.';

CREATE FUNCTION dispatch.task_ended_since(since timestamptz)
RETURNS TABLE (id bigint, queue text, batch text, status text, finished_at timestamptz)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.id, t.queue, t.batch, t.status, t.finished_at FROM dispatch.tasks AS t
    WHERE t.submitted_by = session_user AND t.finished_at >= since ORDER BY t.finished_at, t.id
$$;
COMMENT ON FUNCTION dispatch.task_ended_since IS 'Your rows that have ended since a time, oldest first. Ask from a minute before the last answer: the end of a row is seen when its transaction has ended.';

CREATE VIEW dispatch.batch_status WITH (security_invoker = true) AS
SELECT queue, submitted_by, batch, count(*)::integer AS tasks,
       (count(*) FILTER (WHERE status = 'waiting'))::integer AS waiting,
       (count(*) FILTER (WHERE status = 'processing'))::integer AS processing,
       (count(*) FILTER (WHERE status = 'succeeded'))::integer AS succeeded,
       (count(*) FILTER (WHERE status = 'failed'))::integer AS failed,
       (count(*) FILTER (WHERE status = 'cancelled'))::integer AS cancelled,
       min(started_at) AS first_started_at, max(finished_at) AS last_finished_at
FROM dispatch.tasks WHERE batch IS NOT NULL GROUP BY queue, submitted_by, batch;
COMMENT ON VIEW dispatch.batch_status IS 'How far each batch is: SELECT * FROM dispatch.batch_status WHERE queue = … AND batch = …';
COMMENT ON COLUMN dispatch.batch_status.queue IS 'tasks.queue.';
COMMENT ON COLUMN dispatch.batch_status.submitted_by IS 'tasks.submitted_by: two submitters may use the same name.';
COMMENT ON COLUMN dispatch.batch_status.batch IS 'tasks.batch.';
COMMENT ON COLUMN dispatch.batch_status.tasks IS 'Number of rows.';
COMMENT ON COLUMN dispatch.batch_status.waiting IS 'Number of rows that wait.';
COMMENT ON COLUMN dispatch.batch_status.processing IS 'Number of rows that run.';
COMMENT ON COLUMN dispatch.batch_status.succeeded IS 'Number of rows that have succeeded.';
COMMENT ON COLUMN dispatch.batch_status.failed IS 'Number of rows that have failed.';
COMMENT ON COLUMN dispatch.batch_status.cancelled IS 'Number of rows that have been cancelled.';
COMMENT ON COLUMN dispatch.batch_status.first_started_at IS 'When the first of its present attempts started; NULL: none has.';
COMMENT ON COLUMN dispatch.batch_status.last_finished_at IS 'When the last row ended; NULL: none has. The batch is over if no row waits or runs.';

REVOKE EXECUTE ON FUNCTION dispatch.check_labels(jsonb), dispatch.check_marks(), dispatch.task_heartbeat(uuid, real, text),
    dispatch.plain_note(text), dispatch.forget_progress(), dispatch.task_set_priority(bigint, integer),
    dispatch.batch_cancel(text, text), dispatch.batch_retry(text, text), dispatch.task_ended_since(timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION dispatch.task_heartbeat(uuid, real, text) TO dispatch_task;
GRANT EXECUTE ON FUNCTION dispatch.task_set_priority(bigint, integer) TO dispatch_submitter, dispatch_operator;
GRANT EXECUTE ON FUNCTION dispatch.batch_cancel(text, text), dispatch.batch_retry(text, text),
    dispatch.task_ended_since(timestamptz) TO dispatch_submitter;
GRANT INSERT (batch, labels) ON dispatch.tasks TO dispatch_submitter;
GRANT SELECT (batch, labels, progress, note) ON dispatch.tasks TO dispatch_reader, dispatch_janitor, dispatch_observer;
GRANT SELECT ON dispatch.batch_status TO dispatch_submitter, dispatch_operator, dispatch_observer;
