"""How a row ends that never starts, or that runs too long. The rows wait while the other files run."""

from collections import Counter

from tests.node.endings import ABSENT, BEGUN, Rows

SECONDS = 150


async def test_image_that_does_not_exist_never_runs_and_is_named(slow_rows: Rows) -> None:
    row, traces = await slow_rows.ended("absent", SECONDS)
    assert (row["status"], traces) == ("failed", Counter())
    assert "LaunchesExhausted" in row["error"]
    assert f"{ABSENT}: not found" in row["error"]


async def test_registry_that_does_not_answer_is_named(slow_rows: Rows) -> None:
    row, traces = await slow_rows.ended("no registry", SECONDS)
    assert (row["status"], traces) == ("failed", Counter())
    assert "127.0.0.1:9" in row["error"]
    assert "connection refused" in row["error"]


async def test_task_over_its_run_limit_is_stopped_and_tells_the_limit(slow_rows: Rows) -> None:
    row, traces = await slow_rows.ended("late", SECONDS)
    assert (row["status"], traces) == ("failed", BEGUN)
    assert "ran over its limit of 5 s" in row["error"]
    assert (await slow_rows.there.history(row["id"]))[-1]["exit_code"] == 143
