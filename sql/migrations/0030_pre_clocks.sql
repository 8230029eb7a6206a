-- A rollback takes a notification back, but not the clock that holds the next ones back. So each clock is that of some logins
-- alone: 16 for each channel, by the name of the login or of the row's submitter.
DO $$
BEGIN
    FOR number IN 0 .. 15 LOOP
        EXECUTE format('CREATE SEQUENCE tasks_clock_%s; CREATE SEQUENCE done_clock_%s', number, number);
    END LOOP;
END
$$;
DROP SEQUENCE tasks_clock, done_clock;
