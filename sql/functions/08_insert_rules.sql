-- What an INSERT into dispatch.tasks may hold. A row is judged here and never by a CHECK, because a CHECK that fails prints the
-- whole row into the client's error and the server's log. Errors have SQLSTATE, COLUMN and HINT, and never the row's content.

CREATE OR REPLACE FUNCTION dispatch_private.env_fault(env jsonb) RETURNS dispatch_private.refusal
LANGUAGE plpgsql AS $$
DECLARE
    seen record;
BEGIN
    IF jsonb_typeof(env) IS DISTINCT FROM 'object' THEN
        RETURN ROW('DI001', 'env', concat('env must be a JSON object of strings, not ', dispatch_private.json_kind(env)), 'Write {"NAME": "value"}, or leave it out.')::dispatch_private.refusal;
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
        WHEN seen.not_text IS NOT NULL THEN ROW('DI001', 'env', format('the value of%s in env must be a string', coalesce(nullif(dispatch_private.shown(seen.not_text), ''), ' a name')),
            'Quote numbers and booleans; structured input belongs in payload.')::dispatch_private.refusal
        WHEN seen.names > 64 THEN ROW('DI001', 'env', format('env has %s names, more than 64', seen.names), 'Structured input belongs in payload.')::dispatch_private.refusal
        WHEN seen.bad_name IS NOT NULL THEN ROW('DI001', 'env', format('env has an illegal name%s',
                coalesce(', which begins with "' || substring(seen.bad_name FROM '^([A-Za-z_][A-Za-z0-9_]{0,39})=') || '"', '')),
            'Names are [A-Za-z_][A-Za-z0-9_]*, at most 255 characters.')::dispatch_private.refusal
        WHEN seen.closed_name IS NOT NULL THEN ROW('DI001', 'env', format('env.%s is closed to rows', left(seen.closed_name, 80)),
            'The prefixes TASK_, DISPATCHER_, KUBERNETES_ and LD_, and NODE_NAME, POD_NAME, POD_NAMESPACE, JOB_UID, are set by the dispatcher or closed.')::dispatch_private.refusal
        WHEN seen.too_long IS NOT NULL THEN ROW('DI001', 'env', format('the value of%s in env is larger than 32 KiB', coalesce(nullif(dispatch_private.shown(seen.too_long), ''), ' a name')),
            'All values together have at most 128 KiB; large input belongs in payload.')::dispatch_private.refusal
        WHEN seen.total > 131072 THEN ROW('DI001', 'env', format('env has %s bytes, more than 131072', seen.total), 'A value has at most 32 KiB; large input belongs in payload.')::dispatch_private.refusal
    END;
END
$$;
COMMENT ON FUNCTION dispatch_private.env_fault(jsonb) IS 'Why no container could be given this env; NULL: one could.';

CREATE OR REPLACE FUNCTION dispatch_private.spec_fault(spec jsonb) RETURNS dispatch_private.refusal
LANGUAGE plpgsql AS $$
DECLARE
    fields CONSTANT text[] := ARRAY['image', 'command', 'args', 'cpu', 'memory', 'private_machine', 'special_machine'];
    name  text;
    value jsonb;
BEGIN
    IF jsonb_typeof(spec) IS DISTINCT FROM 'object' THEN
        RETURN ROW('DI002', 'spec', concat('spec must be a JSON object, not ', dispatch_private.json_kind(spec)), 'Its fields are image, command, args, cpu, memory, private_machine, special_machine.')::dispatch_private.refusal;
    END IF;
    FOR name, value IN SELECT e.key, e.value FROM jsonb_each(spec) AS e LOOP
        IF name <> ALL (fields) THEN
            RETURN ROW('DI002', 'spec', format('spec has no field%s', coalesce(nullif(dispatch_private.shown(name), ''), ' of this name')),
                dispatch_private.advice(name, fields, 'Its fields are image, command, args, cpu, memory, private_machine, special_machine.'))::dispatch_private.refusal;
        ELSIF (CASE
            WHEN name IN ('command', 'args') AND jsonb_typeof(value) = 'array'
                THEN jsonb_array_length(value) <= 1000 AND octet_length(value::text) <= 131072
                     AND NOT EXISTS (SELECT FROM jsonb_array_elements(value) AS e WHERE jsonb_typeof(e) <> 'string')
            WHEN name IN ('command', 'args') THEN false
            WHEN jsonb_typeof(value) <> 'string' THEN false
            WHEN name = 'image' THEN value #>> '{}' ~ '^[A-Za-z0-9][A-Za-z0-9._/:@-]*$' AND length(value #>> '{}') <= 512
            WHEN name = 'cpu' THEN coalesce(dispatch_private.quantity(value #>> '{}') BETWEEN 0.001 AND 10000, false)
            WHEN name = 'memory' THEN value #>> '{}' !~ 'm$'
                AND coalesce(dispatch_private.quantity(value #>> '{}') BETWEEN dispatch_private.quantity('1Mi') AND dispatch_private.quantity('1Pi'), false)
            ELSE value #>> '{}' ~ '^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$'
        END) IS NOT TRUE THEN
            RETURN ROW('DI002', 'spec', CASE
                -- What begins with a digit is a quantity with a mistake; other words may be anything.
                WHEN name IN ('cpu', 'memory') AND value #>> '{}' ~ '^-?[0-9][0-9A-Za-z.+-]{0,19}$' THEN format('spec.%s %s is not usable', name, value)
                ELSE format('spec.%s is not usable', name) END, CASE
                WHEN name IN ('command', 'args') THEN 'An array of at most 1000 strings, 128 KiB in all.'
                WHEN name = 'image' THEN 'An image reference as a string.'
                WHEN name = 'cpu' THEN 'A quantity as a string, such as "500m" or "2", from 1m to 10000.'
                WHEN name = 'memory' THEN 'A quantity as a string, such as "512Mi" or "4Gi", from 1Mi to 1Pi.'
                ELSE 'A label value as a string: 63 letters, digits, ".", "_", "-".' END)::dispatch_private.refusal;
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION dispatch_private.spec_fault(jsonb) IS 'Why no template could accept this spec; NULL: one could.';

CREATE OR REPLACE FUNCTION dispatch_private.labels_fault(labels jsonb) RETURNS dispatch_private.refusal
LANGUAGE plpgsql AS $$
DECLARE
    seen record;
BEGIN
    IF jsonb_typeof(labels) IS DISTINCT FROM 'object' THEN
        RETURN ROW('DI008', 'labels', concat('labels must be a JSON object of strings, not ', dispatch_private.json_kind(labels)), 'Write {"name": "value"}, or leave it out.')::dispatch_private.refusal;
    ELSIF octet_length(labels::text) > 16384 THEN -- before they are looked at one by one
        RETURN ROW('DI008', 'labels', 'labels are too many or too long', 'At most 16, with names of 1 to 63 and values of at most 200 characters.')::dispatch_private.refusal;
    END IF;
    SELECT count(*) AS number,
           min(key) FILTER (WHERE jsonb_typeof(value) <> 'string') AS not_text,
           min(key) FILTER (WHERE length(key) NOT BETWEEN 1 AND 63 OR length(value #>> '{}') > 200) AS too_long
    INTO seen FROM jsonb_each(labels);
    RETURN CASE
        WHEN seen.not_text IS NOT NULL THEN ROW('DI008', 'labels', format('the value of%s in labels must be a string', coalesce(nullif(dispatch_private.shown(seen.not_text), ''), ' a name')),
            'Quote numbers and booleans: {"month": "7"}.')::dispatch_private.refusal
        WHEN seen.number > 16 THEN ROW('DI008', 'labels', format('labels has %s names, more than 16', seen.number), 'Structured input belongs in payload.')::dispatch_private.refusal
        WHEN seen.too_long IS NOT NULL THEN ROW('DI008', 'labels', format('a name or a value in labels is too long or empty%s', coalesce(':' || nullif(dispatch_private.shown(seen.too_long), ''), '')),
            'Names have 1 to 63 characters, values at most 200.')::dispatch_private.refusal
    END;
END
$$;
COMMENT ON FUNCTION dispatch_private.labels_fault(jsonb) IS 'Why these labels are not usable; NULL: they are.';

CREATE OR REPLACE FUNCTION dispatch_private.job_bytes(env jsonb, spec jsonb) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce(sum(2 * octet_length(word) - octet_length(replace(word, '$', ''))), 0)
    FROM (SELECT unnest(ARRAY[key, value]) AS word FROM jsonb_each_text(env)
          UNION ALL SELECT jsonb_array_elements_text(CASE jsonb_typeof(part) WHEN 'array' THEN part ELSE '[]' END)
          FROM unnest(ARRAY[spec -> 'command', spec -> 'args']) AS part) AS words
$$;
COMMENT ON FUNCTION dispatch_private.job_bytes(jsonb, jsonb) IS 'Bytes that a row adds to its Job: the names and values of env, the words of command and args. Each $ is doubled there.';

CREATE OR REPLACE FUNCTION dispatch_private.template_fault(template text, spec jsonb, env jsonb, timeout_seconds bigint) RETURNS dispatch_private.refusal
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
    its    dispatch_private.templates;
    opened text;
    field  text;
    name   text;
BEGIN
    SELECT * INTO its FROM dispatch_private.templates AS t WHERE t.name = template;
    IF NOT FOUND AND NOT EXISTS (SELECT FROM dispatch_private.templates) THEN
        RETURN NULL; -- no janitor has written the table
    ELSIF its.name IS NULL THEN
        RETURN ROW('DI006', 'template', format('template "%s" is not known', template), dispatch_private.advice(template,
            ARRAY(SELECT t.name FROM dispatch_private.templates AS t), 'SELECT name, row_may_set, note FROM dispatch.templates shows all.'))::dispatch_private.refusal;
    ELSIF its.row_may_set IS NULL THEN
        RETURN NULL; -- its author has to mend it; until then its rows wait
    END IF;
    opened := format('Rows of it may set: %s.', coalesce(nullif(left(array_to_string(its.row_may_set, ', '), 300), ''), 'nothing'));
    SELECT min(key) INTO field FROM jsonb_object_keys(spec) AS key WHERE key <> ALL (its.row_may_set);
    IF field IS NOT NULL THEN
        RETURN ROW('DI002', 'spec', format('template "%s" does not open spec.%s', template, field), opened)::dispatch_private.refusal;
    ELSIF its.bounds ? 'image' AND NOT spec ? 'image' THEN
        RETURN ROW('DI002', 'spec', format('template "%s" has no image, so spec.image is needed', template),
            format('It allows: %s.', left(array_to_string(its.images, ', '), 300)))::dispatch_private.refusal;
    ELSIF timeout_seconds > (its.bounds ->> 'seconds')::integer THEN
        RETURN ROW('DI004', 'timeout_seconds', format('timeout_seconds %s is over the %s of template "%s"', timeout_seconds, its.bounds ->> 'seconds', template),
            'Leave it out for the default, or ask the author of the template for more.')::dispatch_private.refusal;
    ELSIF 2 * (octet_length(env::text) + octet_length(spec::text)) > (its.bounds ->> 'bytes')::integer -- else it is certainly not over
        AND dispatch_private.job_bytes(env, spec) > (its.bounds ->> 'bytes')::integer THEN
        RETURN ROW('DI001', 'env', format('env, command and args have %s bytes, more than the %s of template "%s"',
            dispatch_private.job_bytes(env, spec), its.bounds ->> 'bytes', template),
            'Put large input into payload, or ask the author of the template for more.')::dispatch_private.refusal;
    ELSIF spec ? 'image' AND (spec ->> 'image' ~ '[.][.]|//' OR NOT dispatch_private.matches_one(spec ->> 'image', its.images)) THEN
        RETURN ROW('DI002', 'spec', format('spec.image%s is none of the images of template "%s"', dispatch_private.shown(spec ->> 'image'), template),
            format('It allows: %s.', left(array_to_string(its.images, ', '), 300)))::dispatch_private.refusal;
    END IF;
    FOREACH field IN ARRAY ARRAY['cpu', 'memory'] LOOP
        IF dispatch_private.quantity(spec ->> field) > dispatch_private.quantity(its.bounds ->> field) THEN
            RETURN ROW('DI002', 'spec', format('spec.%s %s is over the %s of template "%s"', field, spec ->> field, its.bounds ->> field, template),
                'Ask for less, or ask the author of the template for more.')::dispatch_private.refusal;
        END IF;
    END LOOP;
    FOREACH field IN ARRAY ARRAY['private_machine', 'special_machine'] LOOP
        IF spec ? field AND NOT dispatch_private.matches_one(spec ->> field, its.machines) THEN
            RETURN ROW('DI002', 'spec', format('spec.%s%s is none of the machines of template "%s"', field, dispatch_private.shown(spec ->> field), template),
                format('It allows: %s.', coalesce(nullif(left(array_to_string(its.machines, ', '), 300), ''), 'none')))::dispatch_private.refusal;
        END IF;
    END LOOP;
    FOR name IN SELECT key FROM jsonb_object_keys(env) AS key WHERE 'env.' || key <> ALL (its.row_may_set) ORDER BY key LOOP
        IF dispatch_private.is_trusted(name) THEN
            RETURN ROW('DI001', 'env', format('env.%s changes what programs run or trust, and template "%s" does not open it by name', left(name, 80), template), opened)::dispatch_private.refusal;
        ELSIF 'env' <> ALL (its.row_may_set) THEN
            RETURN ROW('DI001', 'env', format('template "%s" does not open env.%s', template, left(name, 80)), opened)::dispatch_private.refusal;
        ELSIF name = ANY (its.sets) THEN
            RETURN ROW('DI001', 'env', format('env.%s is set by template "%s" or by the installation, and not opened', left(name, 80), template), opened)::dispatch_private.refusal;
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION dispatch_private.template_fault(text, jsonb, jsonb, bigint) IS 'Why the template refuses such a row, by the table templates; NULL: it accepts the row, or cannot be judged.';

-- The hint names queues that are open to everybody alone: code of others that the login calls reads it, too.
CREATE OR REPLACE FUNCTION dispatch_private.queue_fault(wanted text, door name, is_gone boolean) RETURNS dispatch_private.refusal
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN wanted IS NULL THEN ROW('DI003', 'queue', 'queue is NULL', 'Leave the column out: then it is `default`.')::dispatch_private.refusal
        WHEN door IS NULL THEN ROW('DI003', 'queue', format('queue%s is not declared', dispatch_private.shown(wanted)),
            dispatch_private.advice(wanted, ARRAY(SELECT one FROM dispatch_private.open_queues(NULL) AS one WHERE one <> '*'),
                'SELECT name, note FROM dispatch.queues shows those that you may use. An operator declares new ones.'))::dispatch_private.refusal
        ELSE ROW('DI003', 'queue', format('you may not insert into the queue "%s"', wanted),
            format('You are "%s". Only members of the role "%s" may%s. An operator grants it, or changes queues.submit_role.', session_user, door,
                   CASE WHEN is_gone THEN ', and that role is gone' END))::dispatch_private.refusal END
$$;
COMMENT ON FUNCTION dispatch_private.queue_fault(text, name, boolean) IS 'Why a row may not name this queue. door: the role that may; NULL: there is no such queue. is_gone: nobody is a member, whoever has the name now.';

CREATE OR REPLACE FUNCTION dispatch_private.task_fault(task dispatch.tasks) RETURNS dispatch_private.refusal
LANGUAGE plpgsql STABLE AS $$
DECLARE
    door    name;
    its_oid regrole;
BEGIN
    SELECT q.submit_role, q.submit_oid INTO door, its_oid FROM dispatch_private.effective_queues AS q WHERE q.name = task.queue;
    IF NOT FOUND THEN
        RETURN dispatch_private.queue_fault(task.queue, NULL, false);
    ELSIF door IS NOT NULL AND NOT dispatch_private.may_submit(door, its_oid) THEN
        RETURN dispatch_private.queue_fault(task.queue, coalesce(dispatch_private.role_now(door, its_oid), door), dispatch_private.role_now(door, its_oid) IS NULL);
    ELSIF task.priority IS NULL OR task.priority NOT BETWEEN 0 AND 1000 THEN
        RETURN ROW('DI004', 'priority', concat('priority ', coalesce(task.priority::text, 'NULL'), ' is out of range'), '0..1000, lower first; 100 if left out.')::dispatch_private.refusal;
    ELSIF task.run_at NOT BETWEEN '1900-01-01 UTC' AND '9999-12-31 UTC' THEN -- many clients know no year beyond 9999
        RETURN ROW('DI004', 'run_at', concat('run_at ', task.run_at, ' is out of range'), 'A time of the years 1900 to 9999; leave it out to run as soon as possible.')::dispatch_private.refusal;
    ELSIF task.timeout_seconds NOT BETWEEN 1 AND 604800 THEN
        RETURN ROW('DI004', 'timeout_seconds', concat('timeout_seconds ', task.timeout_seconds, ' is out of range'), '1..604800 (a week); leave it out for the default.')::dispatch_private.refusal;
    ELSIF task.max_failures NOT BETWEEN 1 AND 100 THEN
        RETURN ROW('DI004', 'max_failures', concat('max_failures ', task.max_failures, ' is out of range'), '1..100; 1: a task that started never runs again by itself.')::dispatch_private.refusal;
    ELSIF length(task.cache_key) NOT BETWEEN 1 AND 200 THEN
        RETURN ROW('DI005', 'cache_key', concat('cache_key has ', length(task.cache_key), ' characters'), '1 to 200 characters.')::dispatch_private.refusal;
    ELSIF length(task.dedupe_key) NOT BETWEEN 1 AND 200 THEN
        RETURN ROW('DI005', 'dedupe_key', concat('dedupe_key has ', length(task.dedupe_key), ' characters'), '1 to 200 characters.')::dispatch_private.refusal;
    ELSIF task.template IS NULL THEN
        RETURN ROW('DI006', 'template', 'template is NULL', 'Leave the column out: then it is `default`.')::dispatch_private.refusal;
    -- The length is checked separately, because {0,61} in the pattern takes four times as long.
    ELSIF length(task.template) > 63 OR task.template !~ '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$' THEN
        RETURN ROW('DI006', 'template', concat('template', dispatch_private.shown(task.template), ' is not the name of a template'), 'Lower-case letters, digits and "-", 63 characters; `default` if left out.')::dispatch_private.refusal;
    ELSIF octet_length(task.payload::text) > 1048576 THEN
        RETURN ROW('DI007', 'payload', 'payload is larger than 1 MiB', 'Put large input into object storage and its address into payload.')::dispatch_private.refusal;
    ELSIF length(task.batch) NOT BETWEEN 1 AND 200 THEN
        RETURN ROW('DI008', 'batch', concat('batch has ', length(task.batch), ' characters'), '1 to 200 characters; leave it out for a row that belongs to none.')::dispatch_private.refusal;
    END IF;
    RETURN coalesce(dispatch_private.labels_fault(task.labels), dispatch_private.env_fault(task.env), dispatch_private.spec_fault(task.spec),
        dispatch_private.template_fault(task.template, task.spec, task.env, task.timeout_seconds));
END
$$;
COMMENT ON FUNCTION dispatch_private.task_fault(dispatch.tasks) IS 'The first fault of a row that is to be inserted; NULL: it has none.';
