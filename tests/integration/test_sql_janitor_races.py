"""The janitor among others: it ends cancelled runs, wakes listeners, and a call that is late changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from tests.integration.locks import in_order
from tests.rig.janitor_calls import cancelled, closed, returned
from tests.rig.postgres import Connection, Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import CANCEL, HEARTBEAT, SECOND, Row, Started, insert_row

database = one_database

CHANNELS = ("dispatch_tasks", "dispatch_done")
ROUNDS = 10


async def a_run(database: Database, *, asked: bool = False, max_failures: int = 3) -> tuple[Row, Started]:
    """A run that has been silent for a minute; `asked`: with a cancel before that."""
    row = await insert_row(database, max_failures=max_failures)
    started = await row.started()
    if asked:
        await row.cancel("wrong month")
    await row.silent_for(61)
    return row, started


# janitor_cancel


async def test_cancelled_run_without_a_container_is_ended(database: Database) -> None:
    row, started = await a_run(database, asked=True)
    assert await cancelled(row, started) == "cancelled"
    now, (launch,) = await row.now(), await row.launches()
    assert (now["status"], now["error"], now["attempt"]) == ("cancelled", "wrong month", 1)
    assert launch["outcome"] == "lost"
    assert await row.finish(started, "succeeded") is None


@pytest.mark.parametrize(
    "other", [{"id": 0}, {"attempt": 2}, {"attempt": None}, {"run_digest": bytes(32)}, {"run_digest": None}], ids=str
)
async def test_cancel_of_another_run_changes_nothing(database: Database, other: dict[str, Any]) -> None:
    row, started = await a_run(database, asked=True)
    before = await row.now()
    assert await cancelled(row, started, **other) is None
    assert await row.now() == before


@pytest.mark.parametrize("status", ["succeeded", "failed"])
async def test_only_a_processing_row_is_cancelled(own_database: Database, status: str) -> None:
    """By the trigger no such row has a token; the function does not rely on that."""
    row, started = await a_run(own_database, asked=True)
    admin = await own_database.session("admin")
    await admin.execute("ALTER TABLE dispatch_private.tasks DISABLE TRIGGER guard_task")
    await admin.execute(
        "UPDATE dispatch_private.tasks SET status = $2, finished_at = now() WHERE id = $1", row.id, status
    )
    assert await cancelled(row, started) is None


# Races: the first call has the row, and the late one gets that answer


@pytest_asyncio.fixture(loop_scope="session")
async def janitor(database: Database) -> AsyncIterator[Connection]:
    yield await database.connect("janitor")


async def at_once(call: Awaitable[str | None]) -> str | None:
    """The answer of a call that waits for no lock."""
    async with asyncio.timeout(5):
        return await call


RUN_CALLS: dict[str, tuple[Callable[[Row, Started, Connection], Awaitable[object]], str]] = {
    "the start of the next launch": (lambda row, _, by: row.start(launch=2, pod=SECOND, by=by), "processing"),
    "a report": (lambda row, run, by: row.finish(run, "succeeded", by=by), "succeeded"),
    "a heartbeat": (lambda _, run, by: by.fetchval(HEARTBEAT, run.run_token), "processing"),
    "a cancel": (lambda row, _, by: by.fetchval(CANCEL, row.id, None), "cancelled"),
}


@pytest.mark.parametrize(("call", "status"), RUN_CALLS.values(), ids=RUN_CALLS)
async def test_return_during_another_call_changes_nothing(
    database: Database, call: Callable[[Row, Started, Connection], Awaitable[object]], status: str
) -> None:
    row, dead = await a_run(database)
    other = await database.connect("team_a" if status == "cancelled" else "task")
    async with other.transaction():
        assert await call(row, dead, other) not in {None, "lost"}
        assert await at_once(returned(row, dead)) == "locked"
    assert await returned(row, dead) is None
    assert await row.status() == status


async def test_row_locked_by_a_submitter_is_moved_once_it_is_free(database: Database) -> None:
    """Every call of the janitor answers at once that the row is locked, and changes nothing."""
    runs = [await a_run(database), await a_run(database, asked=True)]
    waiting = await insert_row(database)
    calls: list[Callable[[], Awaitable[str | None]]] = [
        lambda: returned(*runs[0]), lambda: cancelled(*runs[1]), lambda: closed(waiting, launch=0, job_uid=None),
    ]  # fmt: skip
    before = [await row.now() for row in (runs[0][0], runs[1][0], waiting)]
    team = await database.connect("team_a")
    transaction = team.transaction()
    await transaction.start()
    for row in before:
        await team.fetchval(CANCEL, row["id"], None)
    assert [await at_once(call()) for call in calls] == ["locked"] * 3
    await transaction.rollback()
    assert [await row.now() for row in (runs[0][0], runs[1][0], waiting)] == before
    assert [await call() for call in calls] == ["waiting", "cancelled", "failed"]


async def test_start_that_waits_behind_the_end_of_its_row_is_refused(database: Database, janitor: Connection) -> None:
    row = await insert_row(database)
    container = await database.connect("task")
    end = closed(row, launch=0, job_uid=None, by=janitor)
    assert await in_order(database, janitor, end, container, row.start(by=container)) == ("failed", None)
    assert await row.launches() == []


async def test_end_during_the_start_of_a_waiting_row_changes_nothing(database: Database) -> None:
    row = await insert_row(database)
    container = await database.connect("task")
    async with container.transaction():
        assert await row.start(by=container)
        assert await at_once(closed(row, launch=0, job_uid=None)) == "locked"
    assert await closed(row, launch=0, job_uid=None) is None
    assert await row.status() == "processing"


async def test_one_of_two_janitors_and_a_late_report_moves_the_row(database: Database, janitor: Connection) -> None:
    second, container = await database.connect("janitor"), await database.connect("task")
    for _ in range(ROUNDS):
        row, dead = await a_run(database)
        calls = [
            returned(row, dead, by=janitor),
            returned(row, dead, by=second),
            row.finish(dead, "failed", by=container),
        ]
        answers = [answer for answer in await asyncio.gather(*calls) if answer not in {None, "locked"}]
        now = await row.now()
        assert answers in (["waiting"], ["failed"])
        assert (now["status"], now["failures"]) == (answers[0], 1)
        assert [launch["outcome"] for launch in await row.launches()] == [
            "lost" if answers == ["waiting"] else "failed"
        ]


# Wake-ups

Prepared = Callable[[], Awaitable[str | None]]


async def a_next_attempt(database: Database) -> Prepared:
    row, started = await a_run(database)
    return lambda: returned(row, started)


async def a_run_given_up(database: Database) -> Prepared:
    row, started = await a_run(database, max_failures=1)
    return lambda: returned(row, started)


async def a_row_ended(database: Database) -> Prepared:
    row = await insert_row(database)
    return lambda: closed(row, launch=0, job_uid=None)


async def a_run_cancelled(database: Database) -> Prepared:
    row, started = await a_run(database, asked=True)
    return lambda: cancelled(row, started)


@pytest.mark.parametrize(
    ("prepare", "channel"),
    [
        (a_next_attempt, "dispatch_tasks"),
        (a_run_given_up, "dispatch_done"),
        (a_row_ended, "dispatch_done"),
        (a_run_cancelled, "dispatch_done"),
    ],
)
async def test_call_of_the_janitor_notifies_once(
    database: Database, prepare: Callable[[Database], Awaitable[Prepared]], channel: str
) -> None:
    call, listening, admin = await prepare(database), await database.connect("reader"), await database.session("admin")
    heard: list[str] = []
    for name in CHANNELS:
        await listening.add_listener(name, lambda *told: heard.append(told[2]))
    for expected in ([channel], []):  # the second call finds the row closed
        heard.clear()
        # As after a long time without wake-ups: after one, others are held back for a tenth of a second.
        for kind in ("tasks", "done"):
            await admin.execute(
                f"SELECT setval('dispatch_private.{kind}_clock_' || n, 1) FROM generate_series(0, 15) n"
            )
        assert bool(await call()) is bool(expected)
        await listening.fetch("SELECT 1")
        assert heard == expected
