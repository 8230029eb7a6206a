-- The calls of the janitor, the only program of ours that writes (docs/protocol.md).

CREATE OR REPLACE FUNCTION dispatch_private.is_free(task_id bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    -- The transaction keeps the lock, so no other session can change the row that is read after it.
    PERFORM FROM dispatch_private.tasks WHERE id = is_free.task_id FOR UPDATE SKIP LOCKED;
    RETURN FOUND OR NOT EXISTS (SELECT FROM dispatch_private.tasks WHERE id = is_free.task_id);
END
$$;
COMMENT ON FUNCTION dispatch_private.is_free(bigint) IS 'Takes the row''s lock without waiting. False: another transaction holds it.';

CREATE OR REPLACE FUNCTION dispatch_private.janitor_cancel(task_id bigint, attempt integer, run_digest bytea) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    answer text;
BEGIN
    IF NOT dispatch_private.is_free(janitor_cancel.task_id) THEN
        RETURN 'locked';
    END IF;
    UPDATE dispatch_private.tasks SET status = 'cancelled', run_digest = NULL, finished_at = now()
    WHERE id = janitor_cancel.task_id AND status = 'processing' AND attempt = janitor_cancel.attempt
      AND run_digest = janitor_cancel.run_digest AND cancel_requested_at IS NOT NULL
    RETURNING status INTO answer;
    IF answer IS NOT NULL THEN
        PERFORM dispatch_private.close_launches(ARRAY[janitor_cancel.task_id]);
        PERFORM dispatch_private.announce_rows('done', ARRAY[janitor_cancel.task_id]);
    END IF;
    RETURN answer;
END
$$;
COMMENT ON FUNCTION dispatch_private.janitor_cancel(bigint, integer, bytea) IS 'Ends a cancelled run whose container cannot answer any more. The new status; NULL: it was over; locked: another transaction holds the row.';

CREATE OR REPLACE FUNCTION dispatch_private.delete_rows(ids bigint[], OUT deleted integer, OUT kept bigint[], OUT why text)
LANGUAGE plpgsql AS $$
DECLARE
    half integer := cardinality(ids) / 2;
    rest record;
BEGIN
    kept := '{}';
    BEGIN
        WITH rows AS (
            DELETE FROM dispatch_private.tasks WHERE id = ANY (delete_rows.ids) RETURNING id
        ), launches AS (
            DELETE FROM dispatch_private.task_launches USING rows WHERE task_launches.task_id = rows.id
        ), keys AS (
            DELETE FROM dispatch_private.earlier_start_keys USING rows WHERE earlier_start_keys.task_id = rows.id
        )
        SELECT count(*) INTO deleted FROM rows;
        IF deleted < cardinality(ids) THEN
            kept := ARRAY(SELECT id FROM dispatch_private.tasks WHERE id = ANY (delete_rows.ids) ORDER BY id);
            why := CASE WHEN kept <> '{}' THEN 'a trigger on dispatch_private.tasks skips the DELETE' END;
        END IF;
        RETURN;
    EXCEPTION WHEN OTHERS THEN -- somebody's foreign key or trigger
        IF half = 0 THEN
            deleted := 0;
            kept := ids;
            why := format('%s (%s)', left(SQLERRM, 200), SQLSTATE);
            RETURN;
        END IF;
    END;
    SELECT * INTO deleted, kept, why FROM dispatch_private.delete_rows(ids[:half]);
    SELECT * INTO rest FROM dispatch_private.delete_rows(ids[half + 1:]);
    deleted := deleted + rest.deleted;
    kept := kept || rest.kept;
    why := coalesce(why, rest.why);
END
$$;
COMMENT ON FUNCTION dispatch_private.delete_rows(bigint[]) IS 'Deletes rows with their launches. kept: the rows that cannot be deleted; why: of the first one.';

CREATE OR REPLACE FUNCTION dispatch_private.forget_gone_roles() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE dispatch_private.submitters AS s SET role = NULL
    WHERE s.name IN (
        SELECT one.name FROM dispatch_private.submitters AS one
        WHERE one.role IS NOT NULL AND NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.oid = one.role)
        FOR UPDATE SKIP LOCKED
    );
    -- 0 is no role. With NULL the name would count, which somebody else may get.
    WITH gone AS (
        SELECT q.name, q.owner_oid <> 0 AND NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.oid = q.owner_oid) AS has_no_owner,
               q.submit_oid <> 0 AND NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.oid = q.submit_oid) AS has_no_submitters
        FROM dispatch_private.queues AS q
        WHERE q.owner_oid <> 0 AND NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.oid = q.owner_oid)
           OR q.submit_oid <> 0 AND NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.oid = q.submit_oid)
        FOR UPDATE SKIP LOCKED
    )
    UPDATE dispatch_private.queues AS q SET owner_oid = CASE WHEN has_no_owner THEN 0::oid ELSE q.owner_oid END,
                                            submit_oid = CASE WHEN has_no_submitters THEN 0::oid ELSE q.submit_oid END
    FROM gone WHERE gone.name = q.name;
END
$$;
COMMENT ON FUNCTION dispatch_private.forget_gone_roles() IS 'Removes the oids of roles that are gone. A later role can get such an oid, above all on another server that the rows are copied to.';

CREATE OR REPLACE FUNCTION dispatch_private.janitor_delete(days integer, most integer, except_ids bigint[], OUT deleted integer, OUT kept bigint[], OUT why text)
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    old      bigint[];
    few      bigint[] := '{}'::bigint[];
    launches integer := 0;
    part     record;
BEGIN
    SET CONSTRAINTS ALL IMMEDIATE; -- a deferred one would fail the whole call at its commit
    PERFORM dispatch_private.forget_gone_roles();
    old := ARRAY(
        SELECT id FROM dispatch_private.tasks
        WHERE finished_at < now() - make_interval(days => greatest(janitor_delete.days, 1)) AND id <> ALL (except_ids)
        ORDER BY finished_at LIMIT least(janitor_delete.most, 10000)
        FOR UPDATE SKIP LOCKED -- a second janitor takes the next ones
    );
    -- So few launches that the call ends in time: a container may have started its row as 32,767 of them, in each attempt.
    FOR place IN 1 .. cardinality(old) LOOP
        launches := launches + (SELECT count(*)::integer FROM (SELECT FROM dispatch_private.task_launches AS l WHERE l.task_id = old[place] LIMIT 20001) AS counted);
        EXIT WHEN launches > 20000;
        few := few || old[place];
    END LOOP;
    IF few = '{}' AND old <> '{}' THEN -- of a row with more of them, some go first
        DELETE FROM dispatch_private.task_launches WHERE ctid = ANY (ARRAY(
            SELECT l.ctid FROM dispatch_private.task_launches AS l WHERE l.task_id = old[1] LIMIT 20000));
    END IF;
    -- For two seconds at most, well below the statement_timeout of the janitor: payloads may be large, the disk or a trigger slow.
    deleted := 0;
    kept := '{}';
    FOR place IN 1 .. cardinality(few) BY 20 LOOP
        SELECT * INTO part FROM dispatch_private.delete_rows(few[place : place + 19]);
        deleted := deleted + part.deleted;
        kept := kept || part.kept;
        why := coalesce(why, part.why);
        EXIT WHEN clock_timestamp() - statement_timestamp() > interval '2 s';
    END LOOP;
END
$$;
COMMENT ON FUNCTION dispatch_private.janitor_delete(integer, integer, bigint[]) IS 'Deletes rows that ended so many days ago, and their launches, but for except_ids. It ends after two seconds. kept: rows that something outside the schema holds; why: what holds the first one.';

CREATE OR REPLACE FUNCTION dispatch_private.janitor_end(task_id bigint, attempt integer, launch integer, job_uid text, outcome text, error text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    answer text;
    words  text := dispatch_private.clip(nullif(janitor_end.error, ''), 8192);
BEGIN
    IF janitor_end.outcome IS NULL OR janitor_end.outcome NOT IN ('succeeded', 'retry', 'failed') THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('the outcome%s is unknown', dispatch_private.shown(janitor_end.outcome)), HINT = 'succeeded, retry or failed.';
    ELSIF NOT dispatch_private.is_free(janitor_end.task_id) THEN
        RETURN 'locked';
    END IF;
    WITH judged AS (
        SELECT id, CASE janitor_end.outcome WHEN 'retry'
                   THEN dispatch_private.status_after('retry', cancel_requested_at, failures, max_failures, attempt)
                   ELSE janitor_end.outcome END AS status,
               now() + dispatch_private.backoff(failures) AS again_at
        FROM dispatch_private.tasks
        WHERE id = janitor_end.task_id AND attempt = janitor_end.attempt
          AND (status = 'waiting'
               -- a run is ended only by the outcome of its own Job
               OR status = 'processing' AND launch = janitor_end.launch AND job_uid = janitor_end.job_uid)
    )
    UPDATE dispatch_private.tasks SET
        status = judged.status, run_digest = NULL,
        error = CASE janitor_end.outcome WHEN 'succeeded' THEN NULL ELSE words END, -- none of an earlier attempt either
        failures = failures + (janitor_end.outcome = 'retry' AND judged.status <> 'cancelled')::integer,
        attempt = attempt + (judged.status = 'waiting')::integer,
        launch = CASE judged.status WHEN 'waiting' THEN 0 ELSE launch END,
        job_uid = CASE judged.status WHEN 'waiting' THEN NULL ELSE job_uid END,
        run_at = CASE judged.status WHEN 'waiting' THEN judged.again_at ELSE run_at END,
        finished_at = CASE judged.status WHEN 'waiting' THEN NULL ELSE now() END
    FROM judged WHERE tasks.id = judged.id
    RETURNING tasks.status INTO answer;
    IF answer IS NOT NULL THEN
        UPDATE dispatch_private.task_launches SET ended_at = now(), error = words,
               outcome = CASE answer WHEN 'waiting' THEN 'retry' ELSE answer END
        WHERE task_id = janitor_end.task_id AND attempt = janitor_end.attempt AND launch = janitor_end.launch
          AND ended_at IS NULL;
        PERFORM dispatch_private.announce_rows(CASE answer WHEN 'waiting' THEN 'tasks' ELSE 'done' END, ARRAY[janitor_end.task_id]);
    END IF;
    RETURN answer;
END
$$;
COMMENT ON FUNCTION dispatch_private.janitor_end(bigint, integer, integer, text, text, text) IS 'Ends a parked row, or one whose Job''s exit code is its report; retry: a failure, and the next attempt while max_failures lasts. job_uid NULL: no Job was ever made of it. The new status; NULL: it moved on by itself; locked: another transaction holds the row.';

CREATE OR REPLACE FUNCTION dispatch_private.janitor_ended(ends jsonb) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    number integer;
BEGIN
    IF jsonb_typeof(ends) IS DISTINCT FROM 'array' OR jsonb_array_length(ends) > 200 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'ends are an array of at most 200 launches';
    END IF;
    WITH given AS (
        SELECT one.task, t.queue, one.attempt, one.launch, left(one.job_uid, 253) AS job_uid, dispatch_private.subdomain(one.node) AS node,
               dispatch_private.subdomain(one.pod) AS pod, CASE WHEN one.started_at IS NOT NULL THEN least(one.started_at, now()) END AS started_at, least(one.ended_at, now()) AS ended_at, one.exit_code,
               dispatch_private.clip(one.reason, 1024) AS reason, dispatch_private.clip(nullif(one.output, ''), 2048) AS output
        FROM jsonb_to_recordset(ends) AS one (task bigint, attempt integer, launch integer, job_uid text, node text, pod text,
                                              started_at timestamptz, ended_at timestamptz, exit_code integer, reason text, output text)
        JOIN dispatch_private.tasks AS t ON t.id = one.task AND t.attempt >= one.attempt
        FOR NO KEY UPDATE OF t SKIP LOCKED -- a later round brings what somebody else keeps open
    ), written AS (
        INSERT INTO dispatch_private.task_launches AS known
            (task_id, attempt, launch, job_uid, node_name, pod_name, queue, started_at, ended_at, outcome, exit_code, reason, error)
        SELECT task, attempt, launch, job_uid, node, pod, CASE WHEN started_at IS NOT NULL THEN queue END, started_at, coalesce(ended_at, now()),
               CASE WHEN started_at IS NULL THEN 'unstarted' WHEN exit_code = 0 THEN 'succeeded' ELSE 'failed' END,
               exit_code, reason, output
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
COMMENT ON FUNCTION dispatch_private.janitor_ended(jsonb) IS 'Writes down what ended launches: [{task, attempt, launch, job_uid, node, pod, started_at, ended_at, exit_code, reason, output}]. Number of launches that were changed.';

CREATE OR REPLACE FUNCTION dispatch_private.janitor_return(task_id bigint, attempt integer, launch integer, run_digest bytea, failures integer, error text) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    answer text;
    words  text := dispatch_private.clip(janitor_return.error, 8192);
BEGIN
    IF NOT dispatch_private.is_free(janitor_return.task_id) THEN
        RETURN 'locked';
    END IF;
    WITH judged AS (
        SELECT id, least(failures + greatest(janitor_return.failures, 1), 32767)::smallint AS failures,
               failures + greatest(janitor_return.failures, 1) < max_failures AND attempt < dispatch_private.last_attempt() AS is_again,
               now() + dispatch_private.backoff(failures) AS again_at
        FROM dispatch_private.tasks
        WHERE id = janitor_return.task_id AND status = 'processing'
          AND attempt = janitor_return.attempt AND launch = janitor_return.launch
          AND run_digest = janitor_return.run_digest -- the run that was judged, not the one that holds the row by now
          AND cancel_requested_at IS NULL AND heartbeat_at < now() - interval '60 s'
    )
    UPDATE dispatch_private.tasks SET
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
        PERFORM dispatch_private.close_launches(ARRAY[janitor_return.task_id]);
        PERFORM dispatch_private.announce_rows(CASE answer WHEN 'waiting' THEN 'tasks' ELSE 'done' END, ARRAY[janitor_return.task_id]);
    END IF;
    RETURN answer;
END
$$;
COMMENT ON FUNCTION dispatch_private.janitor_return(bigint, integer, integer, bytea, integer, text) IS 'A run whose container is gone: the row''s next attempt, or failed. The new status; NULL: it was somebody else''s by then; locked: another transaction holds the row.';

CREATE OR REPLACE FUNCTION dispatch_private.janitor_tell(report jsonb) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    told   timestamptz := (report ->> 'as_of')::timestamptz;
    number integer;
BEGIN
    IF told IS NULL OR NOT isfinite(told) OR octet_length(report::text) > 262144 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'a report has as_of, and at most 256 KiB';
    END IF;
    told := least(told, now()); -- the clock was set back, or somebody else wrote it
    INSERT INTO dispatch_private.reported AS r (as_of) VALUES (told)
    ON CONFLICT (is_only) DO UPDATE SET as_of = excluded.as_of WHERE r.as_of <= excluded.as_of OR r.as_of > now();
    IF NOT FOUND THEN
        RETURN NULL; -- another janitor has brought a newer report
    END IF;
    WITH rows AS (
        SELECT (one ->> 0)::bigint AS id, (one ->> 1)::integer AS attempt, dispatch_private.clip(one ->> 2, 100) AS reason,
               dispatch_private.clip(one ->> 4, 1024) AS message, least((one ->> 3)::timestamptz, now()) AS since
        FROM jsonb_array_elements(report -> 'rows') AS one
    ), changed AS (
        INSERT INTO dispatch_private.task_reasons AS known (task_id, attempt, reason, message, since)
        SELECT id, attempt, reason, message, since FROM rows
        WHERE EXISTS (SELECT FROM dispatch_private.tasks AS t WHERE t.id = rows.id)
        ON CONFLICT (task_id) DO UPDATE
            SET attempt = excluded.attempt, reason = excluded.reason, message = excluded.message, since = excluded.since
        RETURNING task_id
    ), gone AS (
        DELETE FROM dispatch_private.task_reasons
        WHERE task_id = ANY (ARRAY(SELECT id::bigint FROM jsonb_array_elements_text(report -> 'gone') AS id))
        RETURNING task_id
    )
    SELECT (SELECT count(*) FROM changed) + (SELECT count(*) FROM gone) INTO number;
    DELETE FROM dispatch_private.queue_reasons
    WHERE report ? 'queues' AND NOT report ? 'queues_left_out' AND NOT EXISTS (SELECT FROM jsonb_array_elements(report -> 'queues') AS one WHERE one ->> 'queue' = queue_reasons.queue);
    UPDATE dispatch_private.queue_reasons SET behind = NULL -- of queues that the report has no room for, it is not known any more
    WHERE report ? 'queues' AND report ? 'queues_left_out' AND NOT EXISTS (SELECT FROM jsonb_array_elements(report -> 'queues') AS one WHERE one ->> 'queue' = queue_reasons.queue);
    INSERT INTO dispatch_private.queue_reasons AS known
        (queue, waiting, in_flight, max_jobs, weight, share, paused_until, oldest, reasons, behind)
    SELECT left(one.queue, 63), one.waiting, one.in_flight, one.max_jobs, one.weight, one.share, one.paused_until,
           told - make_interval(secs => one.oldest_wait_seconds),
           CASE jsonb_typeof(one.reasons) WHEN 'object' THEN one.reasons ELSE '{}' END,
           CASE WHEN one.behind ->> 'reason' IS NOT NULL THEN jsonb_build_object(
               'reason', left(one.behind ->> 'reason', 100), 'message', dispatch_private.clip(one.behind ->> 'message', 1024),
               'since', CASE WHEN one.behind ->> 'since' IS NOT NULL THEN least((one.behind ->> 'since')::timestamptz, now()) END)
           END
    FROM jsonb_to_recordset(report -> 'queues') AS one
        (queue text, waiting integer, in_flight integer, max_jobs integer, weight integer, share real,
         paused_until timestamptz, oldest_wait_seconds double precision, reasons jsonb, behind jsonb)
    ON CONFLICT (queue) DO UPDATE
        SET waiting = excluded.waiting, in_flight = excluded.in_flight, max_jobs = excluded.max_jobs,
            weight = excluded.weight, share = excluded.share, paused_until = excluded.paused_until,
            oldest = excluded.oldest, reasons = excluded.reasons, behind = excluded.behind;
    IF number > 0 THEN
        PERFORM dispatch_private.announce('dispatch_reasons', 'dispatch_private.reasons_clock');
    END IF;
    RETURN number;
END
$$;
COMMENT ON FUNCTION dispatch_private.janitor_tell(jsonb) IS 'Brings reasons over: {as_of, queues, rows: [[id, attempt, reason, since, message]], gone: [id]}. Number of rows whose reason changed; NULL: a newer report is there.';

CREATE OR REPLACE FUNCTION dispatch_private.janitor_templates(offered jsonb, are_all boolean) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER AS $$
#variable_conflict use_column
DECLARE
    written integer;
    deleted integer := 0;
BEGIN
    IF jsonb_typeof(offered) IS DISTINCT FROM 'array' OR octet_length(offered::text) > 4194304 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'templates are an array of at most 4 MiB';
    END IF;
    INSERT INTO dispatch_private.templates AS t (name, row_may_set, bounds, images, machines, sets, note)
    SELECT left(one.name, 63), one.row_may_set, coalesce(one.bounds, '{}'), coalesce(one.images, '{}'),
           coalesce(one.machines, '{}'), coalesce(one.sets, '{}'), left(coalesce(one.note, ''), 1000)
    FROM jsonb_to_recordset(offered) AS one (name text, row_may_set text[], bounds jsonb, images text[], machines text[], sets text[], note text)
    ORDER BY one.name -- two janitors lock the rows in the same order
    ON CONFLICT (name) DO UPDATE SET (row_may_set, bounds, images, machines, sets, note) =
        (excluded.row_may_set, excluded.bounds, excluded.images, excluded.machines, excluded.sets, excluded.note)
    WHERE (t.row_may_set, t.bounds, t.images, t.machines, t.sets, t.note) IS DISTINCT FROM
        (excluded.row_may_set, excluded.bounds, excluded.images, excluded.machines, excluded.sets, excluded.note);
    GET DIAGNOSTICS written = ROW_COUNT;
    IF are_all THEN
        DELETE FROM dispatch_private.templates WHERE NOT EXISTS (
            SELECT FROM jsonb_array_elements(offered) AS one WHERE one ->> 'name' = templates.name);
        GET DIAGNOSTICS deleted = ROW_COUNT;
    END IF;
    RETURN written + deleted;
END
$$;
COMMENT ON FUNCTION dispatch_private.janitor_templates(jsonb, boolean) IS 'Brings the table templates in step: [{name, row_may_set, bounds, images, machines, sets, note}]. are_all: others are deleted. Number of changed rows.';
