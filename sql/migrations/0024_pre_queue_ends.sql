-- The rows of a queue that ended last, which the page of the queue shows. It names the states, because queries over all queues do not:
-- they would read all of it instead of the few newest entries of tasks_finished.
CREATE INDEX tasks_finished_of_queue ON dispatch.tasks (queue, finished_at)
    WHERE finished_at IS NOT NULL AND status IN ('succeeded', 'failed', 'cancelled');
