-- Takes the lock of the migration: one migration at a time in this database. $1 bigint key.
SELECT pg_advisory_lock($1)
