-- Ids of rows of a batch, in no order. $1 text queue; NULL: every queue. $2 text batch, $3 int most.
SELECT id FROM dispatch.tasks
WHERE queue = ANY (ARRAY(SELECT name FROM dispatch.queues WHERE $1::text IS NULL OR name = $1)) AND batch = $2 LIMIT $3
