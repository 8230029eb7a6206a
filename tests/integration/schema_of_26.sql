-- The schema of version 26, the last one whose tables stood in schema `dispatch`, with the rows that its migrations inserted.
-- Made by pg_dump from a database of that version; it leaves out the comments of functions and views.
CREATE SCHEMA dispatch AUTHORIZATION dispatch_owner;
SET ROLE dispatch_owner;
SET check_function_bodies = off;
SET search_path = pg_catalog;
ALTER DEFAULT PRIVILEGES REVOKE ALL ON FUNCTIONS FROM PUBLIC;
CREATE TYPE dispatch.refusal AS (
	code text,
	about text,
	message text,
	hint text
);
CREATE FUNCTION dispatch.advice(wanted text, known text[], otherwise text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT coalesce('The nearest name is "' || dispatch.nearest(wanted, known) || '". ', '') || otherwise
$$;
CREATE FUNCTION dispatch.announce(channel text, clock regclass) RETURNS void
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION dispatch.announce_tasks() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    since_ms bigint := extract(epoch FROM clock_timestamp()) * 1000 - coalesce(pg_sequence_last_value('dispatch.tasks_clock'), 0);
BEGIN
    IF since_ms NOT BETWEEN 0 AND 99 THEN
        PERFORM dispatch.announce('dispatch_tasks', 'dispatch.tasks_clock');
    END IF;
    RETURN NULL;
END
$$;
CREATE FUNCTION dispatch.as_uuid(digest bytea) RETURNS uuid
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT encode(substring(digest FOR 16), 'hex')::uuid $$;
CREATE FUNCTION dispatch.batch_cancel(queue text, batch text) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    one    bigint;
    number integer := 0;
BEGIN
    FOR one IN SELECT id FROM dispatch.tasks
        WHERE queue = batch_cancel.queue AND batch = batch_cancel.batch AND submitted_by = session_user
          AND status IN ('waiting', 'processing') ORDER BY id
    LOOP
        number := number + (dispatch.task_cancel(one) IN ('cancelled', 'processing'))::integer;
    END LOOP;
    RETURN number;
END
$$;
CREATE FUNCTION dispatch.batch_retry(queue text, batch text) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    one    dispatch.tasks;
    number integer := 0;
BEGIN
    FOR one IN SELECT * FROM dispatch.tasks
        WHERE queue = batch_retry.queue AND batch = batch_retry.batch AND submitted_by = session_user
          AND status IN ('failed', 'cancelled') ORDER BY id
    LOOP
        -- a row with the same dedupe_key is there again: it does the work
        CONTINUE WHEN one.dedupe_key IS NOT NULL AND EXISTS (
            SELECT FROM dispatch.tasks AS living WHERE living.queue = one.queue AND living.submitted_by = one.submitted_by
            AND living.dedupe_key = one.dedupe_key AND living.status IN ('waiting', 'processing'));
        number := number + (dispatch.task_retry(one.id, one.attempt) = 'waiting')::integer;
    END LOOP;
    RETURN number;
END
$$;
CREATE FUNCTION dispatch.begin_to_check_waiting() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '3s'
    AS $$
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
CREATE FUNCTION dispatch.check_task() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
DECLARE
    env CONSTANT text := NEW.env::text;
    door name;
    is_doubtful boolean;
BEGIN
    -- No row: the queue or the template is not known.
    SELECT coalesce(q.submit_role, q.owner_role, d.submit_role),
           NEW.env <> '{}' AND ('env' <> ALL (t.row_may_set) OR NEW.env ?| t.sets) IS TRUE -- its template sets or closes a variable of the row
    INTO door, is_doubtful
    FROM dispatch.queues AS q CROSS JOIN dispatch.queues AS d CROSS JOIN dispatch.templates AS t
    WHERE q.name = NEW.queue AND q.name <> '*' AND d.name = '*' AND t.name = NEW.template;
    -- A glance is enough for most rows: at most 64 short legal names in env, none of them closed or trusted, values without
    -- an escape, and no spec. It is one expression, because Postgres prepares each expression anew in each transaction.
    -- What does not pass has a fault, or only looks so. Of one kind may be rows that pass and rows that do not: then it has two digests.
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
    ) IS TRUE THEN
        -- Its template and the names in env are all that bounds are judged by. task_kind would take a tenth of the INSERT.
        NEW.kind := substring(sha256(convert_to(NEW.template || regexp_replace(env, ': "[^"]*"', '', 'g'), 'UTF8')) FOR 16);
    ELSE
        DECLARE
            fault CONSTANT dispatch.refusal := dispatch.task_fault(NEW);
        BEGIN
            IF fault.code IS NOT NULL THEN
                RAISE EXCEPTION USING ERRCODE = fault.code, MESSAGE = fault.message, HINT = fault.hint,
                    COLUMN = fault.about, TABLE = 'tasks', SCHEMA = 'dispatch';
            END IF;
        END;
        NEW.kind := dispatch.task_kind(NEW.template, NEW.spec, NEW.timeout_seconds, NEW.env);
    END IF;
    RETURN NEW;
END
$_$;
CREATE FUNCTION dispatch.check_waiting() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
DECLARE
    me      text := session_user;
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
                    AND queue = bounded.name AND submitted_by = me ORDER BY priority, id LIMIT bounded.most + 1)
                UNION ALL
                (SELECT FROM dispatch.tasks WHERE status = 'waiting' AND run_at IS NOT NULL
                    AND queue = bounded.name AND submitted_by = me ORDER BY run_at, id LIMIT bounded.most + 1)) AS waiting) > bounded.most
        THEN
            RAISE EXCEPTION USING ERRCODE = 'DI009', COLUMN = 'queue', TABLE = 'tasks', SCHEMA = 'dispatch',
                MESSAGE = format('you have more than %s waiting rows in the queue "%s"', bounded.most, bounded.name),
                HINT = 'Insert the rest when some have started. An operator sets the bound, queues.max_waiting_per_submitter.';
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;
CREATE FUNCTION dispatch.clip(words text, most integer) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT
    AS $$
BEGIN
    WHILE octet_length(words) > most LOOP -- a character has at most 4 bytes: a few rounds at most
        words := left(words, length(words) - greatest((octet_length(words) - most) / 4, 1));
    END LOOP;
    RETURN words;
END
$$;
CREATE FUNCTION dispatch.close_launch(task bigint) RETURNS void
    LANGUAGE sql
    AS $$
    UPDATE dispatch.task_launches SET ended_at = now(), outcome = 'lost' WHERE task_id = task AND ended_at IS NULL
$$;
CREATE FUNCTION dispatch.env_fault(env jsonb) RETURNS dispatch.refusal
    LANGUAGE plpgsql
    AS $_$
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
$_$;
CREATE FUNCTION dispatch.field(words text) RETURNS bytea
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE WHEN words IS NULL THEN int4send(-1)
           ELSE int4send(octet_length(convert_to(words, 'UTF8'))) || convert_to(words, 'UTF8') END
$$;
CREATE FUNCTION dispatch.fits_start_key(id bigint, created_at timestamp with time zone, start_key uuid) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT start_key IN (SELECT dispatch.start_keys(id, created_at))
        OR EXISTS (SELECT FROM dispatch.earlier_start_keys AS e
                   WHERE e.task_id = id AND e.digest = dispatch.token_digest(start_key))
$$;
CREATE FUNCTION dispatch.forget_progress() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    NEW.progress := NULL;
    NEW.note := NULL;
    RETURN NEW;
END
$$;
CREATE FUNCTION dispatch.hmac(inner_block bytea, outer_block bytea, message bytea) RETURNS bytea
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT sha256(outer_block || sha256(inner_block || message)) $$;
CREATE FUNCTION dispatch.is_free(task_id bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
    -- The transaction keeps the lock, so no other session can change the row that is read after it.
    PERFORM FROM dispatch.tasks WHERE id = is_free.task_id FOR UPDATE SKIP LOCKED;
    RETURN FOUND OR NOT EXISTS (SELECT FROM dispatch.tasks WHERE id = is_free.task_id);
END
$$;
CREATE FUNCTION dispatch.is_text_array(value jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE WHEN jsonb_typeof(value) = 'array'
        THEN jsonb_array_length(value) <= 1000 AND octet_length(value::text) <= 131072
             AND NOT EXISTS (SELECT FROM jsonb_array_elements(value) AS e WHERE jsonb_typeof(e) <> 'string')
        ELSE false END
$$;
CREATE FUNCTION dispatch.is_trusted(name text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $_$
    SELECT name <> 'NODE_NAME' AND (
        name ~ '^(PATH|HOME|USER|SHELL|IFS|ENV|BASH_ENV|BROWSER|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|CLASSPATH|GCONV_PATH|LOCPATH|REQUESTS_CA_BUNDLE|KUBECONFIG)$'
        OR name ~ '^(BASH_FUNC_|PG|PYTHON|NODE_|NPM_|JDK_|PERL|RUBY|GEM_|GIT_|SSH_|SSL_|CURL_|AWS_|GOOGLE_|AZURE_)'
        OR upper(name) IN ('HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'NO_PROXY'))
$_$;
CREATE FUNCTION dispatch.janitor_cancel(task_id bigint, attempt integer, run_digest bytea) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    answer text;
BEGIN
    IF NOT dispatch.is_free(janitor_cancel.task_id) THEN
        RETURN 'locked';
    END IF;
    UPDATE dispatch.tasks SET status = 'cancelled', run_digest = NULL, finished_at = now()
    WHERE id = janitor_cancel.task_id AND status = 'processing' AND attempt = janitor_cancel.attempt
      AND run_digest = janitor_cancel.run_digest AND cancel_requested_at IS NOT NULL
    RETURNING status INTO answer;
    IF answer IS NOT NULL THEN
        PERFORM dispatch.close_launch(janitor_cancel.task_id);
        PERFORM dispatch.announce('dispatch_done', 'dispatch.done_clock');
    END IF;
    RETURN answer;
END
$$;
CREATE FUNCTION dispatch.janitor_delete(days integer, most integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    deleted integer;
BEGIN
    WITH old AS (
        SELECT id FROM dispatch.tasks
        WHERE finished_at < now() - make_interval(days => greatest(janitor_delete.days, 1))
        ORDER BY finished_at LIMIT least(janitor_delete.most, 10000)
        FOR UPDATE SKIP LOCKED -- a second janitor takes the next ones
    ), rows AS (
        DELETE FROM dispatch.tasks USING old WHERE tasks.id = old.id RETURNING tasks.id
    ), launches AS (
        DELETE FROM dispatch.task_launches USING rows WHERE task_launches.task_id = rows.id
    ), keys AS (
        DELETE FROM dispatch.earlier_start_keys USING rows WHERE earlier_start_keys.task_id = rows.id
    )
    SELECT count(*) INTO deleted FROM rows;
    RETURN deleted;
END
$$;
CREATE FUNCTION dispatch.janitor_end(task_id bigint, attempt integer, launch integer, job_uid text, outcome text, error text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    answer text;
    words  text := dispatch.clip(nullif(janitor_end.error, ''), 8192);
BEGIN
    IF janitor_end.outcome IS NULL OR janitor_end.outcome NOT IN ('succeeded', 'failed') THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'the outcome is unknown', HINT = 'succeeded or failed.';
    ELSIF NOT dispatch.is_free(janitor_end.task_id) THEN
        RETURN 'locked';
    END IF;
    UPDATE dispatch.tasks SET
        status = janitor_end.outcome, run_digest = NULL, finished_at = now(),
        error = CASE janitor_end.outcome WHEN 'failed' THEN words END -- none of an earlier attempt either
    WHERE id = janitor_end.task_id AND attempt = janitor_end.attempt
      AND (status = 'waiting'
           -- a run is ended only by the outcome of its own Job
           OR status = 'processing' AND launch = janitor_end.launch AND job_uid = janitor_end.job_uid)
    RETURNING status INTO answer;
    IF answer IS NOT NULL THEN
        UPDATE dispatch.task_launches SET ended_at = now(), outcome = janitor_end.outcome, error = words
        WHERE task_id = janitor_end.task_id AND attempt = janitor_end.attempt AND launch = janitor_end.launch
          AND ended_at IS NULL;
        PERFORM dispatch.announce('dispatch_done', 'dispatch.done_clock');
    END IF;
    RETURN answer;
END
$$;
CREATE FUNCTION dispatch.janitor_ended(ends jsonb) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    number integer;
BEGIN
    IF jsonb_typeof(ends) IS DISTINCT FROM 'array' OR jsonb_array_length(ends) > 200 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'ends are an array of at most 200 launches';
    END IF;
    WITH given AS (
        SELECT one.task, one.attempt, one.launch, left(one.job_uid, 253) AS job_uid, dispatch.subdomain(one.node) AS node,
               dispatch.subdomain(one.pod) AS pod, least(one.ended_at, now()) AS ended_at, one.exit_code,
               dispatch.clip(one.reason, 1024) AS reason, dispatch.clip(nullif(one.output, ''), 2048) AS output
        FROM jsonb_to_recordset(ends) AS one (task bigint, attempt integer, launch integer, job_uid text, node text, pod text,
                                              ended_at timestamptz, exit_code integer, reason text, output text)
        JOIN dispatch.tasks AS t ON t.id = one.task AND t.attempt >= one.attempt
    ), written AS (
        INSERT INTO dispatch.task_launches AS known
            (task_id, attempt, launch, job_uid, node_name, pod_name, ended_at, outcome, exit_code, reason, error)
        SELECT task, attempt, launch, job_uid, node, pod, coalesce(ended_at, now()), 'unstarted', exit_code, reason, output
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
CREATE FUNCTION dispatch.janitor_return(task_id bigint, attempt integer, launch integer, run_digest bytea, failures integer, error text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    answer text;
    words  text := dispatch.clip(janitor_return.error, 8192);
BEGIN
    IF NOT dispatch.is_free(janitor_return.task_id) THEN
        RETURN 'locked';
    END IF;
    WITH judged AS (
        SELECT id, least(failures + greatest(janitor_return.failures, 1), 32767)::smallint AS failures,
               failures + greatest(janitor_return.failures, 1) < max_failures AND attempt < dispatch.last_attempt() AS is_again,
               now() + least(interval '10 s' * power(2, least(failures, 10)), interval '10 min') AS again_at
        FROM dispatch.tasks
        WHERE id = janitor_return.task_id AND status = 'processing'
          AND attempt = janitor_return.attempt AND launch = janitor_return.launch
          AND run_digest = janitor_return.run_digest -- the run that was judged, not the one that holds the row by now
          AND cancel_requested_at IS NULL AND heartbeat_at < now() - interval '60 s'
    )
    UPDATE dispatch.tasks SET
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
        PERFORM dispatch.close_launch(janitor_return.task_id);
        PERFORM dispatch.announce(CASE answer WHEN 'waiting' THEN 'dispatch_tasks' ELSE 'dispatch_done' END,
            CASE answer WHEN 'waiting' THEN 'dispatch.tasks_clock'::regclass ELSE 'dispatch.done_clock'::regclass END);
    END IF;
    RETURN answer;
END
$$;
CREATE FUNCTION dispatch.janitor_tell(report jsonb) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
CREATE FUNCTION dispatch.janitor_templates(offered jsonb, are_all boolean) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    written integer;
    deleted integer := 0;
BEGIN
    IF jsonb_typeof(offered) IS DISTINCT FROM 'array' OR octet_length(offered::text) > 4194304 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'templates are an array of at most 4 MiB';
    END IF;
    INSERT INTO dispatch.templates AS t (name, row_may_set, bounds, images, machines, sets, note)
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
        DELETE FROM dispatch.templates WHERE NOT EXISTS (
            SELECT FROM jsonb_array_elements(offered) AS one WHERE one ->> 'name' = templates.name);
        GET DIAGNOSTICS deleted = ROW_COUNT;
    END IF;
    RETURN written + deleted;
END
$$;
CREATE FUNCTION dispatch.keep_queue() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
CREATE FUNCTION dispatch.labels_fault(labels jsonb) RETURNS dispatch.refusal
    LANGUAGE plpgsql
    AS $$
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
CREATE FUNCTION dispatch.last_attempt() RETURNS integer
    LANGUAGE sql IMMUTABLE
    AS $$ SELECT 32000 $$;
CREATE FUNCTION dispatch.matches_one(value text, globs text[]) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    -- A glob with brackets is not judged here.
    SELECT coalesce(bool_or(position('[' IN glob) > 0 OR value LIKE
        replace(replace(replace(replace(replace(glob, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%'), '?', '_')), false)
    FROM unnest(globs) AS glob
$$;
CREATE FUNCTION dispatch.may_act(submitted_by text, queue text) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT submitted_by = session_user
        OR pg_has_role(session_user, 'dispatch_operator', 'MEMBER')
        OR queue IN (SELECT dispatch.owned_queues())
$$;
CREATE FUNCTION dispatch.may_submit(door name) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$
    SELECT door IS NULL OR coalesce(pg_has_role(session_user, to_regrole(quote_ident(door::text))::oid, 'MEMBER'), false)
$$;
CREATE FUNCTION dispatch.nearest(wanted text, known text[]) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $_$
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
$_$;
CREATE FUNCTION dispatch.new_secret(OUT inner_block bytea, OUT outer_block bytea) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    -- gen_random_uuid has 122 random bits of the server's strong source, so four of them make a full key.
    key bytea := sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
                        || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
    byte integer;
BEGIN
    inner_block := decode(repeat('36', 64), 'hex');
    outer_block := decode(repeat('5c', 64), 'hex');
    FOR i IN 0..31 LOOP
        byte := get_byte(key, i);
        inner_block := set_byte(inner_block, i, byte # 54);
        outer_block := set_byte(outer_block, i, byte # 92);
    END LOOP;
END
$$;
CREATE FUNCTION dispatch.open_queues() RETURNS SETOF text
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT q.name
    FROM dispatch.queues AS q
    LEFT JOIN dispatch.queues AS d ON d.name = '*'
    LEFT JOIN pg_roles AS door ON door.rolname = coalesce(q.submit_role, q.owner_role, d.submit_role)
    LEFT JOIN pg_roles AS owner ON owner.rolname = q.owner_role
    WHERE coalesce(q.submit_role, q.owner_role, d.submit_role) IS NULL
       OR pg_has_role(session_user, door.oid, 'MEMBER')
       OR pg_has_role(session_user, owner.oid, 'MEMBER')
$$;
CREATE FUNCTION dispatch.owned_queues() RETURNS SETOF text
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT q.name FROM dispatch.queues AS q JOIN pg_roles AS r ON r.rolname = q.owner_role
    WHERE pg_has_role(session_user, r.oid, 'MEMBER')
$$;
CREATE FUNCTION dispatch.place_in_line(task_id bigint) RETURNS integer[]
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
CREATE FUNCTION dispatch.plain_note(words text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT
    AS $$
    SELECT left(regexp_replace(left(words, 1000), '[\x01-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+', ' ', 'g'), 200)
$$;
CREATE FUNCTION dispatch.quantity(written text) RETURNS numeric
    LANGUAGE sql IMMUTABLE STRICT
    AS $_$
    SELECT part[1]::numeric * CASE coalesce(part[2], '')
        WHEN '' THEN 1 WHEN 'm' THEN 0.001
        WHEN 'k' THEN 1e3 WHEN 'M' THEN 1e6 WHEN 'G' THEN 1e9 WHEN 'T' THEN 1e12 WHEN 'P' THEN 1e15
        WHEN 'Ki' THEN 1024 WHEN 'Mi' THEN 1048576 WHEN 'Gi' THEN 1073741824
        WHEN 'Ti' THEN 1099511627776 WHEN 'Pi' THEN 1125899906842624 END
    FROM regexp_match(written, '^([0-9]{1,18}(?:\.[0-9]{1,9})?)(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$') AS part
$_$;
CREATE FUNCTION dispatch.queue_fault(wanted text, door name) RETURNS dispatch.refusal
    LANGUAGE sql STABLE
    AS $$
    SELECT CASE WHEN door IS NULL THEN ROW('DI003', 'queue', format('queue%s is not declared', dispatch.shown(wanted)),
            dispatch.advice(coalesce(wanted, ''), ARRAY(SELECT one FROM dispatch.open_queues() AS one WHERE one <> '*'),
                'SELECT name, note FROM dispatch.queues shows those that you may use. An operator declares new ones.'))::dispatch.refusal
        ELSE ROW('DI003', 'queue', format('you may not insert into the queue "%s"', wanted),
            format('Only members of the role "%s" may. An operator grants it, or changes queues.submit_role.', door))::dispatch.refusal END
$$;
CREATE FUNCTION dispatch.rotate_secrets() RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    made integer;
BEGIN
    LOCK TABLE dispatch.secrets IN SHARE ROW EXCLUSIVE MODE; -- two rotations at once come one after the other
    INSERT INTO dispatch.secrets (generation, start_inner, start_outer, run_inner, run_outer)
    SELECT coalesce((SELECT max(generation) FROM dispatch.secrets), 0) + 1,
           s.inner_block, s.outer_block, r.inner_block, r.outer_block
    FROM dispatch.new_secret() AS s, dispatch.new_secret() AS r
    RETURNING generation INTO made;
    DELETE FROM dispatch.secrets WHERE generation < made - 1;
    RETURN made;
END
$$;
CREATE FUNCTION dispatch.run_tokens(id bigint, attempt integer, launch integer, job_uid text, pod text) RETURNS SETOF uuid
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT dispatch.as_uuid(dispatch.hmac(s.run_inner, s.run_outer, convert_to('run', 'UTF8') || int8send(id)
                            || int4send(attempt) || int4send(launch) || dispatch.field(job_uid) || dispatch.field(pod)))
    FROM dispatch.secrets AS s ORDER BY s.generation DESC
$$;
CREATE FUNCTION dispatch.shown(words text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $_$
    SELECT CASE WHEN words ~ '^[A-Za-z0-9_][A-Za-z0-9._/:@*-]*$' AND length(words) <= 80 THEN format(' "%s"', words) ELSE '' END
$_$;
CREATE FUNCTION dispatch.spec_fault(spec jsonb) RETURNS dispatch.refusal
    LANGUAGE plpgsql
    AS $_$
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
$_$;
CREATE FUNCTION dispatch.start_keys(id bigint, created_at timestamp with time zone) RETURNS SETOF uuid
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT dispatch.as_uuid(dispatch.hmac(s.start_inner, s.start_outer, convert_to('start', 'UTF8') || int8send(id)
                            || int8send((extract(epoch FROM created_at) * 1000000)::bigint)))
    FROM dispatch.secrets AS s ORDER BY s.generation DESC
$$;
CREATE FUNCTION dispatch.status_after(outcome text, cancel_requested_at timestamp with time zone, failures integer, max_failures integer, attempt integer) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$
    SELECT CASE WHEN outcome = 'succeeded' THEN 'succeeded'           -- also when a cancel was asked: the work is done
                WHEN cancel_requested_at IS NOT NULL THEN 'cancelled'
                WHEN outcome = 'retry' AND failures + 1 < max_failures AND attempt < dispatch.last_attempt() THEN 'waiting'
                ELSE 'failed' END
$$;
CREATE FUNCTION dispatch.subdomain(name text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT
    AS $_$
    SELECT CASE WHEN length(name) <= 253
                 AND name ~ '^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$' THEN name END
$_$;
CREATE FUNCTION dispatch.task_cancel(task_id bigint, reason text DEFAULT NULL::text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    answer text;
BEGIN
    WITH judged AS (
        SELECT id, CASE WHEN status = 'processing' AND heartbeat_at >= now() - interval '60 s' THEN 'processing'
                        ELSE 'cancelled' END AS status
        FROM dispatch.tasks
        WHERE id = task_cancel.task_id AND status IN ('waiting', 'processing') AND dispatch.may_act(submitted_by, queue)
        FOR UPDATE
    )
    UPDATE dispatch.tasks SET
        status = judged.status,
        error = coalesce(dispatch.clip(task_cancel.reason, 8192), error),
        run_digest = CASE judged.status WHEN 'processing' THEN run_digest END,
        cancel_requested_at = CASE judged.status WHEN 'processing' THEN coalesce(cancel_requested_at, now()) ELSE cancel_requested_at END,
        finished_at = CASE judged.status WHEN 'cancelled' THEN now() END
    FROM judged WHERE tasks.id = judged.id
    RETURNING tasks.status INTO answer;
    IF answer = 'cancelled' THEN
        PERFORM dispatch.close_launch(task_cancel.task_id);
        PERFORM dispatch.announce('dispatch_done', 'dispatch.done_clock');
    ELSIF answer IS NULL THEN -- over already, or not to be seen
        SELECT status INTO answer FROM dispatch.tasks WHERE id = task_cancel.task_id AND dispatch.may_act(submitted_by, queue);
        IF NOT FOUND THEN
            RAISE NOTICE 'no task with this id that you may cancel';
        END IF;
    END IF;
    RETURN answer;
END
$$;
CREATE FUNCTION dispatch.task_ended_since(since timestamp with time zone) RETURNS TABLE(id bigint, queue text, batch text, status text, finished_at timestamp with time zone)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT t.id, t.queue, t.batch, t.status, t.finished_at FROM dispatch.tasks AS t
    WHERE t.submitted_by = session_user COLLATE "default" AND t.finished_at >= since
      AND t.status IN ('succeeded', 'failed', 'cancelled')
    ORDER BY t.finished_at, t.id
$$;
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE dispatch.tasks (
    id bigint NOT NULL,
    queue text DEFAULT 'default'::text NOT NULL,
    priority smallint DEFAULT 100 NOT NULL,
    run_at timestamp with time zone,
    timeout_seconds integer,
    max_failures smallint DEFAULT 3 NOT NULL,
    template text DEFAULT 'default'::text NOT NULL,
    env jsonb DEFAULT '{}'::jsonb NOT NULL,
    spec jsonb DEFAULT '{}'::jsonb NOT NULL,
    payload jsonb,
    cache_key text,
    dedupe_key text,
    status text DEFAULT 'waiting'::text NOT NULL,
    attempt smallint DEFAULT 1 NOT NULL,
    launch smallint DEFAULT 0 NOT NULL,
    failures smallint DEFAULT 0 NOT NULL,
    job_uid text,
    submitted_by text DEFAULT SESSION_USER NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    started_at timestamp with time zone,
    heartbeat_at timestamp with time zone,
    finished_at timestamp with time zone,
    cancel_requested_at timestamp with time zone,
    node_name text,
    pod_name text,
    error text,
    result jsonb,
    kind bytea NOT NULL,
    run_digest bytea,
    batch text,
    labels jsonb DEFAULT '{}'::jsonb NOT NULL,
    progress real,
    note text,
    CONSTRAINT finished_when_terminal CHECK (((status = ANY (ARRAY['waiting'::text, 'processing'::text])) = (finished_at IS NULL))),
    CONSTRAINT status_is_known CHECK ((status = ANY (ARRAY['waiting'::text, 'processing'::text, 'succeeded'::text, 'failed'::text, 'cancelled'::text]))),
    CONSTRAINT token_while_processing CHECK (((status = 'processing'::text) = (run_digest IS NOT NULL))),
    CONSTRAINT waiting_is_unlaunched CHECK (((status <> 'waiting'::text) OR ((launch = 0) AND (cancel_requested_at IS NULL))))
)
WITH (fillfactor='85', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0', autovacuum_analyze_scale_factor='0.02');
COMMENT ON TABLE dispatch.tasks IS 'One row = one task. INSERT it, and one Kubernetes Job runs for it; the task''s own container reports through task_start, task_heartbeat and task_finish.';
COMMENT ON COLUMN dispatch.tasks.id IS 'Identity; given by the database.';
COMMENT ON COLUMN dispatch.tasks.queue IS 'You set it. A name declared in `queues`; `default` if left out.';
COMMENT ON COLUMN dispatch.tasks.priority IS 'You set it. 0..1000, lower first; 100 if left out.';
COMMENT ON COLUMN dispatch.tasks.run_at IS 'You set it. Not before this time; NULL = now. Set again by a retry.';
COMMENT ON COLUMN dispatch.tasks.timeout_seconds IS 'You set it. Run limit, 1..604800 s; NULL: that of the installation.';
COMMENT ON COLUMN dispatch.tasks.max_failures IS 'You set it. Failed runs at most, 1..100; 1: a task that started never runs again by itself.';
COMMENT ON COLUMN dispatch.tasks.template IS 'You set it. Which Job template to run under; `default` if left out.';
COMMENT ON COLUMN dispatch.tasks.env IS 'You set it. Object of strings, added to the container''s environment: 64 names, 32 KiB a value, 128 KiB in all. Everybody who may read Jobs can read it: no secrets.';
COMMENT ON COLUMN dispatch.tasks.spec IS 'You set it. image, command, args, cpu, memory, private_machine, special_machine; each works only where the template opens it.';
COMMENT ON COLUMN dispatch.tasks.payload IS 'You set it. Any JSON up to 1 MiB, handed out by task_start; the dispatcher never reads it.';
COMMENT ON COLUMN dispatch.tasks.cache_key IS 'You set it. Tasks of a queue with the same key share a cache directory and prefer nodes where it is warm; 200 characters.';
COMMENT ON COLUMN dispatch.tasks.dedupe_key IS 'You set it. At most one waiting or processing row of yours per (queue, dedupe_key); 200 characters.';
COMMENT ON COLUMN dispatch.tasks.status IS 'waiting, processing, succeeded, failed or cancelled.';
COMMENT ON COLUMN dispatch.tasks.attempt IS 'Grows by one whenever the row returns to waiting; never falls.';
COMMENT ON COLUMN dispatch.tasks.launch IS 'Number of the launch (Job) of this attempt that holds the row; 0 while waiting.';
COMMENT ON COLUMN dispatch.tasks.failures IS 'Failed runs so far; task_retry starts again at 0.';
COMMENT ON COLUMN dispatch.tasks.job_uid IS 'UID of the Job whose container holds or ended the row.';
COMMENT ON COLUMN dispatch.tasks.submitted_by IS 'Login that inserted the row.';
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
CREATE FUNCTION dispatch.task_fault(task dispatch.tasks) RETURNS dispatch.refusal
    LANGUAGE plpgsql STABLE
    AS $_$
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
$_$;
CREATE FUNCTION dispatch.task_finish(run_token uuid, outcome text, error text DEFAULT NULL::text, result jsonb DEFAULT NULL::jsonb, retry_after interval DEFAULT NULL::interval) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    answer text;
    digest bytea := dispatch.token_digest(task_finish.run_token);
    words  text := dispatch.clip(task_finish.error, 8192);
BEGIN
    IF task_finish.outcome IS NULL OR task_finish.outcome NOT IN ('succeeded', 'retry', 'failed') THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'the outcome is unknown', HINT = 'succeeded, retry or failed.';
    ELSIF octet_length(task_finish.result::text) > 65536 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'the result is larger than 64 KiB',
            HINT = 'Put it into object storage and its address into the result, and call again.';
    END IF;
    WITH judged AS (
        SELECT id, dispatch.status_after(task_finish.outcome, cancel_requested_at, failures, max_failures, attempt) AS status,
               now() + CASE WHEN task_finish.retry_after IS NULL
                       THEN least(interval '10 s' * power(2, least(failures, 10)), interval '10 min')
                       -- bounded, so that no container can make its row wait for ever
                       ELSE least(greatest(task_finish.retry_after, interval '0'), interval '30 days') END AS again_at
        FROM dispatch.tasks WHERE run_digest = digest AND status = 'processing' FOR UPDATE
    ), moved AS (
        UPDATE dispatch.tasks SET
            status = judged.status, run_digest = NULL,
            error = coalesce(words, CASE judged.status WHEN 'cancelled' THEN error END), result = task_finish.result,
            failures = failures + (judged.status = 'waiting' OR judged.status = 'failed')::integer,
            attempt = attempt + (judged.status = 'waiting')::integer,
            launch = CASE judged.status WHEN 'waiting' THEN 0 ELSE launch END,
            job_uid = CASE judged.status WHEN 'waiting' THEN NULL ELSE job_uid END,
            run_at = CASE judged.status WHEN 'waiting' THEN judged.again_at ELSE run_at END,
            finished_at = CASE judged.status WHEN 'waiting' THEN NULL ELSE now() END
        FROM judged WHERE tasks.id = judged.id
        RETURNING tasks.status
    ), closed AS (
        UPDATE dispatch.task_launches SET ended_at = now(), error = words,
               outcome = CASE moved.status WHEN 'waiting' THEN 'retry' ELSE moved.status END
        FROM moved WHERE task_launches.run_digest = digest AND task_launches.ended_at IS NULL
    )
    SELECT moved.status INTO answer FROM moved;
    IF answer = 'waiting' THEN
        PERFORM dispatch.announce('dispatch_tasks', 'dispatch.tasks_clock');
    ELSIF answer IS NOT NULL THEN
        PERFORM dispatch.announce('dispatch_done', 'dispatch.done_clock');
    ELSE -- asked again, its answer was lost: what this very run reported before; a run that was replaced gets NULL
        SELECT CASE outcome WHEN 'retry' THEN 'waiting' WHEN 'lost' THEN NULL ELSE outcome END INTO answer
        FROM dispatch.task_launches WHERE run_digest = digest;
    END IF;
    RETURN answer;
END
$$;
CREATE FUNCTION dispatch.task_heartbeat(run_token uuid, progress real DEFAULT NULL::real, note text DEFAULT NULL::text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    digest bytea := dispatch.token_digest(task_heartbeat.run_token);
    answer text;
BEGIN
    UPDATE dispatch.tasks SET heartbeat_at = now(),
           -- A number that is none from 0 to 1 is ignored: a wrong report must not end a run. NaN is above every number.
           progress = CASE WHEN task_heartbeat.progress BETWEEN 0 AND 1 THEN task_heartbeat.progress ELSE progress END,
           note = coalesce(dispatch.plain_note(task_heartbeat.note), note)
    WHERE run_digest = digest AND status = 'processing'
    RETURNING CASE WHEN cancel_requested_at IS NULL THEN 'continue' ELSE 'cancel' END INTO answer;
    RETURN coalesce(answer, 'lost');
END
$$;
CREATE FUNCTION dispatch.task_kind(template text, spec jsonb, timeout_seconds integer, env jsonb) RETURNS bytea
    LANGUAGE plpgsql STABLE
    AS $_$
BEGIN
    RETURN substring(sha256(convert_to(jsonb_build_array(
        template, spec - 'command' - 'args', spec ? 'command', spec ? 'args', timeout_seconds,
        jsonb_path_query_array(env, '$.keyvalue().key'))::text, 'UTF8')) FOR 16);
END
$_$;
CREATE FUNCTION dispatch.task_retry(task_id bigint, attempt integer DEFAULT NULL::integer) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    answer text;
BEGIN
    IF EXISTS (SELECT FROM dispatch.tasks WHERE id = task_retry.task_id AND dispatch.may_act(submitted_by, queue)
               AND queue NOT IN (SELECT name FROM dispatch.queues)) THEN
        PERFORM dispatch.refuse('DI003', 'queue', 'the queue of this row is not declared any more', 'An operator declares it again; then call again.');
    ELSIF EXISTS (SELECT FROM dispatch.tasks WHERE id = task_retry.task_id AND dispatch.may_act(submitted_by, queue)
                  AND attempt >= dispatch.last_attempt()) THEN
        RAISE EXCEPTION USING ERRCODE = '54000', HINT = 'Insert the task again as a new row.',
            MESSAGE = format('the task has had its %s attempts, which is the most', dispatch.last_attempt()),
            COLUMN = 'attempt', TABLE = 'tasks', SCHEMA = 'dispatch';
    END IF;
    UPDATE dispatch.tasks SET
        status = 'waiting', attempt = attempt + 1, launch = 0, failures = 0, run_at = NULL, run_digest = NULL, job_uid = NULL,
        started_at = NULL, heartbeat_at = NULL, finished_at = NULL, cancel_requested_at = NULL, result = NULL
    WHERE id = task_retry.task_id AND dispatch.may_act(submitted_by, queue)
      AND (task_retry.attempt IS NULL OR attempt = task_retry.attempt)
    RETURNING status INTO answer;
    IF answer = 'waiting' THEN
        PERFORM dispatch.close_launch(task_retry.task_id);
        PERFORM dispatch.announce('dispatch_tasks', 'dispatch.tasks_clock');
    ELSE
        SELECT status INTO answer FROM dispatch.tasks WHERE id = task_retry.task_id AND dispatch.may_act(submitted_by, queue);
        IF NOT FOUND THEN
            RAISE NOTICE 'no task with this id that you may retry';
        END IF;
    END IF;
    RETURN answer;
EXCEPTION WHEN unique_violation THEN -- said anew: the server's own words hold the key
    RAISE EXCEPTION USING ERRCODE = '23505', MESSAGE = 'another live row has the dedupe_key of this one',
        HINT = 'Cancel it, or wait until it is over.', COLUMN = 'dedupe_key', TABLE = 'tasks', SCHEMA = 'dispatch';
END
$$;
CREATE FUNCTION dispatch.task_set_priority(task_id bigint, priority integer) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
CREATE FUNCTION dispatch.task_start(task_id bigint, start_key uuid, attempt integer, launch integer, job_uid text, node text DEFAULT NULL::text, pod text DEFAULT NULL::text) RETURNS TABLE(run_token uuid, payload jsonb)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
DECLARE
    host   text   := dispatch.subdomain(task_start.node);
    whose  text   := dispatch.subdomain(task_start.pod);
    uid    text   := left(task_start.job_uid, 253);
    tokens uuid[] := ARRAY(SELECT dispatch.run_tokens(task_start.task_id, task_start.attempt, task_start.launch, uid, whose));
    token  uuid;
    held   dispatch.tasks;
BEGIN
    RETURN QUERY
    WITH taken AS (
        UPDATE dispatch.tasks SET
            status = 'processing', launch = task_start.launch, job_uid = uid, node_name = host, pod_name = whose,
            run_digest = dispatch.token_digest(tokens[1]), started_at = now(), heartbeat_at = now()
        WHERE id = task_start.task_id
          AND attempt = task_start.attempt
          AND task_start.launch > launch -- numbers only grow: a container that is not the newest is refused
          AND task_start.launch <= 32767
          AND cancel_requested_at IS NULL
          AND (status = 'waiting' OR status = 'processing' AND max_failures > 1)
          AND dispatch.fits_start_key(id, created_at, task_start.start_key)
        RETURNING id, attempt, launch, job_uid, node_name, pod_name, started_at, run_digest, payload, queue
    ), opened AS (
        INSERT INTO dispatch.task_launches
            (task_id, attempt, launch, job_uid, run_digest, node_name, pod_name, started_at, queue)
        SELECT id, attempt, launch, job_uid, run_digest, node_name, pod_name, started_at, queue FROM taken
        -- its Job was seen to end, but its container lives on a node that the cluster has lost
        ON CONFLICT (task_id, attempt, launch) DO UPDATE SET
            job_uid = excluded.job_uid, run_digest = excluded.run_digest, node_name = excluded.node_name,
            pod_name = excluded.pod_name, started_at = excluded.started_at, queue = excluded.queue, ended_at = NULL,
            outcome = NULL, exit_code = NULL, reason = NULL, error = NULL
        WHERE task_launches.outcome = 'unstarted'
    )
    SELECT tokens[1], taken.payload FROM taken;
    IF FOUND THEN
        -- A separate statement, because the one above does not see a launch that was committed while it waited for the row.
        UPDATE dispatch.task_launches SET ended_at = now(), outcome = 'lost'
        WHERE task_id = task_start.task_id AND ended_at IS NULL
          AND (attempt, launch) <> (task_start.attempt, task_start.launch);
        RETURN;
    END IF;
    SELECT * INTO held FROM dispatch.tasks -- the same Pod asks again: its answer was lost
    WHERE id = task_start.task_id
      AND attempt = task_start.attempt
      AND launch = task_start.launch
      AND status = 'processing'
      AND job_uid = uid
      AND pod_name IS NOT DISTINCT FROM whose
      AND dispatch.fits_start_key(id, created_at, task_start.start_key)
    FOR UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    SELECT t INTO token FROM unnest(tokens) AS t WHERE dispatch.token_digest(t) = held.run_digest;
    IF NOT FOUND THEN -- the run began before the upgrade, or with a secret that is gone: nothing derives its token any more
        token := tokens[1];
        UPDATE dispatch.tasks SET run_digest = dispatch.token_digest(token) WHERE id = held.id;
        UPDATE dispatch.task_launches SET run_digest = dispatch.token_digest(token)
        WHERE task_id = held.id AND attempt = held.attempt AND launch = held.launch AND ended_at IS NULL;
    END IF;
    RETURN QUERY SELECT token, held.payload;
END
$$;
CREATE FUNCTION dispatch.template_fault(template text, spec jsonb, env jsonb, timeout_seconds integer) RETURNS dispatch.refusal
    LANGUAGE plpgsql STABLE
    AS $$
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
CREATE FUNCTION dispatch.token_digest(token uuid) RETURNS bytea
    LANGUAGE sql IMMUTABLE STRICT
    AS $$ SELECT sha256(uuid_send(token)) $$;
CREATE VIEW dispatch.batch_status WITH (security_invoker='true') AS
 SELECT queue,
    submitted_by,
    batch,
    (count(*))::integer AS tasks,
    (count(*) FILTER (WHERE (status = 'waiting'::text)))::integer AS waiting,
    (count(*) FILTER (WHERE (status = 'processing'::text)))::integer AS processing,
    (count(*) FILTER (WHERE (status = 'succeeded'::text)))::integer AS succeeded,
    (count(*) FILTER (WHERE (status = 'failed'::text)))::integer AS failed,
    (count(*) FILTER (WHERE (status = 'cancelled'::text)))::integer AS cancelled,
    min(started_at) AS first_started_at,
    max(finished_at) AS last_finished_at
   FROM dispatch.tasks
  WHERE (batch IS NOT NULL)
  GROUP BY queue, submitted_by, batch;
CREATE SEQUENCE dispatch.done_clock
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE dispatch.earlier_start_keys (
    task_id bigint NOT NULL,
    digest bytea NOT NULL
);
COMMENT ON TABLE dispatch.earlier_start_keys IS 'Digests of the start keys that rows had as a column, for the Jobs of that time. Nothing is added.';
COMMENT ON COLUMN dispatch.earlier_start_keys.task_id IS 'The task.';
COMMENT ON COLUMN dispatch.earlier_start_keys.digest IS 'Digest of its start key.';
CREATE TABLE dispatch.queue_reasons (
    queue text NOT NULL,
    waiting integer NOT NULL,
    in_flight integer NOT NULL,
    max_jobs integer,
    weight integer NOT NULL,
    share real NOT NULL,
    paused_until timestamp with time zone,
    oldest timestamp with time zone,
    reasons jsonb NOT NULL,
    behind jsonb
);
COMMENT ON TABLE dispatch.queue_reasons IS 'The state of each queue, as the dispatcher told it. Read the view queue_status instead.';
COMMENT ON COLUMN dispatch.queue_reasons.queue IS 'queues.name.';
COMMENT ON COLUMN dispatch.queue_reasons.waiting IS 'Waiting rows.';
COMMENT ON COLUMN dispatch.queue_reasons.in_flight IS 'Unfinished Jobs.';
COMMENT ON COLUMN dispatch.queue_reasons.max_jobs IS 'The cap of unfinished Jobs; NULL: no cap.';
COMMENT ON COLUMN dispatch.queue_reasons.weight IS 'queues.weight.';
COMMENT ON COLUMN dispatch.queue_reasons.share IS 'Largest part of any one resource of the cluster that its Jobs ask for.';
COMMENT ON COLUMN dispatch.queue_reasons.paused_until IS 'End of the pause; NULL: not paused.';
COMMENT ON COLUMN dispatch.queue_reasons.oldest IS 'Since when the oldest due row waits; NULL: no row waits.';
COMMENT ON COLUMN dispatch.queue_reasons.reasons IS 'Number of waiting rows by reason.';
COMMENT ON COLUMN dispatch.queue_reasons.behind IS 'What holds the rows that the dispatcher did not judge one by one: reason, message, since. NULL: they wait for their turn.';
CREATE TABLE dispatch.reported (
    is_only boolean DEFAULT true NOT NULL,
    as_of timestamp with time zone NOT NULL,
    CONSTRAINT reported_is_only_check CHECK (is_only)
);
COMMENT ON TABLE dispatch.reported IS 'One row: the last report of the dispatcher that the janitor brought over.';
COMMENT ON COLUMN dispatch.reported.is_only IS 'Always true, so that there is one row.';
COMMENT ON COLUMN dispatch.reported.as_of IS 'Time of the cycle that the report tells of.';
CREATE VIEW dispatch.queue_status WITH (security_invoker='true') AS
 SELECT q.queue,
    q.waiting,
    q.in_flight,
    q.max_jobs,
    q.weight,
    q.share,
    q.paused_until,
    (EXTRACT(epoch FROM (now() - q.oldest)))::real AS oldest_wait_seconds,
    q.reasons,
    r.as_of
   FROM (dispatch.queue_reasons q
     LEFT JOIN dispatch.reported r ON (true));
CREATE TABLE dispatch.queues (
    name text NOT NULL,
    weight integer DEFAULT 1 NOT NULL,
    max_jobs integer,
    max_jobs_per_submitter integer,
    max_pending integer,
    paused_until timestamp with time zone,
    owner_role name,
    note text,
    submit_role name,
    max_waiting_per_submitter integer,
    fair_submitters boolean DEFAULT false NOT NULL,
    CONSTRAINT queues_max_jobs_check CHECK ((max_jobs >= 0)),
    CONSTRAINT queues_max_jobs_per_submitter_check CHECK ((max_jobs_per_submitter >= 0)),
    CONSTRAINT queues_max_pending_check CHECK ((max_pending >= 0)),
    CONSTRAINT queues_max_waiting_per_submitter_check CHECK ((max_waiting_per_submitter >= 0)),
    CONSTRAINT queues_name_check CHECK (((name = '*'::text) OR (name ~ '^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$'::text))),
    CONSTRAINT queues_weight_check CHECK (((weight >= 1) AND (weight <= 1000)))
);
COMMENT ON TABLE dispatch.queues IS 'The declared queues. Row `*` holds the defaults of the others and the pause of all.';
COMMENT ON COLUMN dispatch.queues.name IS 'DNS label (63 characters, lower case), or `*`.';
COMMENT ON COLUMN dispatch.queues.weight IS 'Share of the Jobs in flight among the queues that have work, 1..1000: a queue of weight 2 gets twice as many Jobs as a queue of weight 1.';
COMMENT ON COLUMN dispatch.queues.max_jobs IS 'Unfinished Jobs of this queue at most; NULL: the value of `*`; there NULL: no cap of its own.';
COMMENT ON COLUMN dispatch.queues.max_jobs_per_submitter IS 'Unfinished Jobs of one submitter in this queue at most; NULL: the value of `*`; there NULL: no cap.';
COMMENT ON COLUMN dispatch.queues.max_pending IS 'Unschedulable Pods of one shape of this queue at most; NULL: the value of `*`, there the setting DISPATCHER_MAX_PENDING.';
COMMENT ON COLUMN dispatch.queues.paused_until IS 'Nothing is launched before this time; `infinity` pauses until it is cleared. On `*`: every queue.';
COMMENT ON COLUMN dispatch.queues.owner_role IS 'Members of this role see, cancel and retry all rows of the queue.';
COMMENT ON COLUMN dispatch.queues.note IS 'For people: whose queue, why paused.';
COMMENT ON COLUMN dispatch.queues.submit_role IS 'Members of this role may insert rows. NULL: the owner_role; where that is NULL too, the submit_role of `*`, else every submitter.';
COMMENT ON COLUMN dispatch.queues.max_waiting_per_submitter IS 'Waiting rows of one submitter in this queue at most; NULL: the value of `*`; there NULL: no bound. Counted at the end of each INSERT; two transactions at once may exceed it.';
COMMENT ON COLUMN dispatch.queues.fair_submitters IS 'true: the submitter with the fewest Jobs in flight in this queue comes first; false: rows come by priority and id, whoever submitted them.';
CREATE TABLE dispatch.reasons (
    reason text NOT NULL,
    whose_turn text NOT NULL,
    meaning text NOT NULL,
    next_step text NOT NULL
);
COMMENT ON TABLE dispatch.reasons IS 'Every reason for which a row waits.';
COMMENT ON COLUMN dispatch.reasons.reason IS 'The stable code.';
COMMENT ON COLUMN dispatch.reasons.whose_turn IS 'Who can end the wait: submitter, author (of the template), operator, cluster (it needs room), nobody (it takes time).';
COMMENT ON COLUMN dispatch.reasons.meaning IS 'The same in words.';
COMMENT ON COLUMN dispatch.reasons.next_step IS 'What ends the wait.';
CREATE SEQUENCE dispatch.reasons_clock
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;
CREATE TABLE dispatch.schema_version (
    version integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    database_id uuid NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);
COMMENT ON TABLE dispatch.schema_version IS 'Applied migrations, one row each; written by `dispatcher migrate` alone.';
COMMENT ON COLUMN dispatch.schema_version.version IS 'Number of the migration file.';
COMMENT ON COLUMN dispatch.schema_version.name IS 'File name of the migration.';
COMMENT ON COLUMN dispatch.schema_version.checksum IS 'SHA-256 of the file as it was applied; a changed file is refused.';
COMMENT ON COLUMN dispatch.schema_version.database_id IS 'Random identity of this database, the same in every row. Part of every Job name: a restored copy keeps it, another database has its own.';
COMMENT ON COLUMN dispatch.schema_version.applied_at IS 'When it was applied.';
CREATE TABLE dispatch.secrets (
    generation integer NOT NULL,
    start_inner bytea NOT NULL,
    start_outer bytea NOT NULL,
    run_inner bytea NOT NULL,
    run_outer bytea NOT NULL,
    made_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT secrets_run_inner_check CHECK ((octet_length(run_inner) = 64)),
    CONSTRAINT secrets_run_outer_check CHECK ((octet_length(run_outer) = 64)),
    CONSTRAINT secrets_start_inner_check CHECK ((octet_length(start_inner) = 64)),
    CONSTRAINT secrets_start_outer_check CHECK ((octet_length(start_outer) = 64))
);
COMMENT ON TABLE dispatch.secrets IS 'The secrets that keys are derived from: the newest generation, and the one before it for Jobs that were made with it. `rotate_secrets` makes a new one.';
COMMENT ON COLUMN dispatch.secrets.generation IS 'Grows by one with each rotation.';
COMMENT ON COLUMN dispatch.secrets.start_inner IS 'Start secret xor 0x36, 64 bytes. Start keys come from it; the dispatcher reads it.';
COMMENT ON COLUMN dispatch.secrets.start_outer IS 'Start secret xor 0x5c, 64 bytes.';
COMMENT ON COLUMN dispatch.secrets.run_inner IS 'Run secret xor 0x36, 64 bytes. Run tokens come from it; the functions alone read it.';
COMMENT ON COLUMN dispatch.secrets.run_outer IS 'Run secret xor 0x5c, 64 bytes.';
COMMENT ON COLUMN dispatch.secrets.made_at IS 'When it was made.';
CREATE TABLE dispatch.task_reasons (
    task_id bigint NOT NULL,
    attempt integer NOT NULL,
    reason text NOT NULL,
    message text NOT NULL,
    since timestamp with time zone NOT NULL
);
COMMENT ON TABLE dispatch.task_reasons IS 'Reasons of single rows, as the dispatcher told them: parked rows, launched rows, and the first rows of each queue. Read the view task_explain instead.';
COMMENT ON COLUMN dispatch.task_reasons.task_id IS 'tasks.id.';
COMMENT ON COLUMN dispatch.task_reasons.attempt IS 'The attempt that was judged.';
COMMENT ON COLUMN dispatch.task_reasons.reason IS 'The stable code, see dispatch.reasons.';
COMMENT ON COLUMN dispatch.task_reasons.message IS 'The same in words, with numbers and names.';
COMMENT ON COLUMN dispatch.task_reasons.since IS 'Since when this reason holds the row.';
CREATE VIEW dispatch.task_explain WITH (security_invoker='true') AS
 SELECT t.id,
    t.queue,
    t.status,
    t.attempt,
    why.reason,
    COALESCE(known.whose_turn, 'nobody'::text) AS whose_turn,
        CASE
            WHEN (why.reason IS NOT NULL) THEN (
            CASE
                WHEN (r.as_of IS NULL) THEN 'the dispatcher has not reported yet; '::text
                WHEN (r.as_of < (now() - '00:01:30'::interval)) THEN format('the dispatcher has not reported since %s; '::text, (r.as_of)::timestamp(0) with time zone)
                ELSE ''::text
            END ||
            CASE
                WHEN (own.reason IS NOT NULL) THEN own.message
                WHEN (why.reason = 'NotDue'::text) THEN format('%s: it runs at %s'::text, known.meaning, (t.run_at)::timestamp(0) with time zone)
                WHEN ((why.reason = 'Paused'::text) AND (q.paused_until < '9999-01-01 00:00:00+00'::timestamp with time zone)) THEN format('%s until %s'::text, known.meaning, (q.paused_until)::timestamp(0) with time zone)
                WHEN (why.reason = (q.behind ->> 'reason'::text)) THEN COALESCE((q.behind ->> 'message'::text), known.meaning)
                ELSE (known.meaning || COALESCE(( SELECT ('; rows of its queue wait for '::text || string_agg(format('%s (%s)'::text, held.key, held.value), ', '::text ORDER BY (length(held.value)) DESC, held.value DESC))
                   FROM jsonb_each_text(((q.reasons - 'InLine'::text) - 'NotDue'::text)) held(key, value)
                  WHERE (why.reason = 'InLine'::text)), ''::text))
            END)
            WHEN (t.status = 'processing'::text) THEN 'its container runs'::text
            WHEN (t.status = 'cancelled'::text) THEN 'it has been cancelled'::text
            WHEN (t.status = 'failed'::text) THEN ('it has failed'::text || COALESCE((': '::text || t.error), ''::text))
            ELSE ('it has '::text || t.status)
        END AS message,
        CASE
            WHEN (own.reason IS NOT NULL) THEN own.since
            WHEN (why.reason = 'NotDue'::text) THEN t.created_at
            WHEN (why.reason = 'InLine'::text) THEN GREATEST(t.created_at, t.run_at)
            WHEN (why.reason = (q.behind ->> 'reason'::text)) THEN GREATEST(t.created_at, t.run_at, ((q.behind ->> 'since'::text))::timestamp with time zone)
            WHEN (why.reason IS NULL) THEN COALESCE(t.finished_at, t.started_at)
            ELSE NULL::timestamp with time zone
        END AS since,
    r.as_of,
    (dispatch.place_in_line(t.id))[1] AS "position",
    (dispatch.place_in_line(t.id))[2] AS position_of,
    t.started_at,
    t.finished_at
   FROM (((((dispatch.tasks t
     LEFT JOIN dispatch.task_reasons own ON (((own.task_id = t.id) AND (own.attempt = t.attempt) AND ((t.status = 'waiting'::text) OR ((t.status = 'processing'::text) AND (own.reason <> 'Launched'::text))))))
     LEFT JOIN dispatch.queue_reasons q ON ((q.queue = t.queue)))
     LEFT JOIN dispatch.reported r ON (true))
     CROSS JOIN LATERAL ( SELECT
                CASE
                    WHEN (own.reason IS NOT NULL) THEN own.reason
                    WHEN (t.status <> 'waiting'::text) THEN NULL::text
                    WHEN (t.run_at > now()) THEN 'NotDue'::text
                    WHEN (q.paused_until > now()) THEN 'Paused'::text
                    ELSE COALESCE((q.behind ->> 'reason'::text), 'InLine'::text)
                END AS reason) why)
     LEFT JOIN dispatch.reasons known ON ((known.reason = why.reason)));
COMMENT ON COLUMN dispatch.task_explain."position" IS 'Its place among the due rows of its queue, from 1 on; it stops at 10,001.';
CREATE TABLE dispatch.task_launches (
    task_id bigint NOT NULL,
    attempt smallint NOT NULL,
    launch smallint NOT NULL,
    job_uid text NOT NULL,
    node_name text,
    pod_name text,
    started_at timestamp with time zone,
    ended_at timestamp with time zone,
    outcome text,
    error text,
    run_digest bytea,
    exit_code integer,
    reason text,
    queue text,
    CONSTRAINT task_launches_check CHECK (((ended_at IS NULL) = (outcome IS NULL)))
);
COMMENT ON TABLE dispatch.task_launches IS 'One row per launch: inserted by task_start, or by the janitor if the launch ended without it. Read the view task_history instead.';
COMMENT ON COLUMN dispatch.task_launches.task_id IS 'The task; no foreign key, the history may outlive the row.';
COMMENT ON COLUMN dispatch.task_launches.attempt IS 'Attempt of the task.';
COMMENT ON COLUMN dispatch.task_launches.launch IS 'Launch of the attempt.';
COMMENT ON COLUMN dispatch.task_launches.job_uid IS 'UID of the Job.';
COMMENT ON COLUMN dispatch.task_launches.node_name IS 'Node it ran on.';
COMMENT ON COLUMN dispatch.task_launches.pod_name IS 'Pod it ran in.';
COMMENT ON COLUMN dispatch.task_launches.started_at IS 'When task_start was accepted; without it, NULL.';
COMMENT ON COLUMN dispatch.task_launches.ended_at IS 'When it reported, or was replaced.';
COMMENT ON COLUMN dispatch.task_launches.outcome IS 'succeeded, failed, retry or cancelled as it reported; lost: taken over, cancelled or retried without a report; unstarted: it ended before task_start.';
COMMENT ON COLUMN dispatch.task_launches.error IS 'The error that it reported, otherwise the end of its output; 8 KiB.';
COMMENT ON COLUMN dispatch.task_launches.run_digest IS 'Digest of the run''s token; NULL for launches that had ended a day before the token became a digest.';
COMMENT ON COLUMN dispatch.task_launches.exit_code IS 'Exit code of its container; NULL: it runs, it never ran, or nobody knows.';
COMMENT ON COLUMN dispatch.task_launches.reason IS 'What ended it, in words, such as OOMKilled (limit 64Mi); NULL: it ended by itself, or nobody knows.';
COMMENT ON COLUMN dispatch.task_launches.queue IS 'Queue of the row when the launch started; NULL before this column was there.';
CREATE VIEW dispatch.task_history WITH (security_invoker='true') AS
 SELECT task_id,
    attempt,
    launch,
    node_name,
    pod_name,
    started_at,
    ended_at,
    outcome,
    exit_code,
    reason,
    error
   FROM dispatch.task_launches l;
CREATE SEQUENCE dispatch.tasks_clock
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER TABLE dispatch.tasks ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME dispatch.tasks_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE dispatch.templates (
    name text NOT NULL,
    row_may_set text[],
    bounds jsonb DEFAULT '{}'::jsonb NOT NULL,
    images text[] DEFAULT '{}'::text[] NOT NULL,
    machines text[] DEFAULT '{}'::text[] NOT NULL,
    sets text[] DEFAULT '{}'::text[] NOT NULL,
    note text DEFAULT ''::text NOT NULL
);
COMMENT ON TABLE dispatch.templates IS 'The templates that rows may name. The janitor writes it, from the files of the dispatcher; a change by hand lasts seconds.';
COMMENT ON COLUMN dispatch.templates.name IS 'What tasks.template says.';
COMMENT ON COLUMN dispatch.templates.row_may_set IS 'What rows may set: fields of spec, `env` (every name that is not closed or in `sets`), env.NAME. NULL: the template has a fault, see note; its rows wait.';
COMMENT ON COLUMN dispatch.templates.bounds IS 'Most cpu and memory of spec, and most seconds of timeout_seconds.';
COMMENT ON COLUMN dispatch.templates.images IS 'Patterns of the images that rows may name: * is any text.';
COMMENT ON COLUMN dispatch.templates.machines IS 'Patterns of the machines that rows may name: * is any text.';
COMMENT ON COLUMN dispatch.templates.sets IS 'Variables that the template or the installation sets. Rows may set them only where row_may_set has env.NAME.';
COMMENT ON COLUMN dispatch.templates.note IS 'For people: the description in the template, or its fault.';
ALTER TABLE ONLY dispatch.earlier_start_keys
    ADD CONSTRAINT earlier_start_keys_pkey PRIMARY KEY (task_id);
ALTER TABLE ONLY dispatch.queue_reasons
    ADD CONSTRAINT queue_reasons_pkey PRIMARY KEY (queue);
ALTER TABLE ONLY dispatch.queues
    ADD CONSTRAINT queues_pkey PRIMARY KEY (name);
ALTER TABLE ONLY dispatch.reasons
    ADD CONSTRAINT reasons_pkey PRIMARY KEY (reason);
ALTER TABLE ONLY dispatch.reported
    ADD CONSTRAINT reported_pkey PRIMARY KEY (is_only);
ALTER TABLE ONLY dispatch.schema_version
    ADD CONSTRAINT schema_version_pkey PRIMARY KEY (version);
ALTER TABLE ONLY dispatch.secrets
    ADD CONSTRAINT secrets_pkey PRIMARY KEY (generation);
ALTER TABLE dispatch.task_launches
    ADD CONSTRAINT task_launches_outcome_check CHECK ((outcome = ANY (ARRAY['succeeded'::text, 'failed'::text, 'retry'::text, 'cancelled'::text, 'lost'::text, 'unstarted'::text]))) NOT VALID;
ALTER TABLE ONLY dispatch.task_launches
    ADD CONSTRAINT task_launches_pkey PRIMARY KEY (task_id, attempt, launch);
ALTER TABLE dispatch.task_launches
    ADD CONSTRAINT task_launches_started_check CHECK (((started_at IS NOT NULL) OR (outcome = 'unstarted'::text))) NOT VALID;
ALTER TABLE ONLY dispatch.task_reasons
    ADD CONSTRAINT task_reasons_pkey PRIMARY KEY (task_id);
ALTER TABLE ONLY dispatch.tasks
    ADD CONSTRAINT tasks_pkey PRIMARY KEY (id);
ALTER TABLE ONLY dispatch.templates
    ADD CONSTRAINT templates_pkey PRIMARY KEY (name);
CREATE UNIQUE INDEX dedupe_key_of_a_living_row ON dispatch.tasks USING btree (queue, submitted_by, dedupe_key) WHERE ((dedupe_key IS NOT NULL) AND (status = ANY (ARRAY['waiting'::text, 'processing'::text])));
CREATE UNIQUE INDEX task_launches_run ON dispatch.task_launches USING btree (run_digest) WHERE (run_digest IS NOT NULL);
CREATE INDEX task_launches_starts ON dispatch.task_launches USING btree (queue, started_at) WHERE (queue IS NOT NULL);
CREATE INDEX tasks_due ON dispatch.tasks USING btree (queue, run_at, id) INCLUDE (priority, attempt, kind, submitted_by) WHERE ((status = 'waiting'::text) AND (run_at IS NOT NULL));
CREATE INDEX tasks_due_of_submitter ON dispatch.tasks USING btree (queue, submitted_by, run_at, id) INCLUDE (priority, attempt, kind) WHERE ((status = 'waiting'::text) AND (run_at IS NOT NULL));
CREATE INDEX tasks_failed ON dispatch.tasks USING btree (finished_at) WHERE (status = 'failed'::text);
CREATE INDEX tasks_finished ON dispatch.tasks USING btree (finished_at) WHERE (finished_at IS NOT NULL);
CREATE INDEX tasks_finished_of_queue ON dispatch.tasks USING btree (queue, finished_at) WHERE ((finished_at IS NOT NULL) AND (status = ANY (ARRAY['succeeded'::text, 'failed'::text, 'cancelled'::text])));
CREATE INDEX tasks_finished_of_submitter ON dispatch.tasks USING btree (submitted_by, finished_at, id) WHERE ((finished_at IS NOT NULL) AND (status = ANY (ARRAY['succeeded'::text, 'failed'::text, 'cancelled'::text])));
CREATE INDEX tasks_history ON dispatch.tasks USING btree (queue, cache_key, finished_at DESC) INCLUDE (node_name) WHERE ((status = 'succeeded'::text) AND (cache_key IS NOT NULL));
CREATE INDEX tasks_labels ON dispatch.tasks USING gin (labels jsonb_path_ops);
CREATE INDEX tasks_of_batch ON dispatch.tasks USING btree (queue, batch, submitted_by, id) INCLUDE (status, started_at, finished_at) WHERE (batch IS NOT NULL);
CREATE INDEX tasks_of_submitter ON dispatch.tasks USING btree (submitted_by, id);
CREATE INDEX tasks_processing ON dispatch.tasks USING btree (id) WHERE (status = 'processing'::text);
CREATE INDEX tasks_ready ON dispatch.tasks USING btree (queue, priority, id) INCLUDE (attempt, kind, submitted_by) WHERE ((status = 'waiting'::text) AND (run_at IS NULL));
CREATE INDEX tasks_ready_of_submitter ON dispatch.tasks USING btree (queue, submitted_by, priority, id) INCLUDE (attempt, kind) WHERE ((status = 'waiting'::text) AND (run_at IS NULL));
CREATE TRIGGER announce_tasks AFTER INSERT ON dispatch.tasks FOR EACH STATEMENT EXECUTE FUNCTION dispatch.announce_tasks();
CREATE TRIGGER begin_to_check_waiting AFTER INSERT OR UPDATE ON dispatch.queues FOR EACH STATEMENT EXECUTE FUNCTION dispatch.begin_to_check_waiting();
CREATE TRIGGER check_task BEFORE INSERT ON dispatch.tasks FOR EACH ROW EXECUTE FUNCTION dispatch.check_task();
CREATE TRIGGER forget_progress BEFORE UPDATE OF attempt, launch ON dispatch.tasks FOR EACH ROW WHEN ((((old.attempt <> new.attempt) OR (old.launch <> new.launch)) AND ((old.progress IS NOT NULL) OR (old.note IS NOT NULL)))) EXECUTE FUNCTION dispatch.forget_progress();
CREATE TRIGGER keep_queue BEFORE DELETE ON dispatch.queues FOR EACH ROW EXECUTE FUNCTION dispatch.keep_queue();
CREATE TRIGGER keep_queue_name BEFORE UPDATE OF name ON dispatch.queues FOR EACH ROW WHEN ((old.name IS DISTINCT FROM new.name)) EXECUTE FUNCTION dispatch.keep_queue();
CREATE POLICY all_launches ON dispatch.task_launches FOR SELECT TO dispatch_reader, dispatch_janitor, dispatch_operator, dispatch_observer USING (true);
CREATE POLICY all_queues ON dispatch.queue_reasons FOR SELECT TO dispatch_operator, dispatch_observer USING (true);
CREATE POLICY all_reasons ON dispatch.task_reasons FOR SELECT TO dispatch_janitor, dispatch_operator, dispatch_observer USING (true);
CREATE POLICY all_rows ON dispatch.tasks FOR SELECT TO dispatch_reader, dispatch_janitor, dispatch_observer USING (true);
CREATE POLICY new_rows ON dispatch.tasks FOR INSERT TO dispatch_submitter WITH CHECK (true);
CREATE POLICY open_queues ON dispatch.queue_reasons FOR SELECT TO dispatch_submitter USING ((queue = ANY (ARRAY( SELECT dispatch.open_queues() AS open_queues))));
CREATE POLICY open_queues ON dispatch.queues FOR SELECT TO dispatch_submitter USING (((name = '*'::text) OR (name = ANY (ARRAY( SELECT dispatch.open_queues() AS open_queues)))));
CREATE POLICY own_launches ON dispatch.task_launches FOR SELECT TO dispatch_submitter USING ((EXISTS ( SELECT
   FROM dispatch.tasks t
  WHERE (t.id = task_launches.task_id))));
CREATE POLICY own_reasons ON dispatch.task_reasons FOR SELECT TO dispatch_submitter USING ((EXISTS ( SELECT
   FROM dispatch.tasks t
  WHERE (t.id = task_reasons.task_id))));
CREATE POLICY own_rows ON dispatch.tasks FOR SELECT TO dispatch_submitter USING (((submitted_by = SESSION_USER) OR (queue = ANY (ARRAY( SELECT dispatch.owned_queues() AS owned_queues)))));
ALTER TABLE dispatch.queue_reasons ENABLE ROW LEVEL SECURITY;
ALTER TABLE dispatch.queues ENABLE ROW LEVEL SECURITY;
CREATE POLICY queues_of_operators ON dispatch.queues TO dispatch_operator USING (true) WITH CHECK (true);
CREATE POLICY queues_of_programs ON dispatch.queues FOR SELECT TO dispatch_reader, dispatch_janitor, dispatch_observer USING (true);
CREATE POLICY rows_of_operators ON dispatch.tasks FOR SELECT TO dispatch_operator USING (true);
ALTER TABLE dispatch.task_launches ENABLE ROW LEVEL SECURITY;
ALTER TABLE dispatch.task_reasons ENABLE ROW LEVEL SECURITY;
ALTER TABLE dispatch.tasks ENABLE ROW LEVEL SECURITY;
GRANT USAGE ON SCHEMA dispatch TO dispatch_reader;
GRANT USAGE ON SCHEMA dispatch TO dispatch_submitter;
GRANT USAGE ON SCHEMA dispatch TO dispatch_task;
GRANT USAGE ON SCHEMA dispatch TO dispatch_janitor;
GRANT USAGE ON SCHEMA dispatch TO dispatch_operator;
GRANT USAGE ON SCHEMA dispatch TO dispatch_observer;
REVOKE ALL ON TYPE dispatch.refusal FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch.batch_cancel(queue text, batch text) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch.batch_retry(queue text, batch text) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch.janitor_cancel(task_id bigint, attempt integer, run_digest bytea) TO dispatch_janitor;
GRANT ALL ON FUNCTION dispatch.janitor_delete(days integer, most integer) TO dispatch_janitor;
GRANT ALL ON FUNCTION dispatch.janitor_end(task_id bigint, attempt integer, launch integer, job_uid text, outcome text, error text) TO dispatch_janitor;
GRANT ALL ON FUNCTION dispatch.janitor_ended(ends jsonb) TO dispatch_janitor;
GRANT ALL ON FUNCTION dispatch.janitor_return(task_id bigint, attempt integer, launch integer, run_digest bytea, failures integer, error text) TO dispatch_janitor;
GRANT ALL ON FUNCTION dispatch.janitor_tell(report jsonb) TO dispatch_janitor;
GRANT ALL ON FUNCTION dispatch.janitor_templates(offered jsonb, are_all boolean) TO dispatch_janitor;
GRANT ALL ON FUNCTION dispatch.open_queues() TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch.owned_queues() TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch.place_in_line(task_id bigint) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch.place_in_line(task_id bigint) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch.place_in_line(task_id bigint) TO dispatch_observer;
GRANT ALL ON FUNCTION dispatch.task_cancel(task_id bigint, reason text) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch.task_cancel(task_id bigint, reason text) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch.task_ended_since(since timestamp with time zone) TO dispatch_submitter;
GRANT SELECT ON TABLE dispatch.tasks TO dispatch_submitter;
GRANT SELECT ON TABLE dispatch.tasks TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch.task_finish(run_token uuid, outcome text, error text, result jsonb, retry_after interval) TO dispatch_task;
GRANT ALL ON FUNCTION dispatch.task_heartbeat(run_token uuid, progress real, note text) TO dispatch_task;
GRANT ALL ON FUNCTION dispatch.task_retry(task_id bigint, attempt integer) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch.task_retry(task_id bigint, attempt integer) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch.task_set_priority(task_id bigint, priority integer) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch.task_set_priority(task_id bigint, priority integer) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch.task_start(task_id bigint, start_key uuid, attempt integer, launch integer, job_uid text, node text, pod text) TO dispatch_task;
GRANT SELECT ON TABLE dispatch.batch_status TO dispatch_submitter;
GRANT SELECT ON TABLE dispatch.batch_status TO dispatch_operator;
GRANT SELECT ON TABLE dispatch.batch_status TO dispatch_observer;
GRANT SELECT ON TABLE dispatch.queue_reasons TO dispatch_submitter;
GRANT SELECT ON TABLE dispatch.queue_reasons TO dispatch_operator;
GRANT SELECT ON TABLE dispatch.queue_reasons TO dispatch_observer;
GRANT SELECT ON TABLE dispatch.reported TO dispatch_submitter;
GRANT SELECT ON TABLE dispatch.reported TO dispatch_operator;
GRANT SELECT ON TABLE dispatch.reported TO dispatch_observer;
GRANT SELECT ON TABLE dispatch.queue_status TO dispatch_submitter;
GRANT SELECT ON TABLE dispatch.queue_status TO dispatch_operator;
GRANT SELECT ON TABLE dispatch.queue_status TO dispatch_observer;
GRANT SELECT ON TABLE dispatch.queues TO dispatch_reader;
GRANT SELECT ON TABLE dispatch.queues TO dispatch_janitor;
GRANT SELECT ON TABLE dispatch.queues TO dispatch_observer;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE dispatch.queues TO dispatch_operator;
GRANT SELECT ON TABLE dispatch.queues TO dispatch_submitter;
GRANT SELECT ON TABLE dispatch.reasons TO dispatch_submitter;
GRANT SELECT ON TABLE dispatch.reasons TO dispatch_operator;
GRANT SELECT ON TABLE dispatch.reasons TO dispatch_observer;
GRANT SELECT ON TABLE dispatch.schema_version TO dispatch_reader;
GRANT SELECT ON TABLE dispatch.schema_version TO dispatch_janitor;
GRANT SELECT ON TABLE dispatch.schema_version TO dispatch_observer;
GRANT SELECT ON TABLE dispatch.task_reasons TO dispatch_submitter;
GRANT SELECT ON TABLE dispatch.task_reasons TO dispatch_operator;
GRANT SELECT ON TABLE dispatch.task_reasons TO dispatch_observer;
GRANT SELECT ON TABLE dispatch.task_reasons TO dispatch_janitor;
GRANT SELECT ON TABLE dispatch.task_explain TO dispatch_submitter;
GRANT SELECT ON TABLE dispatch.task_explain TO dispatch_operator;
GRANT SELECT ON TABLE dispatch.task_explain TO dispatch_observer;
GRANT SELECT ON TABLE dispatch.task_history TO dispatch_submitter;
GRANT SELECT ON TABLE dispatch.task_history TO dispatch_operator;
GRANT SELECT ON TABLE dispatch.task_history TO dispatch_observer;
GRANT SELECT ON TABLE dispatch.templates TO dispatch_reader;
GRANT SELECT ON TABLE dispatch.templates TO dispatch_submitter;
GRANT SELECT ON TABLE dispatch.templates TO dispatch_operator;
GRANT SELECT ON TABLE dispatch.templates TO dispatch_observer;
GRANT SELECT (id, queue, priority, run_at, timeout_seconds, max_failures, template, env, spec, cache_key, dedupe_key, status, attempt, launch, failures, job_uid, submitted_by, created_at, started_at, heartbeat_at, finished_at, cancel_requested_at, node_name, pod_name, error, kind, batch, labels, progress, note) ON dispatch.tasks TO dispatch_reader;
GRANT SELECT (id, queue, priority, run_at, timeout_seconds, max_failures, template, env, spec, cache_key, dedupe_key, status, attempt, launch, failures, job_uid, submitted_by, created_at, started_at, heartbeat_at, finished_at, cancel_requested_at, node_name, pod_name, error, kind, run_digest, batch, labels, progress, note) ON dispatch.tasks TO dispatch_janitor;
GRANT SELECT (id, queue, priority, run_at, timeout_seconds, max_failures, template, env, spec, cache_key, dedupe_key, status, attempt, launch, failures, job_uid, submitted_by, created_at, started_at, heartbeat_at, finished_at, cancel_requested_at, node_name, pod_name, error, result, kind, batch, labels, progress, note) ON dispatch.tasks TO dispatch_observer;
GRANT INSERT (queue, priority, run_at, timeout_seconds, max_failures, template, env, spec, payload, cache_key, dedupe_key, batch, labels) ON dispatch.tasks TO dispatch_submitter;
GRANT SELECT (generation, start_inner, start_outer) ON dispatch.secrets TO dispatch_reader;
GRANT SELECT (task_id, attempt, launch, job_uid, node_name, pod_name, started_at, ended_at, outcome, error, exit_code, reason, queue) ON dispatch.task_launches TO dispatch_reader;
GRANT SELECT (task_id, attempt, launch, job_uid, node_name, pod_name, started_at, ended_at, outcome, error, exit_code, reason, queue) ON dispatch.task_launches TO dispatch_janitor;
GRANT SELECT (task_id, attempt, launch, job_uid, node_name, pod_name, started_at, ended_at, outcome, error, exit_code, reason, queue) ON dispatch.task_launches TO dispatch_observer;
GRANT SELECT (task_id, attempt, launch, node_name, pod_name, started_at, ended_at, outcome, error, exit_code, reason) ON dispatch.task_launches TO dispatch_submitter;
GRANT SELECT (task_id, attempt, launch, node_name, pod_name, started_at, ended_at, outcome, error, exit_code, reason) ON dispatch.task_launches TO dispatch_operator;
INSERT INTO dispatch.queues (name, note) VALUES
    ('*', 'defaults of all queues'),
    ('default', 'rows that name no queue');
INSERT INTO dispatch.reasons (reason, whose_turn, meaning, next_step) VALUES
    ('Backoff', 'nobody', 'it pauses after a launch that failed', 'nothing: the row is tried again after a pause'),
    ('DispatcherNotReady', 'operator', 'the dispatcher launches nothing now', 'mend what the message names; /readyz of the dispatcher tells whether that was all'),
    ('ExitedWithoutReport', 'author', 'its container ended, and did not say what became of the row', 'let the container call task_finish or run its command by `dispatcher exec`; then task_retry'),
    ('FailuresExhausted', 'submitter', 'it failed as often as it may', 'look at the errors of its runs in task_history; then task_retry'),
    ('Finishing', 'nobody', 'its container is ending', 'nothing: the row goes on when the Job of that container has ended'),
    ('InLine', 'nobody', 'other rows come first', 'nothing, or give the row a lower number by task_set_priority'),
    ('InvalidTemplate', 'author', 'the file of its template is faulty', 'correct the file of the template; its rows go on by themselves'),
    ('JobCap', 'operator', 'there are as many Jobs as there may be', 'nothing until a Job ends, or raise DISPATCHER_MAX_JOBS'),
    ('Launched', 'cluster', 'its Job exists, and its container has not reported its start', 'nothing, or look at its Pod: kubectl describe tells what it waits for'),
    ('LaunchesExhausted', 'author', 'its Pods never started', 'correct the image or the template, so that the Pod can start; then task_retry'),
    ('NameCollision', 'operator', 'a Job of its name belongs to somebody else', 'find out who made the Job of this name, and remove the Job or use another namespace'),
    ('NeverFits', 'cluster', 'no node is large enough', 'add a node that is large enough, or insert a row that asks for less'),
    ('NextCycle', 'nobody', 'the dispatcher has not come to it yet', 'nothing: the dispatcher looks at it within a second'),
    ('NoRoomNow', 'cluster', 'the nodes are full', 'nothing until a Pod ends, or add or uncordon a node'),
    ('NodeLost', 'operator', 'the node of its Pod does not answer', 'bring the node back, or delete it from the cluster'),
    ('NotDue', 'nobody', 'it is not due yet', 'nothing: the row starts at its run_at'),
    ('Paused', 'operator', 'its queue is paused', 'clear queues.paused_until of the queue, or of queue *'),
    ('PendingPods', 'cluster', 'Pods like its own wait for a node already', 'look at the Events of the Pods that wait for a node'),
    ('Poison', 'author', 'the API server refuses its Job', 'correct the template, or cancel the row and insert one whose Job the API server accepts'),
    ('PolicyDenied', 'submitter', 'its template does not allow what it asks for', 'cancel the row and insert one within the bounds of its template, or ask the author for others'),
    ('QueueCap', 'operator', 'its queue has as many Jobs as it may', 'nothing until a Job of the queue ends, or raise queues.max_jobs'),
    ('QuotaExceeded', 'operator', 'a ResourceQuota is used up', 'nothing until a Pod ends, or raise the ResourceQuota'),
    ('RateLimited', 'nobody', 'writes to the API server are limited', 'nothing: launches go on within a second'),
    ('SubmitterCap', 'operator', 'its submitter has as many Jobs in this queue as it may', 'nothing until one of the submitter''s Jobs ends, or raise queues.max_jobs_per_submitter'),
    ('TemplateFailing', 'author', 'launches of this image do not start', 'correct the image or the template; until a launch starts, they are tried one at a time'),
    ('UnknownTemplate', 'submitter', 'there is no such template', 'cancel the row and insert one with a template that exists, or ask the operator for this one');
SELECT dispatch.rotate_secrets();
INSERT INTO dispatch.schema_version (version, name, checksum, database_id)
SELECT one.*, made.id FROM (SELECT gen_random_uuid() AS id OFFSET 0) AS made, (VALUES
    (1, '0001_pre_tables.sql', 'a61ac1de78477804d50c57d2e16c3d638894a16214b8a9994e5635960701711a'),
    (2, '0002_pre_validation.sql', '9dd6cf169220d51edb73b26ff2d80fbaa383916d2991e9998a57dad4e9cbd41c'),
    (3, '0003_pre_wake_up.sql', 'f7c40ed7fdcaeae3eae8a49795cf29e5ad1f6681a05dc5e3ca38393b59f3e47f'),
    (4, '0004_pre_functions.sql', 'f921357d441cb412c57dc17a50b8b8f64443ec93a30e7e4f102c6a93eaf71752'),
    (5, '0005_pre_grants.sql', '6f1482cd2d2ed4fd82130f0fe0a486ed3dd9fd951a3e548bb32716a3ec557e17'),
    (6, '0006_pre_janitor.sql', 'b52fed5702262ab80d6a1fb15266c45d67bd7615522571d8bfa7129d9e7bcb76'),
    (7, '0007_pre_quick_validation.sql', 'db5596d2b114c4461ab1324ef885a89f835ab6dd978981591cda8cb9cb490033'),
    (8, '0008_pre_doors.sql', '5e8db74ba9713f90011c3a85162c509af124b7064ece844fa5a1886b94cc6bd0'),
    (9, '0009_pre_derived_keys.sql', 'ef59b714e0b73e3136e3998aff9fedb1c58c3286e688e23e3683a0f36f48597f'),
    (10, '0010_pre_calls.sql', '31e427b3b19d9d9bc08933aff2314d54039c415d57e668932d528906cea699a7'),
    (11, '0011_pre_janitor_locks.sql', 'cb6a415c389b89aae9f99eb33f56840b8c9908fbcb35d947e03f85660afe0e63'),
    (12, '0012_pre_table_grants.sql', '2fda1cf43ff9a727002a8889370db136e9cb4e4569ec9dadf064682fd0264f09'),
    (13, '0013_pre_fair_submitters.sql', 'e04a9f79ed62dd558a05c0c6dfb00c0909209febd90086c27fb9f9fdaccced69'),
    (14, '0014_pre_reasons.sql', 'ec249be8eebe50f2fbd4431d96834615b3a3a4349da807060c35f5886c9d98f4'),
    (15, '0015_pre_explain.sql', '61870f29bdcdf268adf8f88f87e3f947cdfe5aa44a11f5fea76e9704b6531763'),
    (16, '0016_pre_causes.sql', '71ddc38d64612695275d21751d0e5732812007c14fae470d1888df3781fc65f1'),
    (17, '0017_pre_batches.sql', 'dbbe7d7bb28e0195f8b03cff23e2b037c0a906dd40c3d11375b5db73c0aff513'),
    (18, '0018_pre_templates.sql', '3044847ca11035346933d441e5650c0f63f0d5eb37db3673b194ac954b5bf339'),
    (19, '0019_pre_refusals.sql', '40c4a79a6f8f6dd74f6dd69096cd1f26041fcb94b0cd709c62e5ddd1d0c72a12'),
    (20, '0020_pre_batch_index.sql', '3266e6253609c9ce59aa170763724062da0e09184da0f30530f7bf0f882b358e'),
    (21, '0021_pre_launched.sql', '9b60534572481ae409db7bb3d285abed658c1b67100e242f2c586697542711da'),
    (22, '0022_pre_advice.sql', '288bd46b8337045f0fc60cd1d8dc66c7fdbed56b4f2a4467d9f4cf7d2be17288'),
    (23, '0023_pre_failed_rows.sql', 'e7b7e95f7b092f792d46eed41376f8be1d8d1431d282426de8922b8f80f04890'),
    (24, '0024_pre_queue_ends.sql', 'e036849b6eb2941849c4177e81deeac1a7dc15c7c44926ba9ac91c2609745798'),
    (25, '0025_pre_own_rows.sql', '59b98d200c09ccfc6cd02d6936485ea68c5618bfec8c25fa335fba30aae7a06c'),
    (26, '0026_pre_quicker_insert.sql', '43fb241d84e213f580eb91c0d223d1aef87667d9e49fc748e9c220d2d88e113c')
) AS one;
RESET ROLE;
RESET check_function_bodies;
RESET search_path;
