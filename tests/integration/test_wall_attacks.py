"""Code of team B in sessions of others, and attacks on single rows: nothing of team A is seen or changed (SECURITY.md).

A right needs session_user and current_user of the code that looks. Whoever calls code of somebody else without SECURITY
DEFINER runs it with all of its own rights. That is no fault of these walls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.wall_attackers import (
    BAIT,
    CLOSED,
    LATER,
    SECRET,
    TRIES,
    Prey,
    arm,
    attempts,
    loot,
    prey,
    telling,
)
from tests.integration.wall_calls import calls
from tests.integration.wall_seats import Seat
from tests.rig.postgres import PostgresServer, server_with

RUNS_AUTOVACUUM = """
ALTER TABLE team_b.bait SET (autovacuum_analyze_threshold = 0, autovacuum_analyze_scale_factor = 0);
INSERT INTO team_b.bait VALUES (4);
"""


@pytest_asyncio.fixture(loop_scope="session")
async def a(postgres: PostgresServer) -> AsyncIterator[Prey]:
    async with prey(postgres) as made:
        yield made


async def submitters(a: Prey) -> set[str]:
    admin = await a.database.session("admin")
    return {row[0] for row in await admin.fetch("SELECT DISTINCT submitted_by FROM dispatch_private.tasks")}


WRITES = [
    "INSERT INTO dispatch.tasks DEFAULT VALUES RETURNING id::text",
    "INSERT INTO dispatch.tasks (dedupe_key) VALUES ('a-key') RETURNING tasks::text",
    f"INSERT INTO dispatch.tasks (queue) VALUES ('{CLOSED}') RETURNING tasks::text",
    "SELECT string_agg(x::text, ';') FROM dispatch.submit('[{}]') AS x",
    "SELECT string_agg(x::text, ';') FROM dispatch.submit('[{\"dedupe_key\": \"a-key\"}]') AS x",
]
DEDUPED = [one for one in WRITES if "a-key" in one]


@pytest.mark.parametrize(
    "statement",
    [
        "ANALYZE team_b.bait",
        "VACUUM (ANALYZE) team_b.bait",
        "REINDEX INDEX team_b.bait_f",
        "CLUSTER team_b.bait USING bait_f",
        "REFRESH MATERIALIZED VIEW team_b.seen",
        "VACUUM FULL team_b.bait",
        "REINDEX TABLE CONCURRENTLY team_b.bait",
        "CREATE INDEX CONCURRENTLY ON team_b.bait (team_b.f(i + 1))",
    ],
)
async def test_code_of_an_index_in_a_superusers_session_gets_nothing(a: Prey, statement: str) -> None:
    before, tried = await a.now(), [*await attempts(a), *WRITES, "INSERT INTO team_b.later VALUES (1) RETURNING 'late'"]
    team = await arm(a, tried)
    await team.execute(LATER)
    await team.execute(BAIT)
    await (await a.database.session("admin")).execute(statement)
    found = await loot(a)
    assert set(found) == set(tried)
    assert telling(found, a) == {}
    assert "late" not in found.values()
    assert await a.now() == before
    assert await submitters(a) == {"team_a"}


@pytest_asyncio.fixture(loop_scope="session")
async def vacuumed() -> AsyncIterator[Prey]:
    """On a server whose autovacuum looks at each database every second."""
    async with server_with("eager", autovacuum_naptime="1s") as server, prey(server) as made:
        yield made


@pytest.mark.slow
async def test_code_of_an_index_in_autovacuum_gets_nothing(vacuumed: Prey) -> None:
    before, tried = await vacuumed.now(), [*await attempts(vacuumed), *WRITES]
    team = await arm(vacuumed, tried)
    await team.execute(BAIT)
    await team.execute(RUNS_AUTOVACUUM)
    async with asyncio.timeout(100):
        while not (found := await loot(vacuumed)):
            pass
    assert set(found) == set(tried)
    assert telling(found, vacuumed) == {}
    assert await vacuumed.now() == before
    assert await submitters(vacuumed) == {"team_a"}


@pytest.mark.parametrize("login", ["team_a", "operator", "observer", "janitor", "reader", "task", "admin"])
async def test_definer_code_of_another_team_sees_and_changes_no_row(a: Prey, login: str) -> None:
    before, tried = await a.now(), await attempts(a)
    team = await arm(a, tried)
    await team.execute(TRIES.format(name="help", security="SECURITY DEFINER"))
    await (await a.database.session(login)).execute("SELECT team_b.help()")
    found = await loot(a)
    assert set(found) == set(tried)
    assert telling(found, a) == {}
    assert await a.now() == before


@pytest.mark.parametrize("login", ["operator", "observer", "janitor", "reader", "task", "admin"])
async def test_code_of_others_inserts_nothing_in_the_name_of_who_may_not_insert(a: Prey, login: str) -> None:
    names = await submitters(a)
    team = await arm(a, WRITES)
    await team.execute(TRIES.format(name="help", security="SECURITY DEFINER"))
    await (await a.database.session(login)).execute("SELECT team_b.help()")
    found = await loot(a)
    assert {one: str(answer)[:8] for one, answer in found.items()} == dict.fromkeys(WRITES, "refused:")
    assert await submitters(a) == names


async def test_code_of_others_learns_no_name_of_a_closed_queue_of_the_session(a: Prey) -> None:
    nearly = [
        f"INSERT INTO dispatch.tasks (queue) VALUES ('{CLOSED[:-1]}') RETURNING 'done'",
        f"""SELECT dispatch.submit('[{{"queue": "{CLOSED[:-1]}"}}]')""",
    ]
    team = await arm(a, nearly)
    await team.execute(TRIES.format(name="help", security="SECURITY DEFINER"))
    await (await a.database.session("team_a")).execute("SELECT team_b.help()")
    found = await loot(a)
    assert {one: "is not declared" in str(answer) for one, answer in found.items()} == dict.fromkeys(nearly, True)
    assert [answer for answer in found.values() if CLOSED in str(answer)] == []


async def test_definer_code_of_another_team_finds_no_row_by_its_dedupe_key(a: Prey) -> None:
    team = await arm(a, DEDUPED)
    await team.execute(TRIES.format(name="help", security="SECURITY DEFINER"))
    await (await a.database.session("team_a")).execute("SELECT team_b.help()")
    found = await loot(a)
    assert set(found) == set(DEDUPED)
    assert telling(found, a) == {}


async def test_definer_code_of_another_team_inserts_rows_of_the_session(a: Prey) -> None:
    team = await arm(a, ["INSERT INTO dispatch.tasks (note, batch) VALUES (DEFAULT, 'by b') RETURNING 'done'"])
    await team.execute(TRIES.format(name="help", security="SECURITY DEFINER"))
    session = await a.database.session("team_a")
    await session.execute("SELECT team_b.help()")
    assert await session.fetchval("SELECT submitted_by FROM dispatch.tasks WHERE batch = 'by b'") == "team_a"


async def test_code_that_belongs_to_the_group_of_submitters_gets_nothing(a: Prey) -> None:
    before, tried = await a.now(), await attempts(a)
    team = await arm(a, tried)
    await team.execute("SET ROLE dispatch_submitter")
    await team.execute(TRIES.format(name="help", security="SECURITY DEFINER"))
    await team.execute("RESET ROLE")
    await (await a.database.session("team_a")).execute("SELECT team_b.help()")
    found = await loot(a)
    assert set(found) == set(tried)
    assert telling(found, a) == {}
    assert await a.now() == before


async def test_deferred_code_of_another_team_gets_nothing_since_postgres_18(a: Prey) -> None:
    """Earlier servers run a deferred trigger as the caller. Whoever calls code of another team there trusts it."""
    await arm(a, ["SELECT string_agg(t::text, ';') FROM dispatch.tasks AS t"])
    await (await a.database.session("team_b")).execute(LATER)
    session = await a.database.session("team_a")
    await session.execute("SELECT team_b.begin_later()")
    found = await loot(a)
    assert len(found) == 1
    assert (SECRET in str(found)) == (session.get_server_version().major < 18)


async def test_code_without_definer_does_what_its_caller_may(a: Prey) -> None:
    await arm(a, ["SELECT string_agg(t::text, ';') FROM dispatch.tasks AS t"])
    await (await a.database.session("team_a")).execute("SELECT team_b.tries()")
    assert SECRET in str(await loot(a))


@pytest.mark.slow
@pytest.mark.parametrize("login", ["team_b", "task"])
async def test_no_call_waits_for_the_lock_of_a_foreign_row(a: Prey, login: str) -> None:
    holder, team = await a.database.connect("admin"), await a.database.connect("team_a")
    statements = await calls(a.database, login, a.guesses())
    async with holder.transaction(), team.transaction():
        await holder.execute("SELECT FROM dispatch_private.tasks, dispatch_private.task_launches FOR UPDATE")
        await team.execute("INSERT INTO dispatch.tasks (dedupe_key) VALUES ('b-key')")
        seat = Seat(a.database.url(login))
        assert seat.do("SET lock_timeout = '1s'")
        waited = [one.sql for one in statements if "55P03" in str(seat.look(one))]
        seat.close()
    assert statements
    assert waited == []


async def test_dedupe_key_of_another_team_makes_a_row_of_ones_own(a: Prey) -> None:
    before = await a.now()
    team, other = await a.database.session("team_b"), await a.database.connect("team_a")
    async with other.transaction(), asyncio.timeout(10):
        await other.execute("INSERT INTO dispatch.tasks (dedupe_key) VALUES ('new-key')")
        for key in ("a-key", "new-key"):
            row = await team.fetchrow("INSERT INTO dispatch.tasks (dedupe_key) VALUES ($1) RETURNING *", key)
            assert row is not None
            assert row["id"] not in a.ids
            assert (row["submitted_by"], row["status"], row["payload"]) == ("team_b", "waiting", None)
            assert await team.fetchval("SELECT dispatch.submit($1)", [{"dedupe_key": key}]) == row["id"]
    assert await a.now() == before


async def test_batch_of_another_team_is_neither_seen_nor_changed(a: Prey) -> None:
    before = await a.now()
    team = await a.database.session("team_b")
    mine = await a.database.insert_task("team_b", batch="a-batch")
    for queue, own in (("default", 1), (CLOSED, 0)):
        assert len(await team.fetch("SELECT * FROM dispatch.tasks_of_batch($1, 'a-batch')", queue)) == own
        assert await team.fetchval("SELECT dispatch.batch_retry($1, 'a-batch')", queue) == 0
        assert await team.fetchval("SELECT dispatch.batch_cancel($1, 'a-batch')", queue) == own
    (batch,) = await team.fetch("SELECT tasks, cancelled FROM dispatch.batch_status")
    assert tuple(batch) == (1, 1)
    assert (await a.database.task(mine))["status"] == "cancelled"
    assert await a.now() == before
