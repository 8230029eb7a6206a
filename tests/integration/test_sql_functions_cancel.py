"""task_cancel and task_retry: a submitter acts on rows, whatever containers do (docs/protocol.md, section 3)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from tests.postgres import Database
from tests.rows import SECOND, TERMINAL, Row, insert_row


async def test_a_waiting_row_is_cancelled_at_once(database: Database) -> None:
    row = await insert_row(database)
    assert await row.cancel("not needed") == "cancelled"
    assert await row.status() == "cancelled"
    assert await row.start() is None


async def test_cancel_of_a_running_row_is_only_asked(database: Database) -> None:
    row = await insert_row(database)
    started = await row.started()
    await row.cancel()
    now = await row.now()
    assert (now["status"], now["run_digest"]) == ("processing", started.run_digest)
    assert now["cancel_requested_at"] is not None
    assert await row.heartbeat(started) == "cancel"


@pytest.mark.parametrize(("silence", "status"), [(55, "processing"), (61, "cancelled")])
async def test_running_row_is_cancelled_after_a_minute_of_silence(
    database: Database, silence: float, status: str
) -> None:
    row = await insert_row(database)
    await row.started()
    await row.silent_for(silence)
    await row.cancel()
    assert await row.status() == status


async def test_a_row_asked_to_cancel_is_cancelled_once_it_is_silent(database: Database) -> None:
    row = await insert_row(database)
    await row.started()
    await row.cancel()
    await row.silent_for(61)
    assert await row.cancel() == "cancelled"
    assert await row.status() == "cancelled"


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
async def test_a_row_that_is_over_cannot_be_cancelled(database: Database, outcome: str) -> None:
    row = await insert_row(database)
    await row.finish(await row.started(), outcome)
    before = await row.now()
    await row.cancel()
    assert await row.now() == before


async def test_an_unknown_row_cannot_be_cancelled_or_retried(database: Database) -> None:
    team = await database.session("team_a")
    assert await team.fetchval("SELECT dispatch.task_cancel(999999)") is None
    assert await team.fetchval("SELECT dispatch.task_retry(999999)") is None


@pytest.mark.parametrize("status", ["waiting", "processing", "asked to cancel", *sorted(TERMINAL)])
async def test_row_of_any_status_can_be_retried(database: Database, status: str) -> None:
    row = await insert_row(database, max_failures=1)
    await bring_to(row, status)

    assert await row.retry() == "waiting"

    now = await row.now()
    assert (now["status"], now["attempt"], now["launch"], now["failures"]) == ("waiting", 2, 0, 0)
    assert await row.start(attempt=2, pod=SECOND) is not None


async def bring_to(row: Row, status: str) -> None:
    if status == "cancelled":
        await row.cancel()
    elif status != "waiting":
        started = await row.started()
        if status == "asked to cancel":
            await row.cancel()
        elif status in TERMINAL:
            await row.finish(started, status)


async def test_retry_resets_the_failures(database: Database) -> None:
    row = await insert_row(database, max_failures=3)
    await row.finish(await row.started(), "retry")
    await row.finish(await row.started(attempt=2), "retry")
    await row.retry()
    assert (await row.now())["failures"] == 0
    assert (await row.now())["attempt"] == 4


async def test_retried_row_is_due_at_once_despite_its_backoff(database: Database) -> None:
    row = await insert_row(database)
    await row.finish(await row.started(), "retry", retry_after=timedelta(hours=1))
    await row.retry()
    run_at = (await row.now())["run_at"]
    assert run_at is None or run_at <= datetime.now(UTC) + timedelta(seconds=1)


async def test_retry_keeps_the_columns_of_the_submitter(database: Database) -> None:
    columns: dict[str, Any] = {
        "priority": 7,
        "env": {"A": "1"},
        "spec": {"cpu": "1"},
        "payload": [1],
        "timeout_seconds": 9,
    }
    row = await insert_row(database, **columns, cache_key="c", dedupe_key="d")
    await row.finish(await row.started(), "failed")
    await row.retry()
    now = await row.now()
    assert {name: now[name] for name in columns} == columns
    assert (now["cache_key"], now["dedupe_key"], await database.start_key(row.id)) == ("c", "d", row.start_key)


async def test_retry_of_the_current_attempt_is_done(database: Database) -> None:
    row = await insert_row(database)
    assert await row.retry(attempt=1) == "waiting"
    assert (await row.now())["attempt"] == 2


async def test_a_repeated_retry_of_one_attempt_is_done_once(database: Database) -> None:
    row = await insert_row(database)
    for _ in range(3):
        await row.retry(attempt=1)
    assert (await row.now())["attempt"] == 2


@pytest.mark.parametrize("attempt", [0, 1, 3])
async def test_a_retry_of_another_attempt_changes_nothing(database: Database, attempt: int) -> None:
    row = await insert_row(database)
    await row.retry()
    started = await row.started(attempt=2)
    before = await row.now()
    await row.retry(attempt=attempt)
    assert await row.now() == before
    assert await row.heartbeat(started) == "continue"


async def test_a_live_dedupe_key_is_taken(database: Database) -> None:
    row = await insert_row(database, dedupe_key="nightly")
    with pytest.raises(asyncpg.UniqueViolationError):
        await insert_row(database, dedupe_key="nightly")
    await row.started()
    with pytest.raises(asyncpg.UniqueViolationError):
        await insert_row(database, dedupe_key="nightly")


async def test_the_dedupe_key_of_a_row_that_is_over_is_free(database: Database) -> None:
    row = await insert_row(database, dedupe_key="nightly")
    await row.finish(await row.started(), "succeeded")
    assert (await insert_row(database, dedupe_key="nightly")).id > row.id


async def test_dedupe_key_is_free_in_another_queue(database: Database) -> None:
    await (await database.session("operator")).execute("INSERT INTO dispatch.queues (name) VALUES ('other')")
    row = await insert_row(database, dedupe_key="nightly")
    assert (await insert_row(database, queue="other", dedupe_key="nightly")).id > row.id


async def test_a_row_whose_key_is_live_again_cannot_be_retried(database: Database) -> None:
    old = await insert_row(database, dedupe_key="nightly")
    await old.cancel()
    new = await insert_row(database, dedupe_key="nightly")
    with pytest.raises(asyncpg.UniqueViolationError) as refused:
        await old.retry()
    assert refused.value.sqlstate == "23505"
    assert await old.status() == "cancelled"
    await new.cancel()
    assert await old.retry() == "waiting"
