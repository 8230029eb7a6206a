"""The whole explanation of a row: its reason, with nodes, launches and a range for its start."""

import msgspec
import pytest

from dispatcher.admission.last_cycle import LastCycle, RowReason
from dispatcher.admission.room import Room
from dispatcher.model.history import Start
from dispatcher.model.launches import Offer
from dispatcher.model.tasks import LinePosition, Task
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.views.explanation import Explanation, RowFacts, explain
from tests.rig.builders import NOW, a_cluster, a_job, a_picture, a_pod, a_running_task, a_snapshot, a_task, ago
from tests.unit.explaining import Offers
from tests.unit.rooms import a_node, needs, room

STARTS = [Start(ago(10 * n), is_alike=n % 2 == 0) for n in range(60)]
"""A start every ten seconds; of the same kind every twenty."""


def a_cycle(reason: HoldReason | None = None, place: Room | None = None, job: bool = False) -> LastCycle:
    """A cycle that told this reason of row 42. Each row asks for two cores."""
    picture = a_picture([a_job()] if job else [], offers=Offers(Offer("app:1", "small", "default", needs("2"))))
    told = {42: RowReason("default", 1, Hold(reason), NOW)} if reason else {}
    return LastCycle(a_snapshot(room=place), picture, told, frozenset(), {}, {}, leads=True)


def explained(cycle: LastCycle, task: Task | None = None, before: int = 5, alike: int = 2) -> Explanation:
    facts = RowFacts(task or a_task(), LinePosition(before, 60, 10_000, alike), STARTS)
    return explain(facts, cycle, "jobs")


def starts_in(found: Explanation) -> float:
    assert found.estimate is not None
    return (found.estimate.latest - NOW).total_seconds()


@pytest.mark.parametrize(
    "reason", [HoldReason.IN_LINE, HoldReason.QUEUE_CAP, HoldReason.JOB_CAP, HoldReason.NEXT_CYCLE]
)
def test_row_that_waits_for_nothing_but_time_starts_after_those_before_it(reason: HoldReason) -> None:
    assert starts_in(explained(a_cycle(reason))) == pytest.approx(60, abs=10)


@pytest.mark.parametrize("reason", [HoldReason.NO_ROOM_NOW, HoldReason.PENDING_PODS])
def test_row_that_waits_for_room_starts_after_those_of_its_kind(reason: HoldReason) -> None:
    assert starts_in(explained(a_cycle(reason), before=50, alike=2)) == pytest.approx(60, abs=20)


@pytest.mark.parametrize(
    ("reason", "is_told"),
    [
        (HoldReason.QUEUE_CAP, True),
        (HoldReason.IN_LINE, True),
        (HoldReason.NO_ROOM_NOW, True),
        (HoldReason.PAUSED, False),
    ],
)
def test_row_that_others_overtake_by_their_priority_is_told_so(reason: HoldReason, is_told: bool) -> None:
    """A stream of rows of a better priority has no end by itself."""
    starts = [Start(ago(60 * n), is_alike=True, overtook=n > 2) for n in range(6)]
    found = explain(RowFacts(a_task(), LinePosition(5, 60, 10_000, 2), starts), a_cycle(reason), "jobs")
    words = "; rows of a better priority come first: 3 since 11:55:00 UTC"
    assert found.message.endswith(words) is is_told
    assert "better priority" not in explained(a_cycle(reason)).message


@pytest.mark.parametrize("reason", [HoldReason.PAUSED, HoldReason.POISON, HoldReason.NEVER_FITS, HoldReason.LAUNCHED])
def test_row_that_waits_for_somebodys_deed_has_no_estimate(reason: HoldReason) -> None:
    assert explained(a_cycle(reason)).estimate is None


def test_nodes_are_told_of_a_waiting_row_where_room_is_judged() -> None:
    place = room([a_node("small", cpu="1"), a_node("big", cpu="8")])
    found = explained(a_cycle(HoldReason.NO_ROOM_NOW, place))
    assert [(group.count, group.why) for group in found.nodes] == [(1, "has room"), (1, "too small: cpu 1 < 2")]
    assert explained(a_cycle(HoldReason.NO_ROOM_NOW)).nodes == ()


def test_nodes_are_not_told_of_a_row_whose_template_gives_no_needs() -> None:
    cycle = a_cycle(HoldReason.POISON, room([a_node()]))
    picture = a_picture(offers=Offers(Hold(HoldReason.UNKNOWN_TEMPLATE)))
    assert explained(msgspec.structs.replace(cycle, picture=picture)).nodes == ()


def test_row_that_runs_has_its_launches_and_nothing_else() -> None:
    cycle = a_cycle(place=room([a_node()]), job=True)
    found = explained(cycle, a_running_task())
    assert (found.reason, found.nodes, found.estimate) == (None, (), None)
    assert [(one.attempt, one.launch, one.job) for one in found.launches] == [(1, 1, a_job().name)]


def test_launch_has_its_pod() -> None:
    job = a_job()
    picture = a_picture([job], a_cluster([a_pod(job, phase="Running")]), offers=Offers(Hold(HoldReason.POISON)))
    (launch,) = explained(msgspec.structs.replace(a_cycle(), picture=picture), a_running_task()).launches
    assert launch.pod == f"pod-of-{job.uid}"
