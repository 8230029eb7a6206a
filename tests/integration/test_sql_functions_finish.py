"""task_finish: the newest start reports, once; a repeated report gets the same answer (docs/protocol.md, section 3)."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import SECOND, Row, Started, insert_row

database = one_database

ERROR_LIMIT = 8 * 1024
RESULT_LIMIT = 64 * 1024


async def test_success_ends_the_row_and_keeps_the_result(database: Database) -> None:
    row = await insert_row(database)
    assert await row.finish(await row.started(), "succeeded", result={"rows": 3}) == "succeeded"
    now = await row.now()
    assert (now["status"], now["result"], now["error"], now["failures"]) == ("succeeded", {"rows": 3}, None, 0)


async def test_failure_ends_the_row_and_keeps_the_error(database: Database) -> None:
    row = await insert_row(database, max_failures=5)
    assert await row.finish(await row.started(), "failed", error="disk full") == "failed"
    now = await row.now()
    assert (now["status"], now["attempt"], now["error"]) == ("failed", 1, "disk full")


async def test_reason_of_a_cancel_outlives_the_end_of_the_run(database: Database) -> None:
    row = await insert_row(database)
    started = await row.started()
    await row.cancel("not needed")
    assert await row.finish(started, "retry") == "cancelled"
    assert "not needed" in (await row.now())["error"]


async def test_success_after_a_failed_try_has_no_error(database: Database) -> None:
    row = await insert_row(database)
    await row.finish(await row.started(), "retry", error="flaky")
    assert await row.finish(await row.started(attempt=2), "succeeded") == "succeeded"
    assert (await row.now())["error"] is None


@pytest.mark.parametrize(
    ("failures", "seconds"), [(0, 10), (1, 20), (2, 40), (5, 320), (6, 600), (7, 600), (40, 600), (98, 600)]
)
async def test_backoff_doubles_from_ten_seconds_to_ten_minutes(database: Database, failures: int, seconds: int) -> None:
    row = await insert_row(database, max_failures=100)
    admin = await database.session("admin")
    await admin.execute("UPDATE dispatch_private.tasks SET failures = $2 WHERE id = $1", row.id, failures)
    started = await row.started()
    assert abs(await delay_of_retry(row, started) - seconds) < 1


async def test_container_may_choose_the_delay_of_its_retry(database: Database) -> None:
    row = await insert_row(database)
    started = await row.started()
    assert abs(await delay_of_retry(row, started, timedelta(hours=2)) - 7200) < 1


@pytest.mark.parametrize(
    ("delay", "days"),
    [
        ("600000 months -17999971 days", 30),
        ("-48000 months 1440001 days", 0),
        ("90 days", 30),
        ("-1 day", 0),
        ("178000000 years", 30),
    ],
)
async def test_delay_of_a_retry_is_bounded_however_it_is_written(database: Database, delay: str, days: int) -> None:
    """Postgres compares a month as 30 days, and adds it as a month of the calendar."""
    row = await insert_row(database)
    started, admin = await row.started(), await database.session("admin")
    finish = "SELECT dispatch.task_finish($1, 'retry', retry_after => $2::text::interval)"
    await admin.fetchval(finish, started.run_token, delay)
    left = "SELECT extract(epoch FROM run_at - now())::float8 / 86400 FROM dispatch.tasks WHERE id = $1"
    assert abs(await admin.fetchval(left, row.id) - days) < 0.01


async def delay_of_retry(row: Row, started: Started, retry_after: timedelta | None = None) -> float:
    admin = await row.database.session("admin")
    await row.finish(started, "retry", retry_after=retry_after)
    query = "SELECT extract(epoch FROM run_at - now())::float8 FROM dispatch.tasks WHERE id = $1"
    delay: float = await admin.fetchval(query, row.id)
    return delay


@pytest.mark.parametrize(
    ("outcome", "answer"), [("succeeded", "succeeded"), ("failed", "failed"), ("retry", "waiting")]
)
async def test_a_repeated_report_gets_the_recorded_answer(database: Database, outcome: str, answer: str) -> None:
    row = await insert_row(database)
    started = await row.started()
    assert [await row.finish(started, outcome) for _ in range(3)] == [answer] * 3
    assert (await row.now())["failures"] <= 1


@pytest.mark.fault(46)
async def test_a_recorded_answer_outlives_the_next_attempts(database: Database) -> None:
    row = await insert_row(database)
    first = await row.started()
    await row.finish(first, "retry")
    second = await row.started(attempt=2, pod=SECOND)
    assert await row.finish(first, "retry") == "waiting"
    assert await row.finish(first, "succeeded") == "waiting"
    assert await row.finish(second, "succeeded") == "succeeded"
    assert await row.finish(first, "failed") == "waiting"
    assert await row.status() == "succeeded"


async def test_a_contradicting_second_report_changes_nothing(database: Database) -> None:
    row = await insert_row(database)
    started = await row.started()
    await row.finish(started, "succeeded", result=1)
    assert await row.finish(started, "failed", error="no", result=2) == "succeeded"
    now = await row.now()
    assert (now["status"], now["result"], now["error"]) == ("succeeded", 1, None)


@pytest.mark.fault(46)
async def test_report_of_a_replaced_launch_is_lost(database: Database) -> None:
    row = await insert_row(database)
    old = await row.started(launch=1)
    await row.started(launch=2, pod=SECOND)
    assert await row.finish(old, "succeeded") is None
    assert await row.heartbeat(old) == "lost"
    assert await row.status() == "processing"


@pytest.mark.fault(46)
async def test_report_after_a_retry_is_lost(database: Database) -> None:
    row = await insert_row(database)
    started = await row.started()
    await row.retry()
    assert await row.finish(started, "succeeded") is None
    assert await row.heartbeat(started) == "lost"
    assert await row.status() == "waiting"


@pytest.mark.parametrize("outcome", ["", "Succeeded", "waiting", "cancelled", "lost", None])
async def test_an_unknown_outcome_is_an_error(database: Database, outcome: str | None) -> None:
    row = await insert_row(database)
    started = await row.started()
    with pytest.raises(
        asyncpg.PostgresError, match=f'the outcome "{outcome}" is unknown' if outcome else "the outcome is unknown"
    ):
        await row.finish(started, outcome)
    assert await row.status() == "processing"
    assert await row.heartbeat(started) == "continue"


@pytest.mark.parametrize("error", ["é" * 5000, "x" + "€" * 4000, "𝄞" * 3000, "x" * 9000])
async def test_a_long_error_is_cut_to_its_limit_between_characters(database: Database, error: str) -> None:
    row = await insert_row(database)
    assert await row.finish(await row.started(), "failed", error=error) == "failed"
    (launch,) = await row.launches()
    for kept in ((await row.now())["error"], launch["error"]):
        assert ERROR_LIMIT - 8 <= len(kept.encode()) <= ERROR_LIMIT


async def test_an_error_of_exactly_the_limit_is_kept_whole(database: Database) -> None:
    row = await insert_row(database)
    await row.finish(await row.started(), "failed", error="é" * (ERROR_LIMIT // 2))
    assert (await row.now())["error"] == "é" * (ERROR_LIMIT // 2)


BLANKS = 'a" \\ \\" '
"""A string that has what ends strings in JSON."""
LARGEST: dict[str, Any] = {
    "a string": "x" * (RESULT_LIMIT - 2),
    "a list": [1] * (RESULT_LIMIT // 2 - 2) + [12],
    "an object": {BLANKS: [BLANKS, "x" * (RESULT_LIMIT - 2 * len(json.dumps(BLANKS)) - 8)]},
}


@pytest.mark.parametrize("result", LARGEST.values(), ids=LARGEST)
async def test_a_result_of_exactly_the_limit_is_kept(database: Database, result: Any) -> None:
    """As a program writes it: jsonb has a blank after each comma and colon."""
    assert len(json.dumps(result, separators=(",", ":"))) == RESULT_LIMIT
    row = await insert_row(database)
    assert await row.finish(await row.started(), "succeeded", result=result) == "succeeded"
    assert (await row.now())["result"] == result


async def test_result_over_the_limit_is_refused_and_may_be_left_out(database: Database) -> None:
    row = await insert_row(database)
    started = await row.started()
    with pytest.raises(asyncpg.PostgresError):
        await row.finish(started, "succeeded", result="x " * (RESULT_LIMIT // 2))
    assert await row.status() == "processing"
    assert await row.finish(started, "succeeded") == "succeeded"


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
async def test_a_report_closes_its_launch_with_the_outcome(database: Database, outcome: str) -> None:
    row = await insert_row(database)
    started = await row.started()
    await row.finish(started, outcome, error="why")
    (closed,) = await row.launches()
    assert (closed["outcome"], closed["error"]) == (outcome, "why")
    assert closed["ended_at"] >= closed["started_at"]
    await row.finish(started, "retry", error="again")
    assert await row.launches() == [closed]


async def test_closed_launch_never_changes(database: Database) -> None:
    row = await insert_row(database)
    await row.finish(await row.started(), "retry", error="first")
    (closed,) = await row.launches()
    await row.retry()
    await row.started(attempt=3)
    await row.retry()
    await row.cancel()
    assert (await row.launches())[0] == closed


@pytest.mark.parametrize("way", ["takeover", "cancel", "retry"])
async def test_a_launch_that_never_reports_is_closed_when_it_loses_the_row(database: Database, way: str) -> None:
    row = await insert_row(database)
    await row.started()
    if way == "takeover":
        await row.started(launch=2, pod=SECOND)
    elif way == "cancel":
        await row.silent_for(61)
        await row.cancel()
    else:
        await row.retry()
    closed = (await row.launches())[0]
    assert closed["ended_at"] is not None
    assert closed["outcome"] not in {None, "succeeded", "failed", "retry"}, "the launch reported none of these"
