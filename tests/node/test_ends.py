"""How a row ends whose container fails, is stopped or is killed: as docs/author.md says, and why."""

import pytest_asyncio

from tests.node.endings import BEGUN, WHOLE, Rows, quick
from tests.node.installation import Installation
from tests.node.templates import MEMORY


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def rows(there: Installation) -> Rows:
    return await quick(there)


async def test_image_without_python_runs_its_task_through_the_copied_exec(rows: Rows) -> None:
    row, traces = await rows.ended("copied")
    assert (row["status"], row["error"], traces) == ("succeeded", None, WHOLE)


async def test_task_that_ends_with_a_final_status_is_not_run_again(rows: Rows) -> None:
    row, traces = await rows.ended("fails")
    assert (row["status"], row["error"], row["attempt"], traces) == ("failed", "CMD ended with status 65", 1, WHOLE)


async def test_task_that_asks_for_another_attempt_fails_when_none_is_left(rows: Rows) -> None:
    row, traces = await rows.ended("asks again")
    assert (row["status"], row["error"], traces) == ("failed", "CMD ended with status 75", WHOLE)


async def test_cancelled_task_stops_and_is_cancelled(rows: Rows) -> None:
    async def has_begun() -> bool:
        return (await rows.there.traces([rows.ids["cancelled"]]))[rows.ids["cancelled"]] == BEGUN

    await rows.there.site.plane.wait_for(has_begun, "the task to be cancelled runs", 60)
    team = await rows.there.database.session("team_a")
    await team.execute("SELECT dispatch.task_cancel($1)", rows.ids["cancelled"])
    row, traces = await rows.ended("cancelled")
    assert (row["status"], row["failures"], traces) == ("cancelled", 0, BEGUN)


async def test_task_that_takes_all_memory_tells_its_limit(rows: Rows) -> None:
    row, traces = await rows.ended("eats")
    assert (row["status"], row["error"], traces) == ("failed", "CMD was ended by SIGKILL", BEGUN)
    assert await rows.cause("eats") == f"OOMKilled (limit {MEMORY})"


async def test_task_whose_child_takes_all_memory_tells_its_limit(rows: Rows) -> None:
    row, traces = await rows.ended("child eats")
    assert (row["status"], row["error"], traces) == ("failed", "CMD ended with status 247", WHOLE)
    assert await rows.cause("child eats") == f"OOMKilled (limit {MEMORY})"


async def test_image_that_cannot_report_ends_its_row_by_its_exit_status(rows: Rows) -> None:
    row, traces = await rows.ended("plain")
    assert (row["status"], row["error"], traces) == ("succeeded", None, WHOLE)
    row, traces = await rows.ended("plain fails")
    assert (row["status"], traces) == ("failed", WHOLE)
    assert "exit code 3" in row["error"]


async def test_image_that_cannot_report_and_takes_all_memory_tells_its_limit(rows: Rows) -> None:
    row, traces = await rows.ended("plain eats")
    assert (row["status"], traces) == ("failed", BEGUN)
    assert f"OOMKilled (limit {MEMORY})" in row["error"]
