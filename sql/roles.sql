-- The group roles of the dispatcher (docs/rights.md). Roles belong to the whole server, so this file may run again, and
-- from two databases at the same time. `dispatcher migrate` runs it if its login may create roles; otherwise an
-- administrator runs it once. Group roles cannot log in: every program and every team gets its own login as a member.
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
            NULL; -- the migration of another database made it a moment ago
        END;
    END LOOP;
    -- Since Postgres 16, a login with CREATEROLE is no member of the roles that it made, and the migration needs SET ROLE.
    IF NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
        BEGIN
            EXECUTE 'GRANT dispatch_owner TO CURRENT_USER';
        EXCEPTION WHEN insufficient_privilege THEN
            NULL; -- another login made the role, and this login only has to be a member
        END;
    END IF;
END
$roles$;
