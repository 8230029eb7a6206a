-- Objects belong to the owner role, whoever migrates; names are looked up in our schema alone; and nobody's inserts
-- queue up behind a migration that waits for a lock.
SET LOCAL ROLE dispatch_owner;
SET LOCAL search_path = dispatch, pg_temp;
SET LOCAL lock_timeout = '10s'
