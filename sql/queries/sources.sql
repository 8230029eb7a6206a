-- What the Jobs of rows are made of. $1 bigint[] ids.
SELECT id, template, kind, left(spec ->> 'image', 300) AS image FROM dispatch.tasks WHERE id = ANY ($1::bigint[])
