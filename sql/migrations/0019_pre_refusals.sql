-- Refusals of an INSERT: by the rules of every row, then by the row's template. An error names what is wrong, where it is no
-- secret, and what to do.

-- A refusal is a value until the trigger raises it. So an error has one line of CONTEXT, and no code in it.
CREATE TYPE dispatch.refusal AS (code text, about text, message text, hint text);
REVOKE USAGE ON TYPE dispatch.refusal FROM PUBLIC;

-- Names, images and machines may be told. What does not look like one may be a secret in the wrong place.
CREATE FUNCTION dispatch.shown(words text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN words ~ '^[A-Za-z0-9_][A-Za-z0-9._/:@*-]*$' AND length(words) <= 80 THEN format(' "%s"', words) ELSE '' END
$$;
COMMENT ON FUNCTION dispatch.shown IS 'The words in quotes after a blank, if they look like a name; otherwise empty.';

CREATE FUNCTION dispatch.nearest(wanted text, known text[]) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    WITH pairs AS (
        SELECT name, array_agg(DISTINCT substr('^' || lower(name) || '$', i, 2)) AS own
        FROM (SELECT left(wanted, 63) AS name UNION SELECT unnest(known[1:1000])) AS names
        CROSS JOIN LATERAL generate_series(1, length(name) + 1) AS i GROUP BY name
    )
    SELECT k.name
    FROM pairs AS k
    JOIN pairs AS w ON w.name = left(wanted, 63)
    CROSS JOIN LATERAL (SELECT count(*) AS number FROM unnest(k.own) AS one WHERE one = ANY (w.own)) AS shared
    WHERE k.name = ANY (known) AND 4 * shared.number >= cardinality(k.own) + cardinality(w.own)
    ORDER BY shared.number::real / (cardinality(k.own) + cardinality(w.own)) DESC, k.name
    LIMIT 1
$$;
COMMENT ON FUNCTION dispatch.nearest IS 'The known name with the most pairs of letters in common; NULL: none has half of them.';

CREATE FUNCTION dispatch.advice(wanted text, known text[], otherwise text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce('The nearest name is "' || dispatch.nearest(wanted, known) || '". ', '') || otherwise
$$;
COMMENT ON FUNCTION dispatch.advice IS 'A hint: the nearest known name, if one is near, and what else to do.';

CREATE FUNCTION dispatch.queue_fault(wanted text, door name) RETURNS dispatch.refusal
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN door IS NULL THEN ROW('DI003', 'queue', format('queue%s is not declared', dispatch.shown(wanted)),
            dispatch.advice(coalesce(wanted, ''), ARRAY(SELECT one FROM dispatch.open_queues() AS one WHERE one <> '*'),
                'SELECT name, note FROM dispatch.queues shows those that you may use. An operator declares new ones.'))::dispatch.refusal
        ELSE ROW('DI003', 'queue', format('you may not insert into the queue "%s"', wanted),
            format('Only members of the role "%s" may. An operator grants it, or changes queues.submit_role.', door))::dispatch.refusal END
$$;
COMMENT ON FUNCTION dispatch.queue_fault IS 'Why a row may not name this queue. door: the role that may; NULL: there is no such queue.';

CREATE FUNCTION dispatch.env_fault(env jsonb) RETURNS dispatch.refusal
LANGUAGE plpgsql AS $$
DECLARE
    seen record;
BEGIN
    IF jsonb_typeof(env) IS DISTINCT FROM 'object' THEN
        RETURN ROW('DI001', 'env', 'env must be a JSON object of strings', 'Write {"NAME": "value"}, or leave it out.')::dispatch.refusal;
    END IF;
    SELECT count(*) AS names,
           min(key) FILTER (WHERE jsonb_typeof(value) <> 'string') AS not_text,
           min(key) FILTER (WHERE key !~ '^[A-Za-z_][A-Za-z0-9_]{0,254}$') AS bad_name,
           min(key) FILTER (WHERE key ~ '^(TASK_|DISPATCHER_|KUBERNETES_|LD_)'
                            OR key IN ('NODE_NAME', 'POD_NAME', 'POD_NAMESPACE', 'JOB_UID')) AS closed_name,
           min(key) FILTER (WHERE octet_length(value #>> '{}') > 32768) AS too_long,
           coalesce(sum(octet_length(value #>> '{}')), 0) AS total
    INTO seen FROM jsonb_each(env);
    -- Of an illegal name only NAME is told, where somebody wrote NAME=value.
    RETURN CASE
        WHEN seen.not_text IS NOT NULL THEN ROW('DI001', 'env', format('the value of%s in env must be a string', coalesce(nullif(dispatch.shown(seen.not_text), ''), ' a name')),
            'Quote numbers and booleans; structured input belongs in payload.')::dispatch.refusal
        WHEN seen.names > 64 THEN ROW('DI001', 'env', format('env has %s names, more than 64', seen.names), 'Structured input belongs in payload.')::dispatch.refusal
        WHEN seen.bad_name IS NOT NULL THEN ROW('DI001', 'env', format('env has an illegal name%s',
                coalesce(', which begins with "' || substring(seen.bad_name FROM '^([A-Za-z_][A-Za-z0-9_]{0,39})=') || '"', '')),
            'Names are [A-Za-z_][A-Za-z0-9_]*, at most 255 characters.')::dispatch.refusal
        WHEN seen.closed_name IS NOT NULL THEN ROW('DI001', 'env', format('env.%s is closed to rows', left(seen.closed_name, 80)),
            'The prefixes TASK_, DISPATCHER_, KUBERNETES_ and LD_, and NODE_NAME, POD_NAME, POD_NAMESPACE, JOB_UID, are set by the dispatcher or closed.')::dispatch.refusal
        WHEN seen.too_long IS NOT NULL THEN ROW('DI001', 'env', format('the value of%s in env is larger than 32 KiB', coalesce(nullif(dispatch.shown(seen.too_long), ''), ' a name')),
            'All values together have at most 128 KiB; large input belongs in payload.')::dispatch.refusal
        WHEN seen.total > 131072 THEN ROW('DI001', 'env', format('env has %s bytes, more than 131072', seen.total), 'A value has at most 32 KiB; large input belongs in payload.')::dispatch.refusal
    END;
END
$$;
COMMENT ON FUNCTION dispatch.env_fault IS 'Why no container could be given this env; NULL: one could.';

CREATE FUNCTION dispatch.spec_fault(spec jsonb) RETURNS dispatch.refusal
LANGUAGE plpgsql AS $$
DECLARE
    fields CONSTANT text[] := ARRAY['image', 'command', 'args', 'cpu', 'memory', 'private_machine', 'special_machine'];
    name  text;
    value jsonb;
BEGIN
    IF jsonb_typeof(spec) IS DISTINCT FROM 'object' THEN
        RETURN ROW('DI002', 'spec', 'spec must be a JSON object', 'Its fields are image, command, args, cpu, memory, private_machine, special_machine.')::dispatch.refusal;
    END IF;
    FOR name, value IN SELECT e.key, e.value FROM jsonb_each(spec) AS e LOOP
        IF name <> ALL (fields) THEN
            RETURN ROW('DI002', 'spec', format('spec has no field%s', coalesce(nullif(dispatch.shown(name), ''), ' of this name')),
                dispatch.advice(name, fields, 'Its fields are image, command, args, cpu, memory, private_machine, special_machine.'))::dispatch.refusal;
        ELSIF (CASE
            WHEN name IN ('command', 'args') THEN dispatch.is_text_array(value)
            WHEN jsonb_typeof(value) <> 'string' THEN false
            WHEN name = 'image' THEN value #>> '{}' ~ '^[A-Za-z0-9][A-Za-z0-9._/:@-]*$' AND length(value #>> '{}') <= 512
            WHEN name = 'cpu' THEN coalesce(dispatch.quantity(value #>> '{}') BETWEEN 0.001 AND 10000, false)
            WHEN name = 'memory' THEN value #>> '{}' !~ 'm$'
                AND coalesce(dispatch.quantity(value #>> '{}') BETWEEN 1 AND dispatch.quantity('1Pi'), false)
            ELSE value #>> '{}' ~ '^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$'
        END) IS NOT TRUE THEN
            RETURN ROW('DI002', 'spec', CASE
                -- What begins with a digit is a quantity with a mistake; other words may be anything.
                WHEN name IN ('cpu', 'memory') AND value #>> '{}' ~ '^-?[0-9][0-9A-Za-z.+-]{0,19}$' THEN format('spec.%s "%s" is not usable', name, value #>> '{}')
                ELSE format('spec.%s is not usable', name) END, CASE
                WHEN name IN ('command', 'args') THEN 'An array of at most 1000 strings, 128 KiB in all.'
                WHEN name = 'image' THEN 'An image reference as a string.'
                WHEN name = 'cpu' THEN 'A quantity as a string, such as "500m" or "2", from 1m to 10000.'
                WHEN name = 'memory' THEN 'A quantity as a string, such as "512Mi" or "4Gi", above 0, at most 1Pi.'
                ELSE 'A label value as a string: 63 letters, digits, ".", "_", "-".' END)::dispatch.refusal;
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION dispatch.spec_fault IS 'Why no template could accept this spec; NULL: one could.';

CREATE FUNCTION dispatch.is_trusted(name text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT name <> 'NODE_NAME' AND (
        name ~ '^(PATH|HOME|USER|SHELL|IFS|ENV|BASH_ENV|BROWSER|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|CLASSPATH|GCONV_PATH|LOCPATH|REQUESTS_CA_BUNDLE|KUBECONFIG)$'
        OR name ~ '^(BASH_FUNC_|PG|PYTHON|NODE_|NPM_|JDK_|PERL|RUBY|GEM_|GIT_|SSH_|SSL_|CURL_|AWS_|GOOGLE_|AZURE_)'
        OR upper(name) IN ('HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'NO_PROXY'))
$$;
COMMENT ON FUNCTION dispatch.is_trusted IS 'True: programs run or trust the value of this variable, so a template must open it by name. The dispatcher has the same list.';

CREATE FUNCTION dispatch.matches_one(value text, globs text[]) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    -- A glob with brackets is not judged here.
    SELECT coalesce(bool_or(position('[' IN glob) > 0 OR value LIKE
        replace(replace(replace(replace(replace(glob, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%'), '?', '_')), false)
    FROM unnest(globs) AS glob
$$;
COMMENT ON FUNCTION dispatch.matches_one IS 'True: one of the patterns matches, or cannot be judged in SQL.';

CREATE FUNCTION dispatch.template_fault(template text, spec jsonb, env jsonb, timeout_seconds integer) RETURNS dispatch.refusal
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
    its    dispatch.templates;
    opened text;
    field  text;
    name   text;
BEGIN
    SELECT * INTO its FROM dispatch.templates AS t WHERE t.name = template;
    IF NOT FOUND AND NOT EXISTS (SELECT FROM dispatch.templates) THEN
        RETURN NULL; -- no janitor has written the table
    ELSIF its.name IS NULL THEN
        RETURN ROW('DI006', 'template', format('template "%s" is not known', template), dispatch.advice(template,
            ARRAY(SELECT t.name FROM dispatch.templates AS t), 'SELECT name, row_may_set, note FROM dispatch.templates shows all.'))::dispatch.refusal;
    ELSIF its.row_may_set IS NULL THEN
        RETURN NULL; -- its author has to mend it; until then its rows wait
    END IF;
    opened := format('Rows of it may set: %s.', coalesce(nullif(left(array_to_string(its.row_may_set, ', '), 300), ''), 'nothing'));
    SELECT min(key) INTO field FROM jsonb_object_keys(spec) AS key WHERE key <> ALL (its.row_may_set);
    IF field IS NOT NULL THEN
        RETURN ROW('DI002', 'spec', format('template "%s" does not open spec.%s', template, field), opened)::dispatch.refusal;
    ELSIF timeout_seconds > (its.bounds ->> 'seconds')::integer THEN
        RETURN ROW('DI004', 'timeout_seconds', format('timeout_seconds %s is over the %s of template "%s"', timeout_seconds, its.bounds ->> 'seconds', template),
            'Leave it out for the default, or ask the author of the template for more.')::dispatch.refusal;
    ELSIF spec ? 'image' AND (spec ->> 'image' ~ '\.\.|//' OR NOT dispatch.matches_one(spec ->> 'image', its.images)) THEN
        RETURN ROW('DI002', 'spec', format('spec.image%s is none of the images of template "%s"', dispatch.shown(spec ->> 'image'), template),
            format('It allows: %s.', left(array_to_string(its.images, ', '), 300)))::dispatch.refusal;
    END IF;
    FOREACH field IN ARRAY ARRAY['cpu', 'memory'] LOOP
        IF dispatch.quantity(spec ->> field) > dispatch.quantity(its.bounds ->> field) THEN
            RETURN ROW('DI002', 'spec', format('spec.%s %s is over the %s of template "%s"', field, spec ->> field, its.bounds ->> field, template),
                'Ask for less, or ask the author of the template for more.')::dispatch.refusal;
        END IF;
    END LOOP;
    FOREACH field IN ARRAY ARRAY['private_machine', 'special_machine'] LOOP
        IF spec ? field AND NOT dispatch.matches_one(spec ->> field, its.machines) THEN
            RETURN ROW('DI002', 'spec', format('spec.%s%s is none of the machines of template "%s"', field, dispatch.shown(spec ->> field), template),
                format('It allows: %s.', coalesce(nullif(left(array_to_string(its.machines, ', '), 300), ''), 'none')))::dispatch.refusal;
        END IF;
    END LOOP;
    FOR name IN SELECT key FROM jsonb_object_keys(env) AS key WHERE 'env.' || key <> ALL (its.row_may_set) ORDER BY key LOOP
        IF dispatch.is_trusted(name) THEN
            RETURN ROW('DI001', 'env', format('env.%s changes what programs run or trust, and template "%s" does not open it by name', left(name, 80), template), opened)::dispatch.refusal;
        ELSIF 'env' <> ALL (its.row_may_set) THEN
            RETURN ROW('DI001', 'env', format('template "%s" does not open env.%s', template, left(name, 80)), opened)::dispatch.refusal;
        ELSIF name = ANY (its.sets) THEN
            RETURN ROW('DI001', 'env', format('env.%s is set by template "%s" or by the installation, and not opened', left(name, 80), template), opened)::dispatch.refusal;
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION dispatch.template_fault IS 'Why the template refuses such a row, by the table templates; NULL: it accepts the row, or cannot be judged.';

CREATE FUNCTION dispatch.labels_fault(labels jsonb) RETURNS dispatch.refusal
LANGUAGE plpgsql AS $$
DECLARE
    seen record;
BEGIN
    IF jsonb_typeof(labels) IS DISTINCT FROM 'object' THEN
        RETURN ROW('DI008', 'labels', 'labels must be a JSON object of strings', 'Write {"name": "value"}, or leave it out.')::dispatch.refusal;
    ELSIF octet_length(labels::text) > 16384 THEN -- before they are looked at one by one
        RETURN ROW('DI008', 'labels', 'labels are too many or too long', 'At most 16, with names of 1 to 63 and values of at most 200 characters.')::dispatch.refusal;
    END IF;
    SELECT count(*) AS number,
           min(key) FILTER (WHERE jsonb_typeof(value) <> 'string') AS not_text,
           min(key) FILTER (WHERE length(key) NOT BETWEEN 1 AND 63 OR length(value #>> '{}') > 200) AS too_long
    INTO seen FROM jsonb_each(labels);
    RETURN CASE
        WHEN seen.not_text IS NOT NULL THEN ROW('DI008', 'labels', format('the value of%s in labels must be a string', coalesce(nullif(dispatch.shown(seen.not_text), ''), ' a name')),
            'Quote numbers and booleans: {"month": "7"}.')::dispatch.refusal
        WHEN seen.number > 16 THEN ROW('DI008', 'labels', format('labels has %s names, more than 16', seen.number), 'Structured input belongs in payload.')::dispatch.refusal
        WHEN seen.too_long IS NOT NULL THEN ROW('DI008', 'labels', format('a name or a value in labels is too long or empty%s', coalesce(':' || nullif(dispatch.shown(seen.too_long), ''), '')),
            'Names have 1 to 63 characters, values at most 200.')::dispatch.refusal
    END;
END
$$;
COMMENT ON FUNCTION dispatch.labels_fault IS 'Why these labels are not usable; NULL: they are.';

CREATE FUNCTION dispatch.task_fault(task dispatch.tasks) RETURNS dispatch.refusal
LANGUAGE plpgsql STABLE AS $$
DECLARE
    door name;
BEGIN
    SELECT coalesce(q.submit_role, q.owner_role, (SELECT d.submit_role FROM dispatch.queues AS d WHERE d.name = '*')) INTO door
    FROM dispatch.queues AS q WHERE q.name = task.queue AND q.name <> '*';
    IF NOT FOUND THEN
        RETURN dispatch.queue_fault(task.queue, NULL);
    ELSIF door IS NOT NULL AND NOT dispatch.may_submit(door) THEN
        RETURN dispatch.queue_fault(task.queue, door);
    ELSIF task.priority IS NULL OR task.priority NOT BETWEEN 0 AND 1000 THEN
        RETURN ROW('DI004', 'priority', concat('priority ', coalesce(task.priority::text, 'NULL'), ' is out of range'), '0..1000, lower first; 100 if left out.')::dispatch.refusal;
    ELSIF task.run_at NOT BETWEEN '1900-01-01 UTC' AND '9999-12-31 UTC' THEN -- many clients know no year beyond 9999
        RETURN ROW('DI004', 'run_at', 'run_at must be a finite time', 'Leave it out to run as soon as possible; the year 9999 is the last.')::dispatch.refusal;
    ELSIF task.timeout_seconds NOT BETWEEN 1 AND 604800 THEN
        RETURN ROW('DI004', 'timeout_seconds', concat('timeout_seconds ', task.timeout_seconds, ' is out of range'), '1..604800 (a week); leave it out for the default.')::dispatch.refusal;
    ELSIF task.max_failures IS NULL OR task.max_failures NOT BETWEEN 1 AND 100 THEN
        RETURN ROW('DI004', 'max_failures', concat('max_failures ', coalesce(task.max_failures::text, 'NULL'), ' is out of range'), '1..100; 1: a task that started never runs again by itself.')::dispatch.refusal;
    ELSIF length(task.cache_key) NOT BETWEEN 1 AND 200 THEN
        RETURN ROW('DI005', 'cache_key', concat('cache_key has ', length(task.cache_key), ' characters'), '1 to 200 characters.')::dispatch.refusal;
    ELSIF length(task.dedupe_key) NOT BETWEEN 1 AND 200 THEN
        RETURN ROW('DI005', 'dedupe_key', concat('dedupe_key has ', length(task.dedupe_key), ' characters'), '1 to 200 characters.')::dispatch.refusal;
    -- The length is checked separately, because {0,61} in the pattern takes four times as long.
    ELSIF task.template IS NULL OR length(task.template) > 63 OR task.template !~ '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$' THEN
        RETURN ROW('DI006', 'template', concat('template', dispatch.shown(task.template), ' is not the name of a template'), 'Lower-case letters, digits and "-", 63 characters; `default` if left out.')::dispatch.refusal;
    ELSIF octet_length(task.payload::text) > 1048576 THEN
        RETURN ROW('DI007', 'payload', 'payload is larger than 1 MiB', 'Put large input into object storage and its address into payload.')::dispatch.refusal;
    ELSIF length(task.batch) NOT BETWEEN 1 AND 200 THEN
        RETURN ROW('DI008', 'batch', concat('batch has ', length(task.batch), ' characters'), '1 to 200 characters; leave it out for a row that belongs to none.')::dispatch.refusal;
    END IF;
    RETURN coalesce(dispatch.labels_fault(task.labels), dispatch.env_fault(task.env), dispatch.spec_fault(task.spec),
        dispatch.template_fault(task.template, task.spec, task.env, task.timeout_seconds));
END
$$;
COMMENT ON FUNCTION dispatch.task_fault IS 'The first fault of a row that is to be inserted; NULL: it has none.';

CREATE OR REPLACE FUNCTION dispatch.check_task() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    env CONSTANT text := NEW.env::text;
    door name;
    is_doubtful boolean;
BEGIN
    SELECT coalesce(q.submit_role, q.owner_role, (SELECT d.submit_role FROM dispatch.queues AS d WHERE d.name = '*')),
           -- Whether its template sets or closes a variable of the row. NULL: the template is not in the table.
           (SELECT NEW.env <> '{}' AND coalesce('env' <> ALL (t.row_may_set) OR NEW.env ?| t.sets, false)
            FROM dispatch.templates AS t WHERE t.name = NEW.template)
    INTO door, is_doubtful
    FROM dispatch.queues AS q WHERE q.name = NEW.queue AND q.name <> '*';
    -- A glance is enough for most rows: at most 64 short legal names in env, none of them closed or trusted, values without
    -- an escape, and no spec. It is one expression, because Postgres prepares each expression anew in each transaction.
    -- What does not pass has a fault, or only looks so.
    IF (is_doubtful IS FALSE AND (door IS NULL OR dispatch.may_submit(door))
        AND NEW.priority BETWEEN 0 AND 1000 AND NEW.max_failures BETWEEN 1 AND 100
        AND NEW.timeout_seconds IS NULL AND NEW.spec = '{}' AND NEW.labels = '{}'
        AND (NEW.run_at IS NULL OR NEW.run_at BETWEEN '1900-01-01 UTC' AND '9999-12-31 UTC')
        AND coalesce(length(NEW.cache_key) BETWEEN 1 AND 200, true) AND coalesce(length(NEW.dedupe_key) BETWEEN 1 AND 200, true)
        AND coalesce(length(NEW.batch) BETWEEN 1 AND 200, true) AND coalesce(octet_length(NEW.payload::text) <= 1048576, true)
        AND octet_length(env) <= 256 AND env ~ '^\{("[A-Za-z_][A-Za-z0-9_]*": "[^"\\]*"(, )?)*\}$'
        AND env !~ '"(TASK_|DISPATCHER_|KUBERNETES_|LD_|NODE_NAME|POD_NAME|JOB_UID)'
        -- The names of is_trusted. One pattern with all of them takes three times as long.
        AND NOT NEW.env ?| '{PATH,HOME,USER,SHELL,IFS,ENV,BASH_ENV,BROWSER,JAVA_TOOL_OPTIONS,_JAVA_OPTIONS,CLASSPATH,GCONV_PATH,LOCPATH,REQUESTS_CA_BUNDLE,KUBECONFIG}'
        AND NOT env LIKE ANY (ARRAY['%"BASH_FUNC_%', '%"PG%', '%"PYTHON%', '%"NODE_%', '%"NPM_%', '%"JDK_%', '%"PERL%', '%"RUBY%', '%"GEM_%',
            '%"GIT_%', '%"SSH_%', '%"SSL_%', '%"CURL_%', '%"AWS_%', '%"GOOGLE_%', '%"AZURE_%'])
        AND upper(env) NOT LIKE '%\_PROXY"%'
    ) IS NOT TRUE THEN
        DECLARE
            fault CONSTANT dispatch.refusal := dispatch.task_fault(NEW);
        BEGIN
            IF fault.code IS NOT NULL THEN
                RAISE EXCEPTION USING ERRCODE = fault.code, MESSAGE = fault.message, HINT = fault.hint,
                    COLUMN = fault.about, TABLE = 'tasks', SCHEMA = 'dispatch';
            END IF;
        END;
    END IF;
    NEW.kind := dispatch.task_kind(NEW.template, NEW.spec, NEW.timeout_seconds, NEW.env);
    RETURN NEW;
END
$$;

CREATE OR REPLACE FUNCTION dispatch.check_waiting() RETURNS trigger
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
            RAISE EXCEPTION USING ERRCODE = 'DI009', COLUMN = 'queue', TABLE = 'tasks', SCHEMA = 'dispatch',
                MESSAGE = format('you have more than %s waiting rows in the queue "%s"', bounded.most, bounded.name),
                HINT = 'Insert the rest when some have started. An operator sets the bound, queues.max_waiting_per_submitter.';
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION dispatch.task_set_priority(task_id bigint, priority integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    answer text;
BEGIN
    IF task_set_priority.priority IS NULL OR task_set_priority.priority NOT BETWEEN 0 AND 1000 THEN
        RAISE EXCEPTION USING ERRCODE = 'DI004', COLUMN = 'priority', TABLE = 'tasks', SCHEMA = 'dispatch',
            MESSAGE = concat('priority ', coalesce(task_set_priority.priority::text, 'NULL'), ' is out of range'), HINT = '0..1000, lower first.';
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

-- A batch and labels are judged with the rest of the row. These functions raised their own errors.
DROP TRIGGER check_marks ON dispatch.tasks;
DROP FUNCTION dispatch.check_marks(), dispatch.check_labels(jsonb), dispatch.check_env(jsonb), dispatch.check_spec(jsonb),
    dispatch.nearest_queue(text), dispatch.refuse(text, text, text, text);

-- A duplicate key is told by the name of this index.
ALTER INDEX dispatch.tasks_dedupe RENAME TO dedupe_key_of_a_living_row;

REVOKE EXECUTE ON FUNCTION dispatch.shown(text), dispatch.nearest(text, text[]), dispatch.advice(text, text[], text),
    dispatch.queue_fault(text, name), dispatch.env_fault(jsonb), dispatch.spec_fault(jsonb), dispatch.is_trusted(text),
    dispatch.matches_one(text, text[]), dispatch.template_fault(text, jsonb, jsonb, integer), dispatch.labels_fault(jsonb), dispatch.task_fault(dispatch.tasks)
    FROM PUBLIC;
