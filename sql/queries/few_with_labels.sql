-- Ids of rows with these labels, in no order. $1 jsonb labels, $2 int most.
SELECT id FROM dispatch.tasks WHERE labels @> $1::jsonb LIMIT $2
