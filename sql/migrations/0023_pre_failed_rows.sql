-- Two indexes of the dashboard: of the rows that failed, and of the rows of a batch by id.

CREATE INDEX tasks_failed ON dispatch.tasks (finished_at) WHERE status = 'failed';
-- With the id in the index, the newest rows of a batch are found without a look at the others, however large it is.
DROP INDEX dispatch.tasks_of_batch;
CREATE INDEX tasks_of_batch ON dispatch.tasks (queue, batch, submitted_by, id) INCLUDE (status, started_at, finished_at)
    WHERE batch IS NOT NULL;
