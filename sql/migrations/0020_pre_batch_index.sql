-- A batch is asked for by its queue and name, so both come first in its index.
DROP INDEX dispatch.tasks_of_batch;
CREATE INDEX tasks_of_batch ON dispatch.tasks (queue, batch, submitted_by) INCLUDE (status, started_at, finished_at)
    WHERE batch IS NOT NULL;
