-- An INSERT of an ordinary row costs less: one query reads its queue and its template, and the digest of its kind takes one expression.
CREATE OR REPLACE FUNCTION dispatch.check_task() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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
$$;
