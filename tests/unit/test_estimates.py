"""How many of the estimates that people were told came true."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

import pytest

from dispatcher.model.tasks import Status, Task
from dispatcher.runtime.metrics import ESTIMATE_HITS
from dispatcher.views.estimate import Estimate
from dispatcher.views.reads import MOST, Estimates
from tests.rig.builders import NOW, a_running_task, a_task, ago, later

RANGE = Estimate(ago(60), ago(30), 20)


class Rows:
    """The rows, and what was asked for."""

    now = NOW

    def __init__(self, *tasks: Task) -> None:
        self._tasks = {task.id: task for task in tasks}
        self.asked: list[Sequence[int]] = []

    async def tasks(self, ids: Sequence[int]) -> dict[int, Task]:
        self.asked.append(ids)
        return self._tasks

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Rows"]:
        yield self


def counted() -> dict[str, float]:
    (metric,) = ESTIMATE_HITS.collect()
    return {one.labels["outcome"]: one.value for one in metric.samples if one.name.endswith("_total")}


async def outcome_of(task: Task | None, estimate: Estimate = RANGE) -> tuple[str, int]:
    """The outcome that is counted for a row, and how many estimates are looked at in the next round."""
    rows, before = Rows(*filter(None, [task])), counted()
    estimates = Estimates(rows.opened)
    estimates.note(42, 1, estimate)
    await estimates.run_once()
    await estimates.run_once()
    changed = [name for name, value in counted().items() if value != before.get(name, 0)]
    return "".join(changed), len(rows.asked) - 1


@pytest.mark.parametrize(
    ("started_at", "outcome"),
    [(ago(61), "early"), (ago(60), "hit"), (ago(30), "hit"), (ago(29), "late")],
)
async def test_estimate_of_a_row_that_started_is_counted_once(started_at: datetime, outcome: str) -> None:
    assert await outcome_of(a_running_task(started_at=started_at)) == (outcome, 0)
    over = a_running_task(started_at=started_at, status=Status.SUCCEEDED, finished_at=NOW)
    assert await outcome_of(over) == (outcome, 0)


async def test_row_that_waits_longer_than_was_told_is_late() -> None:
    assert await outcome_of(a_task()) == ("late", 0)


async def test_row_that_may_still_start_in_time_is_looked_at_again() -> None:
    assert await outcome_of(a_task(), Estimate(NOW, later(5), 20)) == ("", 1)


@pytest.mark.parametrize("task", [None, a_task(attempt=2), a_task(status=Status.CANCELLED, finished_at=NOW)])
async def test_row_that_will_not_start_any_more_is_not_counted(task: Task | None) -> None:
    assert await outcome_of(task) == ("", 0)


async def test_no_row_is_read_for_no_estimate() -> None:
    rows = Rows()
    estimates = Estimates(rows.opened)
    estimates.note(42, 1, None)
    await estimates.run_once()
    assert rows.asked == []


async def test_the_first_estimate_of_a_row_counts_and_their_number_is_bounded() -> None:
    rows = Rows(a_running_task(started_at=ago(45)))
    estimates, before = Estimates(rows.opened), counted().get("hit", 0)
    estimates.note(42, 1, RANGE)
    estimates.note(42, 1, Estimate(later(5), later(9), 20))
    for id_ in range(1000, 1000 + MOST):
        estimates.note(id_, 1, RANGE)
    await estimates.run_once()
    assert (len(rows.asked[0]), counted()["hit"]) == (MOST, before + 1)
