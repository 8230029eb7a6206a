-- What a login may see and change. A right needs two roles: session_user, which connected, and the current_user of the code that
-- looks. session_user alone is not enough. In ANALYZE, which autovacuum runs by itself, the function of a stranger's index runs
-- in the session of a superuser, and a function of team B that team A calls runs in the session of team A. So each call of
-- schema `dispatch` hands current_user over as `who`. The functions here run with the rights of the owner, where current_user
-- is always the owner. Nobody can name them, because USAGE of schema dispatch_private is granted to our programs alone.
--
-- Each statement finds rows by an index that begins with the right: own rows by their submitter, those of an owned queue by the
-- queue. It never touches an entry of a foreign row, so that plans, counters and times tell of own rows only. Three things see to
-- that. Comparisons of row values, such as (submitted_by, id) >= (…), can be served only by an index that holds the first of the
-- values. The ORDER BY names the one index to be read. The settings of 98_walls.sql leave the planner no other choice: its
-- choice rests on statistics of all rows, and would tell of them.

CREATE OR REPLACE FUNCTION dispatch_private.role_now(written name, its_oid oid) RETURNS name
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN written IS NULL THEN NULL
                WHEN its_oid IS NOT NULL THEN (SELECT r.rolname FROM pg_roles AS r WHERE r.oid = its_oid)
                ELSE (SELECT r.rolname FROM pg_roles AS r WHERE r.rolname = written) END
$$;
COMMENT ON FUNCTION dispatch_private.role_now(name, oid) IS 'The name that a role has now which a queue names; NULL: it is gone. Without an oid the role was not there when the queue was written.';

CREATE OR REPLACE FUNCTION dispatch_private.both_have(role name, who text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT role IS NOT NULL AND pg_has_role(session_user, role, 'MEMBER') AND pg_has_role(who::name, role, 'MEMBER')
$$;
COMMENT ON FUNCTION dispatch_private.both_have(name, text) IS 'True: session_user and the code that looks are both members of the role.';

-- Names of people change, and somebody else may get one. So a login is known by its oid, and rows by the name in `submitters`.
CREATE OR REPLACE FUNCTION dispatch_private.own_name(who text) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    known text;
BEGIN
    IF who IS DISTINCT FROM session_user::text THEN
        RETURN NULL;
    END IF;
    SELECT s.name INTO known FROM dispatch_private.submitters AS s WHERE s.role = to_regrole(quote_ident(who))::oid;
    IF known IS NULL AND NOT EXISTS (SELECT FROM dispatch_private.submitters AS s WHERE s.name = who) THEN
        RETURN who; -- it has inserted no row yet
    END IF;
    RETURN known;
END
$$;
COMMENT ON FUNCTION dispatch_private.own_name(text) IS 'The submitted_by of the rows of a login that asks for itself; NULL: it asks for another, or its name is that of somebody who was there before.';

CREATE OR REPLACE FUNCTION dispatch_private.own_name_told(who text) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER AS $$ SELECT dispatch_private.own_name(who) $$;
COMMENT ON FUNCTION dispatch_private.own_name_told(text) IS 'As own_name, for a login that asks.';

CREATE OR REPLACE FUNCTION dispatch.own_name() RETURNS text
LANGUAGE sql STABLE BEGIN ATOMIC
    SELECT dispatch_private.own_name_told(current_user::text COLLATE "default");
END;
COMMENT ON FUNCTION dispatch.own_name() IS 'The submitted_by of your rows. A login that was renamed has the name of before.';

CREATE OR REPLACE FUNCTION dispatch_private.know_login(wanted text, its_oid oid) RETURNS void
LANGUAGE plpgsql SET lock_timeout = '1ms' AS $$
BEGIN
    INSERT INTO dispatch_private.submitters VALUES (wanted, its_oid) ON CONFLICT DO NOTHING;
END
$$;
COMMENT ON FUNCTION dispatch_private.know_login(text, oid) IS 'Keeps the name of the rows of a login. lock_not_available: another session of it does so, and has not committed.';

CREATE OR REPLACE FUNCTION dispatch_private.name_of(login text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    its_oid CONSTANT oid := to_regrole(quote_ident(login))::oid;
    known   text;
    wanted  text;
BEGIN
    FOR turn IN 1..100 LOOP -- another session of the login may come first
        SELECT s.name INTO known FROM dispatch_private.submitters AS s WHERE s.role = its_oid;
        EXIT WHEN FOUND;
        wanted := CASE WHEN EXISTS (SELECT FROM dispatch_private.submitters AS one WHERE one.name = login) THEN format('%s (%s)', login, its_oid) ELSE login END;
        BEGIN
            PERFORM dispatch_private.know_login(wanted, its_oid);
        EXCEPTION WHEN lock_not_available THEN
            RETURN wanted; -- the first INSERT of a login must not hold all its others back until it is committed
        END;
    END LOOP;
    IF known IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('the rows of the login "%s" have no name: those that it could have are taken', login),
            HINT = 'An administrator sees them in dispatch_private.submitters.';
    END IF;
    RETURN known;
END
$$;
COMMENT ON FUNCTION dispatch_private.name_of(text) IS 'The submitted_by of the rows that a login inserts. If somebody else had its name before, the oid is added.';

CREATE OR REPLACE FUNCTION dispatch_private.rights_of(who text, OUT self boolean, OUT sees boolean, OUT hides boolean,
                                                      OUT acts boolean, OUT owned text[], OUT own text) RETURNS record
LANGUAGE plpgsql STABLE AS $$
BEGIN
    own := dispatch_private.own_name(who);
    self := own IS NOT NULL;
    acts := dispatch_private.both_have('dispatch_operator', who);
    sees := acts OR dispatch_private.both_have('dispatch_owner', who);
    hides := NOT sees AND dispatch_private.both_have('dispatch_observer', who);
    sees := sees OR hides;
    owned := ARRAY(SELECT q.name FROM dispatch_private.queues AS q
                   WHERE q.owner_role IS NOT NULL AND (q.owner_oid IS NULL OR pg_has_role(session_user, q.owner_oid, 'MEMBER')) -- by the oid alone
                     AND dispatch_private.both_have(dispatch_private.role_now(q.owner_role, q.owner_oid), who));
END
$$;
COMMENT ON FUNCTION dispatch_private.rights_of(text) IS 'What a login may: self: it asks for itself, and has its own rows, whose submitted_by is own. sees: every row. hides: without payload. acts: cancel and retry every row. owned: queues whose rows it sees and changes.';

CREATE OR REPLACE FUNCTION dispatch_private.own_task(who text, task bigint) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    mine CONSTANT record := dispatch_private.rights_of(who);
BEGIN
    RETURN (
        SELECT t.id FROM dispatch_private.tasks AS t WHERE mine.acts AND t.id = task
        UNION ALL
        (SELECT t.id FROM dispatch_private.tasks AS t
         WHERE mine.self AND (t.submitted_by, t.id) >= (mine.own, task) AND (t.submitted_by, t.id) <= (mine.own, task)
         ORDER BY t.submitted_by, t.id)
        UNION ALL
        SELECT t.id FROM unnest(mine.owned) AS q (name) CROSS JOIN LATERAL (
            SELECT each.id FROM dispatch_private.tasks AS each
            WHERE (each.queue, each.id) >= (q.name, task) AND (each.queue, each.id) <= (q.name, task)
            ORDER BY each.queue, each.id) AS t
        LIMIT 1
    );
END
$$;
COMMENT ON FUNCTION dispatch_private.own_task(text, bigint) IS 'The id of the row if the login may change it; NULL: it may not, or there is no such row.';

CREATE OR REPLACE FUNCTION dispatch_private.may_submit(door name, its_oid oid) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT door IS NULL OR coalesce(pg_has_role(session_user, dispatch_private.role_now(door, its_oid), 'MEMBER'), false)
$$;
COMMENT ON FUNCTION dispatch_private.may_submit(name, oid) IS 'True: the login is a member of the role that a queue asks for. A role that is gone has no members.';

CREATE OR REPLACE VIEW dispatch_private.effective_queues AS
SELECT q.name, coalesce(q.submit_role, q.owner_role, d.submit_role) AS submit_role,
       CASE WHEN q.submit_role IS NOT NULL THEN q.submit_oid WHEN q.owner_role IS NOT NULL THEN q.owner_oid ELSE d.submit_oid END AS submit_oid,
       q.owner_role, q.owner_oid, coalesce(q.max_waiting_per_submitter, d.max_waiting_per_submitter) AS max_waiting_per_submitter
FROM dispatch_private.queues AS q LEFT JOIN dispatch_private.queues AS d ON d.name = '*'
WHERE q.name <> '*';
COMMENT ON VIEW dispatch_private.effective_queues IS 'The queues that a row may name, with the roles and the bound that hold for it: of the queue, otherwise of the row `*`. submit_role NULL: every submitter.';

CREATE OR REPLACE FUNCTION dispatch_private.open_queues(who text) RETURNS SETOF text
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    SELECT '*' UNION ALL
    SELECT q.name FROM dispatch_private.effective_queues AS q
    WHERE q.submit_role IS NULL
       OR dispatch_private.both_have(dispatch_private.role_now(q.submit_role, q.submit_oid), who)
       OR dispatch_private.both_have(dispatch_private.role_now(q.owner_role, q.owner_oid), who);
END
$$;
COMMENT ON FUNCTION dispatch_private.open_queues(text) IS 'Names of the queues that the login may insert into, of those that it owns, and `*`.';
