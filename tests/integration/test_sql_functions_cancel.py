"""task_cancel and task_retry: a submitter acts on rows, whatever containers do (docs/protocol.md, section 3)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import insert_row

database = one_database


@pytest.mark.parametrize(("silence", "status"), [(55, "processing"), (61, "cancelled")])
async def test_running_row_is_cancelled_after_a_minute_of_silence(
    database: Database, silence: float, status: str
) -> None:
    row = await insert_row(database)
    await row.started()
    await row.silent_for(silence)
    await row.cancel()
    assert await row.status() == status


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


async def test_the_dedupe_key_of_a_row_that_is_over_is_free(database: Database) -> None:
    row = await insert_row(database, dedupe_key="over")
    await row.finish(await row.started(), "succeeded")
    assert (await insert_row(database, dedupe_key="over")).id > row.id


async def test_dedupe_key_is_free_in_another_queue(database: Database) -> None:
    await (await database.session("operator")).execute("INSERT INTO dispatch.queues (name) VALUES ('other')")
    row = await insert_row(database, dedupe_key="elsewhere")
    assert (await insert_row(database, queue="other", dedupe_key="elsewhere")).id > row.id


async def test_a_row_whose_key_is_live_again_cannot_be_retried(database: Database) -> None:
    old = await insert_row(database, dedupe_key="secret-key", payload="secret-payload")
    await old.cancel()
    new = await insert_row(database, dedupe_key="secret-key", payload="secret-payload")
    with pytest.raises(asyncpg.UniqueViolationError) as refused:
        await old.retry()
    assert (refused.value.column_name, bool(refused.value.hint)) == ("dedupe_key", True)
    assert "secret" not in str(refused.value.as_dict())
    assert f"task {old.id} cannot wait again: task {new.id} has its dedupe_key" in str(refused.value)
    assert await old.status() == "cancelled"
    await new.cancel()
    assert await old.retry() == "waiting"
