-- The schema of a migrated database, for its readers. Nothing runs this file. `make docs` makes it from sql/migrations
-- and sql/functions, which have the bodies of the functions.

CREATE SCHEMA dispatch;
CREATE SCHEMA dispatch_private;
CREATE TYPE dispatch_private.refusal AS (
	code text,
	about text,
	message text,
	hint text
);
COMMENT ON TYPE dispatch_private.refusal IS 'Why a row is refused: SQLSTATE, column, message and hint of its error.';
CREATE TABLE dispatch_private.tasks (
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
    run_id text,
    second_process boolean DEFAULT false NOT NULL
)
WITH (fillfactor='85', autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0', autovacuum_analyze_scale_factor='0.02');
COMMENT ON TABLE dispatch_private.tasks IS 'One row = one task; the view dispatch.tasks explains the columns.';
COMMENT ON COLUMN dispatch_private.tasks.run_id IS 'A random text of the process that called task_start; NULL: it sent none.';
COMMENT ON COLUMN dispatch_private.tasks.second_process IS 'Whether another process of the Pod that holds the row has asked for it, and was refused.';
CREATE VIEW dispatch_private.batches AS
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
   FROM dispatch_private.tasks
  WHERE (batch IS NOT NULL)
  GROUP BY submitted_by, queue, batch;
COMMENT ON VIEW dispatch_private.batches IS 'Every batch. Conditions on queue, submitted_by and batch reach the index.';
CREATE FUNCTION dispatch_private.batches_named(who text, in_queue text, named text) RETURNS SETOF dispatch_private.batches
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
COMMENT ON FUNCTION dispatch_private.batches_named(who text, in_queue text, named text) IS 'The visible batches of a name: a name is of one submitter in one queue.';
CREATE FUNCTION dispatch_private.visible_batches(who text) RETURNS SETOF dispatch_private.batches
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
CREATE VIEW dispatch.batch_status AS
 SELECT queue,
    submitted_by,
    batch,
    tasks,
    waiting,
    processing,
    succeeded,
    failed,
    cancelled,
    first_started_at,
    last_finished_at
   FROM dispatch_private.visible_batches(((CURRENT_USER)::text COLLATE "default")) visible_batches(queue, submitted_by, batch, tasks, waiting, processing, succeeded, failed, cancelled, first_started_at, last_finished_at);
COMMENT ON VIEW dispatch.batch_status IS 'How far each batch is: SELECT * FROM dispatch.batch_status WHERE queue = … AND batch = …';
COMMENT ON COLUMN dispatch.batch_status.queue IS 'tasks.queue.';
COMMENT ON COLUMN dispatch.batch_status.submitted_by IS 'tasks.submitted_by: two submitters may use the same name.';
COMMENT ON COLUMN dispatch.batch_status.batch IS 'tasks.batch.';
COMMENT ON COLUMN dispatch.batch_status.tasks IS 'Number of rows.';
COMMENT ON COLUMN dispatch.batch_status.waiting IS 'Number of rows that wait.';
COMMENT ON COLUMN dispatch.batch_status.processing IS 'Number of rows that run.';
COMMENT ON COLUMN dispatch.batch_status.succeeded IS 'Number of rows that have succeeded.';
COMMENT ON COLUMN dispatch.batch_status.failed IS 'Number of rows that have failed.';
COMMENT ON COLUMN dispatch.batch_status.cancelled IS 'Number of rows that have been cancelled.';
COMMENT ON COLUMN dispatch.batch_status.first_started_at IS 'When the first of its present attempts started; NULL: none has.';
COMMENT ON COLUMN dispatch.batch_status.last_finished_at IS 'When the last row ended; NULL: none has. The batch is over if no row waits or runs.';
CREATE FUNCTION dispatch.batch(queue text, batch text) RETURNS SETOF dispatch.batch_status
    LANGUAGE sql STABLE
    BEGIN ATOMIC
 SELECT b.queue,
     b.submitted_by,
     b.batch,
     b.tasks,
     b.waiting,
     b.processing,
     b.succeeded,
     b.failed,
     b.cancelled,
     b.first_started_at,
     b.last_finished_at
    FROM dispatch_private.batches_named(((CURRENT_USER)::text COLLATE "default"), batch.queue, batch.batch) b(queue, submitted_by, batch, tasks, waiting, processing, succeeded, failed, cancelled, first_started_at, last_finished_at);
END;
COMMENT ON FUNCTION dispatch.batch(queue text, batch text) IS 'How far one batch is: SELECT * FROM dispatch.batch(''reports'', ''october'')';
CREATE FUNCTION dispatch_private.batch_cancel(who text, in_queue text, named text, most integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
CREATE FUNCTION dispatch.batch_cancel(queue text, batch text) RETURNS integer
    LANGUAGE sql
    BEGIN ATOMIC
 SELECT dispatch_private.batch_cancel(((CURRENT_USER)::text COLLATE "default"), queue, batch, NULL::integer) AS batch_cancel;
END;
COMMENT ON FUNCTION dispatch.batch_cancel(queue text, batch text) IS 'Cancels every row of your batch that has not ended, as task_cancel does. The number of these rows.';
CREATE FUNCTION dispatch.batch_cancel(queue text, batch text, most integer) RETURNS integer
    LANGUAGE sql
    BEGIN ATOMIC
 SELECT dispatch_private.batch_cancel(((CURRENT_USER)::text COLLATE "default"), queue, batch, COALESCE(most, 0)) AS batch_cancel;
END;
COMMENT ON FUNCTION dispatch.batch_cancel(queue text, batch text, most integer) IS 'The same in slices that others can pass: so many rows at most. The number of these rows; call it until it is 0, each time in a transaction of its own.';
CREATE FUNCTION dispatch_private.batch_retry(who text, in_queue text, named text) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
CREATE FUNCTION dispatch.batch_retry(queue text, batch text) RETURNS integer
    LANGUAGE sql
    BEGIN ATOMIC
 SELECT dispatch_private.batch_retry(((CURRENT_USER)::text COLLATE "default"), queue, batch) AS batch_retry;
END;
COMMENT ON FUNCTION dispatch.batch_retry(queue text, batch text) IS 'Returns every failed or cancelled row of your batch to waiting, as task_retry does; not those whose dedupe_key is live again. The number of these rows.';
CREATE FUNCTION dispatch_private.own_name_told(who text) RETURNS text
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
COMMENT ON FUNCTION dispatch_private.own_name_told(who text) IS 'As own_name, for a login that asks.';
CREATE FUNCTION dispatch.own_name() RETURNS text
    LANGUAGE sql STABLE
    BEGIN ATOMIC
 SELECT dispatch_private.own_name_told(((CURRENT_USER)::text COLLATE "default")) AS own_name_told;
END;
COMMENT ON FUNCTION dispatch.own_name() IS 'The submitted_by of your rows. A login that was renamed has the name of before.';
CREATE FUNCTION dispatch.rotate_secrets() RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;
COMMENT ON FUNCTION dispatch.rotate_secrets() IS 'New secrets; for the owner alone. Those of one rotation ago stay valid, so leave as long as a task may wait and run between two rotations.';
CREATE FUNCTION dispatch_private.rows_move(who text, submitter text, login text) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'notice'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
CREATE FUNCTION dispatch.rows_move(submitter text, login text) RETURNS integer
    LANGUAGE sql
    BEGIN ATOMIC
 SELECT dispatch_private.rows_move(((CURRENT_USER)::text COLLATE "default"), submitter, login) AS rows_move;
END;
COMMENT ON FUNCTION dispatch.rows_move(submitter text, login text) IS 'For operators: gives rows to another login, 1,000 at most. The number of these rows; call it until it is 0. A notice says which rows are left then: those that others hold, and live ones whose dedupe_key the login uses.';
CREATE FUNCTION dispatch_private.submit(who text, objects jsonb) RETURNS SETOF bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
COMMENT ON FUNCTION dispatch_private.submit(who text, objects jsonb) IS 'Inserts an array of rows. Their ids, in its order; NULL: code of somebody else does not see the row.';
CREATE FUNCTION dispatch.submit(tasks jsonb) RETURNS SETOF bigint
    LANGUAGE sql
    BEGIN ATOMIC
 SELECT dispatch_private.submit(((CURRENT_USER)::text COLLATE "default"), tasks) AS submit;
END;
COMMENT ON FUNCTION dispatch.submit(tasks jsonb) IS 'Inserts an array of objects with columns of `tasks`, and returns their ids in this order: SELECT dispatch.submit(''[{"queue": "default", "env": {"A": "1"}}]''). Half the cost of INSERT.';
CREATE VIEW dispatch_private.public_tasks AS
 SELECT id,
    queue,
    (priority)::integer AS priority,
    run_at,
    (timeout_seconds)::bigint AS timeout_seconds,
    (max_failures)::integer AS max_failures,
    template,
    env,
    spec,
    payload,
    cache_key,
    dedupe_key,
    batch,
    labels,
    status,
    attempt,
    launch,
    failures,
    job_uid,
    submitted_by,
    created_at,
    started_at,
    heartbeat_at,
    finished_at,
    cancel_requested_at,
    node_name,
    pod_name,
    error,
    result,
    progress,
    note,
    kind,
    run_digest
   FROM dispatch_private.tasks;
CREATE FUNCTION dispatch_private.tasks_between(who text, first bigint, last bigint, most integer) RETURNS SETOF dispatch_private.public_tasks
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
COMMENT ON FUNCTION dispatch_private.tasks_between(who text, first bigint, last bigint, most integer) IS 'The first visible rows of a range of ids, by their ids.';
CREATE FUNCTION dispatch_private.visible_tasks(who text) RETURNS SETOF dispatch_private.public_tasks
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
CREATE VIEW dispatch.tasks AS
 SELECT id,
    queue,
    priority,
    run_at,
    timeout_seconds,
    max_failures,
    template,
    env,
    spec,
    payload,
    cache_key,
    dedupe_key,
    batch,
    labels,
    status,
    attempt,
    launch,
    failures,
    job_uid,
    submitted_by,
    created_at,
    started_at,
    heartbeat_at,
    finished_at,
    cancel_requested_at,
    node_name,
    pod_name,
    error,
    result,
    progress,
    note,
    kind,
    run_digest
   FROM dispatch_private.visible_tasks(((CURRENT_USER)::text COLLATE "default")) visible_tasks(id, queue, priority, run_at, timeout_seconds, max_failures, template, env, spec, payload, cache_key, dedupe_key, batch, labels, status, attempt, launch, failures, job_uid, submitted_by, created_at, started_at, heartbeat_at, finished_at, cancel_requested_at, node_name, pod_name, error, result, progress, note, kind, run_digest);
COMMENT ON VIEW dispatch.tasks IS 'One row = one task. INSERT it, and one Kubernetes Job runs for it; the task''s own container reports through task_start, task_heartbeat and task_finish. You see your own rows, and those of queues that you own.';
COMMENT ON COLUMN dispatch.tasks.id IS 'Identity; given by the database.';
COMMENT ON COLUMN dispatch.tasks.queue IS 'You set it. A name declared in `queues`; `default` if left out.';
COMMENT ON COLUMN dispatch.tasks.priority IS 'You set it. 0..1000, lower first; 100 if left out.';
COMMENT ON COLUMN dispatch.tasks.run_at IS 'You set it. Not before this time; NULL = now. Set again by a retry.';
COMMENT ON COLUMN dispatch.tasks.timeout_seconds IS 'You set it. Run limit, 1..604800 s; NULL: that of the template, else that of the installation.';
COMMENT ON COLUMN dispatch.tasks.max_failures IS 'You set it. Failed runs at most, 1..100; the template''s, or 3, if left out; 1: a task that started never runs again by itself.';
COMMENT ON COLUMN dispatch.tasks.template IS 'You set it. Which Job template to run under; `default` if left out.';
COMMENT ON COLUMN dispatch.tasks.env IS 'You set it. Object of strings, added to the container''s environment: 64 names, 32 KiB a value, 128 KiB in all. Everybody who may read Jobs can read it: no secrets.';
COMMENT ON COLUMN dispatch.tasks.spec IS 'You set it. image, command, args, cpu, memory, private_machine, special_machine; each works only where the template opens it.';
COMMENT ON COLUMN dispatch.tasks.payload IS 'You set it. Any JSON up to 1 MiB, handed out by task_start; the dispatcher never reads it.';
COMMENT ON COLUMN dispatch.tasks.cache_key IS 'You set it. Tasks of a queue with the same key share a cache directory and prefer nodes where it is warm; 200 characters.';
COMMENT ON COLUMN dispatch.tasks.dedupe_key IS 'You set it. Idempotency: while a row of yours with this key waits or runs in the queue, an INSERT with it makes no new row and returns that one; 200 characters.';
COMMENT ON COLUMN dispatch.tasks.batch IS 'You set it. Rows that belong together, 1 to 200 characters; the name is yours alone, in each queue. See the view batch_status.';
COMMENT ON COLUMN dispatch.tasks.labels IS 'You set it. Marks of your own: object of strings, 16 names of 63 characters, values of 200 characters. Find rows by labels @> ''{"name": "value"}''.';
COMMENT ON COLUMN dispatch.tasks.status IS 'waiting, processing, succeeded, failed or cancelled.';
COMMENT ON COLUMN dispatch.tasks.attempt IS 'Grows by one whenever the row returns to waiting; never falls.';
COMMENT ON COLUMN dispatch.tasks.launch IS 'Number of the launch (Job) of this attempt that holds the row; 0 while waiting.';
COMMENT ON COLUMN dispatch.tasks.failures IS 'Failed runs so far; task_retry starts again at 0.';
COMMENT ON COLUMN dispatch.tasks.job_uid IS 'UID of the Job whose container holds or ended the row.';
COMMENT ON COLUMN dispatch.tasks.submitted_by IS 'Login that inserted the row (session_user), by the name that it had at its first row.';
COMMENT ON COLUMN dispatch.tasks.created_at IS 'When the row was inserted (start of that transaction).';
COMMENT ON COLUMN dispatch.tasks.started_at IS 'When the newest launch of this attempt started.';
COMMENT ON COLUMN dispatch.tasks.heartbeat_at IS 'Last sign of life of the container.';
COMMENT ON COLUMN dispatch.tasks.finished_at IS 'When the row ended; NULL while it lives.';
COMMENT ON COLUMN dispatch.tasks.cancel_requested_at IS 'When a running task was asked to stop.';
COMMENT ON COLUMN dispatch.tasks.node_name IS 'Node of the newest launch that started, as its container said it; NULL where that is no name of a node.';
COMMENT ON COLUMN dispatch.tasks.pod_name IS 'Pod of the newest launch that started, as its container said it; NULL where that is no name of a Pod.';
COMMENT ON COLUMN dispatch.tasks.error IS 'Why the last run failed, was cancelled or was parked; 8 KiB.';
COMMENT ON COLUMN dispatch.tasks.result IS 'What task_finish handed over; JSON up to 64 KiB.';
COMMENT ON COLUMN dispatch.tasks.progress IS 'How much is done, from 0 to 1, as the newest container says; NULL: it says nothing.';
COMMENT ON COLUMN dispatch.tasks.note IS 'What the newest container is doing, in its own words; 200 characters.';
COMMENT ON COLUMN dispatch.tasks.kind IS 'Digest of all that a template''s bounds are judged by (template, spec without command and args, run limit, names of env): rows of one kind get one verdict.';
COMMENT ON COLUMN dispatch.tasks.run_digest IS 'Digest of the token that the container of the current run reports with.';
CREATE FUNCTION dispatch.task(id bigint) RETURNS SETOF dispatch.tasks
    LANGUAGE sql STABLE
    BEGIN ATOMIC
 SELECT t.id,
     t.queue,
     t.priority,
     t.run_at,
     t.timeout_seconds,
     t.max_failures,
     t.template,
     t.env,
     t.spec,
     t.payload,
     t.cache_key,
     t.dedupe_key,
     t.batch,
     t.labels,
     t.status,
     t.attempt,
     t.launch,
     t.failures,
     t.job_uid,
     t.submitted_by,
     t.created_at,
     t.started_at,
     t.heartbeat_at,
     t.finished_at,
     t.cancel_requested_at,
     t.node_name,
     t.pod_name,
     t.error,
     t.result,
     t.progress,
     t.note,
     t.kind,
     t.run_digest
    FROM dispatch_private.tasks_between(((CURRENT_USER)::text COLLATE "default"), task.id, task.id, 1) t(id, queue, priority, run_at, timeout_seconds, max_failures, template, env, spec, payload, cache_key, dedupe_key, batch, labels, status, attempt, launch, failures, job_uid, submitted_by, created_at, started_at, heartbeat_at, finished_at, cancel_requested_at, node_name, pod_name, error, result, progress, note, kind, run_digest);
END;
COMMENT ON FUNCTION dispatch.task(id bigint) IS 'One row that you may see: SELECT * FROM dispatch.task(42)';
CREATE FUNCTION dispatch_private.task_cancel(who text, task bigint, reason text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'notice'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
CREATE FUNCTION dispatch.task_cancel(task_id bigint, reason text DEFAULT NULL::text) RETURNS text
    LANGUAGE sql
    BEGIN ATOMIC
 SELECT dispatch_private.task_cancel(((CURRENT_USER)::text COLLATE "default"), task_id, reason) AS task_cancel;
END;
COMMENT ON FUNCTION dispatch.task_cancel(task_id bigint, reason text) IS 'cancelled: at once; processing: its container was asked to stop; another status: it was over already; NULL: no such row of yours.';
CREATE FUNCTION dispatch_private.ended_tasks(who text, since timestamp with time zone) RETURNS SETOF dispatch_private.public_tasks
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
COMMENT ON FUNCTION dispatch_private.ended_tasks(who text, since timestamp with time zone) IS 'The login''s own rows that have ended since a time, the oldest end first.';
CREATE FUNCTION dispatch.task_ended_since(since timestamp with time zone) RETURNS TABLE(id bigint, queue text, batch text, status text, finished_at timestamp with time zone)
    LANGUAGE sql STABLE
    BEGIN ATOMIC
 SELECT t.id,
     t.queue,
     t.batch,
     t.status,
     t.finished_at
    FROM dispatch_private.ended_tasks(((CURRENT_USER)::text COLLATE "default"), task_ended_since.since) t(id, queue, priority, run_at, timeout_seconds, max_failures, template, env, spec, payload, cache_key, dedupe_key, batch, labels, status, attempt, launch, failures, job_uid, submitted_by, created_at, started_at, heartbeat_at, finished_at, cancel_requested_at, node_name, pod_name, error, result, progress, note, kind, run_digest);
END;
COMMENT ON FUNCTION dispatch.task_ended_since(since timestamp with time zone) IS 'Your rows that have ended since a time, oldest first. Ask from a minute before the last answer: the end of a row is seen when its transaction has ended.';
CREATE TABLE dispatch_private.queue_reasons (
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
COMMENT ON TABLE dispatch_private.queue_reasons IS 'The state of each queue, as the dispatcher told it.';
CREATE TABLE dispatch_private.reasons (
    reason text NOT NULL,
    whose_turn text NOT NULL,
    meaning text NOT NULL,
    next_step text NOT NULL
);
COMMENT ON TABLE dispatch_private.reasons IS 'Every reason for which a row waits; written by `dispatcher migrate` from the code.';
CREATE TABLE dispatch_private.reported (
    is_only boolean DEFAULT true NOT NULL,
    as_of timestamp with time zone NOT NULL,
    CONSTRAINT reported_is_only_check CHECK (is_only)
);
COMMENT ON TABLE dispatch_private.reported IS 'One row: the last report of the dispatcher that the janitor brought over.';
CREATE TABLE dispatch_private.task_reasons (
    task_id bigint NOT NULL,
    attempt integer NOT NULL,
    reason text NOT NULL,
    message text NOT NULL,
    since timestamp with time zone NOT NULL
);
COMMENT ON TABLE dispatch_private.task_reasons IS 'Reasons of single rows, as the dispatcher told them: parked rows, launched rows, and the first rows of each queue.';
CREATE VIEW dispatch_private.explanations AS
 SELECT t.id,
    t.queue,
    t.status,
    t.attempt,
    why.reason,
    COALESCE(part.whose_turn, known.whose_turn, 'nobody'::text) AS whose_turn,
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
                WHEN ((why.reason = 'Unjudged'::text) AND (t.created_at = now())) THEN (known.meaning || ': is your INSERT committed?'::text)
                WHEN (why.reason = (q.behind ->> 'reason'::text)) THEN COALESCE((q.behind ->> 'message'::text), known.meaning)
                ELSE (known.meaning || COALESCE(( SELECT ('; rows of its queue wait for '::text || string_agg(format('%s (%s)'::text, held.key, held.value), ', '::text ORDER BY (length(held.value)) DESC, held.value DESC))
                   FROM jsonb_each_text(((q.reasons - 'InLine'::text) - 'NotDue'::text)) held(key, value)
                  WHERE (why.reason = 'InLine'::text)), ''::text))
            END)
            WHEN ((t.status = 'processing'::text) AND (t.started_at < (now() - ((t.timeout_seconds)::double precision * '00:00:01'::interval)))) THEN format('it started at %s, and its run limit of %s s is over'::text, (t.started_at)::timestamp(0) with time zone, t.timeout_seconds)
            WHEN ((t.status = 'processing'::text) AND (t.heartbeat_at < (now() - '00:01:00'::interval))) THEN format('its container has not been heard since %s'::text, (t.heartbeat_at)::timestamp(0) with time zone)
            WHEN (t.status = 'processing'::text) THEN 'its container runs'::text
            WHEN (t.status = 'cancelled'::text) THEN 'it has been cancelled'::text
            WHEN (t.status = 'failed'::text) THEN ('it has failed'::text || COALESCE((': '::text || t.error), ''::text))
            ELSE ('it has '::text || t.status)
        END AS message,
        CASE
            WHEN (own.reason IS NOT NULL) THEN own.since
            WHEN (why.reason = 'NotDue'::text) THEN t.created_at
            WHEN (why.reason = ANY (ARRAY['InLine'::text, 'Unjudged'::text])) THEN
            CASE
                WHEN ((t.attempt = 1) OR (t.run_at IS NOT NULL)) THEN GREATEST(t.created_at, t.run_at)
                ELSE NULL::timestamp with time zone
            END
            WHEN (why.reason = (q.behind ->> 'reason'::text)) THEN GREATEST(t.created_at, t.run_at, ((q.behind ->> 'since'::text))::timestamp with time zone)
            WHEN (why.reason IS NULL) THEN COALESCE(t.finished_at, t.started_at)
            ELSE NULL::timestamp with time zone
        END AS since,
    r.as_of,
    t.started_at,
    t.finished_at
   FROM ((((((dispatch_private.tasks t
     LEFT JOIN dispatch_private.task_reasons own ON (((own.task_id = t.id) AND (own.attempt = t.attempt) AND ((t.status = 'waiting'::text) OR ((t.status = 'processing'::text) AND ((own.reason <> 'Launched'::text) OR (t.heartbeat_at < (now() - '00:01:00'::interval))))))))
     LEFT JOIN dispatch_private.queue_reasons q ON ((q.queue = t.queue)))
     LEFT JOIN dispatch_private.reported r ON (true))
     CROSS JOIN LATERAL ( SELECT
                CASE
                    WHEN (own.reason IS NOT NULL) THEN own.reason
                    WHEN (t.status <> 'waiting'::text) THEN NULL::text
                    WHEN (t.run_at > now()) THEN 'NotDue'::text
                    WHEN (q.paused_until > now()) THEN 'Paused'::text
                    WHEN (t.created_at > COALESCE(r.as_of, '-infinity'::timestamp with time zone)) THEN 'Unjudged'::text
                    ELSE COALESCE((q.behind ->> 'reason'::text), 'InLine'::text)
                END AS reason) why)
     LEFT JOIN dispatch_private.reasons known ON ((known.reason = why.reason)))
     LEFT JOIN LATERAL ( SELECT one.whose_turn
           FROM dispatch_private.reasons one
          WHERE (starts_with(one.reason, (why.reason || ': '::text)) AND starts_with(own.message, (known.meaning || substr(one.reason, (length(why.reason) + 1)))))
          ORDER BY (length(one.reason)) DESC
         LIMIT 1) part ON ((own.reason IS NOT NULL)));
COMMENT ON VIEW dispatch_private.explanations IS 'Why each row waits, or what it does.';
CREATE FUNCTION dispatch_private.all_explanations(who text) RETURNS SETOF dispatch_private.explanations
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
COMMENT ON FUNCTION dispatch_private.all_explanations(who text) IS 'Every explanation, for logins that see every row.';
CREATE FUNCTION dispatch_private.explanation_of(task bigint) RETURNS SETOF dispatch_private.explanations
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
CREATE FUNCTION dispatch_private.place_of(task bigint) RETURNS integer[]
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
COMMENT ON FUNCTION dispatch_private.place_of(task bigint) IS 'Place of a waiting row in its queue, from 1 on, and the number of due rows there; both stop at 10,000. NULL: it does not wait, or is not due.';
CREATE FUNCTION dispatch_private.visible_ids(who text, of_teams boolean) RETURNS SETOF bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
COMMENT ON FUNCTION dispatch_private.visible_ids(who text, of_teams boolean) IS 'Ids of the rows that the login may see. of_teams: none if it sees every row.';
CREATE VIEW dispatch.task_explain AS
 SELECT e.id,
    e.queue,
    e.status,
    e.attempt,
    e.reason,
    e.whose_turn,
    e.message,
    e.since,
    e.as_of,
    place.numbers[1] AS "position",
    place.numbers[2] AS position_of,
    e.started_at,
    e.finished_at
   FROM (( SELECT all_explanations.id,
            all_explanations.queue,
            all_explanations.status,
            all_explanations.attempt,
            all_explanations.reason,
            all_explanations.whose_turn,
            all_explanations.message,
            all_explanations.since,
            all_explanations.as_of,
            all_explanations.started_at,
            all_explanations.finished_at
           FROM dispatch_private.all_explanations(((CURRENT_USER)::text COLLATE "default")) all_explanations(id, queue, status, attempt, reason, whose_turn, message, since, as_of, started_at, finished_at)
        UNION ALL
         SELECT t.id,
            one.queue,
            one.status,
            one.attempt,
            one.reason,
            one.whose_turn,
            one.message,
            one.since,
            one.as_of,
            one.started_at,
            one.finished_at
           FROM (dispatch_private.visible_ids(((CURRENT_USER)::text COLLATE "default"), true) t(id)
             CROSS JOIN LATERAL dispatch_private.explanation_of(t.id) one(id, queue, status, attempt, reason, whose_turn, message, since, as_of, started_at, finished_at))) e
     CROSS JOIN LATERAL ( SELECT dispatch_private.place_of(e.id) AS numbers
         OFFSET 0) place);
COMMENT ON VIEW dispatch.task_explain IS 'Why a row waits: SELECT * FROM dispatch.task_explain WHERE id = …';
COMMENT ON COLUMN dispatch.task_explain.id IS 'tasks.id.';
COMMENT ON COLUMN dispatch.task_explain.queue IS 'tasks.queue.';
COMMENT ON COLUMN dispatch.task_explain.status IS 'tasks.status, as it is now.';
COMMENT ON COLUMN dispatch.task_explain.attempt IS 'tasks.attempt, as it is now.';
COMMENT ON COLUMN dispatch.task_explain.reason IS 'Why it waits: a stable code, see dispatch.reasons. NULL: it does not wait.';
COMMENT ON COLUMN dispatch.task_explain.whose_turn IS 'Who can end the wait: submitter, author, operator, cluster, nobody.';
COMMENT ON COLUMN dispatch.task_explain.message IS 'The same in words, with numbers and names. It says so if the dispatcher has not reported for 90 s.';
COMMENT ON COLUMN dispatch.task_explain.since IS 'Since when for this reason; NULL: not known.';
COMMENT ON COLUMN dispatch.task_explain.as_of IS 'When the dispatcher last looked, as far as the janitor has brought it over: about 40 s ago at most.';
COMMENT ON COLUMN dispatch.task_explain."position" IS 'Its place among the due rows of its queue, from 1 on; it stops at 10,001.';
COMMENT ON COLUMN dispatch.task_explain.position_of IS 'Number of due waiting rows of its queue; it stops at 10,000.';
COMMENT ON COLUMN dispatch.task_explain.started_at IS 'tasks.started_at.';
COMMENT ON COLUMN dispatch.task_explain.finished_at IS 'tasks.finished_at.';
CREATE FUNCTION dispatch.task_explain(id bigint) RETURNS SETOF dispatch.task_explain
    LANGUAGE sql STABLE
    BEGIN ATOMIC
 SELECT e.id,
     e.queue,
     e.status,
     e.attempt,
     e.reason,
     e.whose_turn,
     e.message,
     e.since,
     e.as_of,
     place.numbers[1] AS numbers,
     place.numbers[2] AS numbers,
     e.started_at,
     e.finished_at
    FROM ((dispatch_private.tasks_between(((CURRENT_USER)::text COLLATE "default"), task_explain.id, task_explain.id, 1) t(id, queue, priority, run_at, timeout_seconds, max_failures, template, env, spec, payload, cache_key, dedupe_key, batch, labels, status, attempt, launch, failures, job_uid, submitted_by, created_at, started_at, heartbeat_at, finished_at, cancel_requested_at, node_name, pod_name, error, result, progress, note, kind, run_digest)
      CROSS JOIN LATERAL dispatch_private.explanation_of(t.id) e(id, queue, status, attempt, reason, whose_turn, message, since, as_of, started_at, finished_at))
      CROSS JOIN LATERAL ( SELECT dispatch_private.place_of(e.id) AS numbers
          OFFSET 0) place);
END;
COMMENT ON FUNCTION dispatch.task_explain(id bigint) IS 'Why one row waits that you may see: SELECT * FROM dispatch.task_explain(42)';
CREATE FUNCTION dispatch.task_finish(run_token uuid, outcome text, error text DEFAULT NULL::text, result jsonb DEFAULT NULL::jsonb, retry_after interval DEFAULT NULL::interval) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
COMMENT ON FUNCTION dispatch.task_finish(run_token uuid, outcome text, error text, result jsonb, retry_after interval) IS 'A container reports succeeded, retry or failed: the row''s new status; NULL: lost, the row is somebody else''s by now.';
CREATE FUNCTION dispatch.task_heartbeat(run_token uuid, progress real DEFAULT NULL::real, note text DEFAULT NULL::text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
CREATE TABLE dispatch_private.task_launches (
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
    CONSTRAINT task_launches_check CHECK (((ended_at IS NULL) = (outcome IS NULL))),
    CONSTRAINT task_launches_outcome_check CHECK ((outcome = ANY (ARRAY['succeeded'::text, 'failed'::text, 'retry'::text, 'cancelled'::text, 'lost'::text, 'unstarted'::text]))),
    CONSTRAINT task_launches_started_check CHECK (((started_at IS NOT NULL) OR (outcome = 'unstarted'::text)))
);
COMMENT ON TABLE dispatch_private.task_launches IS 'One row per launch: inserted by task_start, or by the janitor if the launch ended without it.';
CREATE FUNCTION dispatch_private.launches_of(task bigint) RETURNS SETOF dispatch_private.task_launches
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
CREATE VIEW dispatch.task_launches AS
 SELECT t.id AS task_id,
    l.attempt,
    l.launch,
    l.job_uid,
    l.node_name,
    l.pod_name,
    l.started_at,
    l.ended_at,
    l.outcome,
    l.exit_code,
    l.reason,
    l.error
   FROM (dispatch_private.visible_ids(((CURRENT_USER)::text COLLATE "default"), false) t(id)
     CROSS JOIN LATERAL dispatch_private.launches_of(t.id) l(task_id, attempt, launch, job_uid, node_name, pod_name, started_at, ended_at, outcome, error, run_digest, exit_code, reason, queue));
COMMENT ON VIEW dispatch.task_launches IS 'One row per launch: inserted by task_start, or by the janitor if the launch ended without it.';
COMMENT ON COLUMN dispatch.task_launches.task_id IS 'The task. Its launches are deleted with it.';
COMMENT ON COLUMN dispatch.task_launches.attempt IS 'Attempt of the task.';
COMMENT ON COLUMN dispatch.task_launches.launch IS 'Launch of the attempt.';
COMMENT ON COLUMN dispatch.task_launches.job_uid IS 'UID of the Job.';
COMMENT ON COLUMN dispatch.task_launches.node_name IS 'Node it ran on.';
COMMENT ON COLUMN dispatch.task_launches.pod_name IS 'Pod it ran in.';
COMMENT ON COLUMN dispatch.task_launches.started_at IS 'When task_start was accepted; without it, NULL.';
COMMENT ON COLUMN dispatch.task_launches.ended_at IS 'When it reported, or was replaced.';
COMMENT ON COLUMN dispatch.task_launches.outcome IS 'succeeded, failed, retry or cancelled as it reported; lost: taken over, cancelled or retried without a report; unstarted: it ended before task_start.';
COMMENT ON COLUMN dispatch.task_launches.exit_code IS 'Exit code of its container; NULL: it runs, it never ran, or nobody knows.';
COMMENT ON COLUMN dispatch.task_launches.reason IS 'What ended it, in words, such as OOMKilled (limit 64Mi); NULL: it ended by itself, or nobody knows.';
COMMENT ON COLUMN dispatch.task_launches.error IS 'The error that it reported, otherwise the termination message of its container; 8 KiB. The message is the end of the output if the template has terminationMessagePolicy: FallbackToLogsOnError.';
CREATE VIEW dispatch.task_history AS
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
   FROM dispatch.task_launches;
COMMENT ON VIEW dispatch.task_history IS 'Every launch of your rows, and what became of it: SELECT * FROM dispatch.task_history WHERE task_id = … ORDER BY attempt, launch';
COMMENT ON COLUMN dispatch.task_history.task_id IS 'tasks.id.';
COMMENT ON COLUMN dispatch.task_history.attempt IS 'Attempt of the row: grows when the row returns to waiting.';
COMMENT ON COLUMN dispatch.task_history.launch IS 'Launch of this attempt: one Job and one Pod each.';
COMMENT ON COLUMN dispatch.task_history.node_name IS 'Node on which it ran; NULL: it got none.';
COMMENT ON COLUMN dispatch.task_history.pod_name IS 'Its Pod: kubectl logs POD, as long as the Pod is there.';
COMMENT ON COLUMN dispatch.task_history.started_at IS 'When its container called task_start; NULL: never.';
COMMENT ON COLUMN dispatch.task_history.ended_at IS 'When it reported, was replaced, or ended without a report; NULL: it runs.';
COMMENT ON COLUMN dispatch.task_history.outcome IS 'succeeded, failed, retry or cancelled as it reported; lost: it did not report; unstarted: it never called task_start; NULL: it runs.';
COMMENT ON COLUMN dispatch.task_history.exit_code IS 'Exit code of its container; NULL: it runs, it never ran, or nobody knows.';
COMMENT ON COLUMN dispatch.task_history.reason IS 'What ended it, in words, such as OOMKilled (limit 64Mi); NULL: it ended by itself, or nobody knows.';
COMMENT ON COLUMN dispatch.task_history.error IS 'The error that it reported, otherwise the termination message of its container. The message is the end of the output if the template has terminationMessagePolicy: FallbackToLogsOnError.';
CREATE FUNCTION dispatch.task_history(id bigint) RETURNS SETOF dispatch.task_history
    LANGUAGE sql STABLE
    BEGIN ATOMIC
 SELECT t.id,
     l.attempt,
     l.launch,
     l.node_name,
     l.pod_name,
     l.started_at,
     l.ended_at,
     l.outcome,
     l.exit_code,
     l.reason,
     l.error
    FROM (dispatch_private.tasks_between(((CURRENT_USER)::text COLLATE "default"), task_history.id, task_history.id, 1) t(id, queue, priority, run_at, timeout_seconds, max_failures, template, env, spec, payload, cache_key, dedupe_key, batch, labels, status, attempt, launch, failures, job_uid, submitted_by, created_at, started_at, heartbeat_at, finished_at, cancel_requested_at, node_name, pod_name, error, result, progress, note, kind, run_digest)
      CROSS JOIN LATERAL dispatch_private.launches_of(t.id) l(task_id, attempt, launch, job_uid, node_name, pod_name, started_at, ended_at, outcome, error, run_digest, exit_code, reason, queue));
END;
COMMENT ON FUNCTION dispatch.task_history(id bigint) IS 'The launches of one row that you may see, in their order: SELECT * FROM dispatch.task_history(42)';
CREATE FUNCTION dispatch_private.task_retry(who text, task bigint, expected integer) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'notice'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
CREATE FUNCTION dispatch.task_retry(task_id bigint, attempt integer DEFAULT NULL::integer) RETURNS text
    LANGUAGE sql
    BEGIN ATOMIC
 SELECT dispatch_private.task_retry(((CURRENT_USER)::text COLLATE "default"), task_id, attempt) AS task_retry;
END;
COMMENT ON FUNCTION dispatch.task_retry(task_id bigint, attempt integer) IS 'Any row back to waiting, attempt + 1, failures 0; a container that still runs is fenced off. With `attempt` only if the row is at it, so that it may be repeated.';
CREATE FUNCTION dispatch_private.task_set_priority(who text, task bigint, wanted integer) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'notice'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
CREATE FUNCTION dispatch.task_set_priority(task_id bigint, priority integer) RETURNS text
    LANGUAGE sql
    BEGIN ATOMIC
 SELECT dispatch_private.task_set_priority(((CURRENT_USER)::text COLLATE "default"), task_id, priority) AS task_set_priority;
END;
COMMENT ON FUNCTION dispatch.task_set_priority(task_id bigint, priority integer) IS 'Moves a waiting row in its queue: 0..1000, lower first. Its status; any other than waiting: nothing has changed. NULL: no such row of yours.';
CREATE FUNCTION dispatch.task_start(task_id bigint, start_key uuid, attempt integer, launch integer, job_uid text, node text DEFAULT NULL::text, pod text DEFAULT NULL::text, run_id text DEFAULT NULL::text) RETURNS TABLE(run_token uuid, payload jsonb)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
COMMENT ON FUNCTION dispatch.task_start(task_id bigint, start_key uuid, attempt integer, launch integer, job_uid text, node text, pod text, run_id text) IS 'A container takes its row: run_token and payload, or no row: not yours (any more), exit 0.';
CREATE FUNCTION dispatch.tasks_after(id bigint, "limit" integer DEFAULT 100) RETURNS SETOF dispatch.tasks
    LANGUAGE sql STABLE
    BEGIN ATOMIC
 SELECT t.id,
     t.queue,
     t.priority,
     t.run_at,
     t.timeout_seconds,
     t.max_failures,
     t.template,
     t.env,
     t.spec,
     t.payload,
     t.cache_key,
     t.dedupe_key,
     t.batch,
     t.labels,
     t.status,
     t.attempt,
     t.launch,
     t.failures,
     t.job_uid,
     t.submitted_by,
     t.created_at,
     t.started_at,
     t.heartbeat_at,
     t.finished_at,
     t.cancel_requested_at,
     t.node_name,
     t.pod_name,
     t.error,
     t.result,
     t.progress,
     t.note,
     t.kind,
     t.run_digest
    FROM dispatch_private.tasks_between(((CURRENT_USER)::text COLLATE "default"),
         CASE
             WHEN (tasks_after.id < '9223372036854775807'::bigint) THEN (tasks_after.id + 1)
             ELSE NULL::bigint
         END, '9223372036854775807'::bigint, tasks_after."limit") t(id, queue, priority, run_at, timeout_seconds, max_failures, template, env, spec, payload, cache_key, dedupe_key, batch, labels, status, attempt, launch, failures, job_uid, submitted_by, created_at, started_at, heartbeat_at, finished_at, cancel_requested_at, node_name, pod_name, error, result, progress, note, kind, run_digest);
END;
COMMENT ON FUNCTION dispatch.tasks_after(id bigint, "limit" integer) IS 'The next rows after an id, by their ids: for pages. The first page begins after 0.';
CREATE FUNCTION dispatch_private.batch_tasks(who text, in_queue text, named text, most integer) RETURNS SETOF dispatch_private.public_tasks
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
COMMENT ON FUNCTION dispatch_private.batch_tasks(who text, in_queue text, named text, most integer) IS 'The first visible rows of a batch, by their ids.';
CREATE FUNCTION dispatch.tasks_of_batch(queue text, batch text, "limit" integer DEFAULT 1000) RETURNS SETOF dispatch.tasks
    LANGUAGE sql STABLE
    BEGIN ATOMIC
 SELECT t.id,
     t.queue,
     t.priority,
     t.run_at,
     t.timeout_seconds,
     t.max_failures,
     t.template,
     t.env,
     t.spec,
     t.payload,
     t.cache_key,
     t.dedupe_key,
     t.batch,
     t.labels,
     t.status,
     t.attempt,
     t.launch,
     t.failures,
     t.job_uid,
     t.submitted_by,
     t.created_at,
     t.started_at,
     t.heartbeat_at,
     t.finished_at,
     t.cancel_requested_at,
     t.node_name,
     t.pod_name,
     t.error,
     t.result,
     t.progress,
     t.note,
     t.kind,
     t.run_digest
    FROM dispatch_private.batch_tasks(((CURRENT_USER)::text COLLATE "default"), tasks_of_batch.queue, tasks_of_batch.batch, tasks_of_batch."limit") t(id, queue, priority, run_at, timeout_seconds, max_failures, template, env, spec, payload, cache_key, dedupe_key, batch, labels, status, attempt, launch, failures, job_uid, submitted_by, created_at, started_at, heartbeat_at, finished_at, cancel_requested_at, node_name, pod_name, error, result, progress, note, kind, run_digest);
END;
COMMENT ON FUNCTION dispatch.tasks_of_batch(queue text, batch text, "limit" integer) IS 'The first rows of a batch, by their ids.';
CREATE FUNCTION dispatch_private.newest_tasks(who text, most integer) RETURNS SETOF dispatch_private.public_tasks
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
CREATE FUNCTION dispatch.tasks_since("time" timestamp with time zone, "limit" integer DEFAULT 100) RETURNS SETOF dispatch.tasks
    LANGUAGE sql STABLE
    BEGIN ATOMIC
 SELECT t.id,
     t.queue,
     t.priority,
     t.run_at,
     t.timeout_seconds,
     t.max_failures,
     t.template,
     t.env,
     t.spec,
     t.payload,
     t.cache_key,
     t.dedupe_key,
     t.batch,
     t.labels,
     t.status,
     t.attempt,
     t.launch,
     t.failures,
     t.job_uid,
     t.submitted_by,
     t.created_at,
     t.started_at,
     t.heartbeat_at,
     t.finished_at,
     t.cancel_requested_at,
     t.node_name,
     t.pod_name,
     t.error,
     t.result,
     t.progress,
     t.note,
     t.kind,
     t.run_digest
    FROM dispatch_private.newest_tasks(((CURRENT_USER)::text COLLATE "default"), tasks_since."limit") t(id, queue, priority, run_at, timeout_seconds, max_failures, template, env, spec, payload, cache_key, dedupe_key, batch, labels, status, attempt, launch, failures, job_uid, submitted_by, created_at, started_at, heartbeat_at, finished_at, cancel_requested_at, node_name, pod_name, error, result, progress, note, kind, run_digest)
   WHERE (t.created_at >= tasks_since."time");
END;
COMMENT ON FUNCTION dispatch.tasks_since("time" timestamp with time zone, "limit" integer) IS 'Of your newest rows, at most `limit`, those that were inserted since a time, the newest first.';
CREATE FUNCTION dispatch_private.advice(wanted text, known text[], otherwise text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.advice(wanted text, known text[], otherwise text) IS 'A hint: the known name with the most pairs of letters in common, if it has half of them, and what else to do.';
CREATE FUNCTION dispatch_private.announce(channel text, clock regclass) RETURNS void
    LANGUAGE plpgsql
    AS …;
COMMENT ON FUNCTION dispatch_private.announce(channel text, clock regclass) IS 'Notifies a channel, at most every 100 ms, and only while the notification queue is less than half full.';
CREATE FUNCTION dispatch_private.announce_rows(kind text, ids bigint[]) RETURNS void
    LANGUAGE plpgsql
    AS …;
COMMENT ON FUNCTION dispatch_private.announce_rows(kind text, ids bigint[]) IS 'Announces rows by the clocks of their submitters, whoever has moved them: another team must not use up the clock of the janitor or of an operator.';
CREATE FUNCTION dispatch_private.are_logins_read_only() RETURNS boolean
    LANGUAGE plpgsql
    SET default_transaction_read_only TO 'on'
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;
COMMENT ON FUNCTION dispatch_private.are_logins_read_only() IS 'Whether the server or this database gives each new session read-only transactions.';
CREATE FUNCTION dispatch_private.backoff(failures integer) RETURNS interval
    LANGUAGE sql IMMUTABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.backoff(failures integer) IS 'How long a row waits after a failure that comes after so many: 10 s, doubled each time, 10 min at most.';
CREATE FUNCTION dispatch_private.both_have(role name, who text) RETURNS boolean
    LANGUAGE sql STABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.both_have(role name, who text) IS 'True: session_user and the code that looks are both members of the role.';
CREATE FUNCTION dispatch_private.cancel_rows(ids bigint[], why text) RETURNS TABLE(task bigint, became text)
    LANGUAGE plpgsql
    AS …;
COMMENT ON FUNCTION dispatch_private.cancel_rows(ids bigint[], why text) IS 'Cancels rows that have not ended: at once, or by asking the container. The rows that it changed, and their new status.';
CREATE FUNCTION dispatch_private.check_bound(submitter text, in_queue text) RETURNS void
    LANGUAGE plpgsql
    AS …;
COMMENT ON FUNCTION dispatch_private.check_bound(submitter text, in_queue text) IS 'Refuses what leaves a submitter with more waiting rows in a queue than that allows.';
CREATE FUNCTION dispatch_private.check_bounds() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
COMMENT ON FUNCTION dispatch_private.check_bounds() IS 'Checks the bounds of the queues that an INSERT was into, once for each INSERT.';
CREATE FUNCTION dispatch_private.check_objects(objects jsonb) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.check_objects(objects jsonb) IS 'Raises an error unless each element is an object with fields of a row.';
CREATE FUNCTION dispatch_private.clip(words text, most integer) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT
    AS …;
COMMENT ON FUNCTION dispatch_private.clip(words text, most integer) IS 'The longest beginning of a text that fits into so many bytes, with ? in place of what controls a terminal or the direction of text. Every encoding of clients has that sign.';
CREATE FUNCTION dispatch_private.clock_of(kind text, whose text) RETURNS regclass
    LANGUAGE sql STABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.clock_of(kind text, whose text) IS 'The sequence that holds when one of these logins notified last, in ms since 1970. kind: tasks, done.';
CREATE FUNCTION dispatch_private.close_launches(tasks bigint[]) RETURNS void
    LANGUAGE sql
    AS …;
COMMENT ON FUNCTION dispatch_private.close_launches(tasks bigint[]) IS 'Ends the records of runs that will not report any more.';
CREATE FUNCTION dispatch_private.compact_bytes(value jsonb) RETURNS integer
    LANGUAGE sql IMMUTABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.compact_bytes(value jsonb) IS 'Bytes of the value as programs write it, without the blank that jsonb has after each comma and colon.';
CREATE FUNCTION dispatch_private.delete_rows(ids bigint[], OUT deleted integer, OUT kept bigint[], OUT why text) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;
COMMENT ON FUNCTION dispatch_private.delete_rows(ids bigint[], OUT deleted integer, OUT kept bigint[], OUT why text) IS 'Deletes rows with their launches. kept: the rows that cannot be deleted; why: of the first one.';
CREATE FUNCTION dispatch_private.end_insert() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS …;
COMMENT ON FUNCTION dispatch_private.end_insert() IS 'Trigger, once for each INSERT: checks the bounds of queues, and wakes the dispatcher.';
CREATE FUNCTION dispatch_private.env_fault(env jsonb) RETURNS dispatch_private.refusal
    LANGUAGE plpgsql
    AS …;
COMMENT ON FUNCTION dispatch_private.env_fault(env jsonb) IS 'Why no container could be given this env; NULL: one could.';
CREATE FUNCTION dispatch_private.field(words text) RETURNS bytea
    LANGUAGE sql IMMUTABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.field(words text) IS 'A text with its length before it, so that two fields never run together; NULL is not the empty text.';
CREATE FUNCTION dispatch_private.forget_gone_roles() RETURNS void
    LANGUAGE plpgsql
    AS …;
COMMENT ON FUNCTION dispatch_private.forget_gone_roles() IS 'Removes the oids of roles that are gone. A later role can get such an oid, above all on another server that the rows are copied to.';
CREATE FUNCTION dispatch_private.gone_roles_of(queue text) RETURNS text[]
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
COMMENT ON FUNCTION dispatch_private.gone_roles_of(queue text) IS 'Roles that a queue names and that are gone. It judges no right: nobody can name it.';
CREATE FUNCTION dispatch_private.guard_task() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;
COMMENT ON FUNCTION dispatch_private.guard_task() IS 'Trigger: guards the functions that change a row against themselves, and lets the commit wait for the disk.';
CREATE FUNCTION dispatch_private.hmac(inner_block bytea, outer_block bytea, message bytea) RETURNS bytea
    LANGUAGE sql IMMUTABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.hmac(inner_block bytea, outer_block bytea, message bytea) IS 'HMAC-SHA-256 by the two blocks of a key.';
CREATE FUNCTION dispatch_private.insert_checked(task dispatch.tasks) RETURNS dispatch.tasks
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
COMMENT ON FUNCTION dispatch_private.insert_checked(task dispatch.tasks) IS 'Inserts a row, and returns it. If a row of its dedupe_key is alive: makes none, and returns the id of that one, without a status.';
CREATE FUNCTION dispatch_private.insert_task() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS …;
COMMENT ON FUNCTION dispatch_private.insert_task() IS 'Trigger: refuses rows that could never run, and inserts the others.';
CREATE FUNCTION dispatch_private.is_free(task_id bigint) RETURNS boolean
    LANGUAGE plpgsql
    AS …;
COMMENT ON FUNCTION dispatch_private.is_free(task_id bigint) IS 'Takes the row''s lock without waiting. False: another transaction holds it.';
CREATE FUNCTION dispatch_private.is_plain_env(written text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.is_plain_env(written text) IS 'True: env, as it is written, has at most 64 short legal names, none of them closed or trusted, and values without an escape. False: it has a fault, or only looks so.';
CREATE FUNCTION dispatch_private.is_trusted(name text) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.is_trusted(name text) IS 'True: programs run or trust the value of this variable, so a template must open it by name. The dispatcher has the same list.';
CREATE FUNCTION dispatch_private.janitor_cancel(task_id bigint, attempt integer, run_digest bytea) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS …;
COMMENT ON FUNCTION dispatch_private.janitor_cancel(task_id bigint, attempt integer, run_digest bytea) IS 'Ends a cancelled run whose container cannot answer any more. The new status; NULL: it was over; locked: another transaction holds the row.';
CREATE FUNCTION dispatch_private.janitor_delete(days integer, most integer, except_ids bigint[], OUT deleted integer, OUT kept bigint[], OUT why text) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS …;
COMMENT ON FUNCTION dispatch_private.janitor_delete(days integer, most integer, except_ids bigint[], OUT deleted integer, OUT kept bigint[], OUT why text) IS 'Deletes rows that ended so many days ago, and their launches, but for except_ids. It ends after two seconds. kept: rows that something outside the schema holds; why: what holds the first one.';
CREATE FUNCTION dispatch_private.janitor_end(task_id bigint, attempt integer, launch integer, job_uid text, outcome text, error text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS …;
COMMENT ON FUNCTION dispatch_private.janitor_end(task_id bigint, attempt integer, launch integer, job_uid text, outcome text, error text) IS 'Ends a parked row, or one whose Job''s exit code is its report; retry: a failure, and the next attempt while max_failures lasts. job_uid NULL: no Job was ever made of it. The new status; NULL: it moved on by itself; locked: another transaction holds the row.';
CREATE FUNCTION dispatch_private.janitor_ended(ends jsonb) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS …;
COMMENT ON FUNCTION dispatch_private.janitor_ended(ends jsonb) IS 'Writes down what ended launches: [{task, attempt, launch, job_uid, node, pod, started_at, ended_at, exit_code, reason, output}]. Number of launches that were changed.';
CREATE FUNCTION dispatch_private.janitor_return(task_id bigint, attempt integer, launch integer, run_digest bytea, failures integer, error text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS …;
COMMENT ON FUNCTION dispatch_private.janitor_return(task_id bigint, attempt integer, launch integer, run_digest bytea, failures integer, error text) IS 'A run whose container is gone: the row''s next attempt, or failed. The new status; NULL: it was somebody else''s by then; locked: another transaction holds the row.';
CREATE FUNCTION dispatch_private.janitor_tell(report jsonb) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS …;
COMMENT ON FUNCTION dispatch_private.janitor_tell(report jsonb) IS 'Brings reasons over: {as_of, queues, rows: [[id, attempt, reason, since, message]], gone: [id]}. Number of rows whose reason changed; NULL: a newer report is there.';
CREATE FUNCTION dispatch_private.janitor_templates(offered jsonb, are_all boolean) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS …;
COMMENT ON FUNCTION dispatch_private.janitor_templates(offered jsonb, are_all boolean) IS 'Brings the table templates in step: [{name, row_may_set, bounds, images, machines, sets, note}]. are_all: others are deleted. Number of changed rows.';
CREATE FUNCTION dispatch_private.job_bytes(env jsonb, spec jsonb) RETURNS bigint
    LANGUAGE sql IMMUTABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.job_bytes(env jsonb, spec jsonb) IS 'Bytes that a row adds to its Job: the names and values of env, the words of command and args. Each $ is doubled there.';
CREATE FUNCTION dispatch_private.json_kind(value jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.json_kind(value jsonb) IS 'What the value is, for a refusal. Clients that encode JSON by themselves make a string of a text that is JSON already.';
CREATE FUNCTION dispatch_private.keep_kind() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;
COMMENT ON FUNCTION dispatch_private.keep_kind() IS 'Trigger: a row that an administrator edits is of the kind of what it asks for now. Otherwise it would be judged as others, and they as it.';
CREATE FUNCTION dispatch_private.keep_queue() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS …;
COMMENT ON FUNCTION dispatch_private.keep_queue() IS 'Trigger: a queue with live rows stays, and no name changes.';
CREATE FUNCTION dispatch_private.key_time(id bigint, start_key uuid) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.key_time(id bigint, start_key uuid) IS 'created_at of the row that a start key belongs to, by the newest secret or the one before, or by an earlier form of key; NULL: it is no key of this row.';
CREATE FUNCTION dispatch_private.kind_of(template text, spec jsonb, timeout_seconds integer, env jsonb) RETURNS bytea
    LANGUAGE plpgsql STABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.kind_of(template text, spec jsonb, timeout_seconds integer, env jsonb) IS 'Digest of all that a template''s bounds are judged by.';
CREATE FUNCTION dispatch_private.know_login(wanted text, its_oid oid) RETURNS void
    LANGUAGE plpgsql
    SET lock_timeout TO '1ms'
    AS …;
COMMENT ON FUNCTION dispatch_private.know_login(wanted text, its_oid oid) IS 'Keeps the name of the rows of a login. lock_not_available: another session of it does so, and has not committed.';
CREATE FUNCTION dispatch_private.know_roles() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'notice'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS …;
COMMENT ON FUNCTION dispatch_private.know_roles() IS 'Trigger: keeps the oid of a role of a queue. A role of the same name that is made later gets no right by it.';
CREATE FUNCTION dispatch_private.labels_fault(labels jsonb) RETURNS dispatch_private.refusal
    LANGUAGE plpgsql
    AS …;
COMMENT ON FUNCTION dispatch_private.labels_fault(labels jsonb) IS 'Why these labels are not usable; NULL: they are.';
CREATE FUNCTION dispatch_private.last_attempt() RETURNS integer
    LANGUAGE sql IMMUTABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.last_attempt() IS 'The last attempt of a row; a smallint ends a little later.';
CREATE FUNCTION dispatch_private.matches_one(value text, globs text[]) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.matches_one(value text, globs text[]) IS 'True: one of the patterns matches, or cannot be judged in SQL.';
CREATE FUNCTION dispatch_private.may_submit(door name, its_oid oid) RETURNS boolean
    LANGUAGE sql STABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.may_submit(door name, its_oid oid) IS 'True: the login is a member of the role that a queue asks for. A role that is gone has no members.';
CREATE FUNCTION dispatch_private.name_of(login text) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;
COMMENT ON FUNCTION dispatch_private.name_of(login text) IS 'The submitted_by of the rows that a login inserts. If somebody else had its name before, the oid is added.';
CREATE FUNCTION dispatch_private.new_secret(OUT inner_block bytea, OUT outer_block bytea) RETURNS record
    LANGUAGE plpgsql
    AS …;
COMMENT ON FUNCTION dispatch_private.new_secret(OUT inner_block bytea, OUT outer_block bytea) IS 'The two HMAC blocks of a fresh random key of 32 bytes.';
CREATE FUNCTION dispatch_private.open_queues(who text) RETURNS SETOF text
    LANGUAGE plpgsql STABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.open_queues(who text) IS 'Names of the queues that the login may insert into, of those that it owns, and `*`.';
CREATE FUNCTION dispatch_private.own_name(who text) RETURNS text
    LANGUAGE plpgsql STABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.own_name(who text) IS 'The submitted_by of the rows of a login that asks for itself; NULL: it asks for another, or its name is that of somebody who was there before.';
CREATE FUNCTION dispatch_private.own_task(who text, task bigint) RETURNS bigint
    LANGUAGE plpgsql STABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.own_task(who text, task bigint) IS 'The id of the row if the login may change it; NULL: it may not, or there is no such row.';
CREATE FUNCTION dispatch_private.plain_kind(template text, written text) RETURNS bytea
    LANGUAGE sql STABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.plain_kind(template text, written text) IS 'The kind of a row that asks for nothing but variables: its template and the names in env are all that bounds are judged by. That of kind_of would take a tenth of the INSERT.';
CREATE FUNCTION dispatch_private.plain_note(words text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT
    AS …;
COMMENT ON FUNCTION dispatch_private.plain_note(words text) IS 'The words on one line, without characters that control a terminal or the direction of text; 200 characters.';
CREATE FUNCTION dispatch_private.quantity(written text) RETURNS numeric
    LANGUAGE sql IMMUTABLE STRICT
    AS …;
COMMENT ON FUNCTION dispatch_private.quantity(written text) IS 'Value of a Kubernetes quantity without sign or exponent; NULL: not one.';
CREATE FUNCTION dispatch_private.queue_fault(wanted text, door name, is_gone boolean) RETURNS dispatch_private.refusal
    LANGUAGE sql STABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.queue_fault(wanted text, door name, is_gone boolean) IS 'Why a row may not name this queue. door: the role that may; NULL: there is no such queue. is_gone: nobody is a member, whoever has the name now.';
CREATE FUNCTION dispatch_private.read_objects(objects jsonb) RETURNS SETOF dispatch.tasks
    LANGUAGE plpgsql IMMUTABLE
    AS …;
CREATE FUNCTION dispatch_private.refuse_foreign_code() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;
COMMENT ON FUNCTION dispatch_private.refuse_foreign_code() IS 'Trigger: nobody inserts a row in the name of a login that may not insert, nor code of somebody else in that of a superuser.';
CREATE FUNCTION dispatch_private.retry_rows(ids bigint[], expected integer, only_ended boolean) RETURNS SETOF bigint
    LANGUAGE plpgsql
    AS …;
COMMENT ON FUNCTION dispatch_private.retry_rows(ids bigint[], expected integer, only_ended boolean) IS 'Returns rows to waiting, and fences their runs off. expected: only rows of this attempt; NULL: of any. only_ended: only rows that have failed or were cancelled. The rows that it changed.';
CREATE FUNCTION dispatch_private.rights_of(who text, OUT self boolean, OUT sees boolean, OUT hides boolean, OUT acts boolean, OUT owned text[], OUT own text) RETURNS record
    LANGUAGE plpgsql STABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.rights_of(who text, OUT self boolean, OUT sees boolean, OUT hides boolean, OUT acts boolean, OUT owned text[], OUT own text) IS 'What a login may: self: it asks for itself, and has its own rows, whose submitted_by is own. sees: every row. hides: without payload. acts: cancel and retry every row. owned: queues whose rows it sees and changes.';
CREATE FUNCTION dispatch_private.role_now(written name, its_oid oid) RETURNS name
    LANGUAGE sql STABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.role_now(written name, its_oid oid) IS 'The name that a role has now which a queue names; NULL: it is gone. Without an oid the role was not there when the queue was written.';
CREATE FUNCTION dispatch_private.run_tokens(id bigint, attempt integer, launch integer, job_uid text, pod text) RETURNS SETOF uuid
    LANGUAGE sql STABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.run_tokens(id bigint, attempt integer, launch integer, job_uid text, pod text) IS 'The tokens of a run, the newest first: the same Pod of the same Job gets the same ones.';
CREATE FUNCTION dispatch_private.setting_of(role oid, database oid, setting text) RETURNS text
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;
COMMENT ON FUNCTION dispatch_private.setting_of(role oid, database oid, setting text) IS 'What a login has set for its sessions; NULL: nothing, or its settings are too long to be read.';
CREATE FUNCTION dispatch_private.show_inserted() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;
COMMENT ON FUNCTION dispatch_private.show_inserted() IS 'Trigger: what RETURNING shows where a row of the same dedupe_key is alive.';
CREATE FUNCTION dispatch_private.shown(words text) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.shown(words text) IS 'The words in quotes after a blank, if they look like a name; otherwise empty.';
CREATE FUNCTION dispatch_private.spec_fault(spec jsonb) RETURNS dispatch_private.refusal
    LANGUAGE plpgsql
    AS …;
COMMENT ON FUNCTION dispatch_private.spec_fault(spec jsonb) IS 'Why no template could accept this spec; NULL: one could.';
CREATE FUNCTION dispatch_private.start_keys(id bigint, created_at timestamp with time zone) RETURNS SETOF uuid
    LANGUAGE sql STABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.start_keys(id bigint, created_at timestamp with time zone) IS 'The start keys of a row, the newest first; the dispatcher derives the first one, too.';
CREATE FUNCTION dispatch_private.status_after(outcome text, cancel_requested_at timestamp with time zone, failures integer, max_failures integer, attempt integer) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.status_after(outcome text, cancel_requested_at timestamp with time zone, failures integer, max_failures integer, attempt integer) IS 'The status that a reported outcome leads to.';
CREATE FUNCTION dispatch_private.subdomain(name text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT
    AS …;
COMMENT ON FUNCTION dispatch_private.subdomain(name text) IS 'A name as Kubernetes allows it for nodes and Pods (RFC 1123 subdomain); any other: NULL.';
CREATE FUNCTION dispatch_private.task_fault(task dispatch.tasks) RETURNS dispatch_private.refusal
    LANGUAGE plpgsql STABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.task_fault(task dispatch.tasks) IS 'The first fault of a row that is to be inserted; NULL: it has none.';
CREATE FUNCTION dispatch_private.task_logins() RETURNS TABLE(login name, refused text)
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;
COMMENT ON FUNCTION dispatch_private.task_logins() IS 'Logins of containers, and why each of them could not report; NULL: nothing in the catalog is against it.';
CREATE FUNCTION dispatch_private.tasks_refused() RETURNS text
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS …;
COMMENT ON FUNCTION dispatch_private.tasks_refused() IS 'Why no login of containers could report; NULL: one could, as far as the catalog tells.';
CREATE FUNCTION dispatch_private.template_fault(template text, spec jsonb, env jsonb, timeout_seconds bigint) RETURNS dispatch_private.refusal
    LANGUAGE plpgsql STABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.template_fault(template text, spec jsonb, env jsonb, timeout_seconds bigint) IS 'Why the template refuses such a row, by the table templates; NULL: it accepts the row, or cannot be judged.';
CREATE FUNCTION dispatch_private.token_digest(token uuid) RETURNS bytea
    LANGUAGE sql IMMUTABLE STRICT
    AS …;
COMMENT ON FUNCTION dispatch_private.token_digest(token uuid) IS 'What a row keeps of a key.';
CREATE FUNCTION dispatch_private.visible_queue_reasons(who text) RETURNS SETOF dispatch_private.queue_reasons
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
COMMENT ON FUNCTION dispatch_private.visible_queue_reasons(who text) IS 'What the dispatcher told of the visible queues.';
CREATE TABLE dispatch_private.queues (
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
    owner_oid regrole,
    submit_oid regrole,
    CONSTRAINT queues_max_jobs_check CHECK ((max_jobs >= 0)),
    CONSTRAINT queues_max_jobs_per_submitter_check CHECK ((max_jobs_per_submitter >= 0)),
    CONSTRAINT queues_max_pending_check CHECK ((max_pending >= 0)),
    CONSTRAINT queues_max_waiting_per_submitter_check CHECK ((max_waiting_per_submitter >= 0)),
    CONSTRAINT queues_name_check CHECK (((name = '*'::text) OR (name ~ '^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$'::text))),
    CONSTRAINT queues_weight_check CHECK (((weight >= 1) AND (weight <= 1000)))
);
COMMENT ON TABLE dispatch_private.queues IS 'The declared queues; the view dispatch.queues explains the columns.';
CREATE FUNCTION dispatch_private.visible_queues(who text) RETURNS SETOF dispatch_private.queues
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
COMMENT ON FUNCTION dispatch_private.visible_queues(who text) IS 'The queues that the login may insert into, and those that it owns; all of them for operators and observers.';
CREATE FUNCTION dispatch_private.visible_reasons(who text) RETURNS SETOF dispatch_private.task_reasons
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET geqo TO 'off'
    SET jit TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    SET cursor_tuple_fraction TO '1'
    SET seq_page_cost TO '1'
    SET random_page_cost TO '1'
    SET cpu_tuple_cost TO '0.01'
    SET cpu_index_tuple_cost TO '0.005'
    SET cpu_operator_cost TO '0.0025'
    SET effective_cache_size TO '524288'
    SET enable_async_append TO 'on'
    SET enable_bitmapscan TO 'off'
    SET enable_distinct_reordering TO 'on'
    SET enable_gathermerge TO 'on'
    SET enable_group_by_reordering TO 'on'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_incremental_sort TO 'off'
    SET enable_indexonlyscan TO 'on'
    SET enable_indexscan TO 'on'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_nestloop TO 'on'
    SET enable_parallel_append TO 'on'
    SET enable_parallel_hash TO 'on'
    SET enable_partition_pruning TO 'on'
    SET enable_partitionwise_aggregate TO 'off'
    SET enable_partitionwise_join TO 'off'
    SET enable_presorted_aggregate TO 'on'
    SET enable_self_join_elimination TO 'on'
    SET enable_seqscan TO 'off'
    SET enable_sort TO 'off'
    SET enable_tidscan TO 'off'
    AS …;
CREATE FUNCTION dispatch_private.write_queue() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET client_min_messages TO 'error'
    SET debug_print_parse TO 'off'
    SET debug_print_rewritten TO 'off'
    SET debug_print_plan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS …;
COMMENT ON FUNCTION dispatch_private.write_queue() IS 'Trigger: writes what an operator changes of a queue.';
CREATE FUNCTION dispatch_private.wrong_value(objects jsonb) RETURNS text
    LANGUAGE plpgsql STABLE
    AS …;
COMMENT ON FUNCTION dispatch_private.wrong_value(objects jsonb) IS 'Which value of an array is not of the type of its column. Only a refused array is looked at so.';
CREATE VIEW dispatch.queue_status AS
 SELECT q.queue,
    q.waiting,
    q.in_flight,
    q.max_jobs,
    q.weight,
    q.share,
    q.paused_until,
    (EXTRACT(epoch FROM (now() - q.oldest)))::real AS oldest_wait_seconds,
    q.reasons,
    r.as_of,
    dispatch_private.gone_roles_of(q.queue) AS roles_gone
   FROM (dispatch_private.visible_queue_reasons(((CURRENT_USER)::text COLLATE "default")) q(queue, waiting, in_flight, max_jobs, weight, share, paused_until, oldest, reasons, behind)
     LEFT JOIN dispatch_private.reported r ON (true));
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
CREATE VIEW dispatch.queues AS
 SELECT name,
    weight,
    max_jobs,
    max_jobs_per_submitter,
    max_pending,
    paused_until,
    owner_role,
    note,
    submit_role,
    max_waiting_per_submitter,
    fair_submitters
   FROM dispatch_private.visible_queues(((CURRENT_USER)::text COLLATE "default")) visible_queues(name, weight, max_jobs, max_jobs_per_submitter, max_pending, paused_until, owner_role, note, submit_role, max_waiting_per_submitter, fair_submitters, owner_oid, submit_oid);
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
CREATE VIEW dispatch.reasons AS
 SELECT reason,
    whose_turn,
    meaning,
    next_step
   FROM dispatch_private.reasons
  WHERE (reason !~~ '%: %'::text);
COMMENT ON VIEW dispatch.reasons IS 'Every reason for which a row waits.';
COMMENT ON COLUMN dispatch.reasons.reason IS 'The stable code.';
COMMENT ON COLUMN dispatch.reasons.whose_turn IS 'Who can end the wait: submitter, author (of the template), operator, cluster (it needs room), nobody (it takes time).';
COMMENT ON COLUMN dispatch.reasons.meaning IS 'The same in words.';
COMMENT ON COLUMN dispatch.reasons.next_step IS 'What ends the wait.';
CREATE TABLE dispatch_private.schema_version (
    version integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    database_id uuid NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);
COMMENT ON TABLE dispatch_private.schema_version IS 'Applied migrations, one row each; written by `dispatcher migrate` alone.';
CREATE VIEW dispatch.schema_version AS
 SELECT version,
    name,
    checksum,
    database_id,
    applied_at
   FROM dispatch_private.schema_version;
COMMENT ON VIEW dispatch.schema_version IS 'Applied migrations, one row each; written by `dispatcher migrate` alone.';
COMMENT ON COLUMN dispatch.schema_version.version IS 'Number of the migration file.';
COMMENT ON COLUMN dispatch.schema_version.name IS 'File name of the migration.';
COMMENT ON COLUMN dispatch.schema_version.checksum IS 'SHA-256 of the file as it was applied; a changed file is refused.';
COMMENT ON COLUMN dispatch.schema_version.database_id IS 'Random identity of this database, the same in every row. Part of every Job name: a restored copy keeps it, another database has its own.';
COMMENT ON COLUMN dispatch.schema_version.applied_at IS 'When it was applied.';
CREATE VIEW dispatch.task_reasons AS
 SELECT task_id,
    attempt,
    reason,
    message,
    since
   FROM dispatch_private.visible_reasons(((CURRENT_USER)::text COLLATE "default")) visible_reasons(task_id, attempt, reason, message, since);
COMMENT ON VIEW dispatch.task_reasons IS 'Reasons of single rows, as the dispatcher told them: parked rows, launched rows, and the first rows of each queue. Read the view task_explain instead.';
COMMENT ON COLUMN dispatch.task_reasons.task_id IS 'tasks.id.';
COMMENT ON COLUMN dispatch.task_reasons.attempt IS 'The attempt that was judged.';
COMMENT ON COLUMN dispatch.task_reasons.reason IS 'The stable code, see dispatch.reasons.';
COMMENT ON COLUMN dispatch.task_reasons.message IS 'The same in words, with numbers and names.';
COMMENT ON COLUMN dispatch.task_reasons.since IS 'Since when this reason holds the row.';
CREATE TABLE dispatch_private.templates (
    name text NOT NULL,
    row_may_set text[],
    bounds jsonb DEFAULT '{}'::jsonb NOT NULL,
    images text[] DEFAULT '{}'::text[] NOT NULL,
    machines text[] DEFAULT '{}'::text[] NOT NULL,
    sets text[] DEFAULT '{}'::text[] NOT NULL,
    note text DEFAULT ''::text NOT NULL
);
COMMENT ON TABLE dispatch_private.templates IS 'The templates that rows may name. The janitor writes it, from the files of the dispatcher; a change by hand lasts seconds.';
CREATE VIEW dispatch.templates AS
 SELECT name,
    row_may_set,
    bounds,
    images,
    machines,
    sets,
    note
   FROM dispatch_private.templates;
COMMENT ON VIEW dispatch.templates IS 'The templates that rows may name. The janitor writes them, from the files of the dispatcher.';
COMMENT ON COLUMN dispatch.templates.name IS 'What tasks.template says.';
COMMENT ON COLUMN dispatch.templates.row_may_set IS 'What rows may set: fields of spec, `env` (every name that is not closed or in `sets`), env.NAME. NULL: the template has a fault, see note; its rows wait.';
COMMENT ON COLUMN dispatch.templates.bounds IS 'Most cpu and memory of spec, most seconds of timeout_seconds, most bytes of env, command and args together; image: rows have to name one in spec.';
COMMENT ON COLUMN dispatch.templates.images IS 'Patterns of the images that rows may name: * is any text.';
COMMENT ON COLUMN dispatch.templates.machines IS 'Patterns of the machines that rows may name: * is any text.';
COMMENT ON COLUMN dispatch.templates.sets IS 'Variables that the template or the installation sets. Rows may set them only where row_may_set has env.NAME.';
COMMENT ON COLUMN dispatch.templates.note IS 'For people: the description in the template, or its fault.';
CREATE TABLE dispatch_private.applied_functions (
    name text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);
COMMENT ON TABLE dispatch_private.applied_functions IS 'The files of sql/functions as they were applied last. `dispatcher migrate` applies all of them when one has changed.';
CREATE VIEW dispatch_private.batches_of_queues AS
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
   FROM dispatch_private.tasks
  WHERE (batch IS NOT NULL)
  GROUP BY queue, batch, submitted_by;
CREATE UNLOGGED TABLE dispatch_private.bounded_inserts (
    transaction xid8 NOT NULL,
    queue text NOT NULL
);
COMMENT ON TABLE dispatch_private.bounded_inserts IS 'Queues with a bound of waiting rows that a statement is inserting into. It is empty outside of statements.';
CREATE SEQUENCE dispatch_private.done_clock_0
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.done_clock_1
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.done_clock_10
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.done_clock_11
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.done_clock_12
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.done_clock_13
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.done_clock_14
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.done_clock_15
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.done_clock_2
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.done_clock_3
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.done_clock_4
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.done_clock_5
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.done_clock_6
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.done_clock_7
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.done_clock_8
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.done_clock_9
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE dispatch_private.earlier_start_keys (
    task_id bigint NOT NULL,
    digest bytea NOT NULL
);
COMMENT ON TABLE dispatch_private.earlier_start_keys IS 'Digests of the start keys of an earlier form, for the Jobs of that time. Only upgrades add rows.';
CREATE VIEW dispatch_private.effective_queues AS
 SELECT q.name,
    COALESCE(q.submit_role, q.owner_role, d.submit_role) AS submit_role,
        CASE
            WHEN (q.submit_role IS NOT NULL) THEN q.submit_oid
            WHEN (q.owner_role IS NOT NULL) THEN q.owner_oid
            ELSE d.submit_oid
        END AS submit_oid,
    q.owner_role,
    q.owner_oid,
    COALESCE(q.max_waiting_per_submitter, d.max_waiting_per_submitter) AS max_waiting_per_submitter
   FROM (dispatch_private.queues q
     LEFT JOIN dispatch_private.queues d ON ((d.name = '*'::text)))
  WHERE (q.name <> '*'::text);
COMMENT ON VIEW dispatch_private.effective_queues IS 'The queues that a row may name, with the roles and the bound that hold for it: of the queue, otherwise of the row `*`. submit_role NULL: every submitter.';
CREATE SEQUENCE dispatch_private.reasons_clock
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;
CREATE TABLE dispatch_private.secrets (
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
COMMENT ON TABLE dispatch_private.secrets IS 'The secrets that keys are derived from: the newest generation, and the one before it for Jobs that were made with it. `rotate_secrets` makes a new one.';
CREATE TABLE dispatch_private.submitters (
    name text NOT NULL,
    role regrole
);
COMMENT ON TABLE dispatch_private.submitters IS 'Whose rows have which submitted_by. role NULL: a login that is gone.';
CREATE SEQUENCE dispatch_private.tasks_clock_0
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.tasks_clock_1
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.tasks_clock_10
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.tasks_clock_11
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.tasks_clock_12
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.tasks_clock_13
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.tasks_clock_14
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.tasks_clock_15
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.tasks_clock_2
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.tasks_clock_3
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.tasks_clock_4
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.tasks_clock_5
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.tasks_clock_6
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.tasks_clock_7
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.tasks_clock_8
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE SEQUENCE dispatch_private.tasks_clock_9
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER TABLE dispatch_private.tasks ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME dispatch_private.tasks_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
ALTER TABLE ONLY dispatch.queues ALTER COLUMN weight SET DEFAULT 1;
ALTER TABLE ONLY dispatch.queues ALTER COLUMN fair_submitters SET DEFAULT false;
ALTER TABLE ONLY dispatch.tasks ALTER COLUMN id SET DEFAULT 
CASE
    WHEN (current_setting('session_replication_role'::text) = 'replica'::text) THEN (('no row is inserted with session_replication_role = '::text || current_setting('session_replication_role'::text)))::bigint
    ELSE NULL::bigint
END;
ALTER TABLE ONLY dispatch.tasks ALTER COLUMN queue SET DEFAULT 'default'::text;
ALTER TABLE ONLY dispatch.tasks ALTER COLUMN priority SET DEFAULT 100;
ALTER TABLE ONLY dispatch.tasks ALTER COLUMN template SET DEFAULT 'default'::text;
ALTER TABLE ONLY dispatch.tasks ALTER COLUMN env SET DEFAULT '{}'::jsonb;
ALTER TABLE ONLY dispatch.tasks ALTER COLUMN spec SET DEFAULT '{}'::jsonb;
ALTER TABLE ONLY dispatch.tasks ALTER COLUMN labels SET DEFAULT '{}'::jsonb;
ALTER TABLE ONLY dispatch_private.applied_functions
    ADD CONSTRAINT applied_functions_pkey PRIMARY KEY (name);
ALTER TABLE ONLY dispatch_private.bounded_inserts
    ADD CONSTRAINT bounded_inserts_pkey PRIMARY KEY (transaction, queue);
ALTER TABLE ONLY dispatch_private.earlier_start_keys
    ADD CONSTRAINT earlier_start_keys_pkey PRIMARY KEY (task_id, digest);
ALTER TABLE ONLY dispatch_private.queue_reasons
    ADD CONSTRAINT queue_reasons_pkey PRIMARY KEY (queue);
ALTER TABLE ONLY dispatch_private.queues
    ADD CONSTRAINT queues_pkey PRIMARY KEY (name);
ALTER TABLE ONLY dispatch_private.reasons
    ADD CONSTRAINT reasons_pkey PRIMARY KEY (reason);
ALTER TABLE ONLY dispatch_private.reported
    ADD CONSTRAINT reported_pkey PRIMARY KEY (is_only);
ALTER TABLE ONLY dispatch_private.schema_version
    ADD CONSTRAINT schema_version_pkey PRIMARY KEY (version);
ALTER TABLE ONLY dispatch_private.secrets
    ADD CONSTRAINT secrets_pkey PRIMARY KEY (generation);
ALTER TABLE ONLY dispatch_private.submitters
    ADD CONSTRAINT submitters_pkey PRIMARY KEY (name);
ALTER TABLE ONLY dispatch_private.submitters
    ADD CONSTRAINT submitters_role_key UNIQUE (role);
ALTER TABLE ONLY dispatch_private.task_launches
    ADD CONSTRAINT task_launches_pkey PRIMARY KEY (task_id, attempt, launch);
ALTER TABLE ONLY dispatch_private.task_reasons
    ADD CONSTRAINT task_reasons_pkey PRIMARY KEY (task_id);
ALTER TABLE ONLY dispatch_private.tasks
    ADD CONSTRAINT tasks_pkey PRIMARY KEY (id);
ALTER TABLE ONLY dispatch_private.templates
    ADD CONSTRAINT templates_pkey PRIMARY KEY (name);
CREATE UNIQUE INDEX dedupe_key_of_a_living_row ON dispatch_private.tasks USING btree (queue, submitted_by, dedupe_key) WHERE ((dedupe_key IS NOT NULL) AND (status = ANY (ARRAY['waiting'::text, 'processing'::text])));
CREATE UNIQUE INDEX task_launches_run ON dispatch_private.task_launches USING btree (run_digest) WHERE (run_digest IS NOT NULL);
CREATE INDEX task_launches_starts ON dispatch_private.task_launches USING btree (queue, started_at) WHERE (queue IS NOT NULL);
CREATE INDEX tasks_due ON dispatch_private.tasks USING btree (queue, run_at, id) INCLUDE (priority, attempt, kind, submitted_by) WHERE ((status = 'waiting'::text) AND (run_at IS NOT NULL));
CREATE INDEX tasks_due_of_submitter ON dispatch_private.tasks USING btree (queue, submitted_by, run_at, id) INCLUDE (priority, attempt, kind) WHERE ((status = 'waiting'::text) AND (run_at IS NOT NULL));
CREATE INDEX tasks_failed ON dispatch_private.tasks USING btree (finished_at) WHERE (status = 'failed'::text);
CREATE INDEX tasks_finished ON dispatch_private.tasks USING btree (finished_at) WHERE (finished_at IS NOT NULL);
CREATE INDEX tasks_finished_of_queue ON dispatch_private.tasks USING btree (queue, finished_at) WHERE ((finished_at IS NOT NULL) AND (status = ANY (ARRAY['succeeded'::text, 'failed'::text, 'cancelled'::text])));
CREATE INDEX tasks_finished_of_submitter ON dispatch_private.tasks USING btree (submitted_by, finished_at, id) WHERE ((finished_at IS NOT NULL) AND (status = ANY (ARRAY['succeeded'::text, 'failed'::text, 'cancelled'::text])));
CREATE INDEX tasks_history ON dispatch_private.tasks USING btree (queue, cache_key, finished_at DESC) INCLUDE (node_name) WHERE ((status = 'succeeded'::text) AND (cache_key IS NOT NULL));
CREATE INDEX tasks_labels ON dispatch_private.tasks USING gin (labels jsonb_path_ops) WITH (gin_pending_list_limit='256') WHERE (labels <> '{}'::jsonb);
CREATE INDEX tasks_of_batch ON dispatch_private.tasks USING btree (queue, batch, submitted_by, id) WHERE (batch IS NOT NULL);
CREATE INDEX tasks_of_own_batch ON dispatch_private.tasks USING btree (submitted_by, queue, batch, id) INCLUDE (status, started_at, finished_at) WHERE (batch IS NOT NULL);
CREATE INDEX tasks_of_queue ON dispatch_private.tasks USING btree (queue, id);
CREATE INDEX tasks_of_submitter ON dispatch_private.tasks USING btree (submitted_by, id);
CREATE INDEX tasks_processing ON dispatch_private.tasks USING btree (run_digest, id) WHERE (status = 'processing'::text);
CREATE INDEX tasks_ready ON dispatch_private.tasks USING btree (queue, priority, id) INCLUDE (attempt, kind, submitted_by) WHERE ((status = 'waiting'::text) AND (run_at IS NULL));
CREATE INDEX tasks_ready_of_submitter ON dispatch_private.tasks USING btree (queue, submitted_by, priority, id) INCLUDE (attempt, kind) WHERE ((status = 'waiting'::text) AND (run_at IS NULL));
CREATE TRIGGER end_insert AFTER INSERT ON dispatch.tasks FOR EACH STATEMENT EXECUTE FUNCTION dispatch_private.end_insert();
CREATE TRIGGER insert_task INSTEAD OF INSERT ON dispatch.tasks FOR EACH ROW EXECUTE FUNCTION dispatch_private.insert_task();
CREATE TRIGGER refuse_foreign_code BEFORE INSERT ON dispatch.tasks FOR EACH STATEMENT WHEN (((CURRENT_USER <> SESSION_USER) OR (NOT pg_has_role(SESSION_USER, 'dispatch_submitter'::name, 'MEMBER'::text)))) EXECUTE FUNCTION dispatch_private.refuse_foreign_code();
CREATE TRIGGER show_inserted INSTEAD OF INSERT ON dispatch.tasks FOR EACH ROW EXECUTE FUNCTION dispatch_private.show_inserted();
CREATE TRIGGER write_queue INSTEAD OF INSERT OR DELETE OR UPDATE ON dispatch.queues FOR EACH ROW EXECUTE FUNCTION dispatch_private.write_queue();
CREATE TRIGGER guard_task BEFORE UPDATE OF status, attempt, launch, run_digest, finished_at ON dispatch_private.tasks FOR EACH ROW EXECUTE FUNCTION dispatch_private.guard_task();
CREATE TRIGGER keep_kind BEFORE UPDATE OF template, spec, timeout_seconds, env ON dispatch_private.tasks FOR EACH ROW EXECUTE FUNCTION dispatch_private.keep_kind();
CREATE TRIGGER keep_queue BEFORE DELETE ON dispatch_private.queues FOR EACH ROW EXECUTE FUNCTION dispatch_private.keep_queue();
CREATE TRIGGER keep_queue_name BEFORE UPDATE OF name ON dispatch_private.queues FOR EACH ROW WHEN ((old.name IS DISTINCT FROM new.name)) EXECUTE FUNCTION dispatch_private.keep_queue();
CREATE TRIGGER know_roles BEFORE INSERT OR UPDATE OF owner_role ON dispatch_private.queues FOR EACH ROW EXECUTE FUNCTION dispatch_private.know_roles('owner_role');
CREATE TRIGGER know_submit_role BEFORE INSERT OR UPDATE OF submit_role ON dispatch_private.queues FOR EACH ROW EXECUTE FUNCTION dispatch_private.know_roles('submit_role');
ALTER TABLE dispatch_private.applied_functions ENABLE ROW LEVEL SECURITY;
ALTER TABLE dispatch_private.bounded_inserts ENABLE ROW LEVEL SECURITY;
ALTER TABLE dispatch_private.earlier_start_keys ENABLE ROW LEVEL SECURITY;
CREATE POLICY programs ON dispatch_private.applied_functions FOR SELECT TO dispatch_reader, dispatch_janitor USING (true);
CREATE POLICY programs ON dispatch_private.queues FOR SELECT TO dispatch_reader, dispatch_janitor USING (true);
CREATE POLICY programs ON dispatch_private.schema_version FOR SELECT TO dispatch_reader, dispatch_janitor USING (true);
CREATE POLICY programs ON dispatch_private.secrets FOR SELECT TO dispatch_reader USING (true);
CREATE POLICY programs ON dispatch_private.submitters FOR SELECT TO dispatch_reader, dispatch_janitor USING (true);
CREATE POLICY programs ON dispatch_private.task_launches FOR SELECT TO dispatch_reader, dispatch_janitor USING (true);
CREATE POLICY programs ON dispatch_private.task_reasons FOR SELECT TO dispatch_janitor USING (true);
CREATE POLICY programs ON dispatch_private.tasks FOR SELECT TO dispatch_reader, dispatch_janitor USING (true);
CREATE POLICY programs ON dispatch_private.templates FOR SELECT TO dispatch_reader USING (true);
ALTER TABLE dispatch_private.queue_reasons ENABLE ROW LEVEL SECURITY;
ALTER TABLE dispatch_private.queues ENABLE ROW LEVEL SECURITY;
ALTER TABLE dispatch_private.reasons ENABLE ROW LEVEL SECURITY;
ALTER TABLE dispatch_private.reported ENABLE ROW LEVEL SECURITY;
ALTER TABLE dispatch_private.schema_version ENABLE ROW LEVEL SECURITY;
ALTER TABLE dispatch_private.secrets ENABLE ROW LEVEL SECURITY;
ALTER TABLE dispatch_private.submitters ENABLE ROW LEVEL SECURITY;
ALTER TABLE dispatch_private.task_launches ENABLE ROW LEVEL SECURITY;
ALTER TABLE dispatch_private.task_reasons ENABLE ROW LEVEL SECURITY;
ALTER TABLE dispatch_private.tasks ENABLE ROW LEVEL SECURITY;
ALTER TABLE dispatch_private.templates ENABLE ROW LEVEL SECURITY;
GRANT USAGE ON SCHEMA dispatch TO dispatch_reader;
GRANT USAGE ON SCHEMA dispatch TO dispatch_submitter;
GRANT USAGE ON SCHEMA dispatch TO dispatch_task;
GRANT USAGE ON SCHEMA dispatch TO dispatch_janitor;
GRANT USAGE ON SCHEMA dispatch TO dispatch_operator;
GRANT USAGE ON SCHEMA dispatch TO dispatch_observer;
GRANT USAGE ON SCHEMA dispatch_private TO dispatch_reader;
GRANT USAGE ON SCHEMA dispatch_private TO dispatch_janitor;
REVOKE ALL ON TYPE dispatch_private.refusal FROM PUBLIC;
GRANT SELECT(id) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(id) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(queue) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(queue) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(priority) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(priority) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(run_at) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(run_at) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(timeout_seconds) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(timeout_seconds) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(max_failures) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(max_failures) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(template) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(template) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(env) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(env) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(spec) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(spec) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(cache_key) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(cache_key) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(dedupe_key) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(dedupe_key) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(status) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(status) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(attempt) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(attempt) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(launch) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(launch) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(failures) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(failures) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(job_uid) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(job_uid) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(submitted_by) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(submitted_by) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(created_at) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(created_at) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(started_at) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(started_at) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(heartbeat_at) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(heartbeat_at) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(finished_at) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(finished_at) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(cancel_requested_at) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(cancel_requested_at) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(node_name) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(node_name) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(pod_name) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(pod_name) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(error) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(error) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(kind) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(kind) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(run_digest) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(batch) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(batch) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(labels) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(labels) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(progress) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(progress) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(note) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(note) ON TABLE dispatch_private.tasks TO dispatch_janitor;
GRANT SELECT(second_process) ON TABLE dispatch_private.tasks TO dispatch_reader;
GRANT SELECT(second_process) ON TABLE dispatch_private.tasks TO dispatch_janitor;
REVOKE ALL ON FUNCTION dispatch_private.batches_named(who text, in_queue text, named text) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.batches_named(who text, in_queue text, named text) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch_private.batches_named(who text, in_queue text, named text) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch_private.batches_named(who text, in_queue text, named text) TO dispatch_observer;
REVOKE ALL ON FUNCTION dispatch_private.visible_batches(who text) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.visible_batches(who text) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch_private.visible_batches(who text) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch_private.visible_batches(who text) TO dispatch_observer;
GRANT SELECT ON TABLE dispatch.batch_status TO dispatch_submitter;
GRANT SELECT ON TABLE dispatch.batch_status TO dispatch_operator;
GRANT SELECT ON TABLE dispatch.batch_status TO dispatch_observer;
REVOKE ALL ON FUNCTION dispatch.batch(queue text, batch text) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch.batch(queue text, batch text) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch.batch(queue text, batch text) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch.batch(queue text, batch text) TO dispatch_observer;
REVOKE ALL ON FUNCTION dispatch_private.batch_cancel(who text, in_queue text, named text, most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.batch_cancel(who text, in_queue text, named text, most integer) TO dispatch_submitter;
REVOKE ALL ON FUNCTION dispatch.batch_cancel(queue text, batch text) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch.batch_cancel(queue text, batch text) TO dispatch_submitter;
REVOKE ALL ON FUNCTION dispatch.batch_cancel(queue text, batch text, most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch.batch_cancel(queue text, batch text, most integer) TO dispatch_submitter;
REVOKE ALL ON FUNCTION dispatch_private.batch_retry(who text, in_queue text, named text) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.batch_retry(who text, in_queue text, named text) TO dispatch_submitter;
REVOKE ALL ON FUNCTION dispatch.batch_retry(queue text, batch text) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch.batch_retry(queue text, batch text) TO dispatch_submitter;
REVOKE ALL ON FUNCTION dispatch_private.own_name_told(who text) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.own_name_told(who text) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch_private.own_name_told(who text) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch_private.own_name_told(who text) TO dispatch_observer;
REVOKE ALL ON FUNCTION dispatch.own_name() FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch.own_name() TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch.own_name() TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch.own_name() TO dispatch_observer;
REVOKE ALL ON FUNCTION dispatch.rotate_secrets() FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.rows_move(who text, submitter text, login text) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.rows_move(who text, submitter text, login text) TO dispatch_operator;
REVOKE ALL ON FUNCTION dispatch.rows_move(submitter text, login text) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch.rows_move(submitter text, login text) TO dispatch_operator;
REVOKE ALL ON FUNCTION dispatch_private.submit(who text, objects jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.submit(who text, objects jsonb) TO dispatch_submitter;
REVOKE ALL ON FUNCTION dispatch.submit(tasks jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch.submit(tasks jsonb) TO dispatch_submitter;
REVOKE ALL ON FUNCTION dispatch_private.tasks_between(who text, first bigint, last bigint, most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.tasks_between(who text, first bigint, last bigint, most integer) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch_private.tasks_between(who text, first bigint, last bigint, most integer) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch_private.tasks_between(who text, first bigint, last bigint, most integer) TO dispatch_observer;
REVOKE ALL ON FUNCTION dispatch_private.visible_tasks(who text) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.visible_tasks(who text) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch_private.visible_tasks(who text) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch_private.visible_tasks(who text) TO dispatch_observer;
GRANT SELECT,INSERT ON TABLE dispatch.tasks TO dispatch_submitter;
GRANT SELECT ON TABLE dispatch.tasks TO dispatch_operator;
GRANT SELECT ON TABLE dispatch.tasks TO dispatch_observer;
REVOKE ALL ON FUNCTION dispatch.task(id bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch.task(id bigint) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch.task(id bigint) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch.task(id bigint) TO dispatch_observer;
REVOKE ALL ON FUNCTION dispatch_private.task_cancel(who text, task bigint, reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.task_cancel(who text, task bigint, reason text) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch_private.task_cancel(who text, task bigint, reason text) TO dispatch_operator;
REVOKE ALL ON FUNCTION dispatch.task_cancel(task_id bigint, reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch.task_cancel(task_id bigint, reason text) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch.task_cancel(task_id bigint, reason text) TO dispatch_operator;
REVOKE ALL ON FUNCTION dispatch_private.ended_tasks(who text, since timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.ended_tasks(who text, since timestamp with time zone) TO dispatch_submitter;
REVOKE ALL ON FUNCTION dispatch.task_ended_since(since timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch.task_ended_since(since timestamp with time zone) TO dispatch_submitter;
GRANT SELECT ON TABLE dispatch_private.task_reasons TO dispatch_janitor;
REVOKE ALL ON FUNCTION dispatch_private.all_explanations(who text) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.all_explanations(who text) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch_private.all_explanations(who text) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch_private.all_explanations(who text) TO dispatch_observer;
REVOKE ALL ON FUNCTION dispatch_private.explanation_of(task bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.explanation_of(task bigint) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch_private.explanation_of(task bigint) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch_private.explanation_of(task bigint) TO dispatch_observer;
REVOKE ALL ON FUNCTION dispatch_private.place_of(task bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.place_of(task bigint) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch_private.place_of(task bigint) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch_private.place_of(task bigint) TO dispatch_observer;
REVOKE ALL ON FUNCTION dispatch_private.visible_ids(who text, of_teams boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.visible_ids(who text, of_teams boolean) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch_private.visible_ids(who text, of_teams boolean) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch_private.visible_ids(who text, of_teams boolean) TO dispatch_observer;
GRANT SELECT ON TABLE dispatch.task_explain TO dispatch_submitter;
GRANT SELECT ON TABLE dispatch.task_explain TO dispatch_operator;
GRANT SELECT ON TABLE dispatch.task_explain TO dispatch_observer;
REVOKE ALL ON FUNCTION dispatch.task_explain(id bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch.task_explain(id bigint) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch.task_explain(id bigint) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch.task_explain(id bigint) TO dispatch_observer;
REVOKE ALL ON FUNCTION dispatch.task_finish(run_token uuid, outcome text, error text, result jsonb, retry_after interval) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch.task_finish(run_token uuid, outcome text, error text, result jsonb, retry_after interval) TO dispatch_task;
REVOKE ALL ON FUNCTION dispatch.task_heartbeat(run_token uuid, progress real, note text) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch.task_heartbeat(run_token uuid, progress real, note text) TO dispatch_task;
GRANT SELECT(task_id) ON TABLE dispatch_private.task_launches TO dispatch_reader;
GRANT SELECT(task_id) ON TABLE dispatch_private.task_launches TO dispatch_janitor;
GRANT SELECT(attempt) ON TABLE dispatch_private.task_launches TO dispatch_reader;
GRANT SELECT(attempt) ON TABLE dispatch_private.task_launches TO dispatch_janitor;
GRANT SELECT(launch) ON TABLE dispatch_private.task_launches TO dispatch_reader;
GRANT SELECT(launch) ON TABLE dispatch_private.task_launches TO dispatch_janitor;
GRANT SELECT(job_uid) ON TABLE dispatch_private.task_launches TO dispatch_reader;
GRANT SELECT(job_uid) ON TABLE dispatch_private.task_launches TO dispatch_janitor;
GRANT SELECT(node_name) ON TABLE dispatch_private.task_launches TO dispatch_reader;
GRANT SELECT(node_name) ON TABLE dispatch_private.task_launches TO dispatch_janitor;
GRANT SELECT(pod_name) ON TABLE dispatch_private.task_launches TO dispatch_reader;
GRANT SELECT(pod_name) ON TABLE dispatch_private.task_launches TO dispatch_janitor;
GRANT SELECT(started_at) ON TABLE dispatch_private.task_launches TO dispatch_reader;
GRANT SELECT(started_at) ON TABLE dispatch_private.task_launches TO dispatch_janitor;
GRANT SELECT(ended_at) ON TABLE dispatch_private.task_launches TO dispatch_reader;
GRANT SELECT(ended_at) ON TABLE dispatch_private.task_launches TO dispatch_janitor;
GRANT SELECT(outcome) ON TABLE dispatch_private.task_launches TO dispatch_reader;
GRANT SELECT(outcome) ON TABLE dispatch_private.task_launches TO dispatch_janitor;
GRANT SELECT(error) ON TABLE dispatch_private.task_launches TO dispatch_reader;
GRANT SELECT(error) ON TABLE dispatch_private.task_launches TO dispatch_janitor;
GRANT SELECT(exit_code) ON TABLE dispatch_private.task_launches TO dispatch_reader;
GRANT SELECT(exit_code) ON TABLE dispatch_private.task_launches TO dispatch_janitor;
GRANT SELECT(reason) ON TABLE dispatch_private.task_launches TO dispatch_reader;
GRANT SELECT(reason) ON TABLE dispatch_private.task_launches TO dispatch_janitor;
GRANT SELECT(queue) ON TABLE dispatch_private.task_launches TO dispatch_reader;
GRANT SELECT(queue) ON TABLE dispatch_private.task_launches TO dispatch_janitor;
REVOKE ALL ON FUNCTION dispatch_private.launches_of(task bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.launches_of(task bigint) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch_private.launches_of(task bigint) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch_private.launches_of(task bigint) TO dispatch_observer;
GRANT SELECT ON TABLE dispatch.task_launches TO dispatch_submitter;
GRANT SELECT ON TABLE dispatch.task_launches TO dispatch_operator;
GRANT SELECT ON TABLE dispatch.task_launches TO dispatch_observer;
GRANT SELECT ON TABLE dispatch.task_history TO dispatch_submitter;
GRANT SELECT ON TABLE dispatch.task_history TO dispatch_operator;
GRANT SELECT ON TABLE dispatch.task_history TO dispatch_observer;
REVOKE ALL ON FUNCTION dispatch.task_history(id bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch.task_history(id bigint) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch.task_history(id bigint) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch.task_history(id bigint) TO dispatch_observer;
REVOKE ALL ON FUNCTION dispatch_private.task_retry(who text, task bigint, expected integer) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.task_retry(who text, task bigint, expected integer) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch_private.task_retry(who text, task bigint, expected integer) TO dispatch_operator;
REVOKE ALL ON FUNCTION dispatch.task_retry(task_id bigint, attempt integer) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch.task_retry(task_id bigint, attempt integer) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch.task_retry(task_id bigint, attempt integer) TO dispatch_operator;
REVOKE ALL ON FUNCTION dispatch_private.task_set_priority(who text, task bigint, wanted integer) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.task_set_priority(who text, task bigint, wanted integer) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch_private.task_set_priority(who text, task bigint, wanted integer) TO dispatch_operator;
REVOKE ALL ON FUNCTION dispatch.task_set_priority(task_id bigint, priority integer) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch.task_set_priority(task_id bigint, priority integer) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch.task_set_priority(task_id bigint, priority integer) TO dispatch_operator;
REVOKE ALL ON FUNCTION dispatch.task_start(task_id bigint, start_key uuid, attempt integer, launch integer, job_uid text, node text, pod text, run_id text) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch.task_start(task_id bigint, start_key uuid, attempt integer, launch integer, job_uid text, node text, pod text, run_id text) TO dispatch_task;
REVOKE ALL ON FUNCTION dispatch.tasks_after(id bigint, "limit" integer) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch.tasks_after(id bigint, "limit" integer) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch.tasks_after(id bigint, "limit" integer) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch.tasks_after(id bigint, "limit" integer) TO dispatch_observer;
REVOKE ALL ON FUNCTION dispatch_private.batch_tasks(who text, in_queue text, named text, most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.batch_tasks(who text, in_queue text, named text, most integer) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch_private.batch_tasks(who text, in_queue text, named text, most integer) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch_private.batch_tasks(who text, in_queue text, named text, most integer) TO dispatch_observer;
REVOKE ALL ON FUNCTION dispatch.tasks_of_batch(queue text, batch text, "limit" integer) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch.tasks_of_batch(queue text, batch text, "limit" integer) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch.tasks_of_batch(queue text, batch text, "limit" integer) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch.tasks_of_batch(queue text, batch text, "limit" integer) TO dispatch_observer;
REVOKE ALL ON FUNCTION dispatch_private.newest_tasks(who text, most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.newest_tasks(who text, most integer) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch_private.newest_tasks(who text, most integer) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch_private.newest_tasks(who text, most integer) TO dispatch_observer;
REVOKE ALL ON FUNCTION dispatch.tasks_since("time" timestamp with time zone, "limit" integer) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch.tasks_since("time" timestamp with time zone, "limit" integer) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch.tasks_since("time" timestamp with time zone, "limit" integer) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch.tasks_since("time" timestamp with time zone, "limit" integer) TO dispatch_observer;
REVOKE ALL ON FUNCTION dispatch_private.advice(wanted text, known text[], otherwise text) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.announce(channel text, clock regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.announce_rows(kind text, ids bigint[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.are_logins_read_only() FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.are_logins_read_only() TO dispatch_reader;
GRANT ALL ON FUNCTION dispatch_private.are_logins_read_only() TO dispatch_janitor;
REVOKE ALL ON FUNCTION dispatch_private.backoff(failures integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.both_have(role name, who text) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.cancel_rows(ids bigint[], why text) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.check_bound(submitter text, in_queue text) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.check_bounds() FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.check_objects(objects jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.clip(words text, most integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.clock_of(kind text, whose text) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.close_launches(tasks bigint[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.compact_bytes(value jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.delete_rows(ids bigint[], OUT deleted integer, OUT kept bigint[], OUT why text) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.end_insert() FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.env_fault(env jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.field(words text) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.forget_gone_roles() FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.gone_roles_of(queue text) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.gone_roles_of(queue text) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch_private.gone_roles_of(queue text) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch_private.gone_roles_of(queue text) TO dispatch_observer;
REVOKE ALL ON FUNCTION dispatch_private.guard_task() FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.hmac(inner_block bytea, outer_block bytea, message bytea) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.insert_checked(task dispatch.tasks) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.insert_task() FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.is_free(task_id bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.is_plain_env(written text) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.is_trusted(name text) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.janitor_cancel(task_id bigint, attempt integer, run_digest bytea) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.janitor_cancel(task_id bigint, attempt integer, run_digest bytea) TO dispatch_janitor;
REVOKE ALL ON FUNCTION dispatch_private.janitor_delete(days integer, most integer, except_ids bigint[], OUT deleted integer, OUT kept bigint[], OUT why text) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.janitor_delete(days integer, most integer, except_ids bigint[], OUT deleted integer, OUT kept bigint[], OUT why text) TO dispatch_janitor;
REVOKE ALL ON FUNCTION dispatch_private.janitor_end(task_id bigint, attempt integer, launch integer, job_uid text, outcome text, error text) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.janitor_end(task_id bigint, attempt integer, launch integer, job_uid text, outcome text, error text) TO dispatch_janitor;
REVOKE ALL ON FUNCTION dispatch_private.janitor_ended(ends jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.janitor_ended(ends jsonb) TO dispatch_janitor;
REVOKE ALL ON FUNCTION dispatch_private.janitor_return(task_id bigint, attempt integer, launch integer, run_digest bytea, failures integer, error text) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.janitor_return(task_id bigint, attempt integer, launch integer, run_digest bytea, failures integer, error text) TO dispatch_janitor;
REVOKE ALL ON FUNCTION dispatch_private.janitor_tell(report jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.janitor_tell(report jsonb) TO dispatch_janitor;
REVOKE ALL ON FUNCTION dispatch_private.janitor_templates(offered jsonb, are_all boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.janitor_templates(offered jsonb, are_all boolean) TO dispatch_janitor;
REVOKE ALL ON FUNCTION dispatch_private.job_bytes(env jsonb, spec jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.json_kind(value jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.keep_kind() FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.keep_queue() FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.key_time(id bigint, start_key uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.kind_of(template text, spec jsonb, timeout_seconds integer, env jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.know_login(wanted text, its_oid oid) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.know_roles() FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.labels_fault(labels jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.last_attempt() FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.matches_one(value text, globs text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.may_submit(door name, its_oid oid) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.name_of(login text) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.new_secret(OUT inner_block bytea, OUT outer_block bytea) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.open_queues(who text) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.own_name(who text) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.own_task(who text, task bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.plain_kind(template text, written text) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.plain_note(words text) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.quantity(written text) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.queue_fault(wanted text, door name, is_gone boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.read_objects(objects jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.refuse_foreign_code() FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.retry_rows(ids bigint[], expected integer, only_ended boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.rights_of(who text, OUT self boolean, OUT sees boolean, OUT hides boolean, OUT acts boolean, OUT owned text[], OUT own text) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.role_now(written name, its_oid oid) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.run_tokens(id bigint, attempt integer, launch integer, job_uid text, pod text) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.setting_of(role oid, database oid, setting text) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.setting_of(role oid, database oid, setting text) TO dispatch_reader;
GRANT ALL ON FUNCTION dispatch_private.setting_of(role oid, database oid, setting text) TO dispatch_janitor;
REVOKE ALL ON FUNCTION dispatch_private.show_inserted() FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.shown(words text) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.spec_fault(spec jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.start_keys(id bigint, created_at timestamp with time zone) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.status_after(outcome text, cancel_requested_at timestamp with time zone, failures integer, max_failures integer, attempt integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.subdomain(name text) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.task_fault(task dispatch.tasks) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.task_logins() FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.task_logins() TO dispatch_reader;
GRANT ALL ON FUNCTION dispatch_private.task_logins() TO dispatch_janitor;
REVOKE ALL ON FUNCTION dispatch_private.tasks_refused() FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.tasks_refused() TO dispatch_reader;
GRANT ALL ON FUNCTION dispatch_private.tasks_refused() TO dispatch_janitor;
REVOKE ALL ON FUNCTION dispatch_private.template_fault(template text, spec jsonb, env jsonb, timeout_seconds bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.token_digest(token uuid) FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.visible_queue_reasons(who text) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.visible_queue_reasons(who text) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch_private.visible_queue_reasons(who text) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch_private.visible_queue_reasons(who text) TO dispatch_observer;
GRANT SELECT ON TABLE dispatch_private.queues TO dispatch_reader;
GRANT SELECT ON TABLE dispatch_private.queues TO dispatch_janitor;
REVOKE ALL ON FUNCTION dispatch_private.visible_queues(who text) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.visible_queues(who text) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch_private.visible_queues(who text) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch_private.visible_queues(who text) TO dispatch_observer;
REVOKE ALL ON FUNCTION dispatch_private.visible_reasons(who text) FROM PUBLIC;
GRANT ALL ON FUNCTION dispatch_private.visible_reasons(who text) TO dispatch_submitter;
GRANT ALL ON FUNCTION dispatch_private.visible_reasons(who text) TO dispatch_operator;
GRANT ALL ON FUNCTION dispatch_private.visible_reasons(who text) TO dispatch_observer;
REVOKE ALL ON FUNCTION dispatch_private.write_queue() FROM PUBLIC;
REVOKE ALL ON FUNCTION dispatch_private.wrong_value(objects jsonb) FROM PUBLIC;
GRANT SELECT ON TABLE dispatch.queue_status TO dispatch_submitter;
GRANT SELECT ON TABLE dispatch.queue_status TO dispatch_operator;
GRANT SELECT ON TABLE dispatch.queue_status TO dispatch_observer;
GRANT SELECT ON TABLE dispatch.queues TO dispatch_submitter;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE dispatch.queues TO dispatch_operator;
GRANT SELECT ON TABLE dispatch.queues TO dispatch_observer;
GRANT SELECT ON TABLE dispatch.reasons TO dispatch_submitter;
GRANT SELECT ON TABLE dispatch.reasons TO dispatch_operator;
GRANT SELECT ON TABLE dispatch.reasons TO dispatch_observer;
GRANT SELECT ON TABLE dispatch_private.schema_version TO dispatch_reader;
GRANT SELECT ON TABLE dispatch_private.schema_version TO dispatch_janitor;
GRANT SELECT ON TABLE dispatch.schema_version TO dispatch_reader;
GRANT SELECT ON TABLE dispatch.schema_version TO dispatch_janitor;
GRANT SELECT ON TABLE dispatch.schema_version TO dispatch_observer;
GRANT SELECT ON TABLE dispatch.task_reasons TO dispatch_submitter;
GRANT SELECT ON TABLE dispatch.task_reasons TO dispatch_operator;
GRANT SELECT ON TABLE dispatch.task_reasons TO dispatch_observer;
GRANT SELECT ON TABLE dispatch_private.templates TO dispatch_reader;
GRANT SELECT ON TABLE dispatch.templates TO dispatch_submitter;
GRANT SELECT ON TABLE dispatch.templates TO dispatch_operator;
GRANT SELECT ON TABLE dispatch.templates TO dispatch_observer;
GRANT SELECT ON TABLE dispatch_private.applied_functions TO dispatch_reader;
GRANT SELECT ON TABLE dispatch_private.applied_functions TO dispatch_janitor;
GRANT SELECT(generation) ON TABLE dispatch_private.secrets TO dispatch_reader;
GRANT SELECT(start_inner) ON TABLE dispatch_private.secrets TO dispatch_reader;
GRANT SELECT(start_outer) ON TABLE dispatch_private.secrets TO dispatch_reader;
GRANT SELECT ON TABLE dispatch_private.submitters TO dispatch_reader;
GRANT SELECT ON TABLE dispatch_private.submitters TO dispatch_janitor;
GRANT SELECT ON SEQUENCE dispatch_private.tasks_id_seq TO dispatch_reader;
GRANT SELECT ON SEQUENCE dispatch_private.tasks_id_seq TO dispatch_janitor;
