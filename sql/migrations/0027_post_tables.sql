-- The tables. Nobody but the owner, the dispatcher and the janitor can name them: others use the views and functions of schema
-- `dispatch` (sql/functions), which decide what a login sees. Schemas of before are brought here by sql/upgrade/from_26.sql.

CREATE TABLE schema_version (
    version     integer     PRIMARY KEY,
    name        text        NOT NULL,
    checksum    text        NOT NULL,
    database_id uuid        NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE schema_version IS 'Applied migrations, one row each; written by `dispatcher migrate` alone.';

CREATE TABLE applied_functions (
    name       text        PRIMARY KEY,
    checksum   text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE applied_functions IS 'The files of sql/functions as they were applied last. `dispatcher migrate` applies all of them when one has changed.';

CREATE TABLE queues (
    name                      text    PRIMARY KEY,
    weight                    integer NOT NULL DEFAULT 1,
    max_jobs                  integer,
    max_jobs_per_submitter    integer,
    max_pending               integer,
    paused_until              timestamptz,
    owner_role                name,
    note                      text,
    submit_role               name,
    max_waiting_per_submitter integer,
    fair_submitters           boolean NOT NULL DEFAULT false,
    CONSTRAINT queues_name_check CHECK (name = '*' OR name ~ '^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$'),
    CONSTRAINT queues_weight_check CHECK (weight BETWEEN 1 AND 1000),
    CONSTRAINT queues_max_jobs_check CHECK (max_jobs >= 0),
    CONSTRAINT queues_max_jobs_per_submitter_check CHECK (max_jobs_per_submitter >= 0),
    CONSTRAINT queues_max_pending_check CHECK (max_pending >= 0),
    CONSTRAINT queues_max_waiting_per_submitter_check CHECK (max_waiting_per_submitter >= 0)
);
COMMENT ON TABLE queues IS 'The declared queues; the view dispatch.queues explains the columns.';
INSERT INTO queues (name, note) VALUES ('*', 'defaults of all queues'), ('default', 'rows that name no queue');

CREATE TABLE tasks (
    id                  bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue               text        NOT NULL DEFAULT 'default',
    priority            smallint    NOT NULL DEFAULT 100,
    run_at              timestamptz,
    timeout_seconds     integer,
    max_failures        smallint    NOT NULL DEFAULT 3,
    template            text        NOT NULL DEFAULT 'default',
    env                 jsonb       NOT NULL DEFAULT '{}',
    spec                jsonb       NOT NULL DEFAULT '{}',
    payload             jsonb,
    cache_key           text,
    dedupe_key          text,
    status              text        NOT NULL DEFAULT 'waiting',
    attempt             smallint    NOT NULL DEFAULT 1,
    launch              smallint    NOT NULL DEFAULT 0,
    failures            smallint    NOT NULL DEFAULT 0,
    job_uid             text,
    submitted_by        text        NOT NULL DEFAULT session_user,
    created_at          timestamptz NOT NULL DEFAULT now(),
    started_at          timestamptz,
    heartbeat_at        timestamptz,
    finished_at         timestamptz,
    cancel_requested_at timestamptz,
    node_name           text,
    pod_name            text,
    error               text,
    result              jsonb,
    kind                bytea       NOT NULL,
    run_digest          bytea,
    batch               text,
    labels              jsonb       NOT NULL DEFAULT '{}',
    progress            real,
    note                text
) WITH (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.02
);
-- The table has no CHECK: one that fails prints the whole row into the client's error and the server's log, and each INSERT would
-- parse them all again. dispatch_private.guard_task guards the functions against themselves.
COMMENT ON TABLE tasks IS 'One row = one task; the view dispatch.tasks explains the columns.';

-- The order of dispatch. Rows with a time stand apart, or future rows of high priority would be read and dropped on every look.
CREATE INDEX tasks_ready ON tasks (queue, priority, id) INCLUDE (attempt, kind, submitted_by)
    WHERE status = 'waiting' AND run_at IS NULL;
CREATE INDEX tasks_due ON tasks (queue, run_at, id) INCLUDE (priority, attempt, kind, submitted_by)
    WHERE status = 'waiting' AND run_at IS NOT NULL;
-- The same within one submitter, for queues whose window is full of held rows.
CREATE INDEX tasks_ready_of_submitter ON tasks (queue, submitted_by, priority, id) INCLUDE (attempt, kind)
    WHERE status = 'waiting' AND run_at IS NULL;
CREATE INDEX tasks_due_of_submitter ON tasks (queue, submitted_by, run_at, id) INCLUDE (priority, attempt, kind)
    WHERE status = 'waiting' AND run_at IS NOT NULL;
-- A run is found by the digest of its token alone. No index holds heartbeat_at: heartbeats stay HOT updates.
CREATE INDEX tasks_processing ON tasks (run_digest, id) WHERE status = 'processing';
CREATE INDEX tasks_finished ON tasks (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX tasks_failed ON tasks (finished_at) WHERE status = 'failed';
CREATE INDEX tasks_finished_of_queue ON tasks (queue, finished_at)
    WHERE finished_at IS NOT NULL AND status IN ('succeeded', 'failed', 'cancelled');
CREATE INDEX tasks_finished_of_submitter ON tasks (submitted_by, finished_at, id)
    WHERE finished_at IS NOT NULL AND status IN ('succeeded', 'failed', 'cancelled');
-- What a login sees begins with its right: its own rows, or those of a queue that it owns. By these indexes a look touches no
-- entry of anybody else, so that nothing that the server counts or times tells of others.
CREATE INDEX tasks_of_submitter ON tasks (submitted_by, id);
CREATE INDEX tasks_of_queue ON tasks (queue, id);
CREATE INDEX tasks_of_batch ON tasks (queue, batch, submitted_by, id) WHERE batch IS NOT NULL;
-- What counts a batch is included, so that its rows need not be read.
CREATE INDEX tasks_of_own_batch ON tasks (submitted_by, queue, batch, id) INCLUDE (status, started_at, finished_at)
    WHERE batch IS NOT NULL;
CREATE INDEX tasks_labels ON tasks USING gin (labels jsonb_path_ops) WHERE labels <> '{}';
CREATE UNIQUE INDEX dedupe_key_of_a_living_row ON tasks (queue, submitted_by, dedupe_key)
    WHERE dedupe_key IS NOT NULL AND status IN ('waiting', 'processing');
-- History: the newest nodes where a queue's cache key succeeded.
CREATE INDEX tasks_history ON tasks (queue, cache_key, finished_at DESC) INCLUDE (node_name)
    WHERE status = 'succeeded' AND cache_key IS NOT NULL;

CREATE TABLE task_launches (
    task_id    bigint   NOT NULL,
    attempt    smallint NOT NULL,
    launch     smallint NOT NULL,
    job_uid    text     NOT NULL,
    node_name  text,
    pod_name   text,
    started_at timestamptz,
    ended_at   timestamptz,
    outcome    text,
    error      text,
    run_digest bytea,
    exit_code  integer,
    reason     text,
    queue      text,
    PRIMARY KEY (task_id, attempt, launch), -- no foreign key: the history may outlive the row
    CONSTRAINT task_launches_check CHECK ((ended_at IS NULL) = (outcome IS NULL)),
    CONSTRAINT task_launches_outcome_check
        CHECK (outcome IN ('succeeded', 'failed', 'retry', 'cancelled', 'lost', 'unstarted')),
    CONSTRAINT task_launches_started_check CHECK (started_at IS NOT NULL OR outcome = 'unstarted')
);
COMMENT ON TABLE task_launches IS 'One row per launch: inserted by task_start, or by the janitor if the launch ended without it.';
CREATE UNIQUE INDEX task_launches_run ON task_launches (run_digest) WHERE run_digest IS NOT NULL;
CREATE INDEX task_launches_starts ON task_launches (queue, started_at) WHERE queue IS NOT NULL;

CREATE TABLE templates (
    name        text   PRIMARY KEY,
    row_may_set text[],
    bounds      jsonb  NOT NULL DEFAULT '{}',
    images      text[] NOT NULL DEFAULT '{}',
    machines    text[] NOT NULL DEFAULT '{}',
    sets        text[] NOT NULL DEFAULT '{}',
    note        text   NOT NULL DEFAULT ''
);
COMMENT ON TABLE templates IS 'The templates that rows may name. The janitor writes it, from the files of the dispatcher; a change by hand lasts seconds.';

CREATE TABLE task_reasons (
    task_id bigint      PRIMARY KEY,
    attempt integer     NOT NULL,
    reason  text        NOT NULL,
    message text        NOT NULL,
    since   timestamptz NOT NULL
);
COMMENT ON TABLE task_reasons IS 'Reasons of single rows, as the dispatcher told them: parked rows, launched rows, and the first rows of each queue.';

CREATE TABLE queue_reasons (
    queue        text    PRIMARY KEY,
    waiting      integer NOT NULL,
    in_flight    integer NOT NULL,
    max_jobs     integer,
    weight       integer NOT NULL,
    share        real    NOT NULL,
    paused_until timestamptz,
    oldest       timestamptz,
    reasons      jsonb   NOT NULL,
    behind       jsonb
);
COMMENT ON TABLE queue_reasons IS 'The state of each queue, as the dispatcher told it.';

CREATE TABLE reported (
    is_only boolean     PRIMARY KEY DEFAULT true,
    as_of   timestamptz NOT NULL,
    CONSTRAINT reported_is_only_check CHECK (is_only)
);
COMMENT ON TABLE reported IS 'One row: the last report of the dispatcher that the janitor brought over.';

CREATE TABLE reasons (
    reason     text PRIMARY KEY,
    whose_turn text NOT NULL,
    meaning    text NOT NULL,
    next_step  text NOT NULL
);
COMMENT ON TABLE reasons IS 'Every reason for which a row waits; written by `dispatcher migrate` from the code.';

CREATE TABLE secrets (
    generation  integer     PRIMARY KEY,
    start_inner bytea       NOT NULL,
    start_outer bytea       NOT NULL,
    run_inner   bytea       NOT NULL,
    run_outer   bytea       NOT NULL,
    made_at     timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT secrets_start_inner_check CHECK (octet_length(start_inner) = 64),
    CONSTRAINT secrets_start_outer_check CHECK (octet_length(start_outer) = 64),
    CONSTRAINT secrets_run_inner_check CHECK (octet_length(run_inner) = 64),
    CONSTRAINT secrets_run_outer_check CHECK (octet_length(run_outer) = 64)
);
COMMENT ON TABLE secrets IS 'The secrets that keys are derived from: the newest generation, and the one before it for Jobs that were made with it. `rotate_secrets` makes a new one.';

CREATE TABLE earlier_start_keys (
    task_id bigint NOT NULL,
    digest  bytea  NOT NULL,
    PRIMARY KEY (task_id, digest) -- the digest, too, so that a wrong key does not even tell whether the row has one
);
COMMENT ON TABLE earlier_start_keys IS 'Digests of the start keys of an earlier form, for the Jobs of that time. Only upgrades add rows.';

CREATE UNLOGGED TABLE bounded_inserts (
    transaction xid8 NOT NULL,
    queue       text NOT NULL,
    PRIMARY KEY (transaction, queue)
);
COMMENT ON TABLE bounded_inserts IS 'Queues with a bound of waiting rows that a statement is inserting into. It is empty outside of statements.';

-- When each channel was notified last, in ms since 1970.
CREATE SEQUENCE tasks_clock;
CREATE SEQUENCE done_clock;
CREATE SEQUENCE reasons_clock MINVALUE 0 START 0;

CREATE TYPE refusal AS (code text, about text, message text, hint text);
COMMENT ON TYPE refusal IS 'Why a row is refused: SQLSTATE, column, message and hint of its error.';
REVOKE USAGE ON TYPE refusal FROM PUBLIC;
