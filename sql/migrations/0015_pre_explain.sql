-- The views that tell why a row waits, and the call by which the janitor brings reasons over.

CREATE FUNCTION dispatch.open_queues() RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT q.name
    FROM dispatch.queues AS q
    LEFT JOIN dispatch.queues AS d ON d.name = '*'
    LEFT JOIN pg_roles AS door ON door.rolname = coalesce(q.submit_role, q.owner_role, d.submit_role)
    LEFT JOIN pg_roles AS owner ON owner.rolname = q.owner_role
    WHERE coalesce(q.submit_role, q.owner_role, d.submit_role) IS NULL
       OR pg_has_role(session_user, door.oid, 'MEMBER')
       OR pg_has_role(session_user, owner.oid, 'MEMBER')
$$;
COMMENT ON FUNCTION dispatch.open_queues IS 'Names of the queues that you may insert into, and of those that you own.';

-- A place is counted among the rows of all submitters. So this function has its owner's rights, and tells two numbers only.
CREATE FUNCTION dispatch.place_in_line(task_id bigint) RETURNS integer[]
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY[1 + least(ready.before + late.before, 10000), least(ready.every + late.every, 10000)]::integer[]
    FROM dispatch.tasks AS t
    CROSS JOIN LATERAL (
        SELECT (SELECT count(*) FROM (
                    SELECT FROM dispatch.tasks WHERE status = 'waiting' AND run_at IS NULL AND queue = t.queue
                    AND (priority, id) < (t.priority, t.id) ORDER BY priority, id LIMIT 10000) AS first) AS before,
               (SELECT count(*) FROM (
                    SELECT FROM dispatch.tasks WHERE status = 'waiting' AND run_at IS NULL AND queue = t.queue
                    ORDER BY priority, id LIMIT 10000) AS all_ready) AS every
    ) AS ready
    CROSS JOIN LATERAL (
        SELECT count(*) FILTER (WHERE (one.priority, one.id) < (t.priority, t.id)) AS before, count(*) AS every
        FROM (SELECT priority, id FROM dispatch.tasks
              WHERE status = 'waiting' AND run_at IS NOT NULL AND run_at <= now() AND queue = t.queue
              ORDER BY run_at, id LIMIT 10000) AS one
    ) AS late
    WHERE t.id = place_in_line.task_id AND t.status = 'waiting' AND (t.run_at IS NULL OR t.run_at <= now())
      AND (dispatch.may_act(t.submitted_by, t.queue) OR pg_has_role(session_user, 'dispatch_observer', 'MEMBER'))
$$;
COMMENT ON FUNCTION dispatch.place_in_line IS 'Place of a waiting row in its queue, from 1 on, and the number of due rows there; both stop at 10,000. NULL: it does not wait, is not due, or you may not see it.';

CREATE VIEW dispatch.task_explain WITH (security_invoker = true) AS
SELECT t.id, t.queue, t.status, t.attempt, why.reason,
       coalesce(known.whose_turn, 'nobody') AS whose_turn,
       CASE WHEN why.reason IS NOT NULL THEN
            CASE WHEN r.as_of IS NULL THEN 'the dispatcher has not reported yet; '
                 WHEN r.as_of < now() - interval '90 s' THEN format('the dispatcher has not reported since %s; ', r.as_of::timestamptz(0))
                 ELSE '' END
            || CASE WHEN own.reason IS NOT NULL THEN own.message
                    WHEN why.reason = 'NotDue' THEN format('%s: it runs at %s', known.meaning, t.run_at::timestamptz(0))
                    WHEN why.reason = 'Paused' AND q.paused_until < '9999-01-01 UTC'
                        THEN format('%s until %s', known.meaning, q.paused_until::timestamptz(0))
                    WHEN why.reason = q.behind ->> 'reason' THEN coalesce(q.behind ->> 'message', known.meaning)
                    ELSE known.meaning || coalesce((
                        SELECT '; rows of its queue wait for ' || string_agg(format('%s (%s)', held.key, held.value), ', ' ORDER BY length(held.value) DESC, held.value DESC)
                        FROM jsonb_each_text(q.reasons - 'InLine' - 'NotDue') AS held WHERE why.reason = 'InLine'), '') END
            WHEN t.status = 'processing' THEN 'its container runs'
            WHEN t.status = 'cancelled' THEN 'it has been cancelled'
            WHEN t.status = 'failed' THEN 'it has failed' || coalesce(': ' || t.error, '')
            ELSE 'it has ' || t.status END AS message,
       CASE WHEN own.reason IS NOT NULL THEN own.since
            WHEN why.reason = 'NotDue' THEN t.created_at
            WHEN why.reason = 'InLine' THEN greatest(t.created_at, t.run_at)
            WHEN why.reason = q.behind ->> 'reason' THEN greatest(t.created_at, t.run_at, (q.behind ->> 'since')::timestamptz)
            WHEN why.reason IS NULL THEN coalesce(t.finished_at, t.started_at) END AS since,
       r.as_of,
       (dispatch.place_in_line(t.id))[1] AS position,
       (dispatch.place_in_line(t.id))[2] AS position_of,
       t.started_at, t.finished_at
FROM dispatch.tasks AS t
LEFT JOIN dispatch.task_reasons AS own
    ON own.task_id = t.id AND own.attempt = t.attempt
    AND (t.status = 'waiting' OR t.status = 'processing' AND own.reason <> 'Launched')
LEFT JOIN dispatch.queue_reasons AS q ON q.queue = t.queue
LEFT JOIN dispatch.reported AS r ON true
CROSS JOIN LATERAL (
    SELECT CASE WHEN own.reason IS NOT NULL THEN own.reason
                WHEN t.status <> 'waiting' THEN NULL
                WHEN t.run_at > now() THEN 'NotDue'
                WHEN q.paused_until > now() THEN 'Paused'
                ELSE coalesce(q.behind ->> 'reason', 'InLine') END AS reason
) AS why
LEFT JOIN dispatch.reasons AS known ON known.reason = why.reason;
COMMENT ON VIEW dispatch.task_explain IS 'Why a row waits: SELECT * FROM dispatch.task_explain WHERE id = …';
COMMENT ON COLUMN dispatch.task_explain.id IS 'tasks.id.';
COMMENT ON COLUMN dispatch.task_explain.queue IS 'tasks.queue.';
COMMENT ON COLUMN dispatch.task_explain.status IS 'tasks.status, as it is now.';
COMMENT ON COLUMN dispatch.task_explain.attempt IS 'tasks.attempt, as it is now.';
COMMENT ON COLUMN dispatch.task_explain.reason IS 'Why it waits: a stable code, see dispatch.reasons. NULL: it does not wait.';
COMMENT ON COLUMN dispatch.task_explain.whose_turn IS 'Who can end the wait: submitter, author, operator, cluster, nobody.';
COMMENT ON COLUMN dispatch.task_explain.message IS 'The same in words, with numbers and names. It says so if the dispatcher has not reported for 90 s.';
COMMENT ON COLUMN dispatch.task_explain.since IS 'Since when for this reason; NULL: not known.';
COMMENT ON COLUMN dispatch.task_explain.as_of IS 'When the dispatcher last looked, as far as the janitor has brought it over: about 40 s ago at most.';
COMMENT ON COLUMN dispatch.task_explain.position IS 'Its place among the due rows of its queue, from 1 on; it stops at 10,001.';
COMMENT ON COLUMN dispatch.task_explain.position_of IS 'Number of due waiting rows of its queue; it stops at 10,000.';
COMMENT ON COLUMN dispatch.task_explain.started_at IS 'tasks.started_at.';
COMMENT ON COLUMN dispatch.task_explain.finished_at IS 'tasks.finished_at.';

CREATE VIEW dispatch.queue_status WITH (security_invoker = true) AS
SELECT q.queue, q.waiting, q.in_flight, q.max_jobs, q.weight, q.share, q.paused_until,
       extract(epoch FROM now() - q.oldest)::real AS oldest_wait_seconds, q.reasons, r.as_of
FROM dispatch.queue_reasons AS q
LEFT JOIN dispatch.reported AS r ON true;
COMMENT ON VIEW dispatch.queue_status IS 'The queues that you may insert into, and what their rows wait for.';
COMMENT ON COLUMN dispatch.queue_status.queue IS 'queues.name.';
COMMENT ON COLUMN dispatch.queue_status.waiting IS 'Waiting rows of all submitters.';
COMMENT ON COLUMN dispatch.queue_status.in_flight IS 'Unfinished Jobs, as the caps count them.';
COMMENT ON COLUMN dispatch.queue_status.max_jobs IS 'The cap of unfinished Jobs; NULL: no cap.';
COMMENT ON COLUMN dispatch.queue_status.weight IS 'Share of the cluster, relative to other queues.';
COMMENT ON COLUMN dispatch.queue_status.share IS 'Largest part of any one resource of the cluster that its Jobs ask for.';
COMMENT ON COLUMN dispatch.queue_status.paused_until IS 'End of the pause; NULL: not paused.';
COMMENT ON COLUMN dispatch.queue_status.oldest_wait_seconds IS 'For how long its oldest due row has waited; NULL: no row waits.';
COMMENT ON COLUMN dispatch.queue_status.reasons IS 'Number of waiting rows by reason.';
COMMENT ON COLUMN dispatch.queue_status.as_of IS 'When the dispatcher last looked.';

CREATE FUNCTION dispatch.janitor_tell(report jsonb) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    told   timestamptz := (report ->> 'as_of')::timestamptz;
    number integer;
BEGIN
    IF told IS NULL OR NOT isfinite(told) OR octet_length(report::text) > 262144 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'a report has as_of, and at most 256 KiB';
    END IF;
    told := least(told, now()); -- the clock was set back, or somebody else wrote it
    INSERT INTO dispatch.reported AS r (as_of) VALUES (told)
    ON CONFLICT (is_only) DO UPDATE SET as_of = excluded.as_of WHERE r.as_of <= excluded.as_of OR r.as_of > now();
    IF NOT FOUND THEN
        RETURN NULL; -- another janitor has brought a newer report
    END IF;
    WITH rows AS (
        SELECT (one ->> 0)::bigint AS id, (one ->> 1)::integer AS attempt, left(one ->> 2, 100) AS reason,
               dispatch.clip(one ->> 4, 1024) AS message, least((one ->> 3)::timestamptz, now()) AS since
        FROM jsonb_array_elements(report -> 'rows') AS one
    ), changed AS (
        INSERT INTO dispatch.task_reasons AS known (task_id, attempt, reason, message, since)
        SELECT id, attempt, reason, message, since FROM rows
        WHERE EXISTS (SELECT FROM dispatch.tasks AS t WHERE t.id = rows.id)
        ON CONFLICT (task_id) DO UPDATE
            SET attempt = excluded.attempt, reason = excluded.reason, message = excluded.message, since = excluded.since
        RETURNING task_id
    ), gone AS (
        DELETE FROM dispatch.task_reasons
        WHERE task_id = ANY (ARRAY(SELECT id::bigint FROM jsonb_array_elements_text(report -> 'gone') AS id))
        RETURNING task_id
    )
    SELECT (SELECT count(*) FROM changed) + (SELECT count(*) FROM gone) INTO number;
    DELETE FROM dispatch.queue_reasons
    WHERE report ? 'queues' AND NOT report ? 'queues_left_out' AND NOT EXISTS (SELECT FROM jsonb_array_elements(report -> 'queues') AS one WHERE one ->> 'queue' = queue_reasons.queue);
    UPDATE dispatch.queue_reasons SET behind = NULL -- of queues that the report has no room for, it is not known any more
    WHERE report ? 'queues' AND report ? 'queues_left_out' AND NOT EXISTS (SELECT FROM jsonb_array_elements(report -> 'queues') AS one WHERE one ->> 'queue' = queue_reasons.queue);
    INSERT INTO dispatch.queue_reasons AS known
        (queue, waiting, in_flight, max_jobs, weight, share, paused_until, oldest, reasons, behind)
    SELECT left(one.queue, 63), one.waiting, one.in_flight, one.max_jobs, one.weight, one.share, one.paused_until,
           told - make_interval(secs => one.oldest_wait_seconds),
           CASE jsonb_typeof(one.reasons) WHEN 'object' THEN one.reasons ELSE '{}' END,
           CASE WHEN one.behind ->> 'reason' IS NOT NULL THEN jsonb_build_object(
               'reason', left(one.behind ->> 'reason', 100), 'message', dispatch.clip(one.behind ->> 'message', 1024),
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
        PERFORM dispatch.announce('dispatch_reasons', 'dispatch.reasons_clock');
    END IF;
    RETURN number;
END
$$;
COMMENT ON FUNCTION dispatch.janitor_tell IS 'Brings reasons over: {as_of, queues, rows: [[id, attempt, reason, since, message]], gone: [id]}. Number of rows whose reason changed; NULL: a newer report is there.';

ALTER TABLE dispatch.task_reasons ENABLE ROW LEVEL SECURITY;
CREATE POLICY all_reasons ON dispatch.task_reasons FOR SELECT TO dispatch_janitor, dispatch_observer, dispatch_operator USING (true);
CREATE POLICY own_reasons ON dispatch.task_reasons FOR SELECT TO dispatch_submitter
    USING (EXISTS (SELECT FROM dispatch.tasks AS t WHERE t.id = task_id));
ALTER TABLE dispatch.queue_reasons ENABLE ROW LEVEL SECURITY;
CREATE POLICY all_queues ON dispatch.queue_reasons FOR SELECT TO dispatch_observer, dispatch_operator USING (true);
CREATE POLICY open_queues ON dispatch.queue_reasons FOR SELECT TO dispatch_submitter
    USING (queue = ANY (ARRAY(SELECT dispatch.open_queues())));

REVOKE EXECUTE ON FUNCTION dispatch.open_queues(), dispatch.place_in_line(bigint), dispatch.janitor_tell(jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION dispatch.open_queues() TO dispatch_submitter;
GRANT EXECUTE ON FUNCTION dispatch.place_in_line(bigint) TO dispatch_submitter, dispatch_operator, dispatch_observer;
GRANT EXECUTE ON FUNCTION dispatch.janitor_tell(jsonb) TO dispatch_janitor;
GRANT SELECT ON dispatch.reasons, dispatch.reported, dispatch.task_reasons, dispatch.queue_reasons, dispatch.task_explain,
    dispatch.queue_status TO dispatch_submitter, dispatch_operator, dispatch_observer;
GRANT SELECT ON dispatch.task_reasons TO dispatch_janitor;
