-- task_ended_since reads the caller's own rows alone. session_user has the collation "C", as every name has: compared with it, no index on
-- the text submitted_by was used, and the rows of others that ended since were read and dropped. The index names the states, as
-- tasks_finished_of_queue does: queries over all submitters must go on reading tasks_finished.
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
