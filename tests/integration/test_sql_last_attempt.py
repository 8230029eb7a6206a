"""An attempt ends at 32,000, before its number runs out: with an error of its own, or as failed."""

from __future__ import annotations

import asyncpg
import pytest

from tests.rig.janitor_calls import returned
from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import Row, insert_row

database = one_database

LAST = 32_000


async def at_attempt(database: Database, attempt: int) -> Row:
    row = await insert_row(database, max_failures=100)
    admin = await database.session("admin")
    await admin.execute("UPDATE dispatch_private.tasks SET attempt = $2 WHERE id = $1", row.id, attempt)
    return row


@pytest.mark.parametrize("login", ["team_a", "operator"])
async def test_a_row_at_its_last_attempt_is_not_retried(database: Database, login: str) -> None:
    row = await at_attempt(database, LAST)
    await row.cancel()
    before = await row.now()
    with pytest.raises(asyncpg.PostgresError) as refused:
        await row.retry(login=login)
    assert (refused.value.sqlstate, refused.value.column_name) == ("54000", "attempt")
    assert str(LAST) in str(refused.value)
    assert refused.value.hint
    assert await row.now() == before


async def test_last_attempt_of_a_foreign_row_reveals_nothing(database: Database) -> None:
    row = await at_attempt(database, LAST)
    assert await row.retry(login="team_b") is None


async def test_a_retry_asked_for_at_the_last_attempt_fails_the_row(database: Database) -> None:
    row = await at_attempt(database, LAST)
    started = await row.started(attempt=LAST)
    assert await row.finish(started, "retry", error="again") == "failed"
    now = await row.now()
    assert (now["attempt"], now["failures"], now["error"]) == (LAST, 1, "again")
    assert await row.finish(started, "retry") == "failed"


async def test_a_return_at_the_last_attempt_fails_the_row(database: Database) -> None:
    row = await at_attempt(database, LAST)
    started = await row.started(attempt=LAST)
    await row.silent_for(61)
    assert await returned(row, started, attempt=LAST) == "failed"
    assert (await row.now())["attempt"] == LAST


async def test_the_attempt_before_the_last_goes_on(database: Database) -> None:
    cancelled, reported, silent = [await at_attempt(database, LAST - 1) for _ in range(3)]
    await cancelled.cancel()
    assert await cancelled.retry() == "waiting"
    assert await reported.finish(await reported.started(attempt=LAST - 1), "retry") == "waiting"
    started = await silent.started(attempt=LAST - 1)
    await silent.silent_for(61)
    assert await returned(silent, started, attempt=LAST - 1) == "waiting"
    assert {(await row.now())["attempt"] for row in (cancelled, reported, silent)} == {LAST}
    assert await reported.start(attempt=LAST) is not None
