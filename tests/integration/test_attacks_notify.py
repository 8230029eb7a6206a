"""One session does not read its notifications, and another one floods the queue of the whole server.

NOTIFY fails for everybody once that queue is full. Rows go on all the same, and polling finds them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncpg
import pytest

from dispatcher.pg.connect import Listener
from tests.controlplane.waiting import wait_for
from tests.integration.flooding import FLOOD, USAGE, flooded, quiet, server
from tests.integration.looking import looking, waiting
from tests.rig.janitor_calls import cancelled, closed, returned
from tests.rig.postgres import Connection, Database
from tests.rig.rows import insert_row

__all__ = ["quiet", "server"]

LONG_AGO = (
    "SELECT setval('dispatch_private.tasks_clock_' || n, 1), setval('dispatch_private.done_clock_' || n, 1)"
    " FROM generate_series(0, 15) AS n"
)
NOISY = "NOTIFY dispatch_tasks"
Call = Callable[[], Awaitable[object]]


async def usage(database: Database) -> float:
    return float(await (await database.session("admin")).fetchval(USAGE))


async def found_by_polling(database: Database) -> set[int]:
    async with looking(database) as rows:
        return set(await waiting(rows))


async def test_notification_queue_can_be_filled_by_any_login(quiet: Database) -> None:
    """Postgres itself cannot prevent this: a session that notifies by itself fails."""
    async with flooded(quiet):
        assert await usage(quiet) > 0.9
        with pytest.raises(asyncpg.ProgramLimitExceededError):
            await (await quiet.session("team_b")).execute(FLOOD, 20)


@pytest.mark.parametrize("most", [0.6, 1.0], ids=["more than half full", "full"])
async def test_rows_of_other_teams_run_to_their_end_during_a_flood(quiet: Database, most: float) -> None:
    admin = await quiet.session("admin")
    async with flooded(quiet, most):
        rows = []
        for _ in range(6):
            await admin.execute(LONG_AGO)  # so each call wants to notify
            rows.append(await insert_row(quiet, "team_b", max_failures=9))
        assert await found_by_polling(quiet) == {row.id for row in rows}
        runs = [await row.started() for row in rows[:4]]
        assert await rows[1].cancel(login="team_b") == "processing"
        await rows[3].silent_for(600)
        answers: list[tuple[Call, str]] = [
            (lambda: rows[0].finish(runs[0], "retry"), "waiting"),
            (lambda: cancelled(rows[1], runs[1]), "cancelled"),
            (lambda: rows[2].finish(runs[2], "succeeded"), "succeeded"),
            (lambda: returned(rows[3], runs[3]), "waiting"),
            (lambda: rows[4].cancel(login="team_b"), "cancelled"),
            (lambda: rows[4].retry(login="team_b"), "waiting"),
            (lambda: closed(rows[5]), "failed"),
        ]
        for call, status in answers:
            await admin.execute(LONG_AGO)
            assert await call() == status
        assert await usage(quiet) >= min(most, 0.9)
        assert await found_by_polling(quiet) == {rows[4].id}


async def test_notifications_return_after_the_attack(quiet: Database) -> None:
    heard = asyncio.Event()
    listener = Listener(lambda: quiet.url("reader"), heard.set)
    listening = asyncio.create_task(listener.run())
    try:
        await wait_for(lambda: listener.is_listening, "the dispatcher listens")
        async with flooded(quiet):
            heard.clear()
            await (await quiet.session("admin")).execute(LONG_AGO)
            await insert_row(quiet, "team_b")
            assert await usage(quiet) > 0.5
            assert not heard.is_set()

        async def is_told() -> bool:
            await insert_row(quiet, "team_b")
            return heard.is_set()

        await wait_for(is_told, "the dispatcher is told of new rows again")
        assert await usage(quiet) < 0.5
    finally:
        listening.cancel()
        await asyncio.wait([listening])


async def test_insert_alone_frees_the_notification_queue(quiet: Database) -> None:
    """Without a listener, and without a question for the usage: the rows of other teams free the queue."""
    async with flooded(quiet):
        await insert_row(quiet, "team_b")
    admin = await quiet.session("admin")

    async def notifies() -> bool:
        await admin.execute(LONG_AGO)
        await insert_row(quiet, "team_b")
        try:
            await admin.execute(NOISY)
        except asyncpg.ProgramLimitExceededError:
            return False
        return True

    await wait_for(notifies, "the queue takes notifications again")


@pytest.mark.parametrize("channel", ["dispatch_tasks", "dispatch_done"])
async def test_calls_that_are_rolled_back_silence_nobody_else(quiet: Database, channel: str) -> None:
    """A rollback takes the notification back, but not the clock that holds the next ones back."""
    attacker, victim, listening = [await quiet.connect(name) for name in ("team_b", "team_a", "reader")]
    admin, heard = await quiet.session("admin"), list[int]()
    await listening.add_listener(channel, lambda _, pid, *__: heard.append(pid))
    theirs = await attacker.fetchval("INSERT INTO dispatch.tasks DEFAULT VALUES RETURNING id")
    await admin.execute(LONG_AGO)
    for _ in range(20):
        ours = await victim.fetchval("INSERT INTO dispatch.tasks DEFAULT VALUES RETURNING id")
        await listening.fetch("SELECT 1")  # what the listener was told of so far has arrived
        heard.clear()
        await admin.execute(LONG_AGO)
        async with rolled_back(attacker):
            await attacker.execute("INSERT INTO dispatch.tasks DEFAULT VALUES")
            await attacker.fetchval("SELECT dispatch.task_cancel($1)", theirs)
        await (
            victim.execute("INSERT INTO dispatch.tasks DEFAULT VALUES") if channel == "dispatch_tasks"
            else victim.fetchval("SELECT dispatch.task_cancel($1)", ours)
        )  # fmt: skip
        await listening.fetch("SELECT 1")
        assert heard == [victim.get_server_pid()]


MOVED = """
    SELECT array_agg(relname::text ORDER BY relname) FROM pg_class
    WHERE relkind = 'S' AND relname LIKE '%\\_clock\\_%' AND pg_sequence_last_value(oid) > 1000
"""
OF_TEAM_A = "SELECT $1 || '_clock_' || (hashtext('team_a') & 15)"


@pytest.mark.parametrize(
    ("login", "call", "kind"),
    [
        ("operator", "SELECT dispatch.task_cancel($1)", "done"),
        ("operator", "SELECT dispatch.task_retry($1, 1)", "tasks"),
        ("janitor", "SELECT dispatch_private.janitor_end($1, 1, 0, NULL, 'failed', 'parked')", "done"),
    ],
)
async def test_row_that_somebody_else_moves_is_announced_by_the_clock_of_its_submitter(
    quiet: Database, login: str, call: str, kind: str
) -> None:
    """A team with the clock of the janitor or of an operator could silence the ends of everybody."""
    admin, team, mover = [await quiet.connect(name) for name in ("admin", "team_a", login)]
    number = await team.fetchval("INSERT INTO dispatch.tasks DEFAULT VALUES RETURNING id")
    if kind == "tasks":
        await team.fetchval("SELECT dispatch.task_cancel($1)", number)
    await admin.execute(LONG_AGO)
    assert await mover.fetchval(call, number)
    assert await admin.fetchval(MOVED) == [await admin.fetchval(OF_TEAM_A, kind)]


@asynccontextmanager
async def rolled_back(connection: Connection) -> AsyncIterator[None]:
    transaction = connection.transaction()
    await transaction.start()
    yield
    await transaction.rollback()
