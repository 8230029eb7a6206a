-- What a submitter sends is judged here, at INSERT, with SQLSTATE, COLUMN and HINT, and never with the row's content:
-- client errors and server logs are read by more people than the row is.

CREATE FUNCTION refuse(code text, about text, message text, hint text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = code, MESSAGE = message, HINT = hint,
        COLUMN = about, TABLE = 'tasks', SCHEMA = 'dispatch';
END
$$;
COMMENT ON FUNCTION refuse IS 'Raises the error of a refused row.';

-- Nearest declared queue by shared pairs of letters: good enough for a typo, and needs no extension.
CREATE FUNCTION nearest_queue(wanted text) RETURNS text
LANGUAGE sql STABLE SET search_path = dispatch, pg_temp AS $$
    SELECT q.name
    FROM queues AS q
    WHERE q.name <> '*'
    ORDER BY (SELECT count(DISTINCT substr(q.name, i, 2)) FROM generate_series(1, length(q.name)) AS i
              WHERE position(substr(q.name, i, 2) IN left(lower(wanted), 63)) > 0) DESC,
             abs(length(q.name) - length(wanted)), q.name
    LIMIT 1
$$;
COMMENT ON FUNCTION nearest_queue IS 'The declared queue that looks most like a name.';

CREATE FUNCTION quantity(written text) RETURNS numeric
LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT part[1]::numeric * CASE coalesce(part[2], '')
        WHEN '' THEN 1 WHEN 'm' THEN 0.001
        WHEN 'k' THEN 1e3 WHEN 'M' THEN 1e6 WHEN 'G' THEN 1e9 WHEN 'T' THEN 1e12 WHEN 'P' THEN 1e15
        WHEN 'Ki' THEN 1024 WHEN 'Mi' THEN 1048576 WHEN 'Gi' THEN 1073741824
        WHEN 'Ti' THEN 1099511627776 WHEN 'Pi' THEN 1125899906842624 END
    FROM regexp_match(written, '^([0-9]{1,18}(?:\.[0-9]{1,9})?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$') AS part
$$;
COMMENT ON FUNCTION quantity IS 'Value of a Kubernetes quantity without sign or exponent; NULL: not one.';

CREATE FUNCTION is_text_array(value jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN jsonb_typeof(value) = 'array'
        THEN jsonb_array_length(value) <= 1000 AND octet_length(value::text) <= 131072
             AND NOT EXISTS (SELECT FROM jsonb_array_elements(value) AS e WHERE jsonb_typeof(e) <> 'string')
        ELSE false END
$$;
COMMENT ON FUNCTION is_text_array IS 'True: an array of at most 1000 strings, 128 KiB in all.';

CREATE FUNCTION check_env(env jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = dispatch, pg_temp AS $$
DECLARE
    seen record;
BEGIN
    IF jsonb_typeof(env) IS DISTINCT FROM 'object' THEN
        PERFORM refuse('DI001', 'env', 'env must be a JSON object of strings', 'Write {"NAME": "value"}, or leave it out.');
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
        PERFORM refuse('DI001', 'env', 'every value of env must be a string', 'Quote numbers and booleans; structured input belongs in payload.');
    ELSIF seen.names > 64 THEN
        PERFORM refuse('DI001', 'env', 'env has more than 64 names', 'Structured input belongs in payload.');
    ELSIF seen.bad_name THEN
        PERFORM refuse('DI001', 'env', 'env has an illegal name', 'Names are [A-Za-z_][A-Za-z0-9_]*, at most 255 characters.');
    ELSIF seen.closed_name THEN
        PERFORM refuse('DI001', 'env', 'env has a name that is closed to rows', 'The prefixes TASK_, DISPATCHER_, KUBERNETES_ and LD_, and NODE_NAME, POD_NAME, POD_NAMESPACE, JOB_UID, are set by the dispatcher or closed.');
    ELSIF seen.longest > 32768 OR seen.total > 131072 THEN
        PERFORM refuse('DI001', 'env', 'env is too large', 'A value has at most 32 KiB, all together at most 128 KiB; large input belongs in payload.');
    END IF;
END
$$;
COMMENT ON FUNCTION check_env IS 'Refuses an env that no container could be given.';

CREATE FUNCTION check_spec(spec jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = dispatch, pg_temp AS $$
DECLARE
    name  text;
    value jsonb;
    fine  boolean;
BEGIN
    IF jsonb_typeof(spec) IS DISTINCT FROM 'object' THEN
        PERFORM refuse('DI002', 'spec', 'spec must be a JSON object', 'Keys: image, command, args, cpu, memory, private_machine, special_machine.');
    END IF;
    FOR name, value IN SELECT e.key, e.value FROM jsonb_each(spec) AS e LOOP
        fine := CASE
            WHEN name NOT IN ('image', 'command', 'args', 'cpu', 'memory', 'private_machine', 'special_machine') THEN NULL
            WHEN name IN ('command', 'args') THEN is_text_array(value)
            WHEN jsonb_typeof(value) <> 'string' THEN false
            WHEN name = 'image' THEN value #>> '{}' ~ '^[A-Za-z0-9][A-Za-z0-9._/:@-]*$' AND length(value #>> '{}') <= 512
            WHEN name = 'cpu' THEN coalesce(quantity(value #>> '{}') BETWEEN 0.001 AND 10000, false)
            WHEN name = 'memory' THEN value #>> '{}' !~ 'm$' AND coalesce(quantity(value #>> '{}') BETWEEN 1 AND quantity('1Pi'), false)
            WHEN name IN ('private_machine', 'special_machine')
                THEN value #>> '{}' ~ '^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$'
        END;
        IF fine IS NULL THEN
            PERFORM refuse('DI002', 'spec', 'spec has an unknown key', 'Keys: image, command, args, cpu, memory, private_machine, special_machine.');
        ELSIF NOT fine THEN
            -- The key is one of ours here, not the row's content.
            PERFORM refuse('DI002', 'spec', format('spec.%s is not usable', name), CASE
                WHEN name IN ('command', 'args') THEN 'An array of at most 1000 strings, 128 KiB in all.'
                WHEN name = 'image' THEN 'An image reference as a string.'
                WHEN name = 'cpu' THEN 'A quantity as a string, such as "500m" or "2", from 1m to 10000.'
                WHEN name = 'memory' THEN 'A quantity as a string, such as "512Mi" or "4Gi", above 0, at most 1Pi.'
                ELSE 'A label value as a string: 63 letters, digits, ".", "_", "-".' END);
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION check_spec IS 'Refuses a spec with unknown keys or values that no template could accept.';

CREATE FUNCTION task_kind(template text, spec jsonb, timeout_seconds integer, env jsonb) RETURNS bytea
LANGUAGE sql STABLE SET search_path = dispatch, pg_temp AS $$
    SELECT substring(sha256(convert_to(jsonb_build_array(
        template, spec - 'command' - 'args', spec ? 'command', spec ? 'args', timeout_seconds,
        (SELECT jsonb_agg(k ORDER BY k COLLATE "C") FROM jsonb_object_keys(env) AS k))::text, 'UTF8')) FOR 16)
$$;
COMMENT ON FUNCTION task_kind IS 'Digest of all that a template''s bounds are judged by.';

CREATE FUNCTION check_task() RETURNS trigger
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
    PERFORM check_env(NEW.env);
    PERFORM check_spec(NEW.spec);
    NEW.kind := task_kind(NEW.template, NEW.spec, NEW.timeout_seconds, NEW.env);
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION check_task IS 'Trigger: refuses rows that could never run, and gives the others their kind.';

CREATE TRIGGER check_task BEFORE INSERT ON tasks FOR EACH ROW EXECUTE FUNCTION check_task();

-- A queue that goes away, or changes its name, would leave its rows waiting where nobody looks.
CREATE FUNCTION keep_queue() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = dispatch, pg_temp AS $$
BEGIN
    IF OLD.name IN ('*', 'default') OR EXISTS (
        SELECT FROM tasks WHERE queue = OLD.name AND status = 'waiting' AND run_at IS NULL
        UNION ALL SELECT FROM tasks WHERE queue = OLD.name AND status = 'waiting' AND run_at IS NOT NULL
        UNION ALL SELECT FROM tasks WHERE queue = OLD.name AND status = 'processing')
    THEN
        RAISE EXCEPTION USING ERRCODE = 'DI003', MESSAGE = format('queue "%s" is still needed', OLD.name),
            HINT = 'The rows `*` and `default` stay; of another queue, cancel or finish the live rows first. A name cannot be changed.',
            COLUMN = 'name', TABLE = 'queues', SCHEMA = 'dispatch';
    END IF;
    RETURN OLD;
END
$$;
COMMENT ON FUNCTION keep_queue IS 'Trigger: a queue with live rows stays.';

CREATE TRIGGER keep_queue BEFORE DELETE ON queues FOR EACH ROW EXECUTE FUNCTION keep_queue();
CREATE TRIGGER keep_queue_name BEFORE UPDATE OF name ON queues FOR EACH ROW
    WHEN (OLD.name IS DISTINCT FROM NEW.name) EXECUTE FUNCTION keep_queue();
