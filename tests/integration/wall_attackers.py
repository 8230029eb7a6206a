"""Team B as an attacker: a schema of its own, with code that others run, and rows of team A that hold a secret."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from tests.integration.wall_calls import Guesses, calls
from tests.integration.wall_worlds import roles
from tests.rig.postgres import Connection, Database, PostgresServer
from tests.rig.rows import Row, insert_row

SECRET: Final = "secret-of-a"
CLOSED: Final = "merger-with-acme"
SCHEMA: Final = """
CREATE SCHEMA team_b AUTHORIZATION team_b;
GRANT USAGE ON SCHEMA team_b TO PUBLIC;
INSERT INTO dispatch_private.queues (name, owner_role, submit_role)
VALUES ('merger-with-acme', 'wall_closed', 'wall_closed');
"""
CODE: Final = """
CREATE TABLE team_b.attempts (statement text);
CREATE TABLE team_b.loot (statement text, answer text, session text, code text);
CREATE TABLE team_b.bait (i integer);
GRANT ALL ON ALL TABLES IN SCHEMA team_b TO PUBLIC;
GRANT CREATE ON SCHEMA team_b TO dispatch_submitter;
"""
TRIES: Final = """
CREATE FUNCTION team_b.{name}() RETURNS integer LANGUAGE plpgsql {security} AS $$
DECLARE
    one    text;
    answer text;
    hint   text;
BEGIN
    FOR one IN SELECT statement FROM team_b.attempts LOOP
        BEGIN
            EXECUTE one INTO answer;
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
            answer := 'refused: ' || SQLERRM || ' ' || hint;
        END;
        INSERT INTO team_b.loot VALUES (one, answer, session_user, current_user);
    END LOOP;
    RETURN 1;
END $$
"""
LATER: Final = """
CREATE TABLE team_b.later (i integer);
CREATE FUNCTION team_b.fire() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM team_b.tries();
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER fire AFTER INSERT ON team_b.later DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION team_b.fire();
CREATE FUNCTION team_b.begin_later() RETURNS void LANGUAGE sql SECURITY DEFINER
AS 'INSERT INTO team_b.later VALUES (1)';
"""
BAIT: Final = """
CREATE FUNCTION team_b.f(i integer) RETURNS integer LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF session_user <> 'team_b' THEN
        RETURN team_b.tries();
    END IF;
    RETURN i;
END $$;
INSERT INTO team_b.bait SELECT generate_series(1, 3);
CREATE INDEX bait_f ON team_b.bait (team_b.f(i));
CREATE STATISTICS team_b.bait_more ON (team_b.f(i)), i FROM team_b.bait;
CREATE MATERIALIZED VIEW team_b.seen AS SELECT team_b.f(1) AS one;
"""
VIEWS: Final = """
SELECT c.oid::regclass::text FROM pg_class AS c WHERE c.relnamespace = 'dispatch'::regnamespace AND c.relkind = 'v'
ORDER BY c.oid
"""
ROWS: Final = """
SELECT t.*, (SELECT count(*) FROM dispatch_private.task_launches AS l WHERE l.task_id = t.id) AS launches
FROM dispatch_private.tasks AS t WHERE t.id = ANY ($1::bigint[]) ORDER BY t.id
"""


@dataclass(frozen=True)
class Prey:
    """A database with rows of team A: one in `default` with a dedupe_key, one that runs in A's closed queue."""

    database: Database
    rows: list[Row]
    token: UUID

    @property
    def ids(self) -> list[int]:
        return [row.id for row in self.rows]

    async def now(self) -> list[dict[str, object]]:
        """Everything of A's rows."""
        return [dict(row) for row in await (await self.database.session("admin")).fetch(ROWS, self.ids)]

    def guesses(self) -> Guesses:
        return Guesses(self.ids, [CLOSED, "default"], ["a-batch"], ["a-key"], ["0" * 32])


@asynccontextmanager
async def prey(postgres: PostgresServer) -> AsyncIterator[Prey]:
    """A database with rows of team A, and with the schema of team B."""
    database = await postgres.create_database()  # it makes the logins, too
    try:
        async with roles(postgres):
            admin = await database.session("admin")
            await admin.execute(SCHEMA)
            of_a = {"payload": {"a": SECRET}, "env": {"A": SECRET}, "batch": "a-batch", "labels": {"a": SECRET}}
            rows = [
                await insert_row(database, "team_a", dedupe_key="a-key", **of_a),
                await insert_row(database, "team_a", queue=CLOSED, cache_key=SECRET, **of_a),
            ]
            run = await rows[1].started()
            await admin.execute("UPDATE dispatch_private.tasks SET note = $1, error = $1", SECRET)
            yield Prey(database, rows, run.run_token)
    finally:
        await database.drop()


async def attempts(prey: Prey) -> list[str]:
    """Statements with one text: what every view shows, what every call answers, and writes."""
    admin = await prey.database.session("admin")
    views = [row[0] for row in await admin.fetch(VIEWS)]
    made = [f"SELECT string_agg(t::text, ';') FROM {view} AS t" for view in views]
    asked = [call.sql for call in await calls(prey.database, "team_b", prey.guesses()) if call.kind != "call submit"]
    made += [
        f"SELECT string_agg(x::text, ';') FROM ({call}) AS x"
        for call in asked
        if call.startswith("SELECT * FROM dispatch.")
    ]
    made += [f"SELECT string_agg(x::text, ';') FROM dispatch_private.tasks AS x WHERE id = {one}" for one in prey.ids]
    made += [f"UPDATE dispatch.tasks SET note = 'x' WHERE id = {one} RETURNING id::text" for one in prey.ids]
    made += [f"DELETE FROM dispatch.tasks WHERE id = {one} RETURNING id::text" for one in prey.ids]
    return made


async def arm(prey: Prey, statements: Iterable[str]) -> Connection:
    """Gives B's code its attempts. A session of team B."""
    team = await prey.database.session("team_b")
    await team.execute(CODE)
    await team.execute(TRIES.format(name="tries", security="SECURITY INVOKER"))
    await team.executemany("INSERT INTO team_b.attempts VALUES ($1)", [(one,) for one in statements])
    return team


async def loot(prey: Prey) -> dict[str, str | None]:
    """What B's code has got: statement → answer. No answer: nobody ran the code."""
    admin = await prey.database.session("admin")
    return {row["statement"]: row["answer"] for row in await admin.fetch("SELECT * FROM team_b.loot")}


def telling(found: dict[str, str | None], prey: Prey) -> dict[str, str]:
    """The answers that hold a part of A's rows."""
    words = re.compile("|".join([SECRET, "a-key", "team_a", *(rf"^\(?{one}\b" for one in prey.ids)]))
    return {one: text for one, text in found.items() if text and not text.startswith("refused") and words.search(text)}


def spelled(value: UUID | str) -> list[str]:
    """How a value can stand in a message: as a text, in hexadecimal digits, or as bytes of a constant in a plan."""
    if isinstance(value, UUID):
        return [str(value), value.hex, *spelled_bytes(value.bytes)]
    return [value, *spelled_bytes(value.encode())]


def spelled_bytes(value: bytes) -> list[str]:
    return [" ".join(str(byte - 256 if byte > 127 else byte) for byte in value), " ".join(map(str, value))]


def holds(text: str, value: UUID | str) -> bool:
    """True: the text has the value in one of its spellings. A plan breaks lines anywhere, also within a number."""
    flat = re.sub(r"\s|\\n|\\t", "", text)
    return any(re.sub(r"\s", "", one) in flat for one in spelled(value))
