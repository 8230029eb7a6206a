-- Ids of rows of a status that has an index, in no order. $1 text status: waiting, processing or failed. $2 text queue of waiting rows; NULL: every queue. $3 int most.
(SELECT id FROM dispatch.tasks
 WHERE $1 = 'waiting' AND status = 'waiting' AND run_at IS NULL
   AND queue = ANY (ARRAY(SELECT name FROM dispatch.queues WHERE $2::text IS NULL OR name = $2)) LIMIT $3)
UNION ALL
(SELECT id FROM dispatch.tasks
 WHERE $1 = 'waiting' AND status = 'waiting' AND run_at IS NOT NULL
   AND queue = ANY (ARRAY(SELECT name FROM dispatch.queues WHERE $2::text IS NULL OR name = $2)) LIMIT $3)
UNION ALL
(SELECT id FROM dispatch.tasks WHERE $1 = 'processing' AND status = 'processing' LIMIT $3)
UNION ALL
(SELECT id FROM dispatch.tasks WHERE $1 = 'failed' AND status = 'failed' LIMIT $3)
