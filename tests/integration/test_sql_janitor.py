"""The janitor's functions are compare-and-sets, and every condition counts (docs/protocol.md, section 8)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from tests.rig.janitor_calls import closed, returned
from tests.rig.postgres import Database, Record
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import FIRST, SECOND, Row, Started, insert_row

database = one_database

UID = FIRST.job_uid
SMALLINT = 32767


async def a_silent_run(database: Database, seconds: float = 61, max_failures: int = 3) -> tuple[Row, Started]:
    """A row whose container has been silent for so long."""
    row = await insert_row(database, max_failures=max_failures)
    started = await row.started()
    await row.silent_for(seconds)
    return row, started


async def backdated(row: Row, **columns: object) -> None:
    """Sets columns to values that only time or a long life would give."""
    admin = await row.database.session("admin")
    for name, value in columns.items():
        await admin.execute(f"UPDATE dispatch_private.tasks SET {name} = $2 WHERE id = $1", row.id, value)


async def launch_of(row: Row) -> Record:
    (launch,) = await row.launches()
    return launch


# Return: the run of a container that is gone


async def test_a_dead_run_is_returned_to_the_next_attempt(database: Database) -> None:
    row, started = await a_silent_run(database)
    assert await returned(row, started, error="its Job is gone") == "waiting"
    now = await row.now()
    kept = {name: now[name] for name in ("status", "attempt", "launch", "failures", "run_digest", "job_uid", "error")}
    assert kept == {
        "status": "waiting", "attempt": 2, "launch": 0, "failures": 1, "run_digest": None, "job_uid": None,
        "error": "its Job is gone",
    }  # fmt: skip
    assert now["finished_at"] is None
    assert await row.heartbeat(started) == "lost"
    assert await row.start(attempt=1, launch=2) is None
    assert await row.start(attempt=2) is not None


async def test_return_leaves_the_records_of_earlier_launches(database: Database) -> None:
    row = await insert_row(database)
    await row.started()
    second = await row.started(launch=2, pod=SECOND)
    before, _ = await row.launches()
    await row.silent_for(61)
    assert await returned(row, second, launch=2) == "waiting"
    first, last = await row.launches()
    assert first == before
    assert (last["outcome"], last["ended_at"] is None) == ("lost", False)


@pytest.mark.parametrize(
    ("before", "counted", "allowed", "status", "after"),
    [
        (0, 1, 3, "waiting", 1),
        (1, 1, 3, "waiting", 2),
        (2, 1, 3, "failed", 3),
        (0, 2, 3, "waiting", 2),
        (0, 3, 3, "failed", 3),
        (1, 5, 3, "failed", 6),
        (0, 0, 3, "waiting", 1),
        (0, -7, 3, "waiting", 1),
        (0, None, 3, "waiting", 1),
        (0, 0, 1, "failed", 1),
        (0, 40_000, 3, "failed", SMALLINT),
        (SMALLINT, 1, 3, "failed", SMALLINT),
    ],
)
async def test_return_adds_a_failure_and_the_last_allowed_ends_the_row(
    database: Database, before: int, counted: int | None, allowed: int, status: str, after: int
) -> None:
    row, started = await a_silent_run(database, max_failures=allowed)
    await backdated(row, failures=before)
    assert await returned(row, started, failures=counted) == status
    now = await row.now()
    assert (now["status"], now["failures"]) == (status, after)
    assert now["attempt"] == (2 if status == "waiting" else 1)


async def test_run_that_failed_finally_keeps_its_launch(database: Database) -> None:
    row, started = await a_silent_run(database, max_failures=1)
    assert await returned(row, started, error="over") == "failed"
    now = await row.now()
    kept = (now["attempt"], now["launch"], now["job_uid"], now["run_at"], now["error"])
    assert kept == (1, 1, UID, None, "over")
    assert now["finished_at"] is not None


@pytest.mark.parametrize(("failures", "seconds"), [(0, 10), (1, 20), (5, 320), (6, 600), (50, 600)])
async def test_a_returned_row_waits_twice_as_long_each_time(database: Database, failures: int, seconds: int) -> None:
    row, started = await a_silent_run(database, max_failures=100)
    await backdated(row, failures=failures)
    await returned(row, started)
    run_at = (await row.now())["run_at"]
    assert abs((run_at - datetime.now(UTC)).total_seconds() - seconds) < 5


RETURN_FENCE: list[dict[str, Any]] = [
    {"id": 0}, {"attempt": 2}, {"launch": 2}, {"run_digest": None}, {"attempt": None}, {"launch": None},
]  # fmt: skip
"""`test_row_against_sql` has the other values of attempt, launch and token."""


@pytest.mark.parametrize("other", RETURN_FENCE, ids=str)
async def test_return_of_another_run_changes_nothing(database: Database, other: dict[str, Any]) -> None:
    row, started = await a_silent_run(database)
    before, launch = await row.now(), await launch_of(row)
    assert await returned(row, started, **other) is None
    assert (await row.now(), await launch_of(row)) == (before, launch)


@pytest.mark.parametrize(("seconds", "status"), [(0, None), (55, None), (61, "waiting")])
async def test_run_with_recent_heartbeats_is_not_returned(
    database: Database, seconds: float, status: str | None
) -> None:
    row, started = await a_silent_run(database, seconds)
    assert await returned(row, started) == status


@pytest.mark.parametrize("status", ["waiting", "succeeded", "failed", "cancelled"])
async def test_only_a_processing_row_is_returned(own_database: Database, status: str) -> None:
    """By the trigger no such row has a token; the function does not rely on that."""
    row, started = await a_silent_run(own_database)
    admin = await own_database.session("admin")
    await admin.execute("ALTER TABLE dispatch_private.tasks DISABLE TRIGGER guard_task")
    await admin.execute(
        "UPDATE dispatch_private.tasks SET status = $1, finished_at = CASE $1 WHEN 'waiting' THEN NULL ELSE now() END",
        status,
    )
    assert await returned(row, started) is None
    assert (await own_database.task(row.id))["attempt"] == 1


# End: a parked row, or one by its Job's exit code


@pytest.mark.parametrize(("outcome", "error"), [("failed", "UnknownTemplate: x"), ("succeeded", None)])
async def test_a_waiting_row_is_ended(database: Database, outcome: str, error: str | None) -> None:
    row = await insert_row(database)
    assert await closed(row, outcome=outcome, job_uid=None, launch=0, error="UnknownTemplate: x") == outcome
    now = await row.now()
    assert (now["status"], now["error"], now["attempt"]) == (outcome, error, 1)
    assert now["finished_at"] is not None
    assert await row.start() is None


async def test_a_success_leaves_no_error_of_an_earlier_attempt(database: Database) -> None:
    """As in task_finish: `error` is the reason of the last failed run."""
    row = await insert_row(database)
    await row.finish(await row.started(), "retry", error="connection reset")
    assert await closed(row, attempt=2, outcome="succeeded", error="") == "succeeded"
    assert (await row.now())["error"] is None


@pytest.mark.parametrize("outcome", ["failed", "succeeded"])
async def test_run_is_ended_by_its_own_job(database: Database, outcome: str) -> None:
    row = await insert_row(database)
    started = await row.started()
    assert await closed(row, outcome=outcome, error="exit 0") == outcome
    assert await row.status() == outcome
    launch = await launch_of(row)
    assert (launch["outcome"], launch["error"]) == (outcome, "exit 0")
    assert launch["ended_at"] is not None
    assert await row.heartbeat(started) == "lost"
    assert await row.finish(started, "succeeded") == outcome  # the status of the row, without a second end


async def test_end_leaves_the_records_of_earlier_launches(database: Database) -> None:
    row = await insert_row(database)
    await row.started()
    await row.started(launch=2, pod=SECOND)
    before, _ = await row.launches()
    assert await closed(row, launch=2, job_uid=SECOND.job_uid) == "failed"
    first, last = await row.launches()
    assert first == before
    assert (first["outcome"], last["outcome"]) == ("lost", "failed")


@pytest.mark.parametrize("change", ["attempt = 2", "launch = 2", "ended_at = started_at, outcome = 'lost'"])
async def test_only_the_open_record_of_the_run_is_ended(own_database: Database, change: str) -> None:
    """By the functions no other record can be open; this function does not rely on that."""
    row = await insert_row(own_database)
    await row.started()
    await (await own_database.session("admin")).execute(f"UPDATE dispatch_private.task_launches SET {change}")
    before = await launch_of(row)
    assert await closed(row) == "failed"
    assert await launch_of(row) == before


END_FENCE: list[dict[str, Any]] = [
    {"id": 0}, {"attempt": 0}, {"attempt": 2}, {"attempt": None}, {"launch": 0}, {"launch": 2}, {"launch": None},
    {"job_uid": "another"}, {"job_uid": None}, {"launch": 0, "job_uid": None},
]  # fmt: skip


@pytest.mark.parametrize("other", END_FENCE, ids=str)
async def test_another_job_ends_no_run(database: Database, other: dict[str, Any]) -> None:
    row = await insert_row(database)
    await row.started()
    before, launch = await row.now(), await launch_of(row)
    assert await closed(row, **other) is None
    assert (await row.now(), await launch_of(row)) == (before, launch)


@pytest.mark.parametrize("other", [{"id": 0}, {"attempt": 0}, {"attempt": 2}, {"attempt": None}], ids=str)
async def test_waiting_row_is_ended_only_at_its_own_attempt(database: Database, other: dict[str, Any]) -> None:
    row = await insert_row(database)
    assert await closed(row, **other) is None
    assert await row.status() == "waiting"


@pytest.mark.parametrize("outcome", ["returned", "cancelled", "lost", "", None])
async def test_unknown_outcome_of_an_end_is_refused(database: Database, outcome: str | None) -> None:
    row = await insert_row(database)
    with pytest.raises(asyncpg.InvalidParameterValueError):
        await closed(row, outcome=outcome)
    assert await row.status() == "waiting"


@pytest.mark.parametrize("has_started", [False, True], ids=["waiting", "running"])
async def test_retry_counts_a_failure_and_waits_again_while_failures_are_left(
    database: Database, has_started: bool
) -> None:
    row = await insert_row(database, max_failures=2)
    if has_started:
        await row.started()
    assert await closed(row, outcome="retry") == "waiting"
    now = await row.now()
    assert (now["attempt"], now["launch"], now["job_uid"], now["failures"], now["error"]) == (2, 0, None, 1, "over")
    assert timedelta(seconds=9) < now["run_at"] - datetime.now(UTC) <= timedelta(seconds=10)
    assert await closed(row, outcome="retry") is None, "it was of attempt 1"
    if has_started:
        assert (await launch_of(row))["outcome"] == "retry"
    assert await closed(row, outcome="retry", attempt=2) == "failed"
    now = await row.now()
    assert (now["attempt"], now["failures"], now["finished_at"] is None) == (2, 2, False)


async def test_retry_of_a_run_with_a_cancel_ends_it(database: Database) -> None:
    row = await insert_row(database, max_failures=2)
    await row.started()
    await row.cancel("enough")
    assert await closed(row, outcome="retry") == "cancelled"
    assert (await row.now())["failures"] == 0


# Error texts


@pytest.mark.parametrize("character", ["x", "ü", "🙂"])
async def test_an_error_is_cut_at_8_kib_between_two_characters(database: Database, character: str) -> None:
    words = character * 9000
    ended, (dead, started) = await insert_row(database), await a_silent_run(database)
    await ended.started()
    await closed(ended, error=words)
    await returned(dead, started, error=words)
    for row in (ended, dead):
        error = (await row.now())["error"]
        assert 8192 - 4 < len(error.encode()) <= 8192
        assert words.startswith(error)
    assert (await launch_of(ended))["error"] == (await ended.now())["error"]


async def test_an_error_is_kept_without_what_controls_a_terminal(database: Database) -> None:
    """Whoever reads the column with psql reads it as it is, with a client of whatever encoding."""
    row, told = await insert_row(database), "a\x1b[2Jb\r\nc\td\u202ee\x9bf\u2028g\ufffd"
    assert await row.finish(await row.started(), "failed", error=told) == "failed"
    reader = await database.connect("team_a")
    await reader.execute("SET client_encoding = 'LATIN1'")
    found = await reader.fetchval("SELECT error FROM dispatch.tasks WHERE id = $1", row.id)
    assert found == "a?[2Jb\nc\td?e?f?g?"
