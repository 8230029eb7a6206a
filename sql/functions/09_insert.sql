-- INSERT INTO dispatch.tasks, and the same in bulk.

-- A loop of simple expressions: a query over the names would build its lists of trusted names anew for each row.
CREATE OR REPLACE FUNCTION dispatch_private.is_plain_env(written text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    pieces text[];
    name   text;
BEGIN
    IF (octet_length(written) <= 256 AND written ~ E'^[{]("[A-Za-z_][A-Za-z0-9_]*": "[^"\\\\]*"(, )?)*[}]$'
        AND written !~ '"(TASK_|DISPATCHER_|KUBERNETES_|LD_|NODE_NAME|POD_NAME|JOB_UID)') IS NOT TRUE
    THEN
        RETURN false;
    END IF;
    pieces := string_to_array(written, '"'); -- no name or value holds a quote, so each fourth piece is a name
    FOR place IN 1 .. cardinality(pieces) / 4 LOOP
        name := pieces[4 * place - 2];
        IF dispatch_private.is_trusted(name) THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
END
$$;
COMMENT ON FUNCTION dispatch_private.is_plain_env(text) IS 'True: env, as it is written, has at most 64 short legal names, none of them closed or trusted, and values without an escape. False: it has a fault, or only looks so.';

CREATE OR REPLACE FUNCTION dispatch_private.plain_kind(template text, written text) RETURNS bytea
LANGUAGE sql STABLE AS $$ -- as convert_to is: otherwise no statement takes it in, and each row costs a call
    SELECT substring(sha256(convert_to(template || regexp_replace(written, ': "[^"]*"', '', 'g'), 'UTF8')) FOR 16)
$$;
COMMENT ON FUNCTION dispatch_private.plain_kind(text, text) IS 'The kind of a row that asks for nothing but variables: its template and the names in env are all that bounds are judged by. That of kind_of would take a tenth of the INSERT.';

-- One INSERT makes one row here, and the client may send a million of them. So a plain row, which has a few short names in env
-- and no spec, costs one statement. A row that does not pass it has a fault, or only looks so, and goes through all rules.
CREATE OR REPLACE FUNCTION dispatch_private.insert_task() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    env CONSTANT text := NEW.env::text;
    most  integer;
    fault dispatch_private.refusal;
BEGIN
    IF num_nonnulls(NEW.id, NEW.status, NEW.attempt, NEW.launch, NEW.failures, NEW.job_uid, NEW.submitted_by, NEW.created_at,
                    NEW.started_at, NEW.heartbeat_at, NEW.finished_at, NEW.cancel_requested_at, NEW.node_name, NEW.pod_name,
                    NEW.error, NEW.result, NEW.progress, NEW.note, NEW.kind, NEW.run_digest) > 0 THEN
        fault := ('DI010', coalesce((
            SELECT min(given.key) FROM jsonb_each(to_jsonb(NEW) - ARRAY['queue', 'priority', 'run_at', 'timeout_seconds', 'max_failures',
                'template', 'env', 'spec', 'payload', 'cache_key', 'dedupe_key', 'batch', 'labels']) AS given
            WHERE given.value <> 'null'), 'result'), NULL, 'Leave the column out, or write DEFAULT.'); -- result may hold the null of JSON
        fault.message := format('%s is kept by the dispatcher', fault.about);
    ELSIF NEW.priority BETWEEN 0 AND 1000 AND (NEW.max_failures IS NULL OR NEW.max_failures BETWEEN 1 AND 100) AND NEW.dedupe_key IS NULL
        AND NEW.timeout_seconds IS NULL AND NEW.spec = '{}' AND NEW.labels = '{}'
        AND (NEW.run_at IS NULL OR NEW.run_at BETWEEN '1900-01-01 UTC' AND '9999-12-31 UTC')
        AND (NEW.cache_key IS NULL OR length(NEW.cache_key) BETWEEN 1 AND 200) AND (NEW.batch IS NULL OR length(NEW.batch) BETWEEN 1 AND 200)
        AND (NEW.payload IS NULL OR octet_length(NEW.payload::text) <= 1048576) AND dispatch_private.is_plain_env(env)
    THEN
        INSERT INTO dispatch_private.tasks (queue, priority, run_at, max_failures, template, env, payload, cache_key, batch, submitted_by, kind)
        SELECT NEW.queue, NEW.priority, NEW.run_at, coalesce(NEW.max_failures, (t.bounds ->> 'failures')::smallint, 3), NEW.template, NEW.env, NEW.payload, NEW.cache_key, NEW.batch,
               s.name, dispatch_private.plain_kind(NEW.template, env)
        FROM dispatch_private.effective_queues AS q CROSS JOIN dispatch_private.templates AS t CROSS JOIN dispatch_private.submitters AS s
        WHERE s.role = to_regrole(quote_ident(session_user::text)) AND q.name = NEW.queue AND t.name = NEW.template
          AND q.max_waiting_per_submitter IS NULL AND dispatch_private.may_submit(q.submit_role, q.submit_oid)
          -- Its template has an image, and neither sets nor closes a variable of the row.
          AND NOT t.bounds ? 'image' AND (NEW.env = '{}' OR ('env' <> ALL (t.row_may_set) OR NEW.env ?| t.sets) IS NOT TRUE)
        RETURNING id, max_failures::integer, status, attempt, launch, failures, submitted_by, created_at, kind
        INTO NEW.id, most, NEW.status, NEW.attempt, NEW.launch, NEW.failures, NEW.submitted_by, NEW.created_at, NEW.kind;
        IF FOUND THEN
            NEW.max_failures := most;
            RETURN NEW;
        END IF;
    END IF;
    IF fault.code IS NULL THEN
        fault := dispatch_private.task_fault(NEW);
    END IF;
    IF fault.code IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = fault.code, MESSAGE = fault.message, HINT = fault.hint,
            COLUMN = fault.about, TABLE = 'tasks', SCHEMA = 'dispatch';
    END IF;
    RETURN dispatch_private.insert_checked(NEW);
END
$$;
COMMENT ON FUNCTION dispatch_private.insert_task() IS 'Trigger: refuses rows that could never run, and inserts the others.';

CREATE OR REPLACE FUNCTION dispatch_private.kind_of(template text, spec jsonb, timeout_seconds integer, env jsonb) RETURNS bytea
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF timeout_seconds IS NULL AND spec = '{}' AND dispatch_private.is_plain_env(env::text) THEN
        RETURN dispatch_private.plain_kind(template, env::text);
    END IF;
    RETURN substring(sha256(convert_to(jsonb_build_array(
        template, spec - 'command' - 'args', spec ? 'command', spec ? 'args', timeout_seconds,
        jsonb_path_query_array(env, '$.keyvalue().key'))::text, 'UTF8')) FOR 16);
END
$$;
COMMENT ON FUNCTION dispatch_private.kind_of(text, jsonb, integer, jsonb) IS 'Digest of all that a template''s bounds are judged by.';

CREATE OR REPLACE FUNCTION dispatch_private.keep_kind() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    NEW.kind := dispatch_private.kind_of(NEW.template, NEW.spec, NEW.timeout_seconds, NEW.env);
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION dispatch_private.keep_kind() IS 'Trigger: a row that an administrator edits is of the kind of what it asks for now. Otherwise it would be judged as others, and they as it.';

CREATE OR REPLACE TRIGGER keep_kind BEFORE UPDATE OF template, spec, timeout_seconds, env ON dispatch_private.tasks
    FOR EACH ROW EXECUTE FUNCTION dispatch_private.keep_kind();

CREATE OR REPLACE FUNCTION dispatch_private.insert_checked(task dispatch.tasks) RETURNS dispatch.tasks
LANGUAGE plpgsql AS $$
DECLARE
    its_kind CONSTANT bytea := dispatch_private.kind_of(task.template, task.spec, task.timeout_seconds::integer, task.env);
    me       CONSTANT text := dispatch_private.name_of(session_user::text);
BEGIN
    INSERT INTO dispatch_private.bounded_inserts SELECT pg_current_xact_id(), q.name FROM dispatch_private.effective_queues AS q
    WHERE q.name = task.queue AND q.max_waiting_per_submitter IS NOT NULL ON CONFLICT DO NOTHING;
    task.max_failures := coalesce(task.max_failures, (SELECT t.bounds ->> 'failures' FROM dispatch_private.templates AS t WHERE t.name = task.template)::integer, 3);
    -- The row of this dedupe_key may end between the two statements.
    FOR turn IN 1..CASE WHEN task.dedupe_key IS NULL THEN 1 ELSE 100 END LOOP
        INSERT INTO dispatch_private.tasks (queue, priority, run_at, timeout_seconds, max_failures, template, env, spec, payload,
                                            cache_key, dedupe_key, batch, labels, submitted_by, kind)
        VALUES (task.queue, task.priority, task.run_at, task.timeout_seconds, task.max_failures, task.template, task.env, task.spec, task.payload, task.cache_key, task.dedupe_key, task.batch, task.labels, me, its_kind)
        ON CONFLICT (queue, submitted_by, dedupe_key) WHERE dedupe_key IS NOT NULL AND status IN ('waiting', 'processing') DO NOTHING
        RETURNING id, status, attempt, launch, failures, submitted_by, created_at, kind
        INTO task.id, task.status, task.attempt, task.launch, task.failures, task.submitted_by, task.created_at, task.kind;
        EXIT WHEN FOUND;
        SELECT t.id INTO task.id FROM dispatch_private.tasks AS t
        WHERE t.queue = task.queue AND t.submitted_by = me AND t.dedupe_key = task.dedupe_key
          AND t.status IN ('waiting', 'processing');
        EXIT WHEN FOUND;
    END LOOP;
    IF task.id IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'a trigger on dispatch_private.tasks takes this row from the table',
            HINT = 'The administrator of the database has made it. A trigger that refuses a row has to say why: RAISE EXCEPTION in place of RETURN NULL.';
    END IF;
    RETURN task;
END
$$;
COMMENT ON FUNCTION dispatch_private.insert_checked(dispatch.tasks) IS 'Inserts a row, and returns it. If a row of its dedupe_key is alive: makes none, and returns the id of that one, without a status.';

-- The two triggers that know current_user, because they do not run as the owner. A row belongs to the login of the session. Code of a
-- stranger that autovacuum runs has a superuser's session, and must not insert in its name. Nor does a row belong to a login that may
-- not insert: a view or a rule lets everybody insert with the rights of its owner. Who has the right by SET ROLE alone may insert.
CREATE OR REPLACE FUNCTION dispatch_private.refuse_foreign_code() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT rolsuper AND current_user <> session_user
               OR NOT (pg_has_role(oid, 'dispatch_submitter', 'MEMBER') OR has_table_privilege(oid, 'dispatch.tasks', 'INSERT'))
        FROM pg_roles WHERE rolname = session_user) THEN
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = CASE WHEN current_user = session_user THEN format('the login "%s" may not insert', session_user)
                           ELSE format('code of "%s" may not insert in the session of "%s"', current_user, session_user) END,
            HINT = 'A row belongs to the login of the session. Insert by a session of the login whose rows these are: a member of dispatch_submitter.';
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION dispatch_private.refuse_foreign_code() IS 'Trigger: nobody inserts a row in the name of a login that may not insert, nor code of somebody else in that of a superuser.';

-- A live row of the same dedupe_key is shown to code that may see it. Other code inserts in the name of its caller, and learns
-- nothing of the caller's rows.
CREATE OR REPLACE FUNCTION dispatch_private.show_inserted() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.status IS NULL THEN
        SELECT * INTO NEW FROM dispatch.task(NEW.id);
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION dispatch_private.show_inserted() IS 'Trigger: what RETURNING shows where a row of the same dedupe_key is alive.';

CREATE OR REPLACE FUNCTION dispatch_private.check_bound(submitter text, in_queue text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    most CONSTANT bigint := (SELECT q.max_waiting_per_submitter::bigint FROM dispatch_private.effective_queues AS q WHERE q.name = in_queue);
BEGIN
    -- Counts up to the bound, with the index only.
    IF most IS NOT NULL AND (SELECT count(*) FROM (
            (SELECT FROM dispatch_private.tasks WHERE status = 'waiting' AND run_at IS NULL
                AND queue = in_queue AND submitted_by = submitter ORDER BY priority, id LIMIT most + 1)
            UNION ALL
            (SELECT FROM dispatch_private.tasks WHERE status = 'waiting' AND run_at IS NOT NULL
                AND queue = in_queue AND submitted_by = submitter ORDER BY run_at, id LIMIT most + 1)) AS waiting) > most
    THEN
        RAISE EXCEPTION USING ERRCODE = 'DI009', COLUMN = 'queue', TABLE = 'tasks', SCHEMA = 'dispatch',
            MESSAGE = format('you would have more than %s waiting rows in the queue "%s"', most, in_queue),
            HINT = 'Insert or retry the others when some have started. An operator sets the bound, queues.max_waiting_per_submitter.';
    END IF;
END
$$;
COMMENT ON FUNCTION dispatch_private.check_bound(text, text) IS 'Refuses what leaves a submitter with more waiting rows in a queue than that allows.';

CREATE OR REPLACE FUNCTION dispatch_private.check_bounds() RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    me      CONSTANT text := dispatch_private.name_of(session_user::text);
    bounded text;
BEGIN
    FOR bounded IN DELETE FROM dispatch_private.bounded_inserts WHERE transaction = pg_current_xact_id_if_assigned() RETURNING queue LOOP
        PERFORM dispatch_private.check_bound(me, bounded);
    END LOOP;
END
$$;
COMMENT ON FUNCTION dispatch_private.check_bounds() IS 'Checks the bounds of the queues that an INSERT was into, once for each INSERT.';

CREATE OR REPLACE FUNCTION dispatch_private.end_insert() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    -- By the index, because each bounded INSERT of others leaves a dead row, which a look at the whole table would pass.
    IF EXISTS (SELECT FROM dispatch_private.bounded_inserts WHERE transaction = pg_current_xact_id_if_assigned()) THEN
        PERFORM dispatch_private.check_bounds();
    END IF;
    -- Most of the time there is nothing to announce, and this costs less than the call.
    IF extract(epoch FROM clock_timestamp()) * 1000 - coalesce(pg_sequence_last_value(dispatch_private.clock_of('tasks', session_user::text)), 0) NOT BETWEEN 0 AND 99 THEN
        PERFORM dispatch_private.announce('dispatch_tasks', dispatch_private.clock_of('tasks', session_user::text));
    END IF;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION dispatch_private.end_insert() IS 'Trigger, once for each INSERT: checks the bounds of queues, and wakes the dispatcher.';

CREATE OR REPLACE TRIGGER refuse_foreign_code BEFORE INSERT ON dispatch.tasks
    FOR EACH STATEMENT WHEN (current_user <> session_user OR NOT pg_has_role(session_user, 'dispatch_submitter', 'MEMBER'))
    EXECUTE FUNCTION dispatch_private.refuse_foreign_code();
CREATE OR REPLACE TRIGGER insert_task INSTEAD OF INSERT ON dispatch.tasks
    FOR EACH ROW EXECUTE FUNCTION dispatch_private.insert_task();
CREATE OR REPLACE TRIGGER show_inserted INSTEAD OF INSERT ON dispatch.tasks -- after insert_task, by its name
    FOR EACH ROW EXECUTE FUNCTION dispatch_private.show_inserted();
CREATE OR REPLACE TRIGGER end_insert AFTER INSERT ON dispatch.tasks
    FOR EACH STATEMENT EXECUTE FUNCTION dispatch_private.end_insert();

CREATE OR REPLACE FUNCTION dispatch_private.check_objects(objects jsonb) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    fields CONSTANT text[] := ARRAY['queue', 'priority', 'run_at', 'timeout_seconds', 'max_failures', 'template', 'env', 'spec', 'payload',
                                    'cache_key', 'dedupe_key', 'batch', 'labels'];
    place bigint;
    wrong text;
BEGIN
    IF jsonb_typeof(objects) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = concat('tasks are a JSON array of objects, not ', dispatch_private.json_kind(objects)), HINT = 'Write [{"queue": "default"}].';
    END IF;
    SELECT min(o.place) INTO place FROM jsonb_array_elements(objects) WITH ORDINALITY AS o (one, place) WHERE jsonb_typeof(o.one) <> 'object';
    IF place IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('element %s of tasks is no object', place), HINT = 'Write [{"queue": "default"}].';
    END IF;
    SELECT o.place, min(field) INTO place, wrong FROM jsonb_array_elements(objects) WITH ORDINALITY AS o (one, place), jsonb_object_keys(o.one) AS field
    WHERE field <> ALL (fields) GROUP BY o.place ORDER BY o.place LIMIT 1;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'DI010', MESSAGE = format('element %s of tasks: a task has no field%s to set', place, coalesce(nullif(dispatch_private.shown(wrong), ''), ' of this name')),
            HINT = dispatch_private.advice(wrong, fields, format('Its fields are %s.', array_to_string(fields, ', '))),
            TABLE = 'tasks', SCHEMA = 'dispatch';
    END IF;
END
$$;
COMMENT ON FUNCTION dispatch_private.check_objects(jsonb) IS 'Raises an error unless each element is an object with fields of a row.';

CREATE OR REPLACE FUNCTION dispatch_private.read_objects(objects jsonb) RETURNS SETOF dispatch.tasks
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    -- What an object leaves out has the defaults of the view. They stand in one record, which costs nothing for each row.
    RETURN QUERY SELECT one.* FROM jsonb_populate_recordset(jsonb_populate_record(NULL::dispatch.tasks,
        '{"queue": "default", "priority": 100, "template": "default", "env": {}, "spec": {}, "labels": {}}'), objects) AS one;
END
$$;

CREATE OR REPLACE FUNCTION dispatch_private.wrong_value(objects jsonb) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    one  record;
    part record;
BEGIN
    FOR one IN SELECT * FROM jsonb_array_elements(objects) WITH ORDINALITY AS o (object, place) LOOP
        BEGIN
            PERFORM count(*) FROM dispatch_private.read_objects(jsonb_build_array(one.object));
        EXCEPTION WHEN data_exception THEN
            FOR part IN SELECT * FROM jsonb_each(one.object) LOOP
                BEGIN
                    PERFORM count(*) FROM dispatch_private.read_objects(jsonb_build_array(jsonb_build_object(part.key, part.value)));
                EXCEPTION WHEN data_exception THEN
                    RETURN (SELECT format('element %s of tasks: %s is not of the type %s', one.place, part.key, format_type(a.atttypid, NULL))
                            FROM pg_attribute AS a WHERE a.attrelid = 'dispatch.tasks'::regclass AND a.attname = part.key);
                END;
            END LOOP;
        END;
    END LOOP;
    RETURN 'a value in tasks is not of the type of its column';
END
$$;
COMMENT ON FUNCTION dispatch_private.wrong_value(jsonb) IS 'Which value of an array is not of the type of its column. Only a refused array is looked at so.';

CREATE OR REPLACE FUNCTION dispatch_private.submit(who text, objects jsonb) RETURNS SETOF bigint
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    task  dispatch.tasks;
    fault dispatch_private.refusal;
    place bigint := 0;
    me    text;
BEGIN
    IF who <> session_user::text -- who calls by its own right has EXECUTE
       AND (SELECT rolsuper OR NOT (pg_has_role(oid, 'dispatch_submitter', 'MEMBER') OR has_table_privilege(oid, 'dispatch.tasks', 'INSERT'))
            FROM pg_roles WHERE rolname = session_user) THEN
        RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('code of "%s" may not insert in the session of "%s"', who, session_user),
            HINT = 'A row belongs to the login of the session. Insert by a session of the login whose rows these are: a member of dispatch_submitter.';
    END IF;
    PERFORM dispatch_private.check_objects(objects);
    BEGIN
        PERFORM count(*) FROM dispatch_private.read_objects(objects);
    EXCEPTION WHEN data_exception THEN -- said anew: the server's own words hold the value
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = dispatch_private.wrong_value(objects),
            HINT = 'Numbers are whole and have at most 9 digits. Times are texts such as "2026-11-26 12:00+00".';
    END;
    me := dispatch_private.name_of(session_user::text);
    -- All rows at once if all are plain, as insert_task says it; otherwise one by one.
    RETURN QUERY
    WITH given AS MATERIALIZED (
        SELECT g.place, g.queue, g.priority, g.run_at, coalesce(g.max_failures, (t.bounds ->> 'failures')::smallint, 3) AS max_failures,
            g.template, g.env, g.payload, g.cache_key, g.batch,
            (g.priority BETWEEN 0 AND 1000 AND (g.max_failures IS NULL OR g.max_failures BETWEEN 1 AND 100) AND g.dedupe_key IS NULL
             AND g.timeout_seconds IS NULL AND g.spec = '{}' AND g.labels = '{}'
             AND (g.run_at IS NULL OR g.run_at BETWEEN '1900-01-01 UTC' AND '9999-12-31 UTC')
             AND (g.cache_key IS NULL OR length(g.cache_key) BETWEEN 1 AND 200) AND (g.batch IS NULL OR length(g.batch) BETWEEN 1 AND 200)
             AND (g.payload IS NULL OR octet_length(g.payload::text) <= 1048576) AND dispatch_private.is_plain_env(g.env::text)
             AND q.max_waiting_per_submitter IS NULL AND dispatch_private.may_submit(q.submit_role, q.submit_oid)
             AND t.name IS NOT NULL AND q.name IS NOT NULL AND NOT t.bounds ? 'image'
             AND (g.env = '{}' OR ('env' <> ALL (t.row_may_set) OR g.env ?| t.sets) IS NOT TRUE)) IS TRUE AS is_plain
        FROM (SELECT row_number() OVER () AS place, one.* FROM dispatch_private.read_objects(objects) AS one) AS g
        LEFT JOIN dispatch_private.effective_queues AS q ON q.name = g.queue
        LEFT JOIN dispatch_private.templates AS t ON t.name = g.template
    )
    INSERT INTO dispatch_private.tasks (queue, priority, run_at, max_failures, template, env, payload, cache_key, batch, submitted_by, kind)
    SELECT g.queue, g.priority, g.run_at, g.max_failures, g.template, g.env, g.payload, g.cache_key, g.batch,
           me, dispatch_private.plain_kind(g.template, g.env::text)
    FROM given AS g WHERE (SELECT bool_and(one.is_plain) FROM given AS one) ORDER BY g.place
    RETURNING id;
    IF NOT FOUND THEN
        FOR task IN SELECT * FROM dispatch_private.read_objects(objects) LOOP
            place := place + 1;
            fault := dispatch_private.task_fault(task);
            IF fault.code IS NOT NULL THEN
                RAISE EXCEPTION USING ERRCODE = fault.code, MESSAGE = format('element %s of tasks: %s', place, fault.message), HINT = fault.hint,
                    COLUMN = fault.about, TABLE = 'tasks', SCHEMA = 'dispatch';
            END IF;
            task := dispatch_private.insert_checked(task);
            RETURN NEXT CASE WHEN task.status IS NOT NULL OR who = session_user::text THEN task.id
                             ELSE dispatch_private.own_task(who, task.id) END; -- as show_inserted
        END LOOP;
        PERFORM dispatch_private.check_bounds();
    END IF;
    PERFORM dispatch_private.announce('dispatch_tasks', dispatch_private.clock_of('tasks', session_user::text));
END
$$;
COMMENT ON FUNCTION dispatch_private.submit(text, jsonb) IS 'Inserts an array of rows. Their ids, in its order; NULL: code of somebody else does not see the row.';

CREATE OR REPLACE FUNCTION dispatch.submit(tasks jsonb) RETURNS SETOF bigint
LANGUAGE sql BEGIN ATOMIC
    SELECT dispatch_private.submit(current_user::text COLLATE "default", tasks);
END;
COMMENT ON FUNCTION dispatch.submit(jsonb) IS 'Inserts an array of objects with columns of `tasks`, and returns their ids in this order: SELECT dispatch.submit(''[{"queue": "default", "env": {"A": "1"}}]''). Half the cost of INSERT.';
