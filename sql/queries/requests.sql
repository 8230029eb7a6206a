-- The columns that Jobs of rows are made from. $1 bigint[] ids.
SELECT id, attempt, env::text AS env, spec::text AS spec, cache_key
FROM dispatch.tasks WHERE id = ANY ($1::bigint[])
