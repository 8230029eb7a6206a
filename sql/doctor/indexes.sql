-- Indexes of schema dispatch, and whether each is valid.
SELECT index.relname::text AS name, pg_index.indisvalid AND pg_index.indisready AS valid
FROM pg_index JOIN pg_class AS index ON index.oid = pg_index.indexrelid
WHERE index.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'dispatch')
