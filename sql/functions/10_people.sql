-- The calls of people. Each is a wrapper that runs as its caller and hands current_user over, around a function of the owner that
-- nobody can name. The wrapped function looks for the row by the caller's right first, and changes it then by its id.

CREATE OR REPLACE FUNCTION dispatch_private.close_launches(tasks bigint[]) RETURNS void
LANGUAGE sql AS $$
    UPDATE dispatch_private.task_launches SET ended_at = now(), outcome = 'lost' WHERE task_id = ANY (tasks) AND ended_at IS NULL
$$;
COMMENT ON FUNCTION dispatch_private.close_launches(bigint[]) IS 'Ends the records of runs that will not report any more.';

CREATE OR REPLACE FUNCTION dispatch_private.cancel_rows(ids bigint[], why text) RETURNS TABLE (task bigint, became text)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    words CONSTANT text := dispatch_private.clip(nullif(why, ''), 8192);
    ended bigint[];
BEGIN
    RETURN QUERY
    WITH judged AS (
        SELECT id, CASE WHEN status = 'processing' AND heartbeat_at >= now() - interval '60 s' THEN 'processing'
                        ELSE 'cancelled' END AS status
        FROM dispatch_private.tasks WHERE id = ANY (ids) AND status IN ('waiting', 'processing')
        ORDER BY id FOR UPDATE
    )
    UPDATE dispatch_private.tasks SET
        status = judged.status,
        error = coalesce(words, error),
        run_digest = CASE judged.status WHEN 'processing' THEN run_digest END,
        cancel_requested_at = CASE judged.status WHEN 'processing' THEN coalesce(cancel_requested_at, now()) ELSE cancel_requested_at END,
        finished_at = CASE judged.status WHEN 'cancelled' THEN now() END
    FROM judged WHERE tasks.id = judged.id
    RETURNING tasks.id, tasks.status;
    -- A separate statement, because the one above does not see a launch that was committed while it waited for the row.
    ended := ARRAY(SELECT t.id FROM dispatch_private.tasks AS t WHERE t.id = ANY (ids) AND t.status = 'cancelled');
    PERFORM dispatch_private.close_launches(ended);
    IF ended <> '{}' THEN
        PERFORM dispatch_private.announce_rows('done', ended);
    END IF;
END
$$;
COMMENT ON FUNCTION dispatch_private.cancel_rows(bigint[], text) IS 'Cancels rows that have not ended: at once, or by asking the container. The rows that it changed, and their new status.';

CREATE OR REPLACE FUNCTION dispatch_private.retry_rows(ids bigint[], expected integer, only_ended boolean) RETURNS SETOF bigint
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    moved bigint[];
    again bigint;
    alive bigint;
BEGIN
    WITH locked AS (
        SELECT id FROM dispatch_private.tasks
        WHERE id = ANY (ids) AND (expected IS NULL OR attempt = expected) AND attempt < dispatch_private.last_attempt()
          AND (NOT only_ended OR status IN ('failed', 'cancelled')) -- another call may have retried it meanwhile
        ORDER BY id FOR UPDATE
    ), changed AS (
        UPDATE dispatch_private.tasks SET
            status = 'waiting', attempt = attempt + 1, launch = 0, failures = 0, run_at = NULL, run_digest = NULL, job_uid = NULL,
            started_at = NULL, heartbeat_at = NULL, finished_at = NULL, cancel_requested_at = NULL, result = NULL
        FROM locked WHERE tasks.id = locked.id
        RETURNING tasks.id
    )
    SELECT array_agg(changed.id) INTO moved FROM changed;
    IF moved IS NOT NULL THEN
        PERFORM dispatch_private.close_launches(moved);
        PERFORM dispatch_private.announce_rows('tasks', moved);
    END IF;
    RETURN QUERY SELECT unnest(moved);
EXCEPTION WHEN unique_violation THEN -- said anew: the server's own words hold the key
    SELECT ended.id, living.id INTO again, alive FROM dispatch_private.tasks AS ended CROSS JOIN LATERAL (
        SELECT t.id FROM dispatch_private.tasks AS t WHERE t.queue = ended.queue AND t.submitted_by = ended.submitted_by
        AND t.dedupe_key = ended.dedupe_key AND t.status IN ('waiting', 'processing') AND t.id <> ended.id) AS living
    WHERE ended.id = ANY (ids) ORDER BY ended.id LIMIT 1;
    RAISE EXCEPTION USING ERRCODE = '23505', COLUMN = 'dedupe_key', TABLE = 'tasks', SCHEMA = 'dispatch',
        MESSAGE = CASE WHEN FOUND THEN format('task %s cannot wait again: task %s has its dedupe_key, and is not over', again, alive)
                       ELSE 'another live row has the dedupe_key of this one' END,
        HINT = 'Cancel that one, or wait until it is over.';
END
$$;
COMMENT ON FUNCTION dispatch_private.retry_rows(bigint[], integer, boolean) IS 'Returns rows to waiting, and fences their runs off. expected: only rows of this attempt; NULL: of any. only_ended: only rows that have failed or were cancelled. The rows that it changed.';

CREATE OR REPLACE FUNCTION dispatch_private.task_cancel(who text, task bigint, reason text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    own CONSTANT bigint := dispatch_private.own_task(who, task);
BEGIN
    IF own IS NULL THEN
        RAISE NOTICE 'no task % that you may cancel', task;
        RETURN NULL;
    END IF;
    RETURN coalesce((SELECT c.became FROM dispatch_private.cancel_rows(ARRAY[own], reason) AS c),
                    (SELECT t.status FROM dispatch_private.tasks AS t WHERE t.id = own)); -- it was over already
END
$$;

CREATE OR REPLACE FUNCTION dispatch.task_cancel(task_id bigint, reason text DEFAULT NULL) RETURNS text
LANGUAGE sql BEGIN ATOMIC
    SELECT dispatch_private.task_cancel(current_user::text COLLATE "default", task_id, reason);
END;
COMMENT ON FUNCTION dispatch.task_cancel(bigint, text) IS 'cancelled: at once; processing: its container was asked to stop; another status: it was over already; NULL: no such row of yours.';

CREATE OR REPLACE FUNCTION dispatch_private.task_retry(who text, task bigint, expected integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    own CONSTANT bigint := dispatch_private.own_task(who, task);
    held dispatch_private.tasks;
BEGIN
    SELECT * INTO held FROM dispatch_private.tasks AS t WHERE t.id = own;
    IF NOT FOUND THEN
        RAISE NOTICE 'no task % that you may retry', task;
        RETURN NULL;
    ELSIF NOT EXISTS (SELECT FROM dispatch_private.queues AS q WHERE q.name = held.queue) THEN
        RAISE EXCEPTION USING ERRCODE = 'DI003', MESSAGE = format('the queue "%s" of task %s is not declared any more', held.queue, own),
            HINT = 'An operator declares it again; then call again.', COLUMN = 'queue', TABLE = 'tasks', SCHEMA = 'dispatch';
    ELSIF held.attempt >= dispatch_private.last_attempt() THEN
        RAISE EXCEPTION USING ERRCODE = '54000', HINT = 'Insert the task again as a new row.',
            MESSAGE = format('task %s has had its %s attempts, which is the most', own, dispatch_private.last_attempt()),
            COLUMN = 'attempt', TABLE = 'tasks', SCHEMA = 'dispatch';
    END IF;
    IF EXISTS (SELECT FROM dispatch_private.retry_rows(ARRAY[own], expected, false)) THEN
        IF held.submitted_by = dispatch_private.own_name(who) THEN -- an operator is free to retry the rows of others
            PERFORM dispatch_private.check_bound(held.submitted_by, held.queue);
        END IF;
        RETURN 'waiting';
    END IF;
    RETURN (SELECT t.status FROM dispatch_private.tasks AS t WHERE t.id = own);
END
$$;

CREATE OR REPLACE FUNCTION dispatch.task_retry(task_id bigint, attempt integer DEFAULT NULL) RETURNS text
LANGUAGE sql BEGIN ATOMIC
    SELECT dispatch_private.task_retry(current_user::text COLLATE "default", task_id, attempt);
END;
COMMENT ON FUNCTION dispatch.task_retry(bigint, integer) IS 'Any row back to waiting, attempt + 1, failures 0; a container that still runs is fenced off. With `attempt` only if the row is at it, so that it may be repeated.';

CREATE OR REPLACE FUNCTION dispatch_private.task_set_priority(who text, task bigint, wanted integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    own CONSTANT bigint := dispatch_private.own_task(who, task);
BEGIN
    IF wanted IS NULL OR wanted NOT BETWEEN 0 AND 1000 THEN
        RAISE EXCEPTION USING ERRCODE = 'DI004', COLUMN = 'priority', TABLE = 'tasks', SCHEMA = 'dispatch',
            MESSAGE = concat('priority ', coalesce(wanted::text, 'NULL'), ' is out of range'), HINT = '0..1000, lower first.';
    ELSIF own IS NULL THEN
        RAISE NOTICE 'no task % that you may change', task;
        RETURN NULL;
    END IF;
    UPDATE dispatch_private.tasks SET priority = wanted WHERE id = own AND status = 'waiting';
    RETURN (SELECT t.status FROM dispatch_private.tasks AS t WHERE t.id = own);
END
$$;

CREATE OR REPLACE FUNCTION dispatch.task_set_priority(task_id bigint, priority integer) RETURNS text
LANGUAGE sql BEGIN ATOMIC
    SELECT dispatch_private.task_set_priority(current_user::text COLLATE "default", task_id, priority);
END;
COMMENT ON FUNCTION dispatch.task_set_priority(bigint, integer) IS 'Moves a waiting row in its queue: 0..1000, lower first. Its status; any other than waiting: nothing has changed. NULL: no such row of yours.';

CREATE OR REPLACE FUNCTION dispatch_private.batch_cancel(who text, in_queue text, named text, most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    own CONSTANT text := dispatch_private.own_name(who);
BEGIN
    IF most < 1 THEN -- the answer 0 would say that no row is left
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'most is NULL, or below 1',
            HINT = 'A number of rows from 1 on; without it, the call cancels the whole batch.';
    END IF;
    RETURN (SELECT count(*) FROM dispatch_private.cancel_rows(ARRAY(
        SELECT t.id FROM dispatch_private.tasks AS t
        WHERE (t.submitted_by, t.queue, t.batch) >= (own, in_queue, named) AND (t.submitted_by, t.queue, t.batch) <= (own, in_queue, named)
          AND t.batch IS NOT NULL AND (t.status = 'waiting' OR t.status = 'processing' AND (most IS NULL
               OR t.cancel_requested_at IS NULL OR t.heartbeat_at < now() - interval '60 s')) -- the others were asked by an earlier call
        ORDER BY t.submitted_by, t.queue, t.batch, t.id LIMIT most), NULL));
END
$$;

CREATE OR REPLACE FUNCTION dispatch.batch_cancel(queue text, batch text) RETURNS integer
LANGUAGE sql BEGIN ATOMIC
    SELECT dispatch_private.batch_cancel(current_user::text COLLATE "default", queue, batch, NULL);
END;
COMMENT ON FUNCTION dispatch.batch_cancel(text, text) IS 'Cancels every row of your batch that has not ended, as task_cancel does. The number of these rows.';

CREATE OR REPLACE FUNCTION dispatch.batch_cancel(queue text, batch text, most integer) RETURNS integer
LANGUAGE sql BEGIN ATOMIC
    SELECT dispatch_private.batch_cancel(current_user::text COLLATE "default", queue, batch, coalesce(most, 0));
END;
COMMENT ON FUNCTION dispatch.batch_cancel(text, text, integer) IS 'The same in slices that others can pass: so many rows at most. The number of these rows; call it until it is 0, each time in a transaction of its own.';

CREATE OR REPLACE FUNCTION dispatch_private.batch_retry(who text, in_queue text, named text) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    own    CONSTANT text := dispatch_private.own_name(who);
    ended  CONSTANT bigint[] := ARRAY(
        SELECT t.id FROM dispatch_private.tasks AS t
        WHERE (t.submitted_by, t.queue, t.batch) >= (own, in_queue, named) AND (t.submitted_by, t.queue, t.batch) <= (own, in_queue, named)
          AND t.batch IS NOT NULL AND t.status IN ('failed', 'cancelled')
        ORDER BY t.submitted_by, t.queue, t.batch, t.id);
    number integer;
BEGIN
    IF ended <> '{}' AND NOT EXISTS (SELECT FROM dispatch_private.queues AS q WHERE q.name = in_queue) THEN
        RAISE EXCEPTION USING ERRCODE = 'DI003', MESSAGE = format('the queue "%s" is not declared any more', in_queue),
            HINT = 'An operator declares it again; then call again.', COLUMN = 'queue', TABLE = 'tasks', SCHEMA = 'dispatch';
    END IF;
    -- Of the rows of one dedupe_key only the newest comes back, and none if another row of the key is alive: it does the work.
    SELECT count(*) INTO number FROM dispatch_private.retry_rows(ARRAY(
        SELECT DISTINCT ON (coalesce(t.dedupe_key, t.id::text), t.dedupe_key IS NULL) t.id FROM dispatch_private.tasks AS t
        WHERE t.id = ANY (ended) AND NOT (t.dedupe_key IS NOT NULL AND EXISTS (
            SELECT FROM dispatch_private.tasks AS living WHERE living.queue = in_queue AND living.submitted_by = own
            AND living.dedupe_key = t.dedupe_key AND living.status IN ('waiting', 'processing')))
        ORDER BY coalesce(t.dedupe_key, t.id::text), t.dedupe_key IS NULL, t.id DESC), NULL, true);
    IF number > 0 THEN
        PERFORM dispatch_private.check_bound(own, in_queue);
    END IF;
    RETURN number;
END
$$;

CREATE OR REPLACE FUNCTION dispatch.batch_retry(queue text, batch text) RETURNS integer
LANGUAGE sql BEGIN ATOMIC
    SELECT dispatch_private.batch_retry(current_user::text COLLATE "default", queue, batch);
END;
COMMENT ON FUNCTION dispatch.batch_retry(text, text) IS 'Returns every failed or cancelled row of your batch to waiting, as task_retry does; not those whose dedupe_key is live again. The number of these rows.';

CREATE OR REPLACE FUNCTION dispatch_private.rows_move(who text, submitter text, login text) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    theirs text;
    moved  integer;
BEGIN
    IF NOT (dispatch_private.rights_of(who)).acts THEN
        RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('"%s" may not move the rows of others', who), HINT = 'Members of dispatch_operator may.';
    ELSIF to_regrole(quote_ident(login)) IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '42704', MESSAGE = format('there is no role "%s"', login), HINT = 'Name the login that is to have the rows.';
    END IF;
    theirs := dispatch_private.name_of(login);
    IF NOT (SELECT r.rolcanlogin FROM pg_roles AS r WHERE r.rolname = login) THEN
        RAISE NOTICE 'the role "%" may not log in: its members do not see the rows as their own', login USING HINT = 'Name a login.';
    END IF;
    IF theirs = submitter THEN
        RETURN 0;
    END IF;
    WITH few AS (
        SELECT t.id FROM dispatch_private.tasks AS t
        WHERE t.submitted_by = submitter AND NOT (t.dedupe_key IS NOT NULL AND t.status IN ('waiting', 'processing') AND EXISTS (
            SELECT FROM dispatch_private.tasks AS living WHERE living.queue = t.queue AND living.submitted_by = theirs
            AND living.dedupe_key = t.dedupe_key AND living.status IN ('waiting', 'processing')))
        ORDER BY t.submitted_by, t.id LIMIT 1000 FOR UPDATE SKIP LOCKED -- so few that others can pass
    )
    UPDATE dispatch_private.tasks SET submitted_by = theirs FROM few WHERE tasks.id = few.id;
    GET DIAGNOSTICS moved = ROW_COUNT;
    IF moved = 0 AND EXISTS (SELECT FROM dispatch_private.tasks AS t WHERE t.submitted_by = submitter) THEN
        RAISE NOTICE 'rows of "%" are left: somebody holds them in a transaction, or "%" has live rows with their dedupe_key', submitter, theirs;
    ELSIF moved = 0 THEN
        DELETE FROM dispatch_private.submitters WHERE name = submitter; -- a login of this name begins anew
        IF NOT FOUND THEN
            RAISE NOTICE 'no row is of "%": name the submitter as submitted_by has it', submitter;
        END IF;
    END IF;
    RETURN moved;
END
$$;

CREATE OR REPLACE FUNCTION dispatch.rows_move(submitter text, login text) RETURNS integer
LANGUAGE sql BEGIN ATOMIC
    SELECT dispatch_private.rows_move(current_user::text COLLATE "default", submitter, login);
END;
COMMENT ON FUNCTION dispatch.rows_move(text, text) IS 'For operators: gives rows to another login, 1,000 at most. The number of these rows; call it until it is 0. A notice says which rows are left then: those that others hold, and live ones whose dedupe_key the login uses.';
