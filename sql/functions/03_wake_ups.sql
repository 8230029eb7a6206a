-- Notifications. NOTIFY takes a lock of the whole server until its commit is flushed, so the logins of a clock send one in 100 ms at
-- most. Containers share a login, so their clock is that of the row's submitter.

CREATE OR REPLACE FUNCTION dispatch_private.clock_of(kind text, whose text) RETURNS regclass
LANGUAGE sql STABLE AS $$
    SELECT format('dispatch_private.%s_clock_%s', kind, hashtext(whose) & 15)::regclass
$$;
COMMENT ON FUNCTION dispatch_private.clock_of(text, text) IS 'The sequence that holds when one of these logins notified last, in ms since 1970. kind: tasks, done.';

CREATE OR REPLACE FUNCTION dispatch_private.announce(channel text, clock regclass) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    now_ms  bigint := extract(epoch FROM clock_timestamp()) * 1000;
    last_ms bigint := coalesce(pg_sequence_last_value(clock), 0);
BEGIN
    IF now_ms - last_ms >= 100 OR now_ms < last_ms THEN -- the second: the server's clock was set back
        PERFORM setval(clock, now_ms);
        IF pg_notification_queue_usage() < 0.5 THEN
            PERFORM pg_notify(channel, '');
        END IF;
    END IF;
END
$$;
COMMENT ON FUNCTION dispatch_private.announce(text, regclass) IS 'Notifies a channel, at most every 100 ms, and only while the notification queue is less than half full.';

CREATE OR REPLACE FUNCTION dispatch_private.announce_rows(kind text, ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM dispatch_private.announce('dispatch_' || announce_rows.kind, due.clock)
    FROM (SELECT DISTINCT dispatch_private.clock_of(announce_rows.kind, t.submitted_by) AS clock FROM dispatch_private.tasks AS t
          WHERE t.id = ANY (ids) AND t.attempt > 0) AS due; -- attempt is in no index: in one of submitters, the number of searches would tell how many there are
END
$$;
COMMENT ON FUNCTION dispatch_private.announce_rows(text, bigint[]) IS 'Announces rows by the clocks of their submitters, whoever has moved them: another team must not use up the clock of the janitor or of an operator.';
