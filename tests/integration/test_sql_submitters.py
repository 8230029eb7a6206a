"""The bound on waiting rows of one submitter in a queue, and the scope of dedupe keys."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from tests.integration.queues import declare, defaults, refusal
from tests.rig.postgres import Database
from tests.rig.rows import insert_row

MANY = "INSERT INTO dispatch.tasks (queue) SELECT $1 FROM generate_series(1, $2)"
FIRST_BOUND = "UPDATE dispatch.queues SET max_waiting_per_submitter = 5 WHERE name = '*'"
LATER = datetime(9999, 1, 1, tzinfo=UTC)


async def waiting(database: Database, login: str = "team_a", queue: str = "door") -> int:
    admin = await database.session("admin")
    query = "SELECT count(*) FROM dispatch.tasks WHERE queue = $1 AND submitted_by = $2 AND status = 'waiting'"
    return int(await admin.fetchval(query, queue, login))


async def accepted(database: Database, login: str = "team_a", queue: str = "door", most: int = 5) -> int:
    """The number of rows, inserted one by one, that are accepted; fails on any other refusal than by the bound."""
    for number in range(most):
        if error := await refusal(database, login, queue=queue):
            assert (error.sqlstate, error.column_name) == ("DI009", "queue")
            return number
    return most


@pytest.mark.parametrize("bound", [0, 1, 3])
async def test_submitter_has_at_most_the_bound_of_waiting_rows(database: Database, bound: int) -> None:
    await declare(database, max_waiting_per_submitter=bound)
    assert await accepted(database) == await waiting(database) == bound


async def test_queue_without_a_bound_accepts_any_number(database: Database) -> None:
    await declare(database)
    await (await database.session("team_a")).execute(MANY, "door", 2000)
    assert await waiting(database) == 2000


async def test_bound_of_the_defaults_counts_for_queues_without_one(database: Database) -> None:
    await declare(database, "own", max_waiting_per_submitter=3)
    await declare(database, "plain")
    await defaults(database, "max_waiting_per_submitter", 2)
    filled = {queue: await accepted(database, queue=queue) for queue in ("own", "plain", "default")}
    assert filled == {"own": 3, "plain": 2, "default": 2}


async def test_bound_of_zero_in_the_defaults_closes_queues_without_one(database: Database) -> None:
    await declare(database, "own", max_waiting_per_submitter=1)
    await defaults(database, "max_waiting_per_submitter", 0)
    assert (await accepted(database, queue="default"), await accepted(database, queue="own")) == (0, 1)


async def test_an_insert_beyond_the_bound_is_refused_as_a_whole(database: Database) -> None:
    await declare(database, max_waiting_per_submitter=10)
    team = await database.session("team_a")
    with pytest.raises(asyncpg.PostgresError) as refused:
        await team.execute(MANY, "door", 11)
    assert (refused.value.sqlstate, refused.value.column_name) == ("DI009", "queue")
    assert "10" in str(refused.value)
    assert "max_waiting_per_submitter" in (refused.value.hint or "")
    assert await waiting(database) == 0
    await team.execute(MANY, "door", 10)
    assert await waiting(database) == 10


async def test_retry_beyond_the_bound_is_refused_as_a_whole(database: Database) -> None:
    await declare(database, max_waiting_per_submitter=10)
    team, operator = await database.session("team_a"), await database.session("operator")
    for _ in range(3):
        await team.execute("INSERT INTO dispatch.tasks (queue, batch) SELECT 'door', 'b' FROM generate_series(1, 4)")
        assert await team.fetchval("SELECT dispatch.batch_cancel('door', 'b')") == 4
    await team.execute(MANY, "door", 10)
    cancelled = await team.fetchval("SELECT min(id) FROM dispatch.tasks WHERE batch = 'b'")
    for call in (f"task_retry({cancelled})", "batch_retry('door', 'b')"):
        with pytest.raises(asyncpg.PostgresError, match="more than 10 waiting rows") as refused:
            await team.fetchval(f"SELECT dispatch.{call}")
        assert (refused.value.sqlstate, refused.value.column_name) == ("DI009", "queue")
    assert await waiting(database) == 10
    assert await operator.fetchval("SELECT dispatch.task_retry($1)", cancelled) == "waiting"


async def test_one_statement_may_fill_several_queues_each_to_its_bound(database: Database) -> None:
    await declare(database, "one", max_waiting_per_submitter=1)
    await declare(database, "two", max_waiting_per_submitter=2)
    team = await database.session("team_a")
    await team.execute("INSERT INTO dispatch.tasks (queue) VALUES ('one'), ('two'), ('two'), ('default')")
    for queue in ("one", "two"):
        error = await refusal(database, "team_a", queue=queue)
        assert error is not None
        assert (error.sqlstate, f'"{queue}"' in str(error)) == ("DI009", True)
    assert await database.insert_task(queue="default")


async def test_the_rows_of_other_submitters_do_not_count(database: Database) -> None:
    await declare(database, max_waiting_per_submitter=2)
    assert [await accepted(database, login) for login in ("team_a", "team_b")] == [2, 2]


@pytest.mark.parametrize("run_at", [LATER, datetime(1970, 1, 1, tzinfo=UTC)], ids=["of the future", "of the past"])
async def test_rows_with_a_time_count(database: Database, run_at: datetime) -> None:
    await declare(database, max_waiting_per_submitter=2)
    await database.insert_task(queue="door", run_at=run_at)
    assert await accepted(database) == 1
    with pytest.raises(asyncpg.PostgresError, match="more than 2 waiting rows"):
        await database.insert_task(queue="door", run_at=run_at)


async def test_statements_of_one_transaction_count_together(database: Database) -> None:
    await declare(database, max_waiting_per_submitter=2)
    team = await database.connect("team_a")
    async with team.transaction():
        await team.execute(MANY, "door", 1)
        await team.execute(MANY, "door", 1)
        with pytest.raises(asyncpg.PostgresError, match="more than 2 waiting rows"):
            async with team.transaction():
                await team.execute(MANY, "door", 1)
    assert await waiting(database) == 2


async def test_a_row_that_starts_or_ends_makes_room(database: Database) -> None:
    await declare(database, max_waiting_per_submitter=2)
    rows = [await insert_row(database, queue="door") for _ in range(2)]
    await rows[0].started()
    await rows[1].cancel()
    assert await accepted(database) == 2


async def test_a_bound_that_was_lowered_refuses_new_rows_and_keeps_the_others(database: Database) -> None:
    await declare(database, max_waiting_per_submitter=3)
    assert await accepted(database) == 3
    operator = await database.session("operator")
    await operator.execute("UPDATE dispatch.queues SET max_waiting_per_submitter = 1 WHERE name = 'door'")
    assert (await accepted(database), await waiting(database)) == (0, 3)


async def test_largest_possible_bound_works(database: Database) -> None:
    await declare(database, max_waiting_per_submitter=2**31 - 1)
    assert await accepted(database, most=2) == 2


async def test_negative_bound_is_refused(database: Database) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await declare(database, max_waiting_per_submitter=-1)


async def test_first_bound_waits_for_no_insert_and_holds_for_the_next(database: Database) -> None:
    inserting, operator = await database.connect("team_a"), await database.connect("operator")
    async with inserting.transaction():
        await inserting.execute(MANY, "default", 7)
        async with asyncio.timeout(5):
            await operator.execute(FIRST_BOUND)
        with pytest.raises(asyncpg.PostgresError, match="more than 5 waiting rows"):
            async with inserting.transaction():
                await inserting.execute(MANY, "default", 1)
    assert await waiting(database, queue="default") == 7


async def test_record_of_bounded_inserts_is_empty_after_each_statement(database: Database) -> None:
    """The first row is accepted, the second one is beyond the bound, and both are of one transaction."""
    await declare(database, max_waiting_per_submitter=1)
    team, admin = await database.connect("team_a"), await database.session("admin")
    async with team.transaction():
        await team.execute(MANY, "door", 1)
        with contextlib.suppress(asyncpg.PostgresError):
            async with team.transaction():
                await team.execute(MANY, "door", 1)
    assert await waiting(database) == 1
    assert await admin.fetchval("SELECT count(*) FROM dispatch_private.bounded_inserts") == 0


# Dedupe keys


async def test_dedupe_key_is_free_for_another_submitter(database: Database) -> None:
    columns: dict[str, Any] = {"dedupe_key": "nightly", "run_at": LATER}
    rows = [await insert_row(database, login, **columns) for login in ("team_a", "team_b")]
    assert rows[0].id != rows[1].id
    again = [await database.insert_task(login, dedupe_key="nightly") for login in ("team_a", "team_b")]
    assert again == [row.id for row in rows]
