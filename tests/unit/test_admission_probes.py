"""Rows without room: their reason, and which of them may wait as probes."""

from collections import Counter

import pytest

from dispatcher.admission.gates import Candidate, judge, without_room
from dispatcher.admission.room import room_of
from dispatcher.admission.snapshot import ClusterSnapshot
from dispatcher.model.launches import JobsVerdict, Offer, PodKind
from dispatcher.model.verdicts import Hold, HoldReason
from tests.builders import FIRST_LAUNCH, a_queue, a_snapshot, a_task
from tests.unit.rooms import a_bound_pod, a_node, needs, unplaced, view_of

FULL_NODE = view_of([a_node()], [a_bound_pod("n1")])


def a_pod_of(cpu: str, queue: str = "default", submitter: str = "team_a") -> PodKind:
    return unplaced(needs(cpu), "small", queue, submitter)


def reason_of(cpu: str, snapshot: ClusterSnapshot) -> HoldReason | None:
    """The reason that holds a row which asks for so much; None: it is launched."""
    offer = Offer("app:1", "small", "default", needs(cpu))
    verdict = judge(Candidate(a_task(), offer, JobsVerdict(FIRST_LAUNCH)), snapshot)
    return verdict.reason if isinstance(verdict, Hold) else None


@pytest.mark.parametrize(("cpu", "reason"), [("3", None), ("4", HoldReason.NO_ROOM_NOW), ("5", HoldReason.NEVER_FITS)])
def test_row_without_room_is_held_while_a_probe_waits(cpu: str, reason: HoldReason | None) -> None:
    assert reason_of(cpu, a_snapshot(room=room_of(FULL_NODE, {}))) is None
    assert reason_of(cpu, a_snapshot(room=room_of(FULL_NODE, {a_pod_of("5"): 1}))) is reason


def test_room_is_not_judged_without_a_view_of_it() -> None:
    assert reason_of("1000", a_snapshot(max_pending=0, room=None)) is None


@pytest.mark.parametrize(
    ("most", "of_queue", "waiting", "is_held"),
    [
        (0, None, [], True),
        (0, 5, [], True),
        (5, 0, [], True),
        (2, None, [a_pod_of("4", "other", "b")], False),
        (2, None, [a_pod_of("4", "other", "b"), a_pod_of("4", "third", "c")], True),
        (5, 1, [a_pod_of("4", "other", "b")], False),
        (5, 1, [a_pod_of("4", submitter="b")], True),
    ],
)
def test_probes_are_bounded_over_all_queues_and_for_the_queue(
    most: int, of_queue: int | None, waiting: list[PodKind], is_held: bool
) -> None:
    room = room_of(FULL_NODE, Counter(waiting))
    found = reason_of("4", a_snapshot(a_queue(max_pending=of_queue), max_pending=most, room=room))
    assert (found is HoldReason.NO_ROOM_NOW) is is_held


def test_shapes_that_fit_nowhere_never_use_up_the_cap() -> None:
    """A tenth of MAX_JOBS may wait as probes, at least one Job and at most ten."""
    for max_jobs, most in ((1, 1), (19, 1), (20, 2), (100, 10), (5000, 10)):
        room, launched = room_of(FULL_NODE, {}), 0
        for number in range(60):
            pod = unplaced(needs(str(100 + number)), f"shape-{number}", "default", f"team_{number % 9}")
            snapshot = a_snapshot(max_jobs=max_jobs, room=room)
            if without_room(42, pod, snapshot) is None:
                room, launched = room.with_launches(pod), launched + 1
        assert launched == most


@pytest.mark.fault(41)
def test_submitter_with_shapes_that_fit_nowhere_leaves_probes_to_others() -> None:
    waiting = [unplaced(needs(str(number)), f"shape-{number}", "default", "hostile") for number in range(100, 110)]
    room = room_of(FULL_NODE, {})
    for pod in waiting:
        if without_room(42, pod, a_snapshot(room=room)) is None:
            room = room.with_launches(pod)
    assert room.waiting.total == 3
    assert reason_of("4", a_snapshot(room=room)) is None
