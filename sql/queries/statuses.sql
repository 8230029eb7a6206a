-- The status of rows. $1 bigint[] ids.
SELECT id, status FROM dispatch.tasks WHERE id = ANY ($1::bigint[])
