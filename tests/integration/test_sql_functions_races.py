"""Row locks order racing calls: in any order one wins, and the others learn it (docs/protocol.md, section 3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.locks import until_blocked
from tests.postgres import Connection, Database
from tests.postgres_fixtures import one_database
from tests.rows import CANCEL, FINISH, FIRST, RETRY, SECOND, Pod, Row, Started, insert_row

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
    row = await insert_row(database)
    team = await database.connect("team_a")
    async with team.transaction():
        assert await team.fetchval(CANCEL, row.id, None) == "cancelled"
        start = asyncio.create_task(row.start(by=containers[0]))
        await until_blocked(database, containers[0])
    assert await start is None


async def test_a_report_that_waits_behind_a_retry_is_lost(database: Database, containers: list[Connection]) -> None:
    row = await insert_row(database)
    started = await row.started()
    team = await database.connect("team_a")
    async with team.transaction():
        await team.fetchval(RETRY, row.id, None)
        report = asyncio.create_task(row.finish(started, "succeeded", by=containers[0]))
        await until_blocked(database, containers[0])
    assert await report is None
    assert await row.status() == "waiting"


@pytest.mark.fault(46)
async def test_a_report_that_waits_behind_a_takeover_is_lost(database: Database, containers: list[Connection]) -> None:
    row = await insert_row(database)
    old = await row.started()
    async with containers[0].transaction():
        assert await row.start(launch=2, pod=SECOND, by=containers[0]) is not None
        report = asyncio.create_task(row.finish(old, "succeeded", by=containers[1]))
        await until_blocked(database, containers[1])
    assert await report is None
    assert await row.status() == "processing"


async def test_a_takeover_that_waits_behind_a_report_is_refused(
    database: Database, containers: list[Connection]
) -> None:
    row = await insert_row(database)
    started = await row.started()
    async with containers[0].transaction():
        assert await row.finish(started, "succeeded", by=containers[0]) == "succeeded"
        takeover = asyncio.create_task(row.start(launch=2, pod=SECOND, by=containers[1]))
        await until_blocked(database, containers[1])
    assert await takeover is None
    assert await row.status() == "succeeded"


async def test_a_start_repeated_behind_the_first_gets_its_token(
    database: Database, containers: list[Connection]
) -> None:
    row = await insert_row(database)
    async with containers[0].transaction():
        first = await row.start(pod=FIRST, by=containers[0])
        again = asyncio.create_task(row.start(pod=FIRST, by=containers[1]))
        await until_blocked(database, containers[1])
    assert first is not None
    assert await again == first


async def test_a_report_repeated_behind_the_first_gets_its_answer(
    database: Database, containers: list[Connection]
) -> None:
    row = await insert_row(database)
    started = await row.started()
    async with containers[0].transaction():
        assert await containers[0].fetchval(FINISH, started.run_token, "retry", None, None, None) == "waiting"
        again = asyncio.create_task(row.finish(started, "retry", by=containers[1]))
        await until_blocked(database, containers[1])
    assert await again == "waiting"
    assert (await row.now())["failures"] == 1


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
