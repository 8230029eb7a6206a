-- Objects belong to the owner role, also with another login. Names are looked up only in our schema. The lock_timeout
-- keeps inserts from queueing up behind a migration that waits for a lock.
SET LOCAL ROLE dispatch_owner;
SET LOCAL search_path = dispatch, pg_temp;
SET LOCAL lock_timeout = '10s'
