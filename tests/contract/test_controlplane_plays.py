"""Each play of a task leaves the row in the state that its name says; with real SQL, without Kubernetes."""

from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from tests.controlplane.programs import TaskCalls, play_task
from tests.controlplane.waiting import wait_for
from tests.rig.postgres import Database
from tests.rig.rows import Row, insert_row


@pytest_asyncio.fixture(loop_scope="session")
async def calls(database: Database) -> AsyncIterator[TaskCalls]:
    async with asyncpg.create_pool(database.url("task"), min_size=1, max_size=1) as pool:
        yield TaskCalls(pool)


def environment(row: Row, play: str, *, launch: int = 1) -> dict[str, str]:
    return {
        "TASK_ID": str(row.id),
        "TASK_START_KEY": str(row.start_key),
        "TASK_ATTEMPT": "1",
        "TASK_LAUNCH": str(launch),
        "JOB_UID": "j",
        "NODE_NAME": "n",
        "POD_NAME": f"p{launch}",
        "PLAY": play,
    }


@pytest.mark.parametrize(
    ("play", "code", "status", "reports"),
    [
        ("succeed", 0, "succeeded", ["succeeded"]),
        ("retry", 0, "waiting", ["waiting"]),
        ("fail", 1, "failed", ["failed"]),
        ("start-then-exit-0", 0, "processing", []),
        ("start-then-exit-1", 1, "processing", []),
        ("exit-0-without-start", 0, "waiting", []),
        ("exit-1-without-start", 1, "waiting", []),
    ],
)
async def test_play_ends_with_its_exit_code_and_status(
    database: Database, calls: TaskCalls, play: str, code: int, status: str, reports: list[str]
) -> None:
    row = await insert_row(database, payload={"n": 1})
    assert await play_task(environment(row, play), calls) == code
    assert await row.status() == status
    assert calls.reports == reports
    if not play.endswith("-without-start"):
        assert calls.started
        assert calls.started.payload == {"n": 1}


async def test_refused_start_exits_0(database: Database, calls: TaskCalls) -> None:
    row = await insert_row(database)
    await row.started(launch=2)
    assert await play_task(environment(row, "succeed", launch=1), calls) == 0
    assert (calls.asked, calls.started, calls.reports) == (True, None, [])


async def test_hanging_play_has_started_and_never_ends(database: Database, calls: TaskCalls) -> None:
    row = await insert_row(database)
    with pytest.raises(TimeoutError):
        await wait_for(lambda: play_task(environment(row, "hang"), calls), "the end of what hangs", 0.5)
    assert await row.status() == "processing"
    assert calls.heartbeats == ["continue"]
