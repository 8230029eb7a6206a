"""The ends of launches in SQL: the janitor's call `janitor_ended`, and the view `task_history`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from dispatcher.pg.queries import query
from dispatcher.pg.questions import Questions
from dispatcher.pg.tasks import snapshot
from tests.integration.looking import opened
from tests.integration.queues import declare
from tests.rig.postgres import Database, Record
from tests.rig.rows import FIRST, SECOND, Row, insert_row

HISTORY = "SELECT * FROM dispatch.task_history WHERE task_id = $1 ORDER BY attempt, launch"
ENDED = datetime(2026, 1, 1, tzinfo=UTC)
MADE_UP = """
INSERT INTO dispatch_private.task_launches (task_id, attempt, launch, job_uid, started_at, ended_at, outcome)
SELECT $1, 1, n, 'uid', now(), now(), 'lost' FROM generate_series(2, 32767) AS n
"""
PLAN = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "


def an_end(row: Row, launch: int = 1, **facts: Any) -> dict[str, Any]:
    """The end of a launch, as the janitor tells it."""
    told = {
        "task": row.id, "attempt": 1, "launch": launch, "job_uid": FIRST.job_uid, "node": "node-1", "pod": "pod-1",
        "ended_at": ENDED.isoformat(), "exit_code": 137, "reason": "OOMKilled (limit 64Mi)", "output": "the end\n",
    }  # fmt: skip
    return {**told, **facts}


async def write(database: Database, *ends: dict[str, Any]) -> int:
    janitor = await database.session("janitor")
    return int(await janitor.fetchval(query("ended", "janitor"), list(ends)))


async def history(row: Row, login: str = "team_a") -> list[Record]:
    return list(await (await row.database.session(login)).fetch(HISTORY, row.id))


async def known_causes(row: Row) -> list[Record]:
    of_launch = [row.id], [1], [1]
    return list(await (await row.database.session("janitor")).fetch(query("with_cause", "janitor"), *of_launch))


async def test_submitter_reads_what_ended_its_run(database: Database) -> None:
    row = await insert_row(database)
    await row.started()
    assert await write(database, an_end(row)) == 1
    (launch,) = await history(row)
    assert (launch["exit_code"], launch["reason"], launch["error"]) == (137, "OOMKilled (limit 64Mi)", "the end\n")
    assert (launch["outcome"], launch["ended_at"]) == (None, None), "only a report or the next launch ends a run"
    assert [tuple(one) for one in await known_causes(row)] == [(row.id, 1, 1)]


async def test_launches_that_a_container_made_up_cost_the_janitor_nothing(database: Database) -> None:
    """task_start takes any launch up to 32,767, and each is a record. Every round asks for those that have ended."""
    row = await insert_row(database)
    await row.started()
    await (await database.session("admin")).execute(MADE_UP, row.id)
    async with opened(database.url("janitor")) as session, session.use() as janitor:
        (found,) = json.loads(await janitor.fetchval(PLAN + query("with_cause", "janitor"), [row.id], [1], [1]))
    assert found["Plan"]["Shared Hit Blocks"] + found["Plan"]["Shared Read Blocks"] < 20


async def test_error_that_a_container_reported_stays(database: Database) -> None:
    row = await insert_row(database)
    await row.finish(await row.started(), "failed", error="my words")
    await write(database, an_end(row))
    (launch,) = await history(row)
    assert (launch["outcome"], launch["error"], launch["exit_code"]) == ("failed", "my words", 137)


async def test_empty_error_hides_neither_an_output_nor_the_reason_of_a_cancel(database: Database) -> None:
    """A driver may send an empty text where its program has no message."""
    row = await insert_row(database)
    started = await row.started()
    await row.cancel("not needed")
    await row.cancel("")
    assert (await row.now())["error"] == "not needed"
    assert await row.finish(started, "failed", error="") == "cancelled"
    await write(database, an_end(row))
    assert ((await row.now())["error"], (await history(row))[0]["error"]) == ("not needed", "the end\n")


async def test_launch_that_never_called_task_start_is_written_down(database: Database) -> None:
    row = await insert_row(database)
    end = an_end(row, exit_code=None, reason="ErrImagePull: not found", output="")
    assert await write(database, end) == 1
    (launch,) = await history(row)
    assert (launch["outcome"], launch["started_at"], launch["ended_at"]) == ("unstarted", None, ENDED)
    assert (launch["exit_code"], launch["reason"], launch["error"]) == (None, "ErrImagePull: not found", None)


async def test_cause_is_written_once_and_only_for_the_job_that_was_judged(database: Database) -> None:
    row = await insert_row(database)
    await row.started()
    assert await write(database, an_end(row, job_uid="another")) == 0
    assert await write(database, an_end(row)) == 1
    assert await write(database, an_end(row, reason="later words")) == 0
    assert [launch["reason"] for launch in await history(row)] == ["OOMKilled (limit 64Mi)"]


async def test_launch_that_starts_after_all_is_no_longer_written_off(database: Database) -> None:
    """Its Job was seen to end, but its container lived on a node that the cluster had lost."""
    row = await insert_row(database)
    await write(database, an_end(row, reason="its node is lost", job_uid=SECOND.job_uid))
    started = await row.started(pod=SECOND)
    (launch,) = await history(row)
    assert (launch["outcome"], launch["reason"], launch["exit_code"], launch["ended_at"]) == (None, None, None, None)
    assert (launch["pod_name"], launch["error"]) == (SECOND.name, None)
    assert await row.finish(started, "succeeded") == "succeeded"
    assert [launch["outcome"] for launch in await history(row)] == ["succeeded"]


async def test_next_launch_closes_a_run_and_its_cause_stays(database: Database) -> None:
    row = await insert_row(database)
    await row.started()
    await write(database, an_end(row))
    await row.started(launch=2, pod=SECOND)
    told = [(launch["launch"], launch["outcome"], launch["reason"]) for launch in await history(row)]
    assert told == [(1, "lost", "OOMKilled (limit 64Mi)"), (2, None, None)]


@pytest.mark.parametrize("facts", [{"task": 999_999}, {"attempt": 2}])
async def test_launch_of_no_row_and_of_an_attempt_to_come_is_left_out(
    database: Database, facts: dict[str, Any]
) -> None:
    row = await insert_row(database)
    assert await write(database, an_end(row, **facts)) == 0
    assert await history(row) == []


async def test_names_and_texts_are_bounded(database: Database) -> None:
    row = await insert_row(database)
    end = an_end(
        row, node="No Such Node!", pod="a;b", reason="r" * 5000, output="é" * 5000, ended_at="2999-01-01T00:00Z"
    )
    await write(database, end)
    (launch,) = await history(row)
    assert (launch["node_name"], launch["pod_name"]) == (None, None)
    assert (len(launch["reason"]), len(launch["error"].encode())) == (1024, 2048)
    assert launch["ended_at"] < datetime(2999, 1, 1, tzinfo=UTC), "a time to come becomes now"


@pytest.mark.parametrize("told", [None, {}, 1, ["a"], [[1]]])
async def test_nonsense_is_refused(database: Database, told: object) -> None:
    janitor = await database.session("janitor")
    with pytest.raises(asyncpg.PostgresError):
        await janitor.fetchval(query("ended", "janitor"), told)


async def test_call_has_at_most_two_hundred_launches(database: Database) -> None:
    row = await insert_row(database)
    assert await write(database, *(an_end(row, launch) for launch in range(1, 201))) == 200
    with pytest.raises(asyncpg.PostgresError, match="at most 200"):
        await write(database, *(an_end(row, launch) for launch in range(1, 202)))


async def test_team_sees_the_launches_of_its_own_rows_alone(database: Database) -> None:
    row = await insert_row(database)
    await write(database, an_end(row))
    assert len(await history(row)) == 1
    assert await history(row, "team_b") == []
    for login in ("operator", "observer"):
        assert len(await history(row, login)) == 1
    team_b = await database.session("team_b")
    assert await team_b.fetchval("SELECT count(task_id) FROM dispatch.task_launches") == 0


async def test_owner_of_a_queue_sees_the_launches_of_its_rows(database: Database) -> None:
    await declare(database, "shared", owner_role="team_b")
    row = await insert_row(database, "team_b", queue="shared")
    await row.started()
    assert len(await history(row, "team_b")) == 1


async def starts_seen_by(database: Database, row: Row) -> list[tuple[bool, bool]]:
    """(is_alike, overtook) of the starts in the row's queue, the newest first."""
    async with opened(database.url("reader")) as session, snapshot(session, Questions) as rows:
        task = await rows.task(row.id)
        assert task
        return [(start.is_alike, start.overtook) for start in await rows.starts(task)]


async def test_start_keeps_the_queue_for_estimates(database: Database) -> None:
    row = await insert_row(database)
    await row.started()
    assert await starts_seen_by(database, row) == [(True, False)]
    assert await starts_seen_by(database, await insert_row(database, env={"A": "1"})) == [(False, False)]
    await declare(database, "other")
    assert await starts_seen_by(database, await insert_row(database, queue="other")) == []


async def test_start_of_a_later_row_of_a_better_priority_is_told_as_such(database: Database) -> None:
    waiting = await insert_row(database)
    later = [await insert_row(database, priority=priority) for priority in (100, 99, 1)]
    for row in later:
        await row.started()
    assert await starts_seen_by(database, waiting) == [(True, True), (True, True), (True, False)]
    await (await database.session("admin")).execute("DELETE FROM dispatch_private.tasks WHERE id = $1", later[-1].id)
    assert await starts_seen_by(database, waiting) == [(False, False), (True, True), (True, False)], "it is gone"


async def test_deletion_of_a_row_takes_its_history_along(database: Database) -> None:
    row = await insert_row(database)
    await write(database, an_end(row))
    await row.finish(await row.started(), "succeeded")
    admin = await database.session("admin")
    await admin.execute(
        "UPDATE dispatch_private.tasks SET finished_at = now() - interval '9 days' WHERE id = $1", row.id
    )
    janitor = await database.session("janitor")
    assert await janitor.fetchval(query("delete", "janitor"), 1, 10, []) == 1
    assert await admin.fetchval("SELECT count(*) FROM dispatch_private.task_launches WHERE task_id = $1", row.id) == 0
