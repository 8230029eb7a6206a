-- Drops the functions that no file has any more: all others were made again in this transaction. The files after this one touch
-- every function.

DO $stale$
DECLARE
    one record;
BEGIN
    FOR one IN SELECT oid::regprocedure AS signature FROM pg_proc
               WHERE pronamespace IN ('dispatch'::regnamespace, 'dispatch_private'::regnamespace)
                 AND xmin::text::bigint <> pg_current_xact_id()::text::bigint % 4294967296 LOOP
        EXECUTE format('DROP FUNCTION %s', one.signature);
    END LOOP;
END
$stale$;
