-- What became of rows, and why they wait.

-- Launches and reasons. The functions that end in _of judge no right: nobody can name them, and the views call them for the
-- rows that visible_ids or visible_tasks gave.

CREATE OR REPLACE FUNCTION dispatch_private.launches_of(task bigint) RETURNS SETOF dispatch_private.task_launches
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
BEGIN
    RETURN QUERY SELECT * FROM dispatch_private.task_launches AS l WHERE l.task_id = task ORDER BY l.attempt, l.launch;
END
$$;

CREATE OR REPLACE VIEW dispatch.task_launches AS
SELECT t.id AS task_id, l.attempt, l.launch, l.job_uid, l.node_name, l.pod_name, l.started_at, l.ended_at, l.outcome,
       l.exit_code, l.reason, l.error
FROM dispatch_private.visible_ids(current_user::text COLLATE "default", false) AS t (id)
CROSS JOIN LATERAL dispatch_private.launches_of(t.id) AS l;
COMMENT ON VIEW dispatch.task_launches IS 'One row per launch: inserted by task_start, or by the janitor if the launch ended without it.';
COMMENT ON COLUMN dispatch.task_launches.task_id IS 'The task. Its launches are deleted with it.';
COMMENT ON COLUMN dispatch.task_launches.attempt IS 'Attempt of the task.';
COMMENT ON COLUMN dispatch.task_launches.launch IS 'Launch of the attempt.';
COMMENT ON COLUMN dispatch.task_launches.job_uid IS 'UID of the Job.';
COMMENT ON COLUMN dispatch.task_launches.node_name IS 'Node it ran on.';
COMMENT ON COLUMN dispatch.task_launches.pod_name IS 'Pod it ran in.';
COMMENT ON COLUMN dispatch.task_launches.started_at IS 'When task_start was accepted; without it, NULL.';
COMMENT ON COLUMN dispatch.task_launches.ended_at IS 'When it reported, or was replaced.';
COMMENT ON COLUMN dispatch.task_launches.outcome IS 'succeeded, failed, retry or cancelled as it reported; lost: taken over, cancelled or retried without a report; unstarted: it ended before task_start.';
COMMENT ON COLUMN dispatch.task_launches.error IS 'The error that it reported, otherwise the termination message of its container; 8 KiB. The message is the end of the output if the template has terminationMessagePolicy: FallbackToLogsOnError.';
COMMENT ON COLUMN dispatch.task_launches.exit_code IS 'Exit code of its container; NULL: it runs, it never ran, or nobody knows.';
COMMENT ON COLUMN dispatch.task_launches.reason IS 'What ended it, in words, such as OOMKilled (limit 64Mi); NULL: it ended by itself, or nobody knows.';

CREATE OR REPLACE VIEW dispatch.task_history AS
SELECT task_id, attempt, launch, node_name, pod_name, started_at, ended_at, outcome, exit_code, reason, error FROM dispatch.task_launches;
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
COMMENT ON COLUMN dispatch.task_history.error IS 'The error that it reported, otherwise the termination message of its container. The message is the end of the output if the template has terminationMessagePolicy: FallbackToLogsOnError.';

-- The views find a row among all that the login may see. These two find it by its id.
CREATE OR REPLACE FUNCTION dispatch.task_history(id bigint) RETURNS SETOF dispatch.task_history
LANGUAGE sql STABLE BEGIN ATOMIC
    SELECT t.id, l.attempt, l.launch, l.node_name, l.pod_name, l.started_at, l.ended_at, l.outcome, l.exit_code, l.reason, l.error
    FROM dispatch_private.tasks_between(current_user::text COLLATE "default", task_history.id, task_history.id, 1) AS t
    CROSS JOIN LATERAL dispatch_private.launches_of(t.id) AS l;
END;
COMMENT ON FUNCTION dispatch.task_history(bigint) IS 'The launches of one row that you may see, in their order: SELECT * FROM dispatch.task_history(42)';

CREATE OR REPLACE FUNCTION dispatch_private.visible_reasons(who text) RETURNS SETOF dispatch_private.task_reasons
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
BEGIN
    IF (dispatch_private.rights_of(who)).sees THEN
        RETURN QUERY SELECT r.* FROM dispatch_private.task_reasons AS r WHERE EXISTS (SELECT FROM dispatch_private.tasks AS t WHERE t.id = r.task_id);
    ELSE
        RETURN QUERY SELECT r.* FROM dispatch_private.visible_ids(who, true) AS t (id) CROSS JOIN LATERAL (
            SELECT * FROM dispatch_private.task_reasons AS each WHERE each.task_id = t.id ORDER BY each.task_id) AS r;
    END IF;
END
$$;

CREATE OR REPLACE VIEW dispatch.task_reasons AS
SELECT task_id, attempt, reason, message, since FROM dispatch_private.visible_reasons(current_user::text COLLATE "default");
COMMENT ON VIEW dispatch.task_reasons IS 'Reasons of single rows, as the dispatcher told them: parked rows, launched rows, and the first rows of each queue. Read the view task_explain instead.';
COMMENT ON COLUMN dispatch.task_reasons.task_id IS 'tasks.id.';
COMMENT ON COLUMN dispatch.task_reasons.attempt IS 'The attempt that was judged.';
COMMENT ON COLUMN dispatch.task_reasons.reason IS 'The stable code, see dispatch.reasons.';
COMMENT ON COLUMN dispatch.task_reasons.message IS 'The same in words, with numbers and names.';
COMMENT ON COLUMN dispatch.task_reasons.since IS 'Since when this reason holds the row.';

CREATE OR REPLACE VIEW dispatch.reasons AS SELECT reason, whose_turn, meaning, next_step FROM dispatch_private.reasons WHERE reason NOT LIKE '%: %';
COMMENT ON VIEW dispatch.reasons IS 'Every reason for which a row waits.';
COMMENT ON COLUMN dispatch.reasons.reason IS 'The stable code.';
COMMENT ON COLUMN dispatch.reasons.whose_turn IS 'Who can end the wait: submitter, author (of the template), operator, cluster (it needs room), nobody (it takes time).';
COMMENT ON COLUMN dispatch.reasons.meaning IS 'The same in words.';
COMMENT ON COLUMN dispatch.reasons.next_step IS 'What ends the wait.';

CREATE OR REPLACE VIEW dispatch_private.explanations AS
SELECT t.id, t.queue, t.status, t.attempt, why.reason, coalesce(part.whose_turn, known.whose_turn, 'nobody') AS whose_turn,
    CASE
        WHEN why.reason IS NOT NULL THEN
            CASE
                WHEN r.as_of IS NULL THEN 'the dispatcher has not reported yet; '
                WHEN r.as_of < now() - interval '90 s' THEN format('the dispatcher has not reported since %s; ', r.as_of::timestamptz(0))
                ELSE ''
            END || CASE
                WHEN own.reason IS NOT NULL THEN own.message
                WHEN why.reason = 'NotDue' THEN format('%s: it runs at %s', known.meaning, t.run_at::timestamptz(0))
                WHEN why.reason = 'Paused' AND q.paused_until < '9999-01-01 UTC' THEN format('%s until %s', known.meaning, q.paused_until::timestamptz(0))
                WHEN why.reason = 'Unjudged' AND t.created_at = now() THEN known.meaning || ': is your INSERT committed?'
                WHEN why.reason = q.behind ->> 'reason' THEN coalesce(q.behind ->> 'message', known.meaning)
                ELSE known.meaning || coalesce((
                    SELECT '; rows of its queue wait for ' || string_agg(format('%s (%s)', held.key, held.value), ', ' ORDER BY length(held.value) DESC, held.value DESC)
                    FROM jsonb_each_text(q.reasons - 'InLine' - 'NotDue') AS held
                    WHERE why.reason = 'InLine'), '')
            END
        WHEN t.status = 'processing' AND t.started_at < now() - t.timeout_seconds * interval '1 s' THEN
            format('it started at %s, and its run limit of %s s is over', t.started_at::timestamptz(0), t.timeout_seconds)
        WHEN t.status = 'processing' AND t.heartbeat_at < now() - interval '60 s' THEN
            format('its container has not been heard since %s', t.heartbeat_at::timestamptz(0))
        WHEN t.status = 'processing' THEN 'its container runs'
        WHEN t.status = 'cancelled' THEN 'it has been cancelled'
        WHEN t.status = 'failed' THEN 'it has failed' || coalesce(': ' || t.error, '')
        ELSE 'it has ' || t.status
    END AS message,
    CASE
        WHEN own.reason IS NOT NULL THEN own.since
        WHEN why.reason = 'NotDue' THEN t.created_at
        WHEN why.reason IN ('InLine', 'Unjudged') THEN CASE WHEN t.attempt = 1 OR t.run_at IS NOT NULL THEN greatest(t.created_at, t.run_at) END
        WHEN why.reason = q.behind ->> 'reason' THEN greatest(t.created_at, t.run_at, (q.behind ->> 'since')::timestamptz)
        WHEN why.reason IS NULL THEN coalesce(t.finished_at, t.started_at)
    END AS since,
    r.as_of, t.started_at, t.finished_at
FROM dispatch_private.tasks AS t
LEFT JOIN dispatch_private.task_reasons AS own ON own.task_id = t.id AND own.attempt = t.attempt
     AND (t.status = 'waiting' OR t.status = 'processing' AND (own.reason <> 'Launched' OR t.heartbeat_at < now() - interval '60 s'))
LEFT JOIN dispatch_private.queue_reasons AS q ON q.queue = t.queue
LEFT JOIN dispatch_private.reported AS r ON true
CROSS JOIN LATERAL (
    SELECT CASE
        WHEN own.reason IS NOT NULL THEN own.reason
        WHEN t.status <> 'waiting' THEN NULL
        WHEN t.run_at > now() THEN 'NotDue'
        WHEN q.paused_until > now() THEN 'Paused'
        WHEN t.created_at > coalesce(r.as_of, '-infinity') THEN 'Unjudged'
        ELSE coalesce(q.behind ->> 'reason', 'InLine')
    END AS reason
) AS why
LEFT JOIN dispatch_private.reasons AS known ON known.reason = why.reason
LEFT JOIN LATERAL ( -- whose turn it is follows the beginning of the detail, where there is one
    SELECT one.whose_turn FROM dispatch_private.reasons AS one
    WHERE starts_with(one.reason, why.reason || ': ') AND starts_with(own.message, known.meaning || substr(one.reason, length(why.reason) + 1))
    ORDER BY length(one.reason) DESC LIMIT 1
) AS part ON own.reason IS NOT NULL;
COMMENT ON VIEW dispatch_private.explanations IS 'Why each row waits, or what it does.';

-- Who sees every row gets all explanations by one statement, others one for each row that they may see.
CREATE OR REPLACE FUNCTION dispatch_private.all_explanations(who text) RETURNS SETOF dispatch_private.explanations
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
BEGIN
    IF (dispatch_private.rights_of(who)).sees THEN
        RETURN QUERY SELECT * FROM dispatch_private.explanations;
    END IF;
END
$$;
COMMENT ON FUNCTION dispatch_private.all_explanations(text) IS 'Every explanation, for logins that see every row.';

CREATE OR REPLACE FUNCTION dispatch_private.explanation_of(task bigint) RETURNS SETOF dispatch_private.explanations
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
BEGIN
    RETURN QUERY SELECT * FROM dispatch_private.explanations AS e WHERE e.id = task;
END
$$;

CREATE OR REPLACE FUNCTION dispatch_private.place_of(task bigint) RETURNS integer[]
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    t dispatch_private.tasks;
BEGIN
    SELECT * INTO t FROM dispatch_private.tasks AS one WHERE one.id = task;
    IF t.status <> 'waiting' OR t.run_at > now() THEN
        RETURN NULL;
    END IF;
    RETURN (
        SELECT ARRAY[1 + least(count(*) FILTER (WHERE (due.priority, due.id) < (t.priority, t.id)), 10000), least(count(*), 10000)]::integer[]
        FROM (
            (SELECT one.priority, one.id FROM dispatch_private.tasks AS one
             WHERE one.status = 'waiting' AND one.run_at IS NULL AND one.queue = t.queue
             ORDER BY one.priority, one.id LIMIT 10000)
            UNION ALL
            (SELECT one.priority, one.id FROM dispatch_private.tasks AS one
             WHERE one.status = 'waiting' AND one.run_at IS NOT NULL AND one.run_at <= now() AND one.queue = t.queue
             ORDER BY one.run_at, one.id LIMIT 10000)
        ) AS due
    );
END
$$;
COMMENT ON FUNCTION dispatch_private.place_of(bigint) IS 'Place of a waiting row in its queue, from 1 on, and the number of due rows there; both stop at 10,000. NULL: it does not wait, or is not due.';

CREATE OR REPLACE VIEW dispatch.task_explain AS
SELECT e.id, e.queue, e.status, e.attempt, e.reason, e.whose_turn, e.message, e.since, e.as_of,
       place.numbers[1] AS position, place.numbers[2] AS position_of, e.started_at, e.finished_at
FROM (
    SELECT * FROM dispatch_private.all_explanations(current_user::text COLLATE "default")
    UNION ALL
    SELECT t.id, one.queue, one.status, one.attempt, one.reason, one.whose_turn, one.message, one.since, one.as_of, one.started_at, one.finished_at
    FROM dispatch_private.visible_ids(current_user::text COLLATE "default", true) AS t (id) CROSS JOIN LATERAL dispatch_private.explanation_of(t.id) AS one
) AS e
CROSS JOIN LATERAL (SELECT dispatch_private.place_of(e.id) AS numbers OFFSET 0) AS place; -- it is counted once, and only if it is asked for
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

CREATE OR REPLACE FUNCTION dispatch.task_explain(id bigint) RETURNS SETOF dispatch.task_explain
LANGUAGE sql STABLE BEGIN ATOMIC
    SELECT e.id, e.queue, e.status, e.attempt, e.reason, e.whose_turn, e.message, e.since, e.as_of,
           place.numbers[1], place.numbers[2], e.started_at, e.finished_at
    FROM dispatch_private.tasks_between(current_user::text COLLATE "default", task_explain.id, task_explain.id, 1) AS t
    CROSS JOIN LATERAL dispatch_private.explanation_of(t.id) AS e
    CROSS JOIN LATERAL (SELECT dispatch_private.place_of(e.id) AS numbers OFFSET 0) AS place;
END;
COMMENT ON FUNCTION dispatch.task_explain(bigint) IS 'Why one row waits that you may see: SELECT * FROM dispatch.task_explain(42)';
