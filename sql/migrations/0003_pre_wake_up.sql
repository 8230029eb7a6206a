-- Wake-ups. NOTIFY takes a lock of the whole server until the commit is flushed: one per commit cost other teams 29 times
-- their insert rate when it was measured. So at most one per 100 ms and channel; the dispatcher polls for the rest.

-- Milliseconds of the last notify. A sequence, because it is neither locked, nor rolled back, nor bloated.
CREATE SEQUENCE tasks_clock;
CREATE SEQUENCE done_clock;

CREATE FUNCTION announce(channel text, clock regclass) RETURNS void
LANGUAGE plpgsql SET search_path = dispatch, pg_temp AS $$
DECLARE
    now_ms  bigint := extract(epoch FROM clock_timestamp()) * 1000;
    last_ms bigint := coalesce(pg_sequence_last_value(clock), 0);
BEGIN
    IF now_ms - last_ms >= 100 OR now_ms < last_ms THEN -- the second: the server's clock was set back
        PERFORM setval(clock, now_ms);
        PERFORM pg_notify(channel, '');
    END IF;
END
$$;
COMMENT ON FUNCTION announce IS 'Notifies a channel, at most every 100 ms.';

CREATE FUNCTION announce_tasks() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = dispatch, pg_temp AS $$
BEGIN
    PERFORM announce('dispatch_tasks', 'tasks_clock');
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION announce_tasks IS 'Trigger: somebody inserted rows.';

CREATE TRIGGER announce_tasks AFTER INSERT ON tasks FOR EACH STATEMENT EXECUTE FUNCTION announce_tasks();
