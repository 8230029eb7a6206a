"""Batches, labels, progress and priorities: what submitters and containers of several teams can do with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from tests.integration.queues import refusal
from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import Row, insert_row

database = one_database
SILENT = "UPDATE dispatch_private.tasks SET heartbeat_at = now() - interval '61 s' WHERE id = $1"
STATUS = "SELECT * FROM dispatch.batch_status WHERE queue = 'default' AND batch = $1"
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
WRONG: dict[str, dict[str, Any]] = {
    "empty batch": {"batch": ""},
    "batch of 201 characters": {"batch": "b" * 201},
    "labels that are a list": {"labels": ["a"]},
    "label that is a number": {"labels": {"month": 7}},
    "17 labels": {"labels": {str(number): "x" for number in range(17)}},
    "10,000 labels": {"labels": {str(number): "x" for number in range(10_000)}},
    "label without a name": {"labels": {"": "x"}},
    "label with a name of 64 characters": {"labels": {"n" * 64: "x"}},
    "label with a value of 201 characters": {"labels": {"name": "x" * 201}},
}
RIGHT: dict[str, dict[str, Any]] = {
    "200 emoji": {"batch": "🦊" * 200},
    "16 labels at their limits": {"labels": {f"{number:063}": "ü" * 200 for number in range(16)}},
    "markup": {"batch": "<b>'; DROP TABLE tasks; --", "labels": {"<i>": "\u202e{}"}},
}


@pytest.mark.parametrize("columns", WRONG.values(), ids=WRONG.keys())
async def test_unusable_mark_is_refused_by_its_column_and_without_its_content(
    database: Database, columns: dict[str, Any]
) -> None:
    error = await refusal(database, "team_a", **columns)
    assert error is not None
    assert (error.sqlstate, error.column_name) == ("DI008", next(iter(columns)))
    assert error.hint
    assert "xxx" not in str(error)


@pytest.mark.parametrize("columns", RIGHT.values(), ids=RIGHT.keys())
async def test_mark_within_its_limits_is_kept_as_it_is(database: Database, columns: dict[str, Any]) -> None:
    row = await insert_row(database, **columns)
    now = await row.now()
    assert {name: now[name] for name in columns} == columns


async def batch(database: Database, name: str, number: int, login: str = "team_a", **columns: object) -> list[Row]:
    return [await insert_row(database, login=login, batch=name, **columns) for _ in range(number)]


async def counts(database: Database, name: str, login: str = "team_a") -> dict[str, Any]:
    found = await (await database.session(login)).fetchrow(STATUS, name)
    return dict(found) if found else {}


async def call(database: Database, login: str, function: str, *values: object) -> Any:
    places = ", ".join(f"${number}" for number in range(1, len(values) + 1))
    return await (await database.session(login)).fetchval(f"SELECT dispatch.{function}({places})", *values)


async def test_batch_status_counts_the_rows_of_a_batch_by_their_status(database: Database) -> None:
    rows = await batch(database, "nightly", 5)
    await rows[0].finish(await rows[0].started(), "succeeded")
    await rows[1].finish(await rows[1].started(), "failed")
    await rows[2].started()
    await rows[3].cancel()
    found = await counts(database, "nightly")
    told = {name: found[name] for name in ("tasks", "waiting", "processing", "succeeded", "failed", "cancelled")}
    assert told == {"tasks": 5, "waiting": 1, "processing": 1, "succeeded": 1, "failed": 1, "cancelled": 1}
    assert found["first_started_at"] == (await rows[0].now())["started_at"]
    assert found["last_finished_at"] == (await rows[3].now())["finished_at"]


async def test_batch_cancel_ends_waiting_rows_and_asks_running_ones_to_stop(database: Database) -> None:
    waiting, running, over = await batch(database, "stop", 3)
    started = await running.started()
    await over.finish(await over.started(), "succeeded")
    assert await call(database, "team_a", "batch_cancel", "default", "stop") == 2
    assert [await row.status() for row in (waiting, running, over)] == ["cancelled", "processing", "succeeded"]
    assert await running.heartbeat(started) == "cancel"


async def test_batch_is_cancelled_in_slices(database: Database) -> None:
    rows = await batch(database, "slices", 5)
    started = await rows[0].started()
    found = [await call(database, "team_a", "batch_cancel", "default", "slices", most) for most in (2, 2, 2, 2)]
    assert found == [2, 2, 1, 0], "a row that was asked to stop is not asked again"
    assert [await row.status() for row in rows] == ["processing", *["cancelled"] * 4]
    assert await rows[0].heartbeat(started) == "cancel"
    await (await database.session("admin")).execute(SILENT, rows[0].id)
    assert await call(database, "team_a", "batch_cancel", "default", "slices", 2) == 1
    assert await rows[0].status() == "cancelled"


@pytest.mark.parametrize("most", [None, 0, -1])
async def test_slice_without_a_row_is_refused(database: Database, most: int | None) -> None:
    """The answer 0 says that no row is left."""
    (row,) = await batch(database, f"slice of {most}", 1)
    with pytest.raises(asyncpg.InvalidParameterValueError, match="most is NULL, or below 1"):
        await call(database, "team_a", "batch_cancel", "default", f"slice of {most}", most)
    assert await row.status() == "waiting"


async def test_batch_retry_returns_what_failed_or_was_cancelled(database: Database) -> None:
    failed, cancelled, good, live = await batch(database, "again", 4)
    await failed.finish(await failed.started(), "failed")
    await cancelled.cancel()
    await good.finish(await good.started(), "succeeded")
    assert await call(database, "team_a", "batch_retry", "default", "again") == 2
    assert [await row.status() for row in (failed, cancelled, good, live)] == [
        "waiting", "waiting", "succeeded", "waiting",
    ]  # fmt: skip
    assert (await failed.now())["attempt"] == 2


async def test_batch_retry_returns_the_newest_row_of_a_key(database: Database) -> None:
    rows = []
    for key in ("k", "k", "other"):
        rows += await batch(database, "keys", 1, dedupe_key=key)
        await rows[-1].cancel()
    assert await call(database, "team_a", "batch_retry", "default", "keys") == 2
    assert [await row.status() for row in rows] == ["cancelled", "waiting", "waiting"]


async def test_batch_retry_leaves_a_row_whose_key_is_live_again(database: Database) -> None:
    (ended,) = await batch(database, "live", 1, dedupe_key="live")
    await ended.cancel()
    living = await insert_row(database, dedupe_key="live")
    assert await call(database, "team_a", "batch_retry", "default", "live") == 0
    assert [await ended.status(), await living.status()] == ["cancelled", "waiting"]


async def test_unknown_batch_changes_nothing(database: Database) -> None:
    for function in ("batch_cancel", "batch_retry"):
        assert await call(database, "team_a", function, "default", "never heard of") == 0


async def test_priority_of_a_waiting_row_is_changed_by_its_submitter_alone(database: Database) -> None:
    row = await insert_row(database)
    assert await call(database, "team_b", "task_set_priority", row.id, 1) is None
    assert await call(database, "team_a", "task_set_priority", row.id, 1) == "waiting"
    assert (await row.now())["priority"] == 1
    await row.started()
    assert await call(database, "team_a", "task_set_priority", row.id, 2) == "processing"
    assert (await row.now())["priority"] == 1


@pytest.mark.parametrize("priority", [-1, 1001, None])
async def test_priority_out_of_range_is_refused(database: Database, priority: int | None) -> None:
    row = await insert_row(database)
    with pytest.raises(asyncpg.PostgresError) as caught:
        await call(database, "team_a", "task_set_priority", row.id, priority)
    assert (caught.value.sqlstate, (await row.now())["priority"]) == ("DI004", 100)


async def test_rows_that_ended_since_a_time_are_the_submitters_own(database: Database) -> None:
    mine, other = await insert_row(database, batch="seen"), await insert_row(database, login="team_b")
    for row in (mine, other):
        await row.finish(await row.started(), "succeeded")
    await insert_row(database)
    ended = (await mine.now())["finished_at"]
    team = await database.session("team_a")
    query = "SELECT * FROM dispatch.task_ended_since($1) WHERE id >= $2"
    assert [tuple(one) for one in await team.fetch(query, ended, mine.id)] == [
        (mine.id, "default", "seen", "succeeded", ended)
    ]
    assert await team.fetch(query, ended + timedelta(microseconds=1), mine.id) == []


BEAT = "SELECT dispatch.task_heartbeat($1, $2, $3)"


async def said(row: Row, progress: float | None = None, note: str | None = None) -> tuple[Any, Any]:
    """What the row keeps of a heartbeat with these values, which is always counted."""
    started = await row.started() if (await row.now())["status"] == "waiting" else await row.start()
    assert started is not None
    task = await row.database.session("task")
    before = (await row.now())["heartbeat_at"]
    assert await task.fetchval(BEAT, started.run_token, progress, note) == "continue"
    now = await row.now()
    assert now["heartbeat_at"] > before
    return now["progress"], now["note"]


async def test_progress_and_note_of_a_heartbeat_are_kept(database: Database) -> None:
    row = await insert_row(database)
    assert await said(row, 0.25, "reading month 3") == (0.25, "reading month 3")
    assert await said(row) == (0.25, "reading month 3")
    assert await said(row, 1) == (1, "reading month 3")
    assert await said(row, note="writing") == (1, "writing")


@pytest.mark.parametrize("progress", [float("nan"), float("inf"), -1.0, 2.0])
async def test_progress_that_is_none_is_ignored_and_the_heartbeat_counts(database: Database, progress: float) -> None:
    assert await said(await insert_row(database), progress, "at work") == (None, "at work")


async def test_note_has_no_character_that_controls_a_screen(database: Database) -> None:
    words = "\x1b[31mred\x1b[0m\r\nsecond\tline \u202eright to left\u2066"
    _, note = await said(await insert_row(database), note=words)
    assert note == " [31mred [0m second line  right to left "
    _, note = await said(await insert_row(database), note="n" * 100_000)
    assert note == "n" * 200


async def test_progress_ends_with_its_launch(database: Database) -> None:
    row = await insert_row(database)
    await said(row, 0.5, "half")
    await row.started(launch=2)
    now = await row.now()
    assert (now["progress"], now["note"]) == (None, None)
    await row.retry()
    now = await row.now()
    assert (now["attempt"], now["progress"], now["note"]) == (2, None, None)


async def test_heartbeat_of_an_earlier_schema_goes_on(database: Database) -> None:
    """A container that calls with the token alone, by place or by name."""
    row = await insert_row(database)
    started = await row.started()
    task = await database.session("task")
    for call_ in ("SELECT dispatch.task_heartbeat($1)", "SELECT dispatch.task_heartbeat(run_token => $1)"):
        assert await task.fetchval(call_, started.run_token) == "continue"


async def test_labels_find_the_rows_of_their_submitter(database: Database) -> None:
    rows = [await insert_row(database, login, labels={"month": "7", "kind": "x"}) for login in ("team_a", "team_b")]
    await insert_row(database, labels={"month": "8"})
    team = await database.session("team_a")
    found = await team.fetch("SELECT id FROM dispatch.tasks WHERE labels @> $1", {"month": "7"})
    assert [row["id"] for row in found] == [rows[0].id]
