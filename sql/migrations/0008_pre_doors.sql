-- Separation of submitters. A queue says who may insert, and how many waiting rows a submitter may have. A dedupe_key is
-- unique only among the rows of its submitter. From here on every name of ours is written with its schema, and every
-- function sets search_path to pg_catalog, so that an object in another schema is never found by its name.

ALTER TABLE dispatch.queues
    ADD COLUMN submit_role name,
    ADD COLUMN max_waiting_per_submitter integer CHECK (max_waiting_per_submitter >= 0);
COMMENT ON COLUMN dispatch.queues.submit_role IS 'Members of this role may insert rows. NULL: the owner_role; where that is NULL too, the submit_role of `*`, else every submitter.';
COMMENT ON COLUMN dispatch.queues.max_waiting_per_submitter IS 'Waiting rows of one submitter in this queue at most; NULL: the value of `*`; there NULL: no bound. Counted at the end of each INSERT; two transactions at once may exceed it.';

-- Before this file, every submitter could insert into a queue with an owner_role. This stays so until an operator
-- restricts it.
DO $keep_open$
DECLARE
    opened text;
BEGIN
    WITH kept AS (
        UPDATE dispatch.queues SET submit_role = 'dispatch_submitter' WHERE owner_role IS NOT NULL RETURNING name
    )
    SELECT string_agg(format('"%s"', name), ', ' ORDER BY name) INTO opened FROM kept;
    IF opened IS NOT NULL THEN
        RAISE NOTICE 'queues % have an owner_role: every submitter may still insert into them (submit_role is dispatch_submitter)', opened
            USING HINT = 'Set queues.submit_role to the role of the team, or to NULL for the owner_role alone.';
    END IF;
END
$keep_open$;

-- Two submitters may use the same key, so that none can block rows of the other.
DROP INDEX dispatch.tasks_dedupe;
CREATE UNIQUE INDEX tasks_dedupe ON dispatch.tasks (queue, submitted_by, dedupe_key)
    WHERE dedupe_key IS NOT NULL AND status IN ('waiting', 'processing');
COMMENT ON COLUMN dispatch.tasks.dedupe_key IS 'You set it. At most one waiting or processing row of yours per (queue, dedupe_key); 200 characters.';

-- Waiting rows by submitter. They are read if the first rows of a queue are all held, so that rows of one submitter never
-- hide rows of another. A query finds the submitters of a queue by skipping through these indexes.
CREATE INDEX tasks_ready_of_submitter ON dispatch.tasks (queue, submitted_by, priority, id) INCLUDE (attempt, kind)
    WHERE status = 'waiting' AND run_at IS NULL;
CREATE INDEX tasks_due_of_submitter ON dispatch.tasks (queue, submitted_by, run_at, id) INCLUDE (priority, attempt, kind)
    WHERE status = 'waiting' AND run_at IS NOT NULL;

CREATE OR REPLACE FUNCTION dispatch.nearest_queue(wanted text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT q.name
    FROM dispatch.queues AS q
    WHERE q.name <> '*'
    ORDER BY (SELECT count(DISTINCT substr(q.name, i, 2)) FROM generate_series(1, length(q.name)) AS i
              WHERE position(substr(q.name, i, 2) IN left(lower(wanted), 63)) > 0) DESC,
             abs(length(q.name) - length(wanted)), q.name
    LIMIT 1
$$;

CREATE OR REPLACE FUNCTION dispatch.check_env(env jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    seen record;
BEGIN
    IF jsonb_typeof(env) IS DISTINCT FROM 'object' THEN
        PERFORM dispatch.refuse('DI001', 'env', 'env must be a JSON object of strings', 'Write {"NAME": "value"}, or leave it out.');
    END IF;
    SELECT count(*) AS names,
           coalesce(bool_or(jsonb_typeof(value) <> 'string'), false) AS not_text,
           coalesce(bool_or(key !~ '^[A-Za-z_][A-Za-z0-9_]{0,254}$'), false) AS bad_name,
           coalesce(bool_or(key ~ '^(TASK_|DISPATCHER_|KUBERNETES_|LD_)'
                            OR key IN ('NODE_NAME', 'POD_NAME', 'POD_NAMESPACE', 'JOB_UID')), false) AS closed_name,
           coalesce(max(octet_length(value #>> '{}')), 0) AS longest,
           coalesce(sum(octet_length(value #>> '{}')), 0) AS total
    INTO seen FROM jsonb_each(env);
    IF seen.not_text THEN
        PERFORM dispatch.refuse('DI001', 'env', 'every value of env must be a string', 'Quote numbers and booleans; structured input belongs in payload.');
    ELSIF seen.names > 64 THEN
        PERFORM dispatch.refuse('DI001', 'env', 'env has more than 64 names', 'Structured input belongs in payload.');
    ELSIF seen.bad_name THEN
        PERFORM dispatch.refuse('DI001', 'env', 'env has an illegal name', 'Names are [A-Za-z_][A-Za-z0-9_]*, at most 255 characters.');
    ELSIF seen.closed_name THEN
        PERFORM dispatch.refuse('DI001', 'env', 'env has a name that is closed to rows', 'The prefixes TASK_, DISPATCHER_, KUBERNETES_ and LD_, and NODE_NAME, POD_NAME, POD_NAMESPACE, JOB_UID, are set by the dispatcher or closed.');
    ELSIF seen.longest > 32768 OR seen.total > 131072 THEN
        PERFORM dispatch.refuse('DI001', 'env', 'env is too large', 'A value has at most 32 KiB, all together at most 128 KiB; large input belongs in payload.');
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION dispatch.check_spec(spec jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    name  text;
    value jsonb;
    fine  boolean;
BEGIN
    IF jsonb_typeof(spec) IS DISTINCT FROM 'object' THEN
        PERFORM dispatch.refuse('DI002', 'spec', 'spec must be a JSON object', 'Keys: image, command, args, cpu, memory, private_machine, special_machine.');
    END IF;
    FOR name, value IN SELECT e.key, e.value FROM jsonb_each(spec) AS e LOOP
        fine := CASE
            WHEN name NOT IN ('image', 'command', 'args', 'cpu', 'memory', 'private_machine', 'special_machine') THEN NULL
            WHEN name IN ('command', 'args') THEN dispatch.is_text_array(value)
            WHEN jsonb_typeof(value) <> 'string' THEN false
            WHEN name = 'image' THEN value #>> '{}' ~ '^[A-Za-z0-9][A-Za-z0-9._/:@-]*$' AND length(value #>> '{}') <= 512
            WHEN name = 'cpu' THEN coalesce(dispatch.quantity(value #>> '{}') BETWEEN 0.001 AND 10000, false)
            WHEN name = 'memory' THEN value #>> '{}' !~ 'm$'
                AND coalesce(dispatch.quantity(value #>> '{}') BETWEEN 1 AND dispatch.quantity('1Pi'), false)
            WHEN name IN ('private_machine', 'special_machine')
                THEN value #>> '{}' ~ '^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$'
        END;
        IF fine IS NULL THEN
            PERFORM dispatch.refuse('DI002', 'spec', 'spec has an unknown key', 'Keys: image, command, args, cpu, memory, private_machine, special_machine.');
        ELSIF NOT fine THEN
            -- Here the key is one of our names, not content of the row.
            PERFORM dispatch.refuse('DI002', 'spec', format('spec.%s is not usable', name), CASE
                WHEN name IN ('command', 'args') THEN 'An array of at most 1000 strings, 128 KiB in all.'
                WHEN name = 'image' THEN 'An image reference as a string.'
                WHEN name = 'cpu' THEN 'A quantity as a string, such as "500m" or "2", from 1m to 10000.'
                WHEN name = 'memory' THEN 'A quantity as a string, such as "512Mi" or "4Gi", above 0, at most 1Pi.'
                ELSE 'A label value as a string: 63 letters, digits, ".", "_", "-".' END);
        END IF;
    END LOOP;
END
$$;

CREATE FUNCTION dispatch.may_submit(door name) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT door IS NULL OR coalesce(pg_has_role(session_user, to_regrole(quote_ident(door::text))::oid, 'MEMBER'), false)
$$;
COMMENT ON FUNCTION dispatch.may_submit IS 'True: the login is a member of the role that a queue asks for. A role that does not exist has no members.';

CREATE OR REPLACE FUNCTION dispatch.check_task() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    door name;
    env CONSTANT text := NEW.env::text;
BEGIN
    SELECT coalesce(q.submit_role, q.owner_role, (SELECT d.submit_role FROM dispatch.queues AS d WHERE d.name = '*')) INTO door
    FROM dispatch.queues AS q WHERE q.name = NEW.queue AND q.name <> '*';
    IF NOT FOUND THEN
        PERFORM dispatch.refuse('DI003', 'queue', 'the queue is not declared',
            format('Queues are rows of dispatch.queues; the nearest name is "%s". An operator declares new ones.', dispatch.nearest_queue(coalesce(NEW.queue, ''))));
    ELSIF door IS NOT NULL AND NOT dispatch.may_submit(door) THEN
        PERFORM dispatch.refuse('DI003', 'queue', format('you may not insert into the queue "%s"', NEW.queue),
            format('Only members of the role "%s" may. An operator grants it, or changes queues.submit_role.', door));
    END IF;
    IF NEW.priority IS NULL OR NEW.priority NOT BETWEEN 0 AND 1000 THEN
        PERFORM dispatch.refuse('DI004', 'priority', 'priority is out of range', '0..1000, lower first; 100 if left out.');
    END IF;
    IF NEW.run_at NOT BETWEEN '1900-01-01 UTC' AND '9999-12-31 UTC' THEN -- many clients know no year beyond 9999
        PERFORM dispatch.refuse('DI004', 'run_at', 'run_at must be a finite time', 'Leave it out to run as soon as possible; the year 9999 is the last.');
    END IF;
    IF NEW.timeout_seconds NOT BETWEEN 1 AND 604800 THEN
        PERFORM dispatch.refuse('DI004', 'timeout_seconds', 'timeout_seconds is out of range', '1..604800 (a week); leave it out for the default.');
    END IF;
    IF NEW.max_failures IS NULL OR NEW.max_failures NOT BETWEEN 1 AND 100 THEN
        PERFORM dispatch.refuse('DI004', 'max_failures', 'max_failures is out of range', '1..100; 1: a task that started never runs again by itself.');
    END IF;
    IF length(NEW.cache_key) NOT BETWEEN 1 AND 200 THEN
        PERFORM dispatch.refuse('DI005', 'cache_key', 'cache_key is empty or too long', '1 to 200 characters.');
    END IF;
    IF length(NEW.dedupe_key) NOT BETWEEN 1 AND 200 THEN
        PERFORM dispatch.refuse('DI005', 'dedupe_key', 'dedupe_key is empty or too long', '1 to 200 characters.');
    END IF;
    -- The length is checked separately, because {0,61} in the pattern takes four times as long.
    IF NEW.template IS NULL OR length(NEW.template) > 63 OR NEW.template !~ '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$' THEN
        PERFORM dispatch.refuse('DI006', 'template', 'template is not a template''s name', 'Lower-case letters, digits and "-", 63 characters; `default` if left out.');
    END IF;
    IF octet_length(NEW.payload::text) > 1048576 THEN
        PERFORM dispatch.refuse('DI007', 'payload', 'payload is larger than 1 MiB', 'Put large input into object storage and its address into payload.');
    END IF;
    -- Most rows have a small env: at most 64 short legal names that are open to rows, and values without an escape.
    IF (octet_length(env) <= 256
        AND env ~ '^\{("[A-Za-z_][A-Za-z0-9_]*": "[^"\\]*"(, )?)*\}$'
        AND env !~ '"(TASK_|DISPATCHER_|KUBERNETES_|LD_|NODE_NAME|POD_NAME|JOB_UID)') IS NOT TRUE
    THEN
        PERFORM dispatch.check_env(NEW.env);
    END IF;
    IF NEW.spec IS DISTINCT FROM '{}' THEN
        PERFORM dispatch.check_spec(NEW.spec);
    END IF;
    NEW.kind := dispatch.task_kind(NEW.template, NEW.spec, NEW.timeout_seconds, NEW.env);
    RETURN NEW;
END
$$;

CREATE OR REPLACE FUNCTION dispatch.keep_queue() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF OLD.name IN ('*', 'default') OR EXISTS (
        SELECT FROM dispatch.tasks WHERE queue = OLD.name AND status = 'waiting' AND run_at IS NULL
        UNION ALL SELECT FROM dispatch.tasks WHERE queue = OLD.name AND status = 'waiting' AND run_at IS NOT NULL
        UNION ALL SELECT FROM dispatch.tasks WHERE queue = OLD.name AND status = 'processing')
    THEN
        RAISE EXCEPTION USING ERRCODE = 'DI003', MESSAGE = format('queue "%s" is still needed', OLD.name),
            HINT = 'The rows `*` and `default` stay; of another queue, cancel or finish the live rows first. A name cannot be changed.',
            COLUMN = 'name', TABLE = 'queues', SCHEMA = 'dispatch';
    END IF;
    RETURN OLD;
END
$$;

-- NOTIFY fails for every team when its queue is full, and one session that does not read fills the queue. Above one half we
-- send none, and the dispatcher polls. Reading the usage also frees notifications that every session has read.
CREATE OR REPLACE FUNCTION dispatch.announce(channel text, clock regclass) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now_ms  bigint := extract(epoch FROM clock_timestamp()) * 1000;
    last_ms bigint := coalesce(pg_sequence_last_value(clock), 0);
BEGIN
    IF now_ms - last_ms >= 100 OR now_ms < last_ms THEN -- the second: the server's clock was set back
        PERFORM setval(clock, now_ms);
        IF pg_notification_queue_usage() < 0.5 THEN
            PERFORM pg_notify(channel, '');
        END IF;
    END IF;
END
$$;
COMMENT ON FUNCTION dispatch.announce IS 'Notifies a channel, at most every 100 ms, and only while the notification queue is less than half full.';

CREATE OR REPLACE FUNCTION dispatch.announce_tasks() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    since_ms bigint := extract(epoch FROM clock_timestamp()) * 1000 - coalesce(pg_sequence_last_value('dispatch.tasks_clock'), 0);
BEGIN
    IF since_ms NOT BETWEEN 0 AND 99 THEN
        PERFORM dispatch.announce('dispatch_tasks', 'dispatch.tasks_clock');
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION dispatch.check_waiting() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bounded record;
BEGIN
    -- Counts the waiting rows of each queue inserted into, up to the bound, with the index only.
    FOR bounded IN
        SELECT q.name, coalesce(q.max_waiting_per_submitter, d.max_waiting_per_submitter)::bigint AS most
        FROM dispatch.queues AS q, dispatch.queues AS d
        WHERE d.name = '*' AND coalesce(q.max_waiting_per_submitter, d.max_waiting_per_submitter) IS NOT NULL
          AND q.name IN (SELECT queue FROM inserted)
    LOOP
        IF (SELECT count(*) FROM (
                (SELECT FROM dispatch.tasks WHERE status = 'waiting' AND run_at IS NULL
                    AND queue = bounded.name AND submitted_by = session_user LIMIT bounded.most + 1)
                UNION ALL
                (SELECT FROM dispatch.tasks WHERE status = 'waiting' AND run_at IS NOT NULL
                    AND queue = bounded.name AND submitted_by = session_user LIMIT bounded.most + 1)) AS waiting) > bounded.most
        THEN
            PERFORM dispatch.refuse('DI009', 'queue', format('you have more than %s waiting rows in the queue "%s"', bounded.most, bounded.name),
                'Insert the rest when some have started. An operator sets the bound, queues.max_waiting_per_submitter.');
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION dispatch.check_waiting IS 'Trigger: refuses an INSERT that leaves its submitter with more waiting rows in a queue than that allows.';

-- Reading the inserted rows makes every insert a twentieth slower. So it is done only if a bound exists.
CREATE FUNCTION dispatch.begin_to_check_waiting() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '3s' AS $$
BEGIN
    IF EXISTS (SELECT FROM dispatch.queues WHERE max_waiting_per_submitter IS NOT NULL)
        AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = 'dispatch.tasks'::regclass AND tgname = 'check_waiting')
    THEN
        CREATE TRIGGER check_waiting AFTER INSERT ON dispatch.tasks
            REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION dispatch.check_waiting();
    END IF;
    RETURN NULL;
EXCEPTION
    WHEN duplicate_object THEN
        RETURN NULL; -- somebody else set a bound at the same time
    WHEN lock_not_available THEN
        RAISE EXCEPTION USING ERRCODE = '55P03', MESSAGE = 'the first bound of waiting rows waits for a transaction that has inserted rows',
            HINT = 'Try again, or look for the transaction in pg_stat_activity.';
END
$$;
COMMENT ON FUNCTION dispatch.begin_to_check_waiting IS 'Trigger: from the first bound of waiting rows on, every INSERT is checked.';

CREATE TRIGGER begin_to_check_waiting AFTER INSERT OR UPDATE ON dispatch.queues
    FOR EACH STATEMENT EXECUTE FUNCTION dispatch.begin_to_check_waiting();
