-- Rows as people see them. Each view reads a function that decides by right (04_rights.sql) and hands out the rows that the login may
-- see. So a statement of somebody else never contains a scan of a table with foreign rows: no condition is pushed down to them,
-- no estimate is made of them, and EXPLAIN has nothing to tell. Only SELECT and INSERT are granted, because UPDATE or DELETE on a
-- view would open LOCK TABLE and FOR UPDATE on the tables behind it.

-- The columns of rows, in one place. A number out of range has to reach the check of the row, so they have wider types than in
-- the table.
CREATE OR REPLACE VIEW dispatch_private.public_tasks AS
SELECT id, queue, priority::integer AS priority, run_at, timeout_seconds::bigint AS timeout_seconds,
       max_failures::integer AS max_failures, template, env, spec, payload, cache_key, dedupe_key, batch, labels,
       status, attempt, launch, failures, job_uid, submitted_by, created_at, started_at, heartbeat_at, finished_at,
       cancel_requested_at, node_name, pod_name, error, result, progress, note, kind, run_digest
FROM dispatch_private.tasks;

CREATE OR REPLACE FUNCTION dispatch_private.visible_tasks(who text) RETURNS SETOF dispatch_private.public_tasks
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    mine CONSTANT record := dispatch_private.rights_of(who);
    one  dispatch_private.public_tasks;
BEGIN
    IF mine.hides THEN
        FOR one IN SELECT * FROM dispatch_private.public_tasks LOOP
            one.payload := NULL;
            one.run_digest := NULL;
            RETURN NEXT one;
        END LOOP;
    ELSIF mine.sees THEN
        RETURN QUERY SELECT * FROM dispatch_private.public_tasks;
    ELSE
        RETURN QUERY SELECT * FROM dispatch_private.public_tasks AS t
            WHERE mine.self AND (t.submitted_by, t.id) >= (mine.own, 0) AND (t.submitted_by, t.id) <= (mine.own, 9223372036854775807)
            ORDER BY t.submitted_by, t.id;
        RETURN QUERY SELECT t.* FROM unnest(mine.owned) AS q (name) CROSS JOIN LATERAL (
            SELECT * FROM dispatch_private.public_tasks AS each
            WHERE (each.queue, each.id) >= (q.name, 0) AND (each.queue, each.id) <= (q.name, 9223372036854775807)
              AND NOT (mine.self AND each.submitted_by = mine.own)
            ORDER BY each.queue, each.id) AS t;
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION dispatch_private.visible_ids(who text, of_teams boolean) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    mine CONSTANT record := dispatch_private.rights_of(who);
BEGIN
    IF NOT mine.sees THEN
        RETURN QUERY SELECT t.id FROM dispatch_private.tasks AS t
            WHERE mine.self AND (t.submitted_by, t.id) >= (mine.own, 0) AND (t.submitted_by, t.id) <= (mine.own, 9223372036854775807)
            ORDER BY t.submitted_by, t.id;
        RETURN QUERY SELECT t.id FROM unnest(mine.owned) AS q (name) CROSS JOIN LATERAL (
            SELECT each.id FROM dispatch_private.tasks AS each
            WHERE (each.queue, each.id) >= (q.name, 0) AND (each.queue, each.id) <= (q.name, 9223372036854775807)
              AND NOT (mine.self AND each.submitted_by = mine.own)
            ORDER BY each.queue, each.id) AS t;
    ELSIF NOT of_teams THEN
        RETURN QUERY SELECT t.id FROM dispatch_private.tasks AS t;
    END IF;
END
$$;
COMMENT ON FUNCTION dispatch_private.visible_ids(text, boolean) IS 'Ids of the rows that the login may see. of_teams: none if it sees every row.';

CREATE OR REPLACE VIEW dispatch.tasks AS
SELECT id, queue, priority, run_at, timeout_seconds,
       max_failures, template, env, spec, payload, cache_key, dedupe_key, batch, labels,
       status, attempt, launch, failures, job_uid, submitted_by, created_at, started_at, heartbeat_at, finished_at,
       cancel_requested_at, node_name, pod_name, error, result, progress, note, kind, run_digest
FROM dispatch_private.visible_tasks(current_user::text COLLATE "default");
-- Sessions that run no trigger would insert nothing, and say nothing. A view has no triggers that they run, too. This default
-- cannot be read as a number. No function of ours raises the error, because code of others may insert, which may not call it.
ALTER VIEW dispatch.tasks ALTER id SET DEFAULT CASE WHEN current_setting('session_replication_role') = 'replica'
    THEN ('no row is inserted with session_replication_role = ' || current_setting('session_replication_role'))::bigint END;
ALTER VIEW dispatch.tasks ALTER queue SET DEFAULT 'default';
ALTER VIEW dispatch.tasks ALTER priority SET DEFAULT 100;
ALTER VIEW dispatch.tasks ALTER max_failures DROP DEFAULT; -- it is the template's, or 3
ALTER VIEW dispatch.tasks ALTER template SET DEFAULT 'default';
ALTER VIEW dispatch.tasks ALTER env SET DEFAULT '{}';
ALTER VIEW dispatch.tasks ALTER spec SET DEFAULT '{}';
ALTER VIEW dispatch.tasks ALTER labels SET DEFAULT '{}';
COMMENT ON VIEW dispatch.tasks IS 'One row = one task. INSERT it, and one Kubernetes Job runs for it; the task''s own container reports through task_start, task_heartbeat and task_finish. You see your own rows, and those of queues that you own.';
COMMENT ON COLUMN dispatch.tasks.id IS 'Identity; given by the database.';
COMMENT ON COLUMN dispatch.tasks.queue IS 'You set it. A name declared in `queues`; `default` if left out.';
COMMENT ON COLUMN dispatch.tasks.priority IS 'You set it. 0..1000, lower first; 100 if left out.';
COMMENT ON COLUMN dispatch.tasks.run_at IS 'You set it. Not before this time; NULL = now. Set again by a retry.';
COMMENT ON COLUMN dispatch.tasks.timeout_seconds IS 'You set it. Run limit, 1..604800 s; NULL: that of the template, else that of the installation.';
COMMENT ON COLUMN dispatch.tasks.max_failures IS 'You set it. Failed runs at most, 1..100; the template''s, or 3, if left out; 1: a task that started never runs again by itself.';
COMMENT ON COLUMN dispatch.tasks.template IS 'You set it. Which Job template to run under; `default` if left out.';
COMMENT ON COLUMN dispatch.tasks.env IS 'You set it. Object of strings, added to the container''s environment: 64 names, 32 KiB a value, 128 KiB in all. Everybody who may read Jobs can read it: no secrets.';
COMMENT ON COLUMN dispatch.tasks.spec IS 'You set it. image, command, args, cpu, memory, private_machine, special_machine; each works only where the template opens it.';
COMMENT ON COLUMN dispatch.tasks.payload IS 'You set it. Any JSON up to 1 MiB, handed out by task_start; the dispatcher never reads it.';
COMMENT ON COLUMN dispatch.tasks.cache_key IS 'You set it. Tasks of a queue with the same key share a cache directory and prefer nodes where it is warm; 200 characters.';
COMMENT ON COLUMN dispatch.tasks.dedupe_key IS 'You set it. Idempotency: while a row of yours with this key waits or runs in the queue, an INSERT with it makes no new row and returns that one; 200 characters.';
COMMENT ON COLUMN dispatch.tasks.status IS 'waiting, processing, succeeded, failed or cancelled.';
COMMENT ON COLUMN dispatch.tasks.attempt IS 'Grows by one whenever the row returns to waiting; never falls.';
COMMENT ON COLUMN dispatch.tasks.launch IS 'Number of the launch (Job) of this attempt that holds the row; 0 while waiting.';
COMMENT ON COLUMN dispatch.tasks.failures IS 'Failed runs so far; task_retry starts again at 0.';
COMMENT ON COLUMN dispatch.tasks.job_uid IS 'UID of the Job whose container holds or ended the row.';
COMMENT ON COLUMN dispatch.tasks.submitted_by IS 'Login that inserted the row (session_user), by the name that it had at its first row.';
COMMENT ON COLUMN dispatch.tasks.created_at IS 'When the row was inserted (start of that transaction).';
COMMENT ON COLUMN dispatch.tasks.started_at IS 'When the newest launch of this attempt started.';
COMMENT ON COLUMN dispatch.tasks.heartbeat_at IS 'Last sign of life of the container.';
COMMENT ON COLUMN dispatch.tasks.finished_at IS 'When the row ended; NULL while it lives.';
COMMENT ON COLUMN dispatch.tasks.cancel_requested_at IS 'When a running task was asked to stop.';
COMMENT ON COLUMN dispatch.tasks.node_name IS 'Node of the newest launch that started, as its container said it; NULL where that is no name of a node.';
COMMENT ON COLUMN dispatch.tasks.pod_name IS 'Pod of the newest launch that started, as its container said it; NULL where that is no name of a Pod.';
COMMENT ON COLUMN dispatch.tasks.error IS 'Why the last run failed, was cancelled or was parked; 8 KiB.';
COMMENT ON COLUMN dispatch.tasks.result IS 'What task_finish handed over; JSON up to 64 KiB.';
COMMENT ON COLUMN dispatch.tasks.kind IS 'Digest of all that a template''s bounds are judged by (template, spec without command and args, run limit, names of env): rows of one kind get one verdict.';
COMMENT ON COLUMN dispatch.tasks.run_digest IS 'Digest of the token that the container of the current run reports with.';
COMMENT ON COLUMN dispatch.tasks.batch IS 'You set it. Rows that belong together, 1 to 200 characters; the name is yours alone, in each queue. See the view batch_status.';
COMMENT ON COLUMN dispatch.tasks.labels IS 'You set it. Marks of your own: object of strings, 16 names of 63 characters, values of 200 characters. Find rows by labels @> ''{"name": "value"}''.';
COMMENT ON COLUMN dispatch.tasks.progress IS 'How much is done, from 0 to 1, as the newest container says; NULL: it says nothing.';
COMMENT ON COLUMN dispatch.tasks.note IS 'What the newest container is doing, in its own words; 200 characters.';

CREATE OR REPLACE VIEW dispatch_private.batches AS
SELECT queue, submitted_by, batch, count(*)::integer AS tasks,
       (count(*) FILTER (WHERE status = 'waiting'))::integer AS waiting,
       (count(*) FILTER (WHERE status = 'processing'))::integer AS processing,
       (count(*) FILTER (WHERE status = 'succeeded'))::integer AS succeeded,
       (count(*) FILTER (WHERE status = 'failed'))::integer AS failed,
       (count(*) FILTER (WHERE status = 'cancelled'))::integer AS cancelled,
       min(started_at) AS first_started_at, max(finished_at) AS last_finished_at
FROM dispatch_private.tasks
WHERE batch IS NOT NULL
GROUP BY submitted_by, queue, batch;
COMMENT ON VIEW dispatch_private.batches IS 'Every batch. Conditions on queue, submitted_by and batch reach the index.';

-- The same for the owner of a queue, in the order of tasks_of_batch. In the other order, a condition on the queue alone would walk
-- the index of all submitters.
CREATE OR REPLACE VIEW dispatch_private.batches_of_queues AS
SELECT queue, submitted_by, batch, count(*)::integer AS tasks,
       (count(*) FILTER (WHERE status = 'waiting'))::integer AS waiting,
       (count(*) FILTER (WHERE status = 'processing'))::integer AS processing,
       (count(*) FILTER (WHERE status = 'succeeded'))::integer AS succeeded,
       (count(*) FILTER (WHERE status = 'failed'))::integer AS failed,
       (count(*) FILTER (WHERE status = 'cancelled'))::integer AS cancelled,
       min(started_at) AS first_started_at, max(finished_at) AS last_finished_at
FROM dispatch_private.tasks
WHERE batch IS NOT NULL
GROUP BY queue, batch, submitted_by;

CREATE OR REPLACE FUNCTION dispatch_private.visible_batches(who text) RETURNS SETOF dispatch_private.batches
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    mine CONSTANT record := dispatch_private.rights_of(who);
BEGIN
    IF mine.sees THEN
        RETURN QUERY SELECT * FROM dispatch_private.batches;
    ELSE
        RETURN QUERY SELECT * FROM dispatch_private.batches AS b
            WHERE mine.self AND (b.submitted_by, b.queue) >= (mine.own, '') AND b.submitted_by <= mine.own
            ORDER BY b.submitted_by, b.queue, b.batch;
        RETURN QUERY SELECT b.* FROM unnest(mine.owned) AS q (name) CROSS JOIN LATERAL (
            SELECT * FROM dispatch_private.batches_of_queues AS each
            WHERE (each.queue, each.batch) >= (q.name, '') AND each.queue <= q.name AND NOT (mine.self AND each.submitted_by = mine.own)
            ORDER BY each.queue, each.batch, each.submitted_by) AS b;
    END IF;
END
$$;

CREATE OR REPLACE VIEW dispatch.batch_status AS
SELECT queue, submitted_by, batch, tasks, waiting, processing, succeeded, failed, cancelled, first_started_at, last_finished_at
FROM dispatch_private.visible_batches(current_user::text COLLATE "default");
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

-- Rows for those who have many: each call reads by one index, whatever else the login has.

CREATE OR REPLACE FUNCTION dispatch_private.tasks_between(who text, first bigint, last bigint, most integer) RETURNS SETOF dispatch_private.public_tasks
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    mine CONSTANT record := dispatch_private.rights_of(who);
    one  dispatch_private.public_tasks;
BEGIN
    FOR one IN SELECT DISTINCT ON (found.id) found.* FROM ( -- a row of the login in a queue that it owns is found twice
        (SELECT * FROM dispatch_private.public_tasks AS t
         WHERE mine.sees AND t.id >= first AND t.id <= last ORDER BY t.id LIMIT most)
        UNION ALL
        (SELECT * FROM dispatch_private.public_tasks AS t
         WHERE mine.self AND NOT mine.sees AND (t.submitted_by, t.id) >= (mine.own, first) AND (t.submitted_by, t.id) <= (mine.own, last)
         ORDER BY t.submitted_by, t.id LIMIT most)
        UNION ALL
        SELECT t.* FROM unnest(mine.owned) AS q (name) CROSS JOIN LATERAL (
            SELECT * FROM dispatch_private.public_tasks AS each
            WHERE NOT mine.sees AND (each.queue, each.id) >= (q.name, first) AND (each.queue, each.id) <= (q.name, last)
            ORDER BY each.queue, each.id LIMIT most) AS t
    ) AS found ORDER BY found.id LIMIT most LOOP
        IF mine.hides THEN
            one.payload := NULL;
            one.run_digest := NULL;
        END IF;
        RETURN NEXT one;
    END LOOP;
END
$$;
COMMENT ON FUNCTION dispatch_private.tasks_between(text, bigint, bigint, integer) IS 'The first visible rows of a range of ids, by their ids.';

CREATE OR REPLACE FUNCTION dispatch_private.newest_tasks(who text, most integer) RETURNS SETOF dispatch_private.public_tasks
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    mine CONSTANT record := dispatch_private.rights_of(who);
    one  dispatch_private.public_tasks;
BEGIN
    FOR one IN SELECT DISTINCT ON (found.id) found.* FROM ( -- a row of the login in a queue that it owns is found twice
        (SELECT * FROM dispatch_private.public_tasks AS t WHERE mine.sees ORDER BY t.id DESC LIMIT most)
        UNION ALL
        (SELECT * FROM dispatch_private.public_tasks AS t
         WHERE mine.self AND NOT mine.sees AND (t.submitted_by, t.id) >= (mine.own, 0) AND (t.submitted_by, t.id) <= (mine.own, 9223372036854775807)
         ORDER BY t.submitted_by DESC, t.id DESC LIMIT most)
        UNION ALL
        SELECT t.* FROM unnest(mine.owned) AS q (name) CROSS JOIN LATERAL (
            SELECT * FROM dispatch_private.public_tasks AS each
            WHERE NOT mine.sees AND (each.queue, each.id) >= (q.name, 0) AND (each.queue, each.id) <= (q.name, 9223372036854775807)
            ORDER BY each.queue DESC, each.id DESC LIMIT most) AS t
    ) AS found ORDER BY found.id DESC LIMIT most LOOP
        IF mine.hides THEN
            one.payload := NULL;
            one.run_digest := NULL;
        END IF;
        RETURN NEXT one;
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION dispatch_private.batch_tasks(who text, in_queue text, named text, most integer) RETURNS SETOF dispatch_private.public_tasks
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    mine CONSTANT record := dispatch_private.rights_of(who);
    one  dispatch_private.public_tasks;
BEGIN
    FOR one IN
        (SELECT * FROM dispatch_private.public_tasks AS t
         WHERE (mine.sees OR in_queue = ANY (mine.owned)) AND (t.queue, t.batch) >= (in_queue, named) AND (t.queue, t.batch) <= (in_queue, named)
           AND t.batch IS NOT NULL
         ORDER BY t.queue, t.batch, t.submitted_by, t.id LIMIT 9223372036854775807)
        UNION ALL
        (SELECT * FROM dispatch_private.public_tasks AS t
         WHERE mine.self AND NOT (mine.sees OR in_queue = ANY (mine.owned))
           AND (t.submitted_by, t.queue, t.batch) >= (mine.own, in_queue, named) AND (t.submitted_by, t.queue, t.batch) <= (mine.own, in_queue, named)
           AND t.batch IS NOT NULL
         ORDER BY t.submitted_by, t.queue, t.batch, t.id LIMIT most)
        ORDER BY id LIMIT most
    LOOP
        IF mine.hides THEN
            one.payload := NULL;
            one.run_digest := NULL;
        END IF;
        RETURN NEXT one;
    END LOOP;
END
$$;
COMMENT ON FUNCTION dispatch_private.batch_tasks(text, text, text, integer) IS 'The first visible rows of a batch, by their ids.';

CREATE OR REPLACE FUNCTION dispatch_private.batches_named(who text, in_queue text, named text) RETURNS SETOF dispatch_private.batches
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    mine CONSTANT record := dispatch_private.rights_of(who);
BEGIN
    IF mine.sees OR in_queue = ANY (mine.owned) THEN
        RETURN QUERY SELECT * FROM dispatch_private.batches_of_queues AS b
            WHERE (b.queue, b.batch) >= (in_queue, named) AND (b.queue, b.batch) <= (in_queue, named)
            ORDER BY b.queue, b.batch, b.submitted_by;
    ELSE
        RETURN QUERY SELECT * FROM dispatch_private.batches AS b
            WHERE mine.self AND (b.submitted_by, b.queue, b.batch) >= (mine.own, in_queue, named) AND (b.submitted_by, b.queue, b.batch) <= (mine.own, in_queue, named)
            ORDER BY b.submitted_by, b.queue, b.batch;
    END IF;
END
$$;
COMMENT ON FUNCTION dispatch_private.batches_named(text, text, text) IS 'The visible batches of a name: a name is of one submitter in one queue.';

CREATE OR REPLACE FUNCTION dispatch_private.ended_tasks(who text, since timestamptz) RETURNS SETOF dispatch_private.public_tasks
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    own CONSTANT text := dispatch_private.own_name(who);
BEGIN
    RETURN QUERY SELECT * FROM dispatch_private.public_tasks AS t
        WHERE own IS NOT NULL AND (t.submitted_by, t.finished_at) >= (own, since)
          AND (t.submitted_by, t.finished_at) <= (own, 'infinity')
          AND t.finished_at IS NOT NULL AND t.status IN ('succeeded', 'failed', 'cancelled')
        ORDER BY t.submitted_by, t.finished_at, t.id;
END
$$;
COMMENT ON FUNCTION dispatch_private.ended_tasks(text, timestamp with time zone) IS 'The login''s own rows that have ended since a time, the oldest end first.';

CREATE OR REPLACE FUNCTION dispatch.task(id bigint) RETURNS SETOF dispatch.tasks
LANGUAGE sql STABLE BEGIN ATOMIC
    SELECT t.* FROM dispatch_private.tasks_between(current_user::text COLLATE "default", task.id, task.id, 1) AS t;
END;
COMMENT ON FUNCTION dispatch.task(bigint) IS 'One row that you may see: SELECT * FROM dispatch.task(42)';

CREATE OR REPLACE FUNCTION dispatch.batch(queue text, batch text) RETURNS SETOF dispatch.batch_status
LANGUAGE sql STABLE BEGIN ATOMIC
    SELECT b.* FROM dispatch_private.batches_named(current_user::text COLLATE "default", batch.queue, batch.batch) AS b;
END;
COMMENT ON FUNCTION dispatch.batch(text, text) IS 'How far one batch is: SELECT * FROM dispatch.batch(''reports'', ''october'')';

CREATE OR REPLACE FUNCTION dispatch.tasks_of_batch(queue text, batch text, "limit" integer DEFAULT 1000) RETURNS SETOF dispatch.tasks
LANGUAGE sql STABLE BEGIN ATOMIC
    SELECT t.* FROM dispatch_private.batch_tasks(current_user::text COLLATE "default",
        tasks_of_batch.queue, tasks_of_batch.batch, "limit") AS t;
END;
COMMENT ON FUNCTION dispatch.tasks_of_batch(text, text, integer) IS 'The first rows of a batch, by their ids.';

CREATE OR REPLACE FUNCTION dispatch.tasks_after(id bigint, "limit" integer DEFAULT 100) RETURNS SETOF dispatch.tasks
LANGUAGE sql STABLE BEGIN ATOMIC
    SELECT t.* FROM dispatch_private.tasks_between(current_user::text COLLATE "default",
        CASE WHEN tasks_after.id < 9223372036854775807 THEN tasks_after.id + 1 END, 9223372036854775807, "limit") AS t;
END;
COMMENT ON FUNCTION dispatch.tasks_after(bigint, integer) IS 'The next rows after an id, by their ids: for pages. The first page begins after 0.';

CREATE OR REPLACE FUNCTION dispatch.tasks_since("time" timestamptz, "limit" integer DEFAULT 100) RETURNS SETOF dispatch.tasks
LANGUAGE sql STABLE BEGIN ATOMIC
    SELECT t.* FROM dispatch_private.newest_tasks(current_user::text COLLATE "default", "limit") AS t
    WHERE t.created_at >= "time";
END;
COMMENT ON FUNCTION dispatch.tasks_since(timestamp with time zone, integer) IS 'Of your newest rows, at most `limit`, those that were inserted since a time, the newest first.';

CREATE OR REPLACE FUNCTION dispatch.task_ended_since(since timestamptz)
RETURNS TABLE (id bigint, queue text, batch text, status text, finished_at timestamptz)
LANGUAGE sql STABLE BEGIN ATOMIC
    SELECT t.id, t.queue, t.batch, t.status, t.finished_at
    FROM dispatch_private.ended_tasks(current_user::text COLLATE "default", since) AS t;
END;
COMMENT ON FUNCTION dispatch.task_ended_since(timestamp with time zone) IS 'Your rows that have ended since a time, oldest first. Ask from a minute before the last answer: the end of a row is seen when its transaction has ended.';
