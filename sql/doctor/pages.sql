-- Pages of the tables that grow with rows; no row without the tables.
SELECT relation.relname::text AS name, (pg_relation_size(relation.oid) / current_setting('block_size')::int)::int AS pages
FROM pg_class AS relation JOIN pg_namespace AS place ON place.oid = relation.relnamespace
WHERE place.nspname = 'dispatch' AND relation.relname IN ('tasks', 'task_launches')
