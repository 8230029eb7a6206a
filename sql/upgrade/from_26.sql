-- Brings a schema of version 26 to that of migrations/0027_post_tables.sql, with its rows. Version 26 was the last one whose
-- tables stood in schema `dispatch`. A test compares the result with a new schema.

DROP VIEW dispatch.task_explain, dispatch.task_history, dispatch.queue_status, dispatch.batch_status;

ALTER TABLE dispatch.earlier_start_keys DROP CONSTRAINT earlier_start_keys_pkey, ADD PRIMARY KEY (task_id, digest);

-- Nothing that depends on the old functions may stay.
DO $old$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT polname, polrelid::regclass AS relation FROM pg_policy
               WHERE polrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'dispatch'::regnamespace) LOOP
        EXECUTE format('DROP POLICY %I ON %s', one.polname, one.relation);
    END LOOP;
    FOR one IN SELECT tgname, tgrelid::regclass AS relation FROM pg_trigger
               WHERE NOT tgisinternal AND tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'dispatch'::regnamespace)
                 AND tgfoid IN (SELECT oid FROM pg_proc WHERE pronamespace = 'dispatch'::regnamespace) LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', one.tgname, one.relation);
    END LOOP;
    -- The Jobs of rows that wait, or may run again in their attempt, hold a start key of the earlier form.
    INSERT INTO dispatch.earlier_start_keys (task_id, digest)
    SELECT t.id, dispatch.token_digest(key) FROM dispatch.tasks AS t CROSS JOIN LATERAL dispatch.start_keys(t.id, t.created_at) AS key
    WHERE t.status IN ('waiting', 'processing') ON CONFLICT DO NOTHING;
    FOR one IN SELECT oid::regprocedure AS signature FROM pg_proc WHERE pronamespace = 'dispatch'::regnamespace LOOP
        EXECUTE format('DROP FUNCTION %s', one.signature);
    END LOOP;
    FOR one IN SELECT oid::regclass AS relation FROM pg_class
               WHERE relnamespace = 'dispatch'::regnamespace AND relkind = 'r' LOOP
        EXECUTE format('ALTER TABLE %s SET SCHEMA dispatch_private', one.relation);
    END LOOP;
    -- The views explain the columns now.
    FOR one IN SELECT d.objoid::regclass AS relation, a.attname FROM pg_description AS d
               JOIN pg_attribute AS a ON a.attrelid = d.objoid AND a.attnum = d.objsubid
               JOIN pg_class AS c ON c.oid = d.objoid
               WHERE d.classoid = 'pg_class'::regclass AND d.objsubid > 0 AND c.relnamespace = 'dispatch_private'::regnamespace LOOP
        EXECUTE format('COMMENT ON COLUMN %s.%I IS NULL', one.relation, one.attname);
    END LOOP;
END
$old$;
ALTER SEQUENCE dispatch.tasks_clock SET SCHEMA dispatch_private;
ALTER SEQUENCE dispatch.done_clock SET SCHEMA dispatch_private;
ALTER SEQUENCE dispatch.reasons_clock SET SCHEMA dispatch_private;
ALTER TYPE dispatch.refusal SET SCHEMA dispatch_private;
COMMENT ON TYPE refusal IS 'Why a row is refused: SQLSTATE, column, message and hint of its error.';

ALTER TABLE tasks DROP CONSTRAINT status_is_known, DROP CONSTRAINT token_while_processing, DROP CONSTRAINT finished_when_terminal,
    DROP CONSTRAINT waiting_is_unlaunched;
DROP INDEX tasks_processing, tasks_labels, tasks_of_batch;
CREATE INDEX tasks_processing ON tasks (run_digest, id) WHERE status = 'processing';
CREATE INDEX tasks_labels ON tasks USING gin (labels jsonb_path_ops) WHERE labels <> '{}';
CREATE INDEX tasks_of_queue ON tasks (queue, id);
CREATE INDEX tasks_of_batch ON tasks (queue, batch, submitted_by, id) WHERE batch IS NOT NULL;
CREATE INDEX tasks_of_own_batch ON tasks (submitted_by, queue, batch, id) INCLUDE (status, started_at, finished_at)
    WHERE batch IS NOT NULL;
ALTER TABLE task_launches VALIDATE CONSTRAINT task_launches_outcome_check;
ALTER TABLE task_launches VALIDATE CONSTRAINT task_launches_started_check;
COMMENT ON TABLE earlier_start_keys IS 'Digests of the start keys of an earlier form, for the Jobs of that time. Only upgrades add rows.';
COMMENT ON TABLE tasks IS 'One row = one task; the view dispatch.tasks explains the columns.';
COMMENT ON TABLE queues IS 'The declared queues; the view dispatch.queues explains the columns.';
COMMENT ON TABLE task_launches IS 'One row per launch: inserted by task_start, or by the janitor if the launch ended without it.';
COMMENT ON TABLE task_reasons IS 'Reasons of single rows, as the dispatcher told them: parked rows, launched rows, and the first rows of each queue.';
COMMENT ON TABLE queue_reasons IS 'The state of each queue, as the dispatcher told it.';
COMMENT ON TABLE reasons IS 'Every reason for which a row waits; written by `dispatcher migrate` from the code.';

CREATE TABLE applied_functions (
    name       text        PRIMARY KEY,
    checksum   text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE applied_functions IS 'The files of sql/functions as they were applied last. `dispatcher migrate` applies all of them when one has changed.';
CREATE UNLOGGED TABLE bounded_inserts (
    transaction xid8 NOT NULL,
    queue       text NOT NULL,
    PRIMARY KEY (transaction, queue)
);
COMMENT ON TABLE bounded_inserts IS 'Queues with a bound of waiting rows that a statement is inserting into. It is empty outside of statements.';
DELETE FROM schema_version WHERE version < 26; -- the last one hands over database_id
