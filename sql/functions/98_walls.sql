-- What every function of ours must have. The session of a caller sets what it likes. Some settings make the server tell the caller,
-- or its log, what a function works with. Others choose the plans of its statements. A setting of the function wins against those
-- of the session. None of them is an extension's, such as plpgsql.*: a dump with one restores by a superuser alone.

DO $walls$
DECLARE
    one record;
BEGIN
    FOR one IN
        WITH ours AS (
            SELECT p.oid::regprocedure AS signature, p.prosecdef AS is_definer,
                   -- Those that strangers call, and that look for rows. insert_task looks at queues and templates alone.
                   p.prosecdef AND p.proname NOT LIKE 'janitor%' AND p.prorettype <> 'trigger'::regtype
                       OR p.proname IN ('insert_checked', 'check_bounds') AS finds_rows,
                   -- Its notices are for the caller. The server's talk about plans has a lower level, and is kept back, too.
                   CASE WHEN p.prosrc LIKE '%RAISE NOTICE%' THEN 'notice' ELSE 'error' END AS least_messages
            FROM pg_proc AS p
            WHERE p.pronamespace IN ('dispatch'::regnamespace, 'dispatch_private'::regnamespace)
              AND (p.prosecdef OR p.prorettype = 'trigger'::regtype OR p.proname IN ('rotate_secrets', 'insert_checked', 'check_bounds', 'delete_rows',
                                                                                        'are_logins_read_only', 'setting_of', 'task_logins', 'tasks_refused', 'name_of'))
        ), settings (name, value, of_definers, of_finders) AS (
            VALUES ('search_path', 'pg_catalog, pg_temp', false, false),
                   ('client_min_messages', NULL, true, false),
                   ('debug_print_parse', 'off', true, false),
                   ('debug_print_rewritten', 'off', true, false),
                   ('debug_print_plan', 'off', true, false),
                   -- One plan for all parameters.
                   ('plan_cache_mode', 'force_generic_plan', true, false),
                   -- The plan by the index that the ORDER BY names, whatever the table holds.
                   ('geqo', 'off', false, true), ('jit', 'off', false, true),
                   ('max_parallel_workers_per_gather', '0', false, true), ('cursor_tuple_fraction', '1', false, true),
                   ('seq_page_cost', '1', false, true), ('random_page_cost', '1', false, true), ('cpu_tuple_cost', '0.01', false, true),
                   ('cpu_index_tuple_cost', '0.005', false, true), ('cpu_operator_cost', '0.0025', false, true),
                   ('effective_cache_size', '524288', false, true)
            UNION ALL
            SELECT s.name, CASE WHEN s.name IN ('enable_seqscan', 'enable_bitmapscan', 'enable_tidscan', 'enable_sort', 'enable_incremental_sort',
                'enable_hashagg', 'enable_hashjoin', 'enable_mergejoin', 'enable_material', 'enable_memoize') THEN 'off' ELSE s.boot_val END, false, true
            FROM pg_settings AS s WHERE starts_with(s.name, 'enable_') AND s.context = 'user' -- as many as this version of Postgres has
        )
        SELECT format('ALTER FUNCTION %s SET %s = %s', o.signature, s.name, coalesce(s.value, o.least_messages)) AS statement
        FROM ours AS o JOIN settings AS s ON (o.is_definer OR NOT s.of_definers OR o.finds_rows) AND (o.finds_rows OR NOT s.of_finders)
    LOOP
        EXECUTE one.statement;
    END LOOP;
END
$walls$;
