-- The part of rows that a template's bounds are checked against, from one row of each kind. $1 bigint[] ids.
SELECT kind, template, timeout_seconds, (spec - 'command' - 'args')::text AS spec,
       ARRAY(SELECT jsonb_object_keys(spec)) AS spec_names, ARRAY(SELECT jsonb_object_keys(env)) AS env_names
FROM dispatch.tasks WHERE id = ANY ($1::bigint[])
