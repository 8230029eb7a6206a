-- The rows of a queue that ended last, newest first; columns in the order of model.history.EndedRow. $1 text queue, $2 int most.
SELECT id, status, attempt, CASE WHEN launch > 0 THEN started_at END AS started_at, finished_at,
       CASE WHEN launch > 0 THEN node_name END AS node_name, submitted_by
FROM dispatch.tasks WHERE queue = $1 AND finished_at IS NOT NULL AND status IN ('succeeded', 'failed', 'cancelled')
ORDER BY finished_at DESC LIMIT $2
