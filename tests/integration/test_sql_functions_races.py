"""Row locks order racing calls: in any order one wins, and the others learn it (docs/protocol.md, section 3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.locks import in_order
from tests.rig.postgres import Connection, Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import CANCEL, RETRY, SECOND, Pod, Row, Started, insert_row

database = one_database

PODS = [Pod(f"pod-{n}", f"job-{n}") for n in range(4)]
ROUNDS = 10


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def containers(database: Database) -> AsyncIterator[list[Connection]]:
    yield [await database.connect("task") for _ in PODS]


async def test_one_of_racing_pods_of_a_launch_starts(database: Database, containers: list[Connection]) -> None:
    for _ in range(ROUNDS):
        row = await insert_row(database)
        calls = [row.start(pod=pod, by=by) for pod, by in zip(PODS, containers, strict=True)]
        started = [answer for answer in await asyncio.gather(*calls) if answer]
        assert len(started) == 1
        assert (await row.now())["run_digest"] == started[0].run_digest


async def test_simultaneous_calls_of_one_pod_are_one_start(database: Database, containers: list[Connection]) -> None:
    for _ in range(ROUNDS):
        row = await insert_row(database)
        answers = await asyncio.gather(*(row.start(by=by) for by in containers))
        assert answers[0] is not None
        assert answers == [answers[0]] * len(containers)
        assert len(await row.launches()) == 1


async def test_highest_of_racing_launches_holds_the_row(database: Database, containers: list[Connection]) -> None:
    for _ in range(ROUNDS):
        row = await insert_row(database)
        calls = [row.start(launch=n, pod=PODS[n - 1], by=by) for n, by in enumerate(containers, start=1)]
        answers = await asyncio.gather(*calls)
        now = await row.now()
        assert answers[-1] is not None
        assert (now["launch"], now["run_digest"]) == (len(PODS), answers[-1].run_digest)
        assert sum(launch["ended_at"] is None for launch in await row.launches()) == 1


async def test_one_of_racing_launches_starts_if_one_failure_is_allowed(
    database: Database, containers: list[Connection]
) -> None:
    for _ in range(ROUNDS):
        row = await insert_row(database, max_failures=1)
        calls = [row.start(launch=n, pod=PODS[n - 1], by=by) for n, by in enumerate(containers, start=1)]
        assert sum(answer is not None for answer in await asyncio.gather(*calls)) == 1


async def test_a_start_that_waits_behind_a_cancel_is_refused(database: Database, containers: list[Connection]) -> None:
    row, team, by = await insert_row(database), await database.session("team_a"), containers[0]
    cancel = team.fetchval(CANCEL, row.id, None)
    assert await in_order(database, team, cancel, by, row.start(by=by)) == ("cancelled", None)


async def test_a_report_that_waits_behind_a_retry_is_lost(database: Database, containers: list[Connection]) -> None:
    row, team, by = await insert_row(database), await database.session("team_a"), containers[0]
    report = row.finish(await row.started(), "succeeded", by=by)
    assert await in_order(database, team, team.fetchval(RETRY, row.id, None), by, report) == ("waiting", None)
    assert await row.status() == "waiting"


@pytest.mark.fault(46)
async def test_a_report_that_waits_behind_a_takeover_is_lost(database: Database, containers: list[Connection]) -> None:
    row, (one, other) = await insert_row(database), containers[:2]
    report = row.finish(await row.started(), "succeeded", by=other)
    started, lost = await in_order(database, one, row.start(launch=2, pod=SECOND, by=one), other, report)
    assert started is not None
    assert (lost, await row.status()) == (None, "processing")


async def test_a_takeover_that_waits_behind_a_report_is_refused(
    database: Database, containers: list[Connection]
) -> None:
    row, (one, other) = await insert_row(database), containers[:2]
    report = row.finish(await row.started(), "succeeded", by=one)
    takeover = row.start(launch=2, pod=SECOND, by=other)
    assert await in_order(database, one, report, other, takeover) == ("succeeded", None)
    assert await row.status() == "succeeded"


async def test_a_start_repeated_behind_the_first_gets_its_token(
    database: Database, containers: list[Connection]
) -> None:
    row, (one, other) = await insert_row(database), containers[:2]
    first, again = await in_order(database, one, row.start(by=one), other, row.start(by=other))
    assert first is not None
    assert again == first


async def test_a_report_repeated_behind_the_first_gets_its_answer(
    database: Database, containers: list[Connection]
) -> None:
    row, (one, other) = await insert_row(database), containers[:2]
    started = await row.started()
    reports = [row.finish(started, "retry", by=by) for by in (one, other)]
    assert await in_order(database, one, reports[0], other, reports[1]) == ("waiting", "waiting")
    assert (await row.now())["failures"] == 1


async def test_second_retry_of_a_batch_leaves_what_the_first_one_has_retried(database: Database) -> None:
    """Otherwise it would fence off what runs by then."""
    row = await insert_row(database, batch="twice")
    await row.cancel()
    one, other = await database.connect("team_a"), await database.connect("team_a")
    calls = [by.fetchval("SELECT dispatch.batch_retry('default', 'twice')") for by in (one, other)]
    assert await in_order(database, one, calls[0], other, calls[1]) == (1, 0)
    assert (await row.now())["attempt"] == 2


async def test_racing_reports_and_retries_end_in_one_consistent_row(
    database: Database, containers: list[Connection]
) -> None:
    for _ in range(ROUNDS):
        row = await insert_row(database)
        started = await row.started()
        answer, *_ = await asyncio.gather(
            row.finish(started, "succeeded", by=containers[0]),
            row.retry(attempt=1),
            row.start(launch=2, pod=SECOND, by=containers[1]),
        )
        assert await settled(row, started) == ("waiting", 2, 0)
        assert answer in {"succeeded", None}


async def settled(row: Row, started: Started) -> tuple[str, int, int]:
    assert await row.heartbeat(started) == "lost"
    now = await row.now()
    return now["status"], now["attempt"], now["launch"]
