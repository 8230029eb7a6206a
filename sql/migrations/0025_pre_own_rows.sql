-- What a submitter asks and inserts costs as much as it has rows itself. session_user has the collation "C", as every name has: compared
-- with it, no index on the text submitted_by was used, and the rows of others were read and dropped.

-- The index names the states, as tasks_finished_of_queue does: queries over all submitters must go on reading tasks_finished.
CREATE INDEX tasks_finished_of_submitter ON dispatch.tasks (submitted_by, finished_at, id)
    WHERE finished_at IS NOT NULL AND status IN ('succeeded', 'failed', 'cancelled');

CREATE OR REPLACE FUNCTION dispatch.task_ended_since(since timestamptz)
RETURNS TABLE (id bigint, queue text, batch text, status text, finished_at timestamptz)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.id, t.queue, t.batch, t.status, t.finished_at FROM dispatch.tasks AS t
    WHERE t.submitted_by = session_user COLLATE "default" AND t.finished_at >= since
      AND t.status IN ('succeeded', 'failed', 'cancelled')
    ORDER BY t.finished_at, t.id
$$;

-- A plan made for a submitter without a waiting row may read all of its ended rows; a generic plan reads the index of waiting rows.
CREATE OR REPLACE FUNCTION dispatch.check_waiting() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan AS $$
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
