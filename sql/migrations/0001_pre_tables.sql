-- The tables. `tasks` is the only one that others write; everything about a row's life is kept by the functions.

CREATE TABLE schema_version (
    version     integer     PRIMARY KEY,
    name        text        NOT NULL,
    checksum    text        NOT NULL,
    database_id uuid        NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE schema_version IS 'Applied migrations, one row each; written by `dispatcher migrate` alone.';
COMMENT ON COLUMN schema_version.version IS 'Number of the migration file.';
COMMENT ON COLUMN schema_version.name IS 'File name of the migration.';
COMMENT ON COLUMN schema_version.checksum IS 'SHA-256 of the file as it was applied; a changed file is refused.';
COMMENT ON COLUMN schema_version.database_id IS 'Random identity of this database, the same in every row. Part of every Job name: a restored copy keeps it, another database has its own.';
COMMENT ON COLUMN schema_version.applied_at IS 'When it was applied.';

CREATE TABLE queues (
    name                   text        PRIMARY KEY CHECK (name = '*' OR name ~ '^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$'),
    weight                 integer     NOT NULL DEFAULT 1 CHECK (weight BETWEEN 1 AND 1000),
    max_jobs               integer     CHECK (max_jobs >= 0),
    max_jobs_per_submitter integer     CHECK (max_jobs_per_submitter >= 0),
    max_pending            integer     CHECK (max_pending >= 0),
    paused_until           timestamptz,
    owner_role             name,
    note                   text
);
COMMENT ON TABLE queues IS 'The declared queues. Row `*` holds the defaults of the others and the pause of all.';
COMMENT ON COLUMN queues.name IS 'DNS label (63 characters, lower case), or `*`.';
COMMENT ON COLUMN queues.weight IS 'Share among the queues that have work, 1..1000.';
COMMENT ON COLUMN queues.max_jobs IS 'Unfinished Jobs of this queue at most; NULL: the value of `*`; there NULL: no cap of its own.';
COMMENT ON COLUMN queues.max_jobs_per_submitter IS 'Unfinished Jobs of one submitter in this queue at most; NULL: the value of `*`; there NULL: no cap.';
COMMENT ON COLUMN queues.max_pending IS 'Unschedulable Pods of one shape of this queue at most; NULL: the value of `*`, there the setting DISPATCHER_MAX_PENDING.';
COMMENT ON COLUMN queues.paused_until IS 'Nothing is launched before this time; `infinity` pauses until it is cleared. On `*`: every queue.';
COMMENT ON COLUMN queues.owner_role IS 'Members of this role see, cancel and retry all rows of the queue.';
COMMENT ON COLUMN queues.note IS 'For people: whose queue, why paused.';
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
    start_key           uuid        NOT NULL DEFAULT gen_random_uuid(),
    run_token           uuid,
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
    -- These guard the functions against themselves. What a submitter sends is judged by a trigger, because a CHECK
    -- that fails prints the whole row, secrets included, into the client's error and the server's log.
    CONSTRAINT status_is_known CHECK (status IN ('waiting', 'processing', 'succeeded', 'failed', 'cancelled')),
    CONSTRAINT token_while_processing CHECK ((status = 'processing') = (run_token IS NOT NULL)),
    CONSTRAINT finished_when_terminal CHECK ((status IN ('waiting', 'processing')) = (finished_at IS NULL)),
    CONSTRAINT waiting_is_unlaunched CHECK (status <> 'waiting' OR (launch = 0 AND cancel_requested_at IS NULL))
) WITH (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.02
);
COMMENT ON TABLE tasks IS 'One row = one task. INSERT it, and one Kubernetes Job runs for it; the task''s own container reports through task_start, task_heartbeat and task_finish.';
COMMENT ON COLUMN tasks.id IS 'Identity; given by the database.';
COMMENT ON COLUMN tasks.queue IS 'You set it. A name declared in `queues`; `default` if left out.';
COMMENT ON COLUMN tasks.priority IS 'You set it. 0..1000, lower first; 100 if left out.';
COMMENT ON COLUMN tasks.run_at IS 'You set it. Not before this time; NULL = now. Set again by a retry.';
COMMENT ON COLUMN tasks.timeout_seconds IS 'You set it. Run limit, 1..604800 s; NULL: that of the installation.';
COMMENT ON COLUMN tasks.max_failures IS 'You set it. Failed runs at most, 1..100; 1: a task that started never runs again by itself.';
COMMENT ON COLUMN tasks.template IS 'You set it. Which Job template to run under; `default` if left out.';
COMMENT ON COLUMN tasks.env IS 'You set it. Object of strings, added to the container''s environment: 64 names, 32 KiB a value, 128 KiB in all. Everybody who may read Jobs can read it: no secrets.';
COMMENT ON COLUMN tasks.spec IS 'You set it. image, command, args, cpu, memory, private_machine, special_machine; each works only where the template opens it.';
COMMENT ON COLUMN tasks.payload IS 'You set it. Any JSON up to 1 MiB, handed out by task_start; the dispatcher never reads it.';
COMMENT ON COLUMN tasks.cache_key IS 'You set it. Tasks of a queue with the same key share a cache directory and prefer nodes where it is warm; 200 characters.';
COMMENT ON COLUMN tasks.dedupe_key IS 'You set it. At most one waiting or processing row per (queue, dedupe_key); 200 characters.';
COMMENT ON COLUMN tasks.status IS 'waiting, processing, succeeded, failed or cancelled.';
COMMENT ON COLUMN tasks.attempt IS 'Grows by one whenever the row returns to waiting; never falls.';
COMMENT ON COLUMN tasks.launch IS 'Number of the launch (Job) of this attempt that holds the row; 0 while waiting.';
COMMENT ON COLUMN tasks.failures IS 'Failed runs so far; task_retry starts again at 0.';
COMMENT ON COLUMN tasks.start_key IS 'Secret of the row: handed to its own container, demanded by task_start.';
COMMENT ON COLUMN tasks.run_token IS 'Secret of the current run: given by task_start, demanded by heartbeat and finish.';
COMMENT ON COLUMN tasks.job_uid IS 'UID of the Job whose container holds or ended the row.';
COMMENT ON COLUMN tasks.submitted_by IS 'Login that inserted the row.';
COMMENT ON COLUMN tasks.created_at IS 'When the row was inserted (start of that transaction).';
COMMENT ON COLUMN tasks.started_at IS 'When the newest launch of this attempt started.';
COMMENT ON COLUMN tasks.heartbeat_at IS 'Last sign of life of the container.';
COMMENT ON COLUMN tasks.finished_at IS 'When the row ended; NULL while it lives.';
COMMENT ON COLUMN tasks.cancel_requested_at IS 'When a running task was asked to stop.';
COMMENT ON COLUMN tasks.node_name IS 'Node of the newest launch that started.';
COMMENT ON COLUMN tasks.pod_name IS 'Pod of the newest launch that started.';
COMMENT ON COLUMN tasks.error IS 'Why the last run failed, was cancelled or was parked; 8 KiB.';
COMMENT ON COLUMN tasks.result IS 'What task_finish handed over; JSON up to 64 KiB.';
COMMENT ON COLUMN tasks.kind IS 'Digest of all that a template''s bounds are judged by (template, spec without command and args, run limit, names of env): rows of one kind get one verdict.';

-- Ready rows by queue: the order of dispatch. What the client filters by is included, so that a scan past ten thousand
-- held rows touches the index alone.
CREATE INDEX tasks_ready ON tasks (queue, priority, id) INCLUDE (attempt, kind, submitted_by)
    WHERE status = 'waiting' AND run_at IS NULL;
-- Rows with a time stand apart, or future rows of high priority would be read and dropped on every look.
CREATE INDEX tasks_due ON tasks (queue, run_at, id) INCLUDE (priority, attempt, kind, submitted_by)
    WHERE status = 'waiting' AND run_at IS NOT NULL;
-- No index holds heartbeat_at: heartbeats stay HOT updates.
CREATE INDEX tasks_processing ON tasks (id) WHERE status = 'processing';
CREATE INDEX tasks_finished ON tasks (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX tasks_of_submitter ON tasks (submitted_by, id);
CREATE UNIQUE INDEX tasks_dedupe ON tasks (queue, dedupe_key)
    WHERE dedupe_key IS NOT NULL AND status IN ('waiting', 'processing');
-- History: the newest nodes where a queue's cache key succeeded.
CREATE INDEX tasks_history ON tasks (queue, cache_key, finished_at DESC) INCLUDE (node_name)
    WHERE status = 'succeeded' AND cache_key IS NOT NULL;

CREATE TABLE task_launches (
    task_id    bigint      NOT NULL,
    attempt    smallint    NOT NULL,
    launch     smallint    NOT NULL,
    job_uid    text        NOT NULL,
    run_token  uuid        NOT NULL UNIQUE,
    node_name  text,
    pod_name   text,
    started_at timestamptz NOT NULL,
    ended_at   timestamptz,
    outcome    text        CHECK (outcome IN ('succeeded', 'failed', 'retry', 'cancelled', 'lost')),
    error      text,
    PRIMARY KEY (task_id, attempt, launch),
    CHECK ((ended_at IS NULL) = (outcome IS NULL))
);
COMMENT ON TABLE task_launches IS 'One row per launch that started: inserted by task_start, closed once.';
COMMENT ON COLUMN task_launches.task_id IS 'The task; no foreign key, the history may outlive the row.';
COMMENT ON COLUMN task_launches.attempt IS 'Attempt of the task.';
COMMENT ON COLUMN task_launches.launch IS 'Launch of the attempt.';
COMMENT ON COLUMN task_launches.job_uid IS 'UID of the Job.';
COMMENT ON COLUMN task_launches.run_token IS 'Secret of the run; for the functions alone.';
COMMENT ON COLUMN task_launches.node_name IS 'Node it ran on.';
COMMENT ON COLUMN task_launches.pod_name IS 'Pod it ran in.';
COMMENT ON COLUMN task_launches.started_at IS 'When task_start was accepted.';
COMMENT ON COLUMN task_launches.ended_at IS 'When it reported, or was replaced.';
COMMENT ON COLUMN task_launches.outcome IS 'succeeded, failed, retry or cancelled as it reported; lost: taken over, cancelled or retried without a report.';
COMMENT ON COLUMN task_launches.error IS 'The error it reported; 8 KiB.';
