-- Ids of rows of a status that has an index, in no order. $1 text status: processing or failed. $2 int most.
(SELECT id FROM dispatch.tasks WHERE $1 = 'processing' AND status = 'processing' LIMIT $2)
UNION ALL
(SELECT id FROM dispatch.tasks WHERE $1 = 'failed' AND status = 'failed' LIMIT $2)
