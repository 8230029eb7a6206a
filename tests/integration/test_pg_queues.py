"""What pages ask the database: settings of queues, numbers, times, warm cache keys, and what a row says of itself."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest_asyncio

from dispatcher.model.history import Percentiles
from dispatcher.model.tasks import EndCount, QueueCount
from dispatcher.pg.connect import Session
from dispatcher.pg.questions import Questions, questions
from tests.integration.looking import opened
from tests.rig.postgres import Connection, Database
from tests.rig.rows import insert_row

ENDED = """
INSERT INTO dispatch_private.tasks
    (queue, status, attempt, launch, created_at, run_at, started_at, finished_at, node_name, cache_key, kind)
SELECT $1, $2, $3, $4, now() - interval '1 s' * $5::int, now() - interval '1 s' * $6::int,
       now() - interval '1 s' * $7::int, now() - interval '1 s' * $8::int, $9, $10, 'x' RETURNING id
"""
ODD = "INSERT INTO dispatch_private.queues (name, paused_until, note) VALUES ('odd', 'infinity', $1)"


@pytest_asyncio.fixture(loop_scope="session")
async def admin(database: Database) -> Connection:
    admin = await database.session("admin")
    await admin.execute("SET session_replication_role = replica")
    return admin


@pytest_asyncio.fixture(loop_scope="session")
async def asked(database: Database) -> AsyncIterator[Any]:
    """Asks one question in a snapshot of its own."""
    async with opened(database.url("reader")) as session:

        async def ask(name: str, *parameters: object) -> Any:
            async with questions(session) as rows:
                assert isinstance(rows, Questions)
                return await getattr(rows, name)(*parameters)

        yield ask


async def ended(admin: Connection, ago: Sequence[int | None], queue: str = "default", **row: Any) -> int:
    """Inserts a row that is over. `ago`: seconds since it was made, due, started, ended."""
    values = {"status": "succeeded", "attempt": 1, "launch": 1, "node": "n1", "key": None, **row}
    before = queue, values["status"], values["attempt"], values["launch"]
    return int(await admin.fetchval(ENDED, *before, *ago, values["node"], values["key"]))


async def test_settings_of_a_queue_come_with_the_defaults(admin: Connection, asked: Any) -> None:
    note = "<b>\u202e\U0001f600" + "x" * 5000
    await admin.execute(ODD, note)
    await admin.execute("UPDATE dispatch_private.queues SET max_jobs = 7, submit_role = 'team_a' WHERE name = '*'")
    found = await asked("queue_settings", "odd")
    assert set(found) == {"odd", "*"}
    assert (found["odd"].note, found["odd"].paused_until.year, found["odd"].max_jobs) == (note[:2000], 9999, None)
    assert (found["*"].max_jobs, found["*"].submit_role, found["*"].fair_submitters) == (7, "team_a", False)
    assert set(await asked("queue_settings", "none")) == {"*"}


async def test_ends_of_a_queue_are_its_newest_and_a_row_that_never_started_has_no_run_time(
    admin: Connection, asked: Any
) -> None:
    old = await ended(admin, (90, None, 80, 50))
    new = await ended(admin, (90, None, 80, 20), status="failed", attempt=2)
    await ended(admin, (90, None, 80, 10), queue="other")
    never = await ended(admin, (90, None, 80, 30), status="cancelled", launch=0)
    found = await asked("queue_ends", "default", 20)
    assert [(row.task, row.outcome, row.attempt, row.node, row.run_seconds) for row in found] == [
        (new, "failed", 2, "n1", 60), (never, "cancelled", 1, None, None), (old, "succeeded", 1, "n1", 30)
    ]  # fmt: skip
    assert [row.task for row in await asked("queue_ends", "default", 1)] == [new]


async def test_ends_are_counted_by_queue_and_status_from_the_first_time_on(admin: Connection, asked: Any) -> None:
    for seconds, queue, status in (
        (10, "default", "failed"), (10, "default", "succeeded"), (20, "default", "failed"), (10, "other", "cancelled"),
        (40, "default", "failed"),
    ):  # fmt: skip
        await ended(admin, (90, None, 80, seconds), queue=queue, status=status)
    times = [row["finished_at"] for row in await admin.fetch(
        "SELECT finished_at FROM dispatch_private.tasks ORDER BY finished_at"
    )]  # fmt: skip
    found = await asked("ends", times[1], datetime.now(UTC))
    assert sorted((one.queue, one.status, one.rows) for one in found) == [
        ("default", "failed", 2), ("default", "succeeded", 1), ("other", "cancelled", 1)
    ]  # fmt: skip
    assert await asked("ends", times[0], times[1]) == [EndCount("default", "failed", 1)]
    assert await asked("ends", times[0], times[0]) == []


async def test_times_are_percentiles_of_the_newest_ends(admin: Connection, asked: Any) -> None:
    for n in range(1, 101):  # waits of 1 to 100 s and runs of 2 to 200 s; those with longer runs ended before
        await ended(admin, (4000 + n, None, 4000, 4000 - 2 * n))
    assert await asked("queue_times", "default", 1000) == (
        Percentiles(100, 50, 90, 99),
        Percentiles(100, 100, 180, 198),
    )
    assert await asked("queue_times", "default", 10) == (Percentiles(10, 95, 99, 100), Percentiles(10, 190, 198, 200))
    assert await asked("queue_times", "other", 10) == (Percentiles(0), Percentiles(0))


async def test_wait_begins_when_the_row_is_due_and_is_known_of_a_first_launch_alone(
    admin: Connection, asked: Any
) -> None:
    await ended(admin, (90, 60, 50, 20))  # due 30 s after its INSERT
    assert await asked("queue_times", "default", 9) == (Percentiles(1, 10, 10, 10), Percentiles(1, 30, 30, 30))
    await ended(admin, (90, None, 50, 10), launch=2)  # its first launch may have run for a while
    await ended(admin, (90, None, 50, 10), attempt=2)  # nobody knows when the row was due again
    await ended(admin, (90, None, 50, 10), launch=0)  # it never started
    wait, run = await asked("queue_times", "default", 9)
    assert (wait.count, run.count) == (1, 3)
    await ended(admin, (90, 53, 50, 10), attempt=2)  # its retry was due at a time
    wait, _ = await asked("queue_times", "default", 9)
    assert (wait.count, wait.p50) == (2, 3)


async def test_times_between_the_ends_of_the_calendar_are_told(admin: Connection, asked: Any) -> None:
    """No interval is so long. One such row, which only the owner can write, closed the page of its queue."""
    task_id = await ended(admin, (90, 60, 50, 20))
    await admin.execute(
        "UPDATE dispatch_private.tasks SET started_at = '0001-01-01', run_at = '294276-01-01',"
        " finished_at = '294276-01-01' WHERE id = $1",
        task_id,
    )
    wait, run = await asked("queue_times", "default", 9)
    (end,) = await asked("queue_ends", "default", 9)
    assert (wait.count, run.count, wait.p50) == (1, 1, -run.p50)
    assert end.run_seconds == run.p50 > 294_000 * 365 * 86_400


async def test_starts_of_a_queue_come_with_the_kinds_of_their_rows(
    database: Database, admin: Connection, asked: Any
) -> None:
    rows = [await insert_row(database) for _ in range(2)]
    for row in rows:
        await row.started()
    await admin.execute("DELETE FROM dispatch_private.tasks WHERE id = $1", rows[0].id)
    kind = await admin.fetchval("SELECT kind FROM dispatch.tasks WHERE id = $1", rows[1].id)
    found = await asked("queue_starts", "default")
    assert [one for _, one in found] == [kind, None]
    assert all(isinstance(at, datetime) for at, _ in found)
    assert await asked("queue_starts", "other") == []


async def test_warm_keys_are_counted_by_node_and_queue_and_are_not_told(admin: Connection, asked: Any) -> None:
    for n, (node, key, status) in enumerate(
        [("a", "k1", "succeeded"), ("a", "k1", "succeeded"), ("a", "k2", "succeeded"), ("a", "k3", "failed"),
         ("b", "k1", "succeeded"), ("c", "k1", "succeeded"), ("a", None, "succeeded"), (None, "k9", "succeeded")]
    ):  # fmt: skip
        await ended(admin, (90, None, 80, 40 - n), node=node, key=key, status=status)
    await ended(admin, (90, None, 80, 10), queue="other", node="a", key="k1")
    assert await asked("warm_keys", ["a", "b"], 1000) == {"a": {"default": 2, "other": 1}, "b": {"default": 1}}
    assert await asked("warm_keys", ["a", "b"], 1) == {"a": {"other": 1}}
    assert await asked("warm_keys", [], 1000) == {}


async def counted(database: Database, *at_work: int) -> QueueCount:
    async with opened(database.url("reader")) as session, questions(session) as rows:
        (found,) = await rows.counts(at_work)
        return found


async def test_starts_and_ends_of_the_last_minutes_are_counted(database: Database) -> None:
    first, second, third = [await insert_row(database) for _ in range(3)]
    await first.finish(await first.started(), "succeeded")
    await second.started()
    found = await counted(database)
    assert (found.queue, found.due, found.starts, found.ends) == ("default", 1, 2, 1)
    admin = await database.session("admin")
    await admin.execute("UPDATE dispatch_private.task_launches SET started_at = now() - interval '6 min'")
    await admin.execute(
        "UPDATE dispatch_private.tasks SET finished_at = now() - interval '6 min' WHERE status = 'succeeded'"
    )
    await third.cancel()
    found = await counted(database)
    assert (found.due, found.starts, found.ends) == (0, 0, 1)


async def test_count_takes_longer_than_other_statements_may(database: Database) -> None:
    """That of ten million rows does. Without a count nobody is told what any queue waits for."""
    session = Session(lambda: database.url("reader"), {"statement_timeout": "500"})
    admin = await database.session("admin")
    async with questions(session) as rows, asyncio.TaskGroup() as group, admin.transaction():
        await admin.execute("LOCK TABLE dispatch_private.task_launches")
        counting = group.create_task(rows.counts())
        await admin.execute("SELECT pg_sleep(0.7)")
    assert [one.queue for one in counting.result()] == ["default"]
    await session.close()


async def test_row_that_was_due_before_its_insert_has_waited_since_its_insert(database: Database) -> None:
    """`run_at` of 1900 would make the oldest wait 126 years, and hide every real one."""
    admin = await database.session("admin")
    first, late = await insert_row(database), await insert_row(database)
    await admin.execute("UPDATE dispatch_private.tasks SET run_at = '1900-01-01 UTC' WHERE id = $1", first.id)
    await admin.execute(
        "UPDATE dispatch_private.tasks SET created_at = now() - interval '1 min' WHERE id = $1", late.id
    )
    assert (await counted(database)).oldest == (await late.now())["created_at"]
    await late.cancel()
    assert (await counted(database)).oldest == (await first.now())["created_at"]


async def test_row_that_somebody_retries_ages_no_queue(database: Database) -> None:
    """It was inserted long ago, and nothing tells since when it waits again."""
    admin = await database.session("admin")
    old, new = await insert_row(database), await insert_row(database)
    await old.cancel()
    await admin.execute("UPDATE dispatch_private.tasks SET created_at = now() - interval '9 d' WHERE id = $1", old.id)
    await old.retry()
    found = await counted(database)
    assert (found.due, found.oldest) == (2, (await new.now())["created_at"])
    await new.cancel()
    assert (await counted(database)).oldest is None
    team = await database.session("team_a")
    assert await team.fetchval("SELECT since FROM dispatch.task_explain($1)", old.id) is None


async def test_row_whose_container_runs_is_no_oldest_row(database: Database) -> None:
    """The alert of long waits, and `status`, took a run of hours for a wait."""
    admin = await database.session("admin")
    rows = [await insert_row(database) for _ in range(4)]
    first, second, third, fourth = (row.id for row in rows)
    await admin.execute("UPDATE dispatch_private.tasks SET run_at = created_at WHERE id = ANY ($1)", [first, third])
    times = [(await row.now())["created_at"] for row in rows]
    assert [
        (await counted(database, *ids)).oldest for ids in ((), (first,), (first, second), (first, second, third))
    ] == times
    nothing = await counted(database, first, second, third, fourth)
    assert (nothing.due, nothing.oldest) == (4, None), "each of them counts"


async def test_marks_of_a_row_are_read_as_they_are(database: Database) -> None:
    row = await database.insert_task(batch="july", labels={"month": "7"})
    bare = await database.insert_task()
    admin = await database.session("admin")
    await admin.execute("UPDATE dispatch_private.tasks SET progress = 0.25, note = 'a', error = 'b' WHERE id = $1", row)
    async with opened(database.url("reader")) as session, questions(session) as rows:
        found, empty, none = await rows.marks(row), await rows.marks(bare), await rows.marks(10**12)
        assert session.answered_at == float("-inf"), "the snapshot is still open"
    assert found is not None
    assert (found.batch, found.labels, found.progress, found.note, found.error) == (
        "july",
        {"month": "7"},
        0.25,
        "a",
        "b",
    )
    assert empty is not None
    assert (empty.batch, empty.labels, empty.progress, empty.note, empty.error) == (None, {}, None, None, None)
    assert none is None
    assert session.answered_at > 0


async def test_labels_of_another_form_are_read_as_text(database: Database) -> None:
    """Only an administrator can write them."""
    row, admin = await database.insert_task(), await database.session("admin")
    async with opened(database.url("reader")) as session:
        for labels, read in (({"a": {"b": [1]}}, {"a": '{"b":[1]}'}), ([1], {})):
            await admin.execute("SET session_replication_role = replica")
            await admin.execute("UPDATE dispatch_private.tasks SET labels = $2 WHERE id = $1", row, labels)
            async with questions(session) as rows:
                found = await rows.marks(row)
            assert found is not None
            assert found.labels == read, json.dumps(labels)
