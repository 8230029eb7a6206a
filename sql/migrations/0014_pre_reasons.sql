-- Why a row waits, for people who have nothing but SQL. The dispatcher writes nothing to the database: it tells its reasons in
-- two ConfigMaps, and the janitor brings them over.

CREATE TABLE dispatch.reasons (
    reason     text PRIMARY KEY,
    whose_turn text NOT NULL,
    meaning    text NOT NULL,
    next_step  text NOT NULL
);
COMMENT ON TABLE dispatch.reasons IS 'Every reason for which a row waits.';
COMMENT ON COLUMN dispatch.reasons.reason IS 'The stable code.';
COMMENT ON COLUMN dispatch.reasons.whose_turn IS 'Who can end the wait: submitter, author (of the template), operator, cluster (it needs room), nobody (it takes time).';
COMMENT ON COLUMN dispatch.reasons.meaning IS 'The same in words.';
COMMENT ON COLUMN dispatch.reasons.next_step IS 'What ends the wait.';
INSERT INTO dispatch.reasons (reason, whose_turn, meaning, next_step) VALUES
    ('UnknownTemplate', 'submitter',
     'there is no such template',
     'cancel the row and insert one with a template that exists, or ask the operator for this one'),
    ('InvalidTemplate', 'author',
     'the file of its template is faulty',
     'correct the file of the template; its rows go on by themselves'),
    ('PolicyDenied', 'submitter',
     'its template does not allow what it asks for',
     'cancel the row and insert one within the bounds of its template, or ask the author for others'),
    ('NotDue', 'nobody',
     'it is not due yet',
     'nothing: the row starts at its run_at'),
    ('Paused', 'operator',
     'its queue is paused',
     'clear queues.paused_until of the queue, or of queue *'),
    ('NameCollision', 'operator',
     'a Job of its name belongs to somebody else',
     'find out who made the Job of this name, and remove the Job or use another namespace'),
    ('Poison', 'author',
     'the API server refuses its Job',
     'change the template or the row so that the API server accepts the Job'),
    ('ExitedWithoutReport', 'author',
     'its container ended, and did not say what became of the row',
     'let the container call task_finish or run its command by `dispatcher exec`; then task_retry'),
    ('LaunchesExhausted', 'author',
     'its Pods never started',
     'correct the image or the template, so that the Pod can start; then task_retry'),
    ('FailuresExhausted', 'submitter',
     'it failed as often as it may',
     'look at the errors of its runs; then task_retry'),
    ('Finishing', 'nobody',
     'its container is ending',
     'nothing: its container is ending'),
    ('Backoff', 'nobody',
     'it pauses after a launch that failed',
     'nothing: the row is tried again after a pause'),
    ('TemplateFailing', 'author',
     'launches of this image do not start',
     'correct the image or the template; until a launch starts, they are tried one at a time'),
    ('Launched', 'cluster',
     'its Job exists, and its container has not started',
     'nothing, or look at its Pod: kubectl describe tells what it waits for'),
    ('NodeLost', 'operator',
     'the node of its Pod does not answer',
     'bring the node back, or delete it from the cluster'),
    ('DispatcherNotReady', 'operator',
     'the dispatcher launches nothing now',
     'mend what the message names; /readyz of the dispatcher tells whether that was all'),
    ('NeverFits', 'cluster',
     'no node is large enough',
     'add a node that is large enough, or insert a row that asks for less'),
    ('SubmitterCap', 'operator',
     'its submitter has as many Jobs in this queue as it may',
     'nothing until one of the submitter''s Jobs ends, or raise queues.max_jobs_per_submitter'),
    ('QueueCap', 'operator',
     'its queue has as many Jobs as it may',
     'nothing until a Job of the queue ends, or raise queues.max_jobs'),
    ('JobCap', 'operator',
     'there are as many Jobs as there may be',
     'nothing until a Job ends, or raise DISPATCHER_MAX_JOBS'),
    ('QuotaExceeded', 'operator',
     'a ResourceQuota is used up',
     'nothing until a Pod ends, or raise the ResourceQuota'),
    ('PendingPods', 'cluster',
     'Pods like its own wait for a node already',
     'look at the Events of the Pods that wait for a node'),
    ('NoRoomNow', 'cluster',
     'the nodes are full',
     'nothing until a Pod ends, or add or uncordon a node'),
    ('RateLimited', 'nobody',
     'writes to the API server are limited',
     'nothing: launches go on within a second'),
    ('NextCycle', 'nobody',
     'the next cycle judges it',
     'nothing: the row is judged within a second'),
    ('InLine', 'nobody',
     'other rows come first',
     'nothing: rows before it come first');

CREATE TABLE dispatch.reported (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    as_of   timestamptz NOT NULL
);
COMMENT ON TABLE dispatch.reported IS 'One row: the last report of the dispatcher that the janitor brought over.';
COMMENT ON COLUMN dispatch.reported.is_only IS 'Always true, so that there is one row.';
COMMENT ON COLUMN dispatch.reported.as_of IS 'Time of the cycle that the report tells of.';

CREATE TABLE dispatch.task_reasons (
    task_id bigint PRIMARY KEY,
    attempt integer NOT NULL,
    reason  text NOT NULL,
    message text NOT NULL,
    since   timestamptz NOT NULL
);
COMMENT ON TABLE dispatch.task_reasons IS 'Reasons of single rows, as the dispatcher told them: parked rows, launched rows, and the first rows of each queue. Read the view task_explain instead.';
COMMENT ON COLUMN dispatch.task_reasons.task_id IS 'tasks.id.';
COMMENT ON COLUMN dispatch.task_reasons.attempt IS 'The attempt that was judged.';
COMMENT ON COLUMN dispatch.task_reasons.reason IS 'The stable code, see dispatch.reasons.';
COMMENT ON COLUMN dispatch.task_reasons.message IS 'The same in words, with numbers and names.';
COMMENT ON COLUMN dispatch.task_reasons.since IS 'Since when this reason holds the row.';

CREATE TABLE dispatch.queue_reasons (
    queue        text PRIMARY KEY,
    waiting      integer NOT NULL,
    in_flight    integer NOT NULL,
    max_jobs     integer,
    weight       integer NOT NULL,
    share        real NOT NULL,
    paused_until timestamptz,
    oldest       timestamptz,
    reasons      jsonb NOT NULL,
    behind       jsonb
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

CREATE SEQUENCE dispatch.reasons_clock MINVALUE 0;
