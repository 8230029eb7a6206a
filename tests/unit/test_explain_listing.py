"""A page of rows, each with the reason why it waits."""

import pytest

from dispatcher.admission.last_cycle import LastCycle, Told
from dispatcher.admission.snapshot import plan_load
from dispatcher.explain.listing import ids_for, page_of
from dispatcher.model.history import ListedTask, Wanted
from dispatcher.model.launches import Offer
from dispatcher.model.tasks import Status, Task
from dispatcher.model.verdicts import Hold, HoldReason
from tests.builders import CREATED, NOW, a_picture, a_queue, a_snapshot, a_task, later
from tests.unit.test_explain import Offers

EVERY = Wanted()


def row(id_: int = 42) -> ListedTask:
    return ListedTask(id_, "default", "waiting", 1, 100, "default", "team_a", CREATED, None, None, None, None)


def a_cycle(*, leads: bool = True, launched: tuple[int, ...] = (), is_full: bool = False, **told: str) -> LastCycle:
    """A cycle. `told`: reasons by row, such as r42="Poison"."""
    load = plan_load([("default", "team_b")])
    snapshot = a_snapshot(a_queue(max_jobs=1), load=load) if is_full else a_snapshot()
    known = {int(id_[1:]): Told("default", 1, Hold(HoldReason(reason), "words"), NOW) for id_, reason in told.items()}
    picture = a_picture(offers=Offers(Offer("app:1", "small", "default")))
    return LastCycle(snapshot, picture, known, frozenset(launched), {}, {}, leads=leads)


def reason(cycle: LastCycle, task: Task | None) -> str | None:
    """The reason in the page of one row. `task`: as the gates judge it."""
    (found,) = page_of([row()], {42: task} if task else {}, EVERY, cycle).tasks
    return found.reason


def test_a_row_that_was_judged_has_the_reason_that_was_told() -> None:
    (found,) = page_of([row()], {42: a_task()}, EVERY, a_cycle(r42="Poison")).tasks
    assert (found.reason, found.message) == ("Poison", "the API server refuses its Job: words")
    assert reason(a_cycle(r42="Poison"), a_task(attempt=2)) == "InLine", "another attempt"


def test_a_row_that_was_not_judged_has_the_first_reason_that_would_hold_it() -> None:
    assert reason(a_cycle(), a_task()) == "InLine"
    assert reason(a_cycle(is_full=True), a_task()) == "QueueCap"
    assert reason(a_cycle(is_full=True), a_task(run_at=later(9))) == "NotDue"


def test_a_row_that_was_launched_a_moment_ago_is_told_as_such_by_the_leader() -> None:
    assert reason(a_cycle(launched=(42,)), a_task()) == "Launched"
    assert reason(a_cycle(launched=(42,), leads=False), a_task()) == "InLine"


@pytest.mark.parametrize("status", [Status.PROCESSING, Status.SUCCEEDED, Status.FAILED, Status.CANCELLED])
def test_a_row_that_does_not_wait_has_no_reason(status: Status) -> None:
    assert reason(a_cycle(), a_task(status=status)) is None


def test_a_row_that_went_between_two_reads_has_no_reason() -> None:
    assert reason(a_cycle(), None) is None


def test_a_full_page_names_the_next_one() -> None:
    two = Wanted(limit=2)
    assert page_of([row(9), row(8)], {}, two, a_cycle()).next_after == 8
    assert page_of([row(9)], {}, two, a_cycle()).next_after is None
    assert page_of([], {}, two, a_cycle()).next_after is None


def test_a_reason_is_known_of_the_rows_that_were_judged() -> None:
    cycle = a_cycle(r1="Poison", r2="QueueCap", r3="Poison")
    assert ids_for(EVERY, cycle) is None
    assert ids_for(Wanted(reason=HoldReason.POISON), cycle) == [1, 3]
    assert ids_for(Wanted(reason=HoldReason.PAUSED), cycle) == []
