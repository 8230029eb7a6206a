-- Owner of the schema; no row if the schema does not exist.
SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'dispatch'
