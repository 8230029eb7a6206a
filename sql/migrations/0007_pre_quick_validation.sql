-- The same judgement at a third of the cost: other teams' inserts must not feel that somebody looks at them. What made it
-- dear: a search_path set anew by every inner function (they have the trigger's), and queries where an expression will
-- do, each of which starts an executor of its own.

ALTER FUNCTION check_env(jsonb) RESET search_path;
ALTER FUNCTION check_spec(jsonb) RESET search_path;
ALTER FUNCTION announce(text, regclass) RESET search_path;
ALTER FUNCTION close_launch(bigint) RESET search_path;

CREATE OR REPLACE FUNCTION task_kind(template text, spec jsonb, timeout_seconds integer, env jsonb) RETURNS bytea
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN substring(sha256(convert_to(jsonb_build_array(
        template, spec - 'command' - 'args', spec ? 'command', spec ? 'args', timeout_seconds,
        jsonb_path_query_array(env, '$.keyvalue().key'))::text, 'UTF8')) FOR 16);
END
$$;

CREATE OR REPLACE FUNCTION announce_tasks() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = dispatch, pg_temp AS $$
DECLARE
    since_ms bigint := extract(epoch FROM clock_timestamp()) * 1000 - coalesce(pg_sequence_last_value('tasks_clock'), 0);
BEGIN
    IF since_ms NOT BETWEEN 0 AND 99 THEN
        PERFORM announce('dispatch_tasks', 'tasks_clock');
    END IF;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION check_task() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = dispatch, pg_temp AS $$
BEGIN
    IF NEW.queue IS NULL OR NEW.queue = '*' OR NOT EXISTS (SELECT FROM queues WHERE name = NEW.queue) THEN
        PERFORM refuse('DI003', 'queue', 'the queue is not declared',
            format('Queues are rows of dispatch.queues; the nearest name is "%s". An operator declares new ones.', nearest_queue(coalesce(NEW.queue, ''))));
    END IF;
    IF NEW.priority IS NULL OR NEW.priority NOT BETWEEN 0 AND 1000 THEN
        PERFORM refuse('DI004', 'priority', 'priority is out of range', '0..1000, lower first; 100 if left out.');
    END IF;
    IF NEW.run_at NOT BETWEEN '1900-01-01 UTC' AND '9999-12-31 UTC' THEN -- many clients know no year beyond 9999
        PERFORM refuse('DI004', 'run_at', 'run_at must be a finite time', 'Leave it out to run as soon as possible; the year 9999 is the last.');
    END IF;
    IF NEW.timeout_seconds NOT BETWEEN 1 AND 604800 THEN
        PERFORM refuse('DI004', 'timeout_seconds', 'timeout_seconds is out of range', '1..604800 (a week); leave it out for the default.');
    END IF;
    IF NEW.max_failures IS NULL OR NEW.max_failures NOT BETWEEN 1 AND 100 THEN
        PERFORM refuse('DI004', 'max_failures', 'max_failures is out of range', '1..100; 1: a task that started never runs again by itself.');
    END IF;
    IF length(NEW.cache_key) NOT BETWEEN 1 AND 200 THEN
        PERFORM refuse('DI005', 'cache_key', 'cache_key is empty or too long', '1 to 200 characters.');
    END IF;
    IF length(NEW.dedupe_key) NOT BETWEEN 1 AND 200 THEN
        PERFORM refuse('DI005', 'dedupe_key', 'dedupe_key is empty or too long', '1 to 200 characters.');
    END IF;
    IF NEW.template IS NULL OR NEW.template !~ '^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$' THEN
        PERFORM refuse('DI006', 'template', 'template is not a template''s name', 'Lower-case letters, digits and "-", 63 characters; `default` if left out.');
    END IF;
    IF octet_length(NEW.payload::text) > 1048576 THEN
        PERFORM refuse('DI007', 'payload', 'payload is larger than 1 MiB', 'Put large input into object storage and its address into payload.');
    END IF;
    -- Most are small and certainly fine: at most 64 short legal names, open to rows, and values without an escape.
    IF (octet_length(NEW.env::text) <= 256
        AND NEW.env::text ~ '^\{("[A-Za-z_][A-Za-z0-9_]*": "[^"\\]*"(, )?)*\}$'
        AND NEW.env::text !~ '"(TASK_|DISPATCHER_|KUBERNETES_|LD_|NODE_NAME|POD_NAME|JOB_UID)') IS NOT TRUE
    THEN
        PERFORM check_env(NEW.env);
    END IF;
    IF NEW.spec IS DISTINCT FROM '{}' THEN
        PERFORM check_spec(NEW.spec);
    END IF;
    NEW.kind := task_kind(NEW.template, NEW.spec, NEW.timeout_seconds, NEW.env);
    RETURN NEW;
END
$$;
