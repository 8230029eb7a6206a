-- Who may do what (docs/rights.md). Everything is revoked first, so that this file alone says it. What is granted on functions of
-- dispatch_private is of use through the views and wrappers of `dispatch` alone: only our programs may name them.

ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA dispatch, dispatch_private
    FROM PUBLIC, dispatch_reader, dispatch_submitter, dispatch_task, dispatch_janitor, dispatch_operator, dispatch_observer;
REVOKE ALL ON ALL TABLES IN SCHEMA dispatch, dispatch_private
    FROM PUBLIC, dispatch_reader, dispatch_submitter, dispatch_task, dispatch_janitor, dispatch_operator, dispatch_observer;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA dispatch_private
    FROM PUBLIC, dispatch_reader, dispatch_submitter, dispatch_task, dispatch_janitor, dispatch_operator, dispatch_observer;
REVOKE ALL ON SCHEMA dispatch, dispatch_private
    FROM PUBLIC, dispatch_reader, dispatch_submitter, dispatch_task, dispatch_janitor, dispatch_operator, dispatch_observer;
GRANT USAGE ON SCHEMA dispatch
    TO dispatch_reader, dispatch_submitter, dispatch_task, dispatch_janitor, dispatch_operator, dispatch_observer;
GRANT USAGE ON SCHEMA dispatch_private TO dispatch_reader, dispatch_janitor;

-- People.
GRANT SELECT ON dispatch.tasks, dispatch.batch_status, dispatch.task_launches, dispatch.task_history, dispatch.task_reasons,
    dispatch.task_explain, dispatch.reasons, dispatch.queues, dispatch.queue_status, dispatch.templates
    TO dispatch_submitter, dispatch_operator, dispatch_observer;
GRANT EXECUTE ON FUNCTION dispatch.own_name, dispatch_private.own_name_told,
    dispatch.task, dispatch.batch, dispatch.tasks_of_batch, dispatch.tasks_after, dispatch.tasks_since,
    dispatch.task_explain, dispatch.task_history
    TO dispatch_submitter, dispatch_operator, dispatch_observer;
GRANT EXECUTE ON FUNCTION dispatch_private.visible_tasks, dispatch_private.visible_ids, dispatch_private.tasks_between,
    dispatch_private.newest_tasks, dispatch_private.batch_tasks, dispatch_private.visible_batches, dispatch_private.batches_named, dispatch_private.launches_of,
    dispatch_private.visible_reasons, dispatch_private.all_explanations, dispatch_private.explanation_of, dispatch_private.place_of, dispatch_private.visible_queues,
    dispatch_private.visible_queue_reasons, dispatch_private.gone_roles_of
    TO dispatch_submitter, dispatch_operator, dispatch_observer;
GRANT INSERT ON dispatch.tasks TO dispatch_submitter;
GRANT EXECUTE ON FUNCTION dispatch.submit, dispatch.batch_cancel(text, text), dispatch.batch_cancel(text, text, integer), dispatch.batch_retry, dispatch.task_ended_since,
    dispatch_private.submit, dispatch_private.batch_cancel, dispatch_private.batch_retry, dispatch_private.ended_tasks
    TO dispatch_submitter;
GRANT EXECUTE ON FUNCTION dispatch.task_cancel, dispatch.task_retry, dispatch.task_set_priority,
    dispatch_private.task_cancel, dispatch_private.task_retry, dispatch_private.task_set_priority
    TO dispatch_submitter, dispatch_operator;
GRANT INSERT, UPDATE, DELETE ON dispatch.queues TO dispatch_operator;
GRANT EXECUTE ON FUNCTION dispatch.rows_move, dispatch_private.rows_move TO dispatch_operator;
GRANT SELECT ON dispatch.schema_version TO dispatch_reader, dispatch_janitor, dispatch_observer;

-- Containers.
GRANT EXECUTE ON FUNCTION dispatch.task_start, dispatch.task_heartbeat, dispatch.task_finish TO dispatch_task;
GRANT SELECT ON SEQUENCE dispatch_private.tasks_id_seq TO dispatch_reader, dispatch_janitor;
GRANT EXECUTE ON FUNCTION dispatch_private.are_logins_read_only, dispatch_private.setting_of, dispatch_private.task_logins, dispatch_private.tasks_refused
    TO dispatch_reader, dispatch_janitor;

-- Our programs read the tables. Row security is a second wall: a grant by mistake shows no row.
GRANT SELECT (id, queue, priority, run_at, timeout_seconds, max_failures, template, env, spec, cache_key, dedupe_key, status, attempt,
              launch, failures, job_uid, submitted_by, created_at, started_at, heartbeat_at, finished_at, cancel_requested_at,
              node_name, pod_name, error, kind, batch, labels, progress, note, second_process)
    ON dispatch_private.tasks TO dispatch_reader, dispatch_janitor;
GRANT SELECT (run_digest) ON dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT (task_id, attempt, launch, job_uid, node_name, pod_name, started_at, ended_at, outcome, exit_code, reason, error, queue)
    ON dispatch_private.task_launches TO dispatch_reader, dispatch_janitor;
GRANT SELECT ON dispatch_private.queues, dispatch_private.schema_version, dispatch_private.applied_functions, dispatch_private.submitters
    TO dispatch_reader, dispatch_janitor;
GRANT SELECT ON dispatch_private.templates TO dispatch_reader;
GRANT SELECT (generation, start_inner, start_outer) ON dispatch_private.secrets TO dispatch_reader;
GRANT SELECT ON dispatch_private.task_reasons TO dispatch_janitor;
GRANT EXECUTE ON FUNCTION dispatch_private.janitor_cancel, dispatch_private.janitor_delete, dispatch_private.janitor_end,
    dispatch_private.janitor_ended, dispatch_private.janitor_return, dispatch_private.janitor_tell, dispatch_private.janitor_templates
    TO dispatch_janitor;

DO $policies$
DECLARE
    one   record;
    whose text;
BEGIN
    FOR one IN SELECT c.oid::regclass AS relation, c.relname FROM pg_class AS c
               WHERE c.relnamespace = 'dispatch_private'::regnamespace AND c.relkind IN ('r', 'p') LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', one.relation);
        EXECUTE format('DROP POLICY IF EXISTS programs ON %s', one.relation);
        SELECT string_agg(quote_ident(r.rolname), ', ' ORDER BY r.rolname) INTO whose FROM pg_roles AS r
        WHERE r.rolname IN ('dispatch_reader', 'dispatch_janitor') AND has_any_column_privilege(r.oid, one.relation, 'SELECT');
        IF whose IS NOT NULL THEN
            EXECUTE format('CREATE POLICY programs ON %s FOR SELECT TO %s USING (true)', one.relation, whose);
        END IF;
    END LOOP;
END
$policies$;
