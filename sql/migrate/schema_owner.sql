-- Who owns the schema; no row: there is none yet.
SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'dispatch'
