-- The group roles of the dispatcher (docs/rights.md). Roles belong to the whole server, so this file is safe to run
-- again and from two databases at once. `dispatcher migrate` runs it where its login may create roles; elsewhere an
-- administrator runs it once. None of them can log in: every program and every team gets its own login as a member.
DO $roles$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY[
        'dispatch_owner',     -- owns schema, tables and functions
        'dispatch_reader',    -- the dispatcher: reads, never writes
        'dispatch_submitter', -- teams: insert, look, cancel, retry
        'dispatch_task',      -- containers: start, heartbeat, finish
        'dispatch_janitor',   -- the only writer among our own programs
        'dispatch_operator',  -- queues, cancel and retry on all rows
        'dispatch_observer'   -- dashboards and people: looks only
    ] LOOP
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = wanted) THEN
                EXECUTE pg_catalog.format('CREATE ROLE %I NOLOGIN NOINHERIT', wanted);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL; -- another database's migration made it a moment ago
        END;
    END LOOP;
    -- A role with CREATEROLE administers what it made but is no member of it (Postgres 16): the migration needs SET ROLE.
    IF NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
        BEGIN
            EXECUTE 'GRANT dispatch_owner TO CURRENT_USER';
        EXCEPTION WHEN insufficient_privilege THEN
            NULL; -- somebody else made the role, and made this login a member: that is enough
        END;
    END IF;
END
$roles$;
