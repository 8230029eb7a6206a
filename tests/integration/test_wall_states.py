"""Only those who may see a row can tell that it changes its state. A snapshot of before its changes does not help.

An old snapshot keeps every version of a row in the table. A counter of versions would tell how often it has changed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack

import pytest
import pytest_asyncio

from tests.integration.wall_calls import KEYS, Guesses, calls, reading
from tests.integration.wall_pairs import faults, seated
from tests.integration.wall_seats import Statement
from tests.integration.wall_settings import chosen
from tests.integration.wall_shapes import columns, constants, over_views
from tests.integration.wall_worlds import ONE, copies
from tests.property.profiles import IS_NIGHTLY
from tests.rig.postgres import Database, PostgresServer
from tests.rig.rows import Row, insert_row

HELD = "BEGIN ISOLATION LEVEL REPEATABLE READ"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def still_and_moving(postgres: PostgresServer) -> AsyncIterator[list[Database]]:
    async with copies(postgres, ONE, ONE) as made:
        yield made


async def inserted(databases: list[Database], word: str) -> Row:
    """A row of team A in its closed queue, with the same id in each database. The row of the last one is returned."""
    rows = [
        await insert_row(database, "team_a", queue="merging", batch=f"batch {word}", dedupe_key=word)
        for database in databases
    ]
    assert len({row.id for row in rows}) == 1
    return rows[-1]


async def runs(row: Row) -> AsyncIterator[str]:
    """The row runs, runs again after a failure, and ends."""
    first = await row.started()
    yield "processing"
    await row.heartbeat(first)
    yield "heartbeat"
    assert await row.finish(first, "retry", error="secret error") == "waiting"
    yield "retry"
    second = await row.started(attempt=2)
    assert await row.finish(second, "succeeded", result={"secret": 1}) == "succeeded"
    yield "succeeded"


async def is_changed(row: Row) -> AsyncIterator[str]:
    """People change the row, and it is deleted."""
    team = await row.database.session("team_a")
    await team.execute("SELECT dispatch.task_set_priority($1, 5)", row.id)
    yield "priority"
    assert await row.cancel("secret reason") == "cancelled"
    yield "cancelled"
    assert await row.retry() == "waiting"
    yield "retried"
    await (await row.database.session("admin")).execute("DELETE FROM dispatch_private.tasks WHERE id = $1", row.id)
    yield "deleted"


async def asked(databases: list[Database], login: str, row: Row) -> list[Statement]:
    """Calls about the row, and some looks. Nothing is written: dead rows of one's own are cleaned at odd moments."""
    key = await (await databases[-1].session("admin")).fetchval(KEYS, row.id)
    word = (await databases[-1].task(row.id))["dedupe_key"]
    given = Guesses([row.id], ["merging"], [f"batch {word}"], [word], [key])
    looks = over_views(await columns(databases[0], login), await constants(*databases), every=False)
    every = reading(await calls(databases[0], login, given))
    return [*(every if IS_NIGHTLY else chosen(every)), *list(looks)[:: 5 if IS_NIGHTLY else 100]]


@pytest.mark.parametrize("login", ["team_b", "task"])
@pytest.mark.parametrize("changes", [runs, is_changed])
async def test_states_of_a_foreign_row_are_not_seen(
    still_and_moving: list[Database], changes: Callable[[Row], AsyncIterator[str]], login: str
) -> None:
    row = await inserted(still_and_moving, f"{login} {changes.__name__}")
    statements = await asked(still_and_moving, login, row)
    found: list[str] = []
    with ExitStack() as sessions:
        held = sessions.enter_context(seated(still_and_moving, login))
        fresh = sessions.enter_context(seated(still_and_moving, login))
        sessions.enter_context(held.in_transaction(HELD))
        async for state in changes(row):
            for pair in (held, fresh):
                found += [f"{state}: {fault}" for fault in faults(pair.differences(statements))]
    assert found == []
