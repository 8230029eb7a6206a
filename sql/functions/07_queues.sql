-- Queues, templates and the version of the schema, and what operators change of queues.

CREATE OR REPLACE FUNCTION dispatch_private.visible_queues(who text) RETURNS SETOF dispatch_private.queues
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    sees CONSTANT boolean := (dispatch_private.rights_of(who)).sees; -- once: counters would tell how many queues there are
    one  dispatch_private.queues;
BEGIN
    FOR one IN SELECT * FROM dispatch_private.queues AS q WHERE sees OR q.name IN (SELECT dispatch_private.open_queues(who)) LOOP
        one.owner_role := coalesce(dispatch_private.role_now(one.owner_role, one.owner_oid), one.owner_role);
        one.submit_role := coalesce(dispatch_private.role_now(one.submit_role, one.submit_oid), one.submit_role);
        RETURN NEXT one;
    END LOOP;
END
$$;
COMMENT ON FUNCTION dispatch_private.visible_queues(text) IS 'The queues that the login may insert into, and those that it owns; all of them for operators and observers.';

CREATE OR REPLACE VIEW dispatch.queues AS
SELECT name, weight, max_jobs, max_jobs_per_submitter, max_pending, paused_until, owner_role, note, submit_role,
       max_waiting_per_submitter, fair_submitters
FROM dispatch_private.visible_queues(current_user::text COLLATE "default");
ALTER VIEW dispatch.queues ALTER weight SET DEFAULT 1;
ALTER VIEW dispatch.queues ALTER fair_submitters SET DEFAULT false;
COMMENT ON VIEW dispatch.queues IS 'The declared queues. Row `*` holds the defaults of the others and the pause of all.';
COMMENT ON COLUMN dispatch.queues.name IS 'DNS label (63 characters, lower case), or `*`.';
COMMENT ON COLUMN dispatch.queues.weight IS 'Share of the cluster among the queues that have work, 1..1000: a queue of weight 2 gets twice the share of a queue of weight 1.';
COMMENT ON COLUMN dispatch.queues.max_jobs IS 'Unfinished Jobs of this queue at most; NULL: the value of `*`; there NULL: no cap of its own.';
COMMENT ON COLUMN dispatch.queues.max_jobs_per_submitter IS 'Unfinished Jobs of one submitter in this queue at most; NULL: the value of `*`; there NULL: no cap.';
COMMENT ON COLUMN dispatch.queues.max_pending IS 'Unschedulable Pods of one shape of this queue at most; NULL: the value of `*`, there the setting DISPATCHER_MAX_PENDING.';
COMMENT ON COLUMN dispatch.queues.paused_until IS 'Nothing is launched before this time; `infinity` pauses until it is cleared. On `*`: every queue.';
COMMENT ON COLUMN dispatch.queues.owner_role IS 'Members of this role see, cancel and retry all rows of the queue.';
COMMENT ON COLUMN dispatch.queues.note IS 'For people: whose queue, why paused.';
COMMENT ON COLUMN dispatch.queues.submit_role IS 'Members of this role may insert rows. NULL: the owner_role; where that is NULL too, the submit_role of `*`, else every submitter.';
COMMENT ON COLUMN dispatch.queues.max_waiting_per_submitter IS 'Waiting rows of one submitter in this queue at most; NULL: the value of `*`; there NULL: no bound. Counted at the end of each INSERT; two transactions at once may exceed it.';
COMMENT ON COLUMN dispatch.queues.fair_submitters IS 'true: the submitter with the smallest share in this queue comes first; false: rows come by priority and id, whoever submitted them.';

CREATE OR REPLACE FUNCTION dispatch_private.visible_queue_reasons(who text) RETURNS SETOF dispatch_private.queue_reasons
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
DECLARE
    sees CONSTANT boolean := (dispatch_private.rights_of(who)).sees;
BEGIN
    RETURN QUERY SELECT * FROM dispatch_private.queue_reasons AS q
        WHERE sees OR q.queue IN (SELECT dispatch_private.open_queues(who));
END
$$;
COMMENT ON FUNCTION dispatch_private.visible_queue_reasons(text) IS 'What the dispatcher told of the visible queues.';

CREATE OR REPLACE FUNCTION dispatch_private.gone_roles_of(queue text) RETURNS text[]
LANGUAGE plpgsql STABLE SECURITY DEFINER AS $$
BEGIN
    RETURN ARRAY(
        SELECT DISTINCT one.role::text FROM dispatch_private.queues AS q
        CROSS JOIN LATERAL (VALUES (q.owner_role, q.owner_oid), (q.submit_role, q.submit_oid)) AS one (role, its_oid)
        WHERE q.name = $1 AND one.role IS NOT NULL AND dispatch_private.role_now(one.role, one.its_oid) IS NULL
        ORDER BY 1);
END
$$;
COMMENT ON FUNCTION dispatch_private.gone_roles_of(text) IS 'Roles that a queue names and that are gone. It judges no right: nobody can name it.';

CREATE OR REPLACE VIEW dispatch.queue_status AS
SELECT q.queue, q.waiting, q.in_flight, q.max_jobs, q.weight, q.share, q.paused_until,
       extract(epoch FROM now() - q.oldest)::real AS oldest_wait_seconds, q.reasons, r.as_of,
       dispatch_private.gone_roles_of(q.queue) AS roles_gone
FROM dispatch_private.visible_queue_reasons(current_user::text COLLATE "default") AS q
LEFT JOIN dispatch_private.reported AS r ON true;
COMMENT ON VIEW dispatch.queue_status IS 'The queues that you may insert into, and what their rows wait for.';
COMMENT ON COLUMN dispatch.queue_status.queue IS 'queues.name.';
COMMENT ON COLUMN dispatch.queue_status.waiting IS 'Waiting rows of all submitters.';
COMMENT ON COLUMN dispatch.queue_status.in_flight IS 'Unfinished Jobs, as the caps count them.';
COMMENT ON COLUMN dispatch.queue_status.max_jobs IS 'The cap of unfinished Jobs; NULL: no cap.';
COMMENT ON COLUMN dispatch.queue_status.weight IS 'Share of the cluster, relative to other queues.';
COMMENT ON COLUMN dispatch.queue_status.share IS 'Largest part of any one resource of the cluster that its Jobs ask for.';
COMMENT ON COLUMN dispatch.queue_status.paused_until IS 'End of the pause; NULL: not paused.';
COMMENT ON COLUMN dispatch.queue_status.oldest_wait_seconds IS 'For how long its oldest due row has waited, without rows that somebody has retried; NULL: none waits.';
COMMENT ON COLUMN dispatch.queue_status.reasons IS 'Number of waiting rows by reason.';
COMMENT ON COLUMN dispatch.queue_status.as_of IS 'When the dispatcher last looked.';
COMMENT ON COLUMN dispatch.queue_status.roles_gone IS 'The owner_role or submit_role of the queue that is gone; nobody has its rights. {}: both are there, or none is named.';

CREATE OR REPLACE VIEW dispatch.templates AS
SELECT name, row_may_set, bounds, images, machines, sets, note FROM dispatch_private.templates;
COMMENT ON VIEW dispatch.templates IS 'The templates that rows may name. The janitor writes them, from the files of the dispatcher.';
COMMENT ON COLUMN dispatch.templates.name IS 'What tasks.template says.';
COMMENT ON COLUMN dispatch.templates.row_may_set IS 'What rows may set: fields of spec, `env` (every name that is not closed or in `sets`), env.NAME. NULL: the template has a fault, see note; its rows wait.';
COMMENT ON COLUMN dispatch.templates.bounds IS 'Most cpu and memory of spec, most seconds of timeout_seconds, most bytes of env, command and args together; image: rows have to name one in spec.';
COMMENT ON COLUMN dispatch.templates.images IS 'Patterns of the images that rows may name: * is any text.';
COMMENT ON COLUMN dispatch.templates.machines IS 'Patterns of the machines that rows may name: * is any text.';
COMMENT ON COLUMN dispatch.templates.sets IS 'Variables that the template or the installation sets. Rows may set them only where row_may_set has env.NAME.';
COMMENT ON COLUMN dispatch.templates.note IS 'For people: the description in the template, or its fault.';

CREATE OR REPLACE VIEW dispatch.schema_version AS
SELECT version, name, checksum, database_id, applied_at FROM dispatch_private.schema_version;
COMMENT ON VIEW dispatch.schema_version IS 'Applied migrations, one row each; written by `dispatcher migrate` alone.';
COMMENT ON COLUMN dispatch.schema_version.version IS 'Number of the migration file.';
COMMENT ON COLUMN dispatch.schema_version.name IS 'File name of the migration.';
COMMENT ON COLUMN dispatch.schema_version.checksum IS 'SHA-256 of the file as it was applied; a changed file is refused.';
COMMENT ON COLUMN dispatch.schema_version.database_id IS 'Random identity of this database, the same in every row. Part of every Job name: a restored copy keeps it, another database has its own.';
COMMENT ON COLUMN dispatch.schema_version.applied_at IS 'When it was applied.';

CREATE OR REPLACE FUNCTION dispatch_private.keep_queue() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF TG_OP = 'UPDATE' OR OLD.name IN ('*', 'default') OR EXISTS (
        SELECT FROM dispatch_private.tasks WHERE queue = OLD.name AND status = 'waiting' AND run_at IS NULL
        UNION ALL SELECT FROM dispatch_private.tasks WHERE queue = OLD.name AND status = 'waiting' AND run_at IS NOT NULL
        UNION ALL SELECT FROM dispatch_private.tasks WHERE queue = OLD.name AND status = 'processing')
    THEN
        RAISE EXCEPTION USING ERRCODE = 'DI003',
            MESSAGE = format(CASE TG_OP WHEN 'UPDATE' THEN 'the name of queue "%s" cannot be changed' ELSE 'queue "%s" is still needed' END, OLD.name),
            HINT = CASE TG_OP WHEN 'UPDATE' THEN 'Declare another queue, and delete this one when its rows are over.'
                   ELSE 'The rows `*` and `default` stay; of another queue, cancel or finish the live rows first.' END,
            COLUMN = 'name', TABLE = 'queues', SCHEMA = 'dispatch';
    END IF;
    RETURN OLD;
END
$$;
COMMENT ON FUNCTION dispatch_private.keep_queue() IS 'Trigger: a queue with live rows stays, and no name changes.';

CREATE OR REPLACE TRIGGER keep_queue BEFORE DELETE ON dispatch_private.queues
    FOR EACH ROW EXECUTE FUNCTION dispatch_private.keep_queue();
CREATE OR REPLACE TRIGGER keep_queue_name BEFORE UPDATE OF name ON dispatch_private.queues
    FOR EACH ROW WHEN (OLD.name IS DISTINCT FROM NEW.name) EXECUTE FUNCTION dispatch_private.keep_queue();

-- Each of the two roles has a trigger, because a change of one must not look up the name of the other again: by now that may be
-- the name of another role.
CREATE OR REPLACE FUNCTION dispatch_private.know_roles() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    is_owner CONSTANT boolean := TG_ARGV[0] = 'owner_role';
    role     CONSTANT name := CASE WHEN is_owner THEN NEW.owner_role ELSE NEW.submit_role END;
    its_oid  CONSTANT oid := to_regrole(quote_ident(role))::oid;
BEGIN
    IF is_owner THEN
        NEW.owner_oid := its_oid;
    ELSE
        NEW.submit_oid := its_oid;
    END IF;
    IF role IS NOT NULL AND its_oid IS NULL THEN
        RAISE NOTICE 'there is no role "%": nobody % the queue "%"', role, CASE WHEN is_owner THEN 'owns' ELSE 'may insert into' END, NEW.name
            USING HINT = 'Name another role, or make this one.';
    END IF;
    RETURN NEW;
END
$$;
COMMENT ON FUNCTION dispatch_private.know_roles() IS 'Trigger: keeps the oid of a role of a queue. A role of the same name that is made later gets no right by it.';

CREATE OR REPLACE TRIGGER know_roles BEFORE INSERT OR UPDATE OF owner_role ON dispatch_private.queues
    FOR EACH ROW EXECUTE FUNCTION dispatch_private.know_roles('owner_role');
CREATE OR REPLACE TRIGGER know_submit_role BEFORE INSERT OR UPDATE OF submit_role ON dispatch_private.queues
    FOR EACH ROW EXECUTE FUNCTION dispatch_private.know_roles('submit_role');

CREATE OR REPLACE FUNCTION dispatch_private.write_queue() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    written dispatch_private.queues;
    about   text;
    blank   text;
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO dispatch_private.queues SELECT NEW.*;
        RETURN NEW;
    ELSIF TG_OP = 'DELETE' THEN
        DELETE FROM dispatch_private.queues WHERE name = OLD.name;
        RETURN CASE WHEN FOUND THEN OLD END;
    END IF;
    -- Only what has changed is written: two operators may change two columns of a queue at the same time.
    SELECT * INTO written FROM dispatch_private.queues WHERE name = OLD.name FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    written := jsonb_populate_record(written, (
        SELECT jsonb_object_agg(key, value) FROM jsonb_each(to_jsonb(NEW)) WHERE value IS DISTINCT FROM to_jsonb(OLD) -> key));
    UPDATE dispatch_private.queues SET
        name = written.name, weight = written.weight, max_jobs = written.max_jobs, max_jobs_per_submitter = written.max_jobs_per_submitter,
        max_pending = written.max_pending, paused_until = written.paused_until, note = written.note, max_waiting_per_submitter = written.max_waiting_per_submitter, fair_submitters = written.fair_submitters
    WHERE name = OLD.name;
    IF NEW.owner_role IS DISTINCT FROM OLD.owner_role THEN
        UPDATE dispatch_private.queues SET owner_role = NEW.owner_role WHERE name = OLD.name;
    END IF;
    IF NEW.submit_role IS DISTINCT FROM OLD.submit_role THEN
        UPDATE dispatch_private.queues SET submit_role = NEW.submit_role WHERE name = OLD.name;
    END IF;
    NEW := jsonb_populate_record(NEW, to_jsonb(written)); -- which has more columns than the view
    RETURN NEW;
EXCEPTION WHEN check_violation OR not_null_violation OR unique_violation THEN
    GET STACKED DIAGNOSTICS about = CONSTRAINT_NAME, blank = COLUMN_NAME;
    about := coalesce(nullif(blank, ''), substring(about FROM '^queues_(.*)_check$'), 'name');
    RAISE EXCEPTION USING ERRCODE = SQLSTATE, COLUMN = about, TABLE = 'queues', SCHEMA = 'dispatch',
        MESSAGE = CASE SQLSTATE WHEN '23505' THEN format('the queue "%s" is declared already', NEW.name)
                                ELSE format('%s%s is out of range: %s', about, CASE WHEN about <> 'name' THEN format(' of queue "%s"', NEW.name) END,
                                            coalesce(to_jsonb(NEW) ->> about, 'NULL')) END,
        HINT = CASE WHEN SQLSTATE = '23505' THEN 'UPDATE its row.' WHEN about = 'name' THEN 'A DNS label (lower-case letters, digits and -, 63 at most), or *.'
                    WHEN about = 'weight' THEN '1..1000' WHEN about = 'fair_submitters' THEN 'true or false' ELSE '0 or more; NULL: the value of the row *.' END;
END
$$;
COMMENT ON FUNCTION dispatch_private.write_queue() IS 'Trigger: writes what an operator changes of a queue.';

CREATE OR REPLACE TRIGGER write_queue INSTEAD OF INSERT OR UPDATE OR DELETE ON dispatch.queues
    FOR EACH ROW EXECUTE FUNCTION dispatch_private.write_queue();
