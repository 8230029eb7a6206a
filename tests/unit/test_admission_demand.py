"""Demand: which rows without room may wait in the cluster, what an answer changes, and whose turn it is."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from dispatcher.admission.demand import (
    AFTER_START,
    AUTO,
    FELL_BACK,
    FORGOTTEN,
    GAVE_UP,
    LATE,
    MOST_SHAPES,
    OUTDATED,
    QUIET,
    Demand,
    DemandRecord,
    Demands,
    in_turns,
)
from dispatcher.admission.gates import Candidate, judge, wants_place, without_room
from dispatcher.admission.room import room_of
from dispatcher.admission.snapshot import ClusterSnapshot, plan_load, plan_stuck
from dispatcher.admission.windows import Contradictions
from dispatcher.model.cluster import Node, ScaleAnswer
from dispatcher.model.launches import JobsVerdict, Offer, PodKind, Probe
from dispatcher.model.tasks import Queue
from dispatcher.model.verdicts import Hold, HoldReason
from tests.rig.builders import FIRST_LAUNCH, NOW, a_job, a_pod, a_queue, a_snapshot, a_task, later
from tests.unit.rooms import a_bound_pod, a_node, needs, unplaced, view_of

FULL_NODE = view_of([a_node()], [a_bound_pod("n1")])
GRACE = 30


def a_pod_of(cpu: str, queue: str = "default", submitter: str = "team_a") -> PodKind:
    return unplaced(needs(cpu), "small", queue, submitter)


def held(cpu: str, snapshot: ClusterSnapshot, shape: str = "small") -> Hold | None:
    """The hold of a row that asks for so much; None: it is launched."""
    offer = Offer("app:1", shape, "default", needs(cpu))
    verdict = judge(Candidate(a_task(), offer, JobsVerdict(FIRST_LAUNCH)), snapshot)
    return verdict if isinstance(verdict, Hold) else None


def reason_of(cpu: str, snapshot: ClusterSnapshot) -> HoldReason | None:
    found = held(cpu, snapshot)
    return found.reason if found is not None else None


def a_probe(
    shape: str = "small", number: int = 1, *, cpu: str = "4", submitter: str = "team_a", at: datetime = NOW
) -> Probe:
    """A Pod that waits since it was created."""
    job = a_job(
        task_id=number, name=f"job-{number}", uid=f"uid-{number}", created_at=at, shape=shape, needs=needs(cpu),
        submitted_by=submitter,
    )  # fmt: skip
    return Probe(job, a_pod(job, uid=f"pod-{number}", name=f"job-{number}-x", created_at=at, unschedulable_since=at))


def demands(
    *looks: tuple[float, Sequence[Probe]],
    nodes: Sequence[Node] = (),
    answers: Mapping[str, ScaleAnswer] = {},
    mode: str = "auto",
) -> Demands:
    """What is known after these looks. Nodes and answers are there since the beginning."""
    made = Demands(mode, GRACE)
    for seconds, probes in looks:
        made.update(probes, [one for one in nodes if one.created_at <= later(seconds)], answers, later(seconds))
    return made


def a_new_node(seconds: float, cpu: str = "4", **facts: Any) -> Node:
    return a_node(f"new-{seconds}", cpu=cpu, created_at=later(seconds), **facts)


def comes(seconds: float) -> ScaleAnswer:
    return ScaleAnswer(True, later(seconds))


def refuses(seconds: float) -> ScaleAnswer:
    return ScaleAnswer(False, later(seconds), "max node group size reached")


SAYS = "0/1 nodes are available: 1 Insufficient cpu."


@pytest.mark.parametrize(("cpu", "asks", "reason"), [
    ("3", True, None),
    ("4", True, HoldReason.NO_ROOM_NOW),
    ("5", True, HoldReason.NEVER_FITS),
    ("5", False, HoldReason.NO_ROOM_NOW),
])  # fmt: skip
def test_row_without_room_is_held_while_a_pod_like_it_waits(cpu: str, asks: bool, reason: HoldReason | None) -> None:
    """Only kube-scheduler's own word about a Pod of the shape makes it NeverFits."""
    waiting = a_probe()
    waiting = replace(waiting, pod=replace(waiting.pod, waiting_message=f"{SAYS} preemption: 0/1 nodes are available"))
    known = demands((1, [waiting] if asks else [])).current
    assert reason_of(cpu, a_snapshot(room=room_of(FULL_NODE, {}, demand=known))) is None
    found = held(cpu, a_snapshot(room=room_of(FULL_NODE, {a_pod_of("5"): 1}, demand=known)))
    assert (found and found.reason) is reason
    if found is not None:
        assert (f"kube-scheduler says: {SAYS}" in found.detail, "preemption" in found.detail) == (asks, False)


@pytest.mark.parametrize(("setting", "of_queue"), [(0, None), (1000, 0)])
def test_row_says_that_no_pod_may_ask(setting: int, of_queue: int | None) -> None:
    queues = {"default": a_queue(max_pending=of_queue)}
    told = held("5", a_snapshot(room=room_of(FULL_NODE, {}), max_pending=setting, queues=queues))
    assert told is not None
    assert told.reason is HoldReason.NO_ROOM_NOW
    assert "no Pod asks for a node: MAX_PENDING" in told.detail
    assert "no node is large enough for cpu 5" in told.detail


def test_room_is_not_judged_without_a_view_of_it() -> None:
    assert reason_of("1000", a_snapshot(max_pending=0, room=None)) is None


# Growth


@pytest.mark.parametrize(
    ("mode", "nodes", "answers", "grown"),
    [
        ("auto", (), {}, False),
        ("auto", (), {"pod-1": comes(2)}, True),
        ("auto", (a_new_node(1),), {}, True),
        ("auto", (a_new_node(-1),), {}, False),
        ("auto", (a_new_node(1, cpu="3"),), {}, False),
        ("auto", (a_new_node(1, labels={"pool": "x"}),), {}, True),
        ("auto", (), {"pod-1": refuses(2)}, False),
        ("auto", (a_new_node(1),), {"pod-1": refuses(2)}, False),
        ("auto", (a_new_node(3),), {"pod-1": refuses(2)}, True),
        ("auto", (), {"pod-of-others": comes(2)}, False),
        ("one", (a_new_node(1),), {"pod-1": comes(2)}, False),
        ("all", (), {}, True),
        ("all", (), {"pod-1": refuses(2)}, True),
    ],
)
def test_whole_need_goes_out_after_an_answer(
    mode: str, nodes: Sequence[Node], answers: Mapping[str, ScaleAnswer], grown: bool
) -> None:
    found = demands((10, [a_probe()]), nodes=nodes, answers=answers, mode=mode).current
    assert found.has_grown("small") is grown
    room = room_of(FULL_NODE, {a_pod_of("4"): 1}, demand=found)
    assert (reason_of("4", a_snapshot(max_pending=1000, room=room)) is None) is grown


def test_node_that_comes_very_late_came_for_somebody_else() -> None:
    late = LATE.total_seconds()
    assert demands((late, [a_probe()]), nodes=[a_new_node(late)]).current.has_grown("small")
    assert not demands((late + 1, [a_probe()]), nodes=[a_new_node(late + 1)]).current.has_grown("small")


def test_shape_falls_back_to_one_when_nothing_more_comes() -> None:
    quiet = QUIET.total_seconds()
    probes = [a_probe(number=number, at=later(number)) for number in range(1, 4)]
    found = demands((10, probes), nodes=[a_new_node(10)])
    assert found.given_back(probes, ()) == []
    found.update(probes, [], {}, later(9 + quiet))
    assert (found.current.has_grown("small"), found.given_back(probes, ())) == (True, [])
    found.update(probes, [], {}, later(10 + quiet))
    assert not found.current.has_grown("small")
    assert found.given_back(probes, ()) == [(probes[1], FELL_BACK), (probes[2], FELL_BACK)], "the oldest one stays"


def test_waves_of_nodes_keep_a_shape_grown() -> None:
    looks = [(seconds, [a_probe()]) for seconds in range(10, 1800, 100)]
    found = demands(*looks, nodes=[a_new_node(seconds) for seconds in range(5, 1800, 100)])
    assert found.current.has_grown("small")


def test_restart_takes_nothing_back_before_it_could_know_what_came() -> None:
    probes = [a_probe(number=number) for number in range(1, 501)]
    found = demands((1000, probes))
    assert found.given_back(probes, ()) == []
    found.update(probes, [], {}, later(1000) + AFTER_START)
    assert len(found.given_back(probes, ())) == 499


def test_refusal_stops_growth_and_takes_back_nothing_that_may_have_a_node_under_way() -> None:
    probes = [a_probe(number=number) for number in range(1, 9)]
    found = demands((5, probes), (10, probes), nodes=[a_new_node(2)], answers={"pod-8": refuses(8)})
    assert (found.current.has_grown("small"), found.given_back(probes, ())) == (False, [])
    found.update(probes, [], {}, later(QUIET.total_seconds()))
    assert (found.current.has_grown("small"), found.given_back(probes, ())) == (False, [])
    assert "the autoscaler says: max node group size reached" in found.current.told("small")


def test_first_and_newest_pod_of_each_shape_are_asked_about() -> None:
    probes = [a_probe(number=number, at=later(number)) for number in range(5)]
    found = demands((10, [*probes, a_probe("large", 9)]))
    assert sorted(pod.uid for pod in found.asking) == ["pod-0", "pod-4", "pod-9"]
    assert found.current.asked["small"].since == NOW
    found.update([], [], {}, later(20))
    assert found.asking == []


def test_rule_stays_the_same_object_while_nothing_changes() -> None:
    found = demands((10, [a_probe()]))
    before = found.current
    for seconds in (10.5, 11, 12, 40):
        found.update([a_probe()], [], {}, later(seconds))
    assert found.current is before


def test_shape_whose_pod_was_taken_back_has_waited_lately() -> None:
    found = demands((0, [a_probe()]), (60, [a_probe()]), (70, []))
    assert found.current.waited_lately(later(120)) == {"small"}
    assert found.current.waited_lately(later(200)) == frozenset()


def test_pods_that_wait_are_counted_by_kind() -> None:
    probes = [a_probe(), a_probe(number=2), a_probe("large", 3, submitter="team_b")]
    counts = {(pod.submitted_by, pod.shape): count for pod, count in plan_stuck(probes, AUTO).every.items()}
    assert counts == {("team_a", "small"): 2, ("team_b", "large"): 1}


def test_shape_is_forgotten_long_after_its_last_pod() -> None:
    found = demands((10, [a_probe()]), (20, []))
    found.update([], [], {}, later(10) + FORGOTTEN)
    assert "small" in found.current.asked
    found.update([], [], {}, later(11) + FORGOTTEN)
    assert found.current == Demand()


def test_time_without_an_answer_goes_on_through_pauses_and_ends_with_the_need() -> None:
    probes, wanting = [a_probe("large", cpu="9")], [unplaced(needs("4"), "small")]
    found = demands((10, probes))
    found.update(probes, [], {}, later(10 + GRACE))
    assert found.given_back(probes, wanting)
    found.update([], [], {}, later(60))
    assert found.current.unanswered_since() == later(10), "it rests, and still asks for something"
    found.update(probes, [], {}, later(200))
    assert found.current.unanswered_since() == later(10)
    found.update([], [], {}, later(400))
    assert found.current.unanswered_since() is None, "its rows are gone, or run"


def test_answer_ends_the_time_without_one() -> None:
    assert demands((10, [a_probe()])).current.unanswered_since() == later(10)
    assert demands((10, [a_probe()]), answers={"pod-1": comes(9)}).current.unanswered_since() is None
    assert demands((10, [a_probe()]), mode="one").current.unanswered_since() is None, "nothing is expected to come"


def test_shape_of_which_no_pod_waits_has_nothing_to_tell() -> None:
    found = demands((10, [a_probe()]), (20, []))
    assert (found.current.told("small"), found.current.told("other")) == ("", "")


def test_pod_of_which_nothing_is_known_is_answered_by_words_alone() -> None:
    job = a_job(shape="small", needs=None)
    probe = Probe(job, a_pod(job, uid="pod-1", created_at=NOW, unschedulable_since=NOW))
    assert not demands((10, [probe]), nodes=[a_new_node(1)]).current.has_grown("small")
    assert demands((10, [probe]), answers={"pod-1": comes(1)}).current.has_grown("small")


def test_number_of_remembered_shapes_is_bounded() -> None:
    many = [a_probe(f"shape-{number}", number) for number in range(MOST_SHAPES + 5)]
    assert len(demands((10, many)).current.asked) == MOST_SHAPES


# Bounds


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
def test_demand_of_a_grown_shape_is_bounded_over_all_queues_and_for_the_queue(
    most: int, of_queue: int | None, waiting: list[PodKind], is_held: bool
) -> None:
    room = room_of(FULL_NODE, Counter(waiting), demand=Demand(grown=frozenset({"small"})))
    found = reason_of("4", a_snapshot(a_queue(max_pending=of_queue), max_pending=most, room=room))
    assert (found is HoldReason.NO_ROOM_NOW) is is_held


@pytest.mark.parametrize(
    ("facts", "queue", "reason"),
    [
        ({"max_jobs": 3}, a_queue(), HoldReason.JOB_CAP),
        ({}, a_queue(max_jobs=3), HoldReason.QUEUE_CAP),
        ({}, a_queue(max_jobs_per_submitter=3), HoldReason.SUBMITTER_CAP),
        ({}, a_queue(max_jobs=4, max_jobs_per_submitter=4), None),
    ],
)
def test_demand_of_a_grown_shape_stays_within_the_caps(
    facts: dict[str, Any], queue: Queue, reason: HoldReason | None
) -> None:
    room = room_of(FULL_NODE, {a_pod_of("4"): 3}, demand=Demand(grown=frozenset({"small"})))
    load = plan_load([("default", "team_a")] * 3)
    assert reason_of("4", a_snapshot(queue, room=room, load=load, **{"max_pending": 1000, **facts})) is reason


@pytest.mark.parametrize(("most", "is_held"), [(0, True), (1, False), (1000, False)])
def test_first_pod_of_a_shape_asks_unless_the_operator_wants_none(most: int, is_held: bool) -> None:
    assert (reason_of("4", a_snapshot(max_pending=most, room=room_of(FULL_NODE, {}))) is not None) is is_held


@pytest.mark.parametrize(
    ("max_jobs", "teams", "most"),
    [(1, 1, 1), (19, 1, 1), (100, 1, 3), (100, 4, 10), (100, 9, 10), (100, 30, 25), (5000, 200, 100)],
)
def test_shapes_that_nothing_came_for_share_few_places(max_jobs: int, teams: int, most: int) -> None:
    """A tenth of MAX_JOBS, at most ten; a third of them for one submitter; and one for each that has none."""
    room, launched = room_of(FULL_NODE, {}), Counter[str]()
    for number in range(600):
        pod = unplaced(needs(str(100 + number)), f"shape-{number}", "default", f"team_{number % teams}")
        if without_room(42, pod, a_snapshot(max_jobs=max_jobs, room=room)) is None:
            room, launched[pod.submitted_by] = room.with_launches(pod), launched[pod.submitted_by] + 1
    assert launched.total() == most
    assert max(launched.values()) <= 3


@pytest.mark.fault(41)
def test_submitter_with_shapes_that_fit_nowhere_leaves_places_to_others() -> None:
    """Four logins of one team hold all ten places. Another team's first Pod is created at once nevertheless."""
    room = room_of(FULL_NODE, {}, demand=Demand(grown=frozenset({"answered"})))
    for number in range(12):
        pod = unplaced(needs(str(100 + number)), f"shape-{number}", "default", f"login_{number % 4}")
        if without_room(42, pod, a_snapshot(room=room)) is None:
            room = room.with_launches(pod)
    assert room.waiting.total == 10
    assert reason_of("4", a_snapshot(room=room)) is None
    answered = unplaced(needs("99"), "answered", "default", "login_0")
    assert without_room(42, answered, a_snapshot(room=room)) is None


# Turns


def test_row_behind_the_demand_of_others_is_told_so() -> None:
    waiting = {unplaced(needs(str(number)), f"shape-{number}", "default", "team_a"): 1 for number in (5, 6, 7)}
    found = held("8", a_snapshot(room=room_of(FULL_NODE, waiting)))
    assert found is not None
    assert found.reason is HoldReason.NO_ROOM_NOW, "whether a node group fits it is not known yet"
    assert "it asks for a node after Pods of other shapes" in found.detail


def test_shape_gives_its_place_up_after_its_grace_if_another_one_wants_it() -> None:
    probes, wanting = [a_probe("large", cpu="9")], [unplaced(needs("4"), "small")]
    found = demands((GRACE - 1, probes))
    assert found.given_back(probes, wanting) == [], "its grace is not over"
    found.update(probes, [], {}, later(GRACE))
    assert found.given_back(probes, ()) == [], "nobody wants its place"
    assert found.given_back(probes, [unplaced(needs("9"), "large")]) == [], "it is its own"
    assert found.given_back(probes, wanting) == [(probes[0], GAVE_UP)]


def test_refused_shape_gives_its_place_up_at_once() -> None:
    probes = [a_probe("large", cpu="9")]
    found = demands((2, probes), answers={"pod-1": refuses(1)})
    assert found.given_back(probes, [unplaced(needs("4"), "small")]) == [(probes[0], GAVE_UP)]


def test_shape_that_gave_up_asks_again_after_growing_pauses_and_says_so() -> None:
    probes, wanting, found, now = [a_probe("large", cpu="9")], [unplaced(needs("4"), "small")], demands(), 0.0
    pauses = []
    for _ in range(7):
        found.update(probes, [], {}, later(now := now + GRACE))
        assert found.given_back(probes, wanting)
        found.update([], [], {}, later(now := now + 1))
        assert found.current.resting == {"large"}
        began = now
        while "large" in found.current.resting:
            found.update([], [], {}, later(now := now + 10))
        pauses.append(round((now - began) / 10) * 10)
    assert pauses == [120, 240, 480, 960, 1800, 1800, 1800]
    room = room_of(FULL_NODE, {}, demand=Demand(resting=frozenset({"large"}), asked=found.current.asked))
    told = held("9", a_snapshot(room=room), "large")
    assert told is not None
    assert told.reason is HoldReason.NEVER_FITS
    assert "its Pods asked 7 times for a node in vain, next at " in told.detail


def test_shape_that_admission_alone_keeps_from_every_node_asks_anew_after_growing_pauses() -> None:
    """A LimitRange that is mended changes no Pod that waits already."""
    quiet, probes = QUIET.total_seconds(), [a_probe()]
    found = demands((10, probes))
    found.update(probes, [], {}, later(quiet - 1))
    assert found.given_back(probes, (), {"small"}) == [], "a node may still come"
    found.update(probes, [], {}, later(quiet))
    assert found.given_back(probes, (), {"large"}) == []
    assert found.given_back(probes, (), {"small"}) == [(probes[0], OUTDATED)]
    assert found.current.resting == {"small"}
    assert found.given_back(probes, (), {"small"}) == [(probes[0], GAVE_UP)], "until its Job is marked"
    assert found.current.asked["small"].tries == 1


def test_shape_for_which_kube_scheduler_knows_better_keeps_its_place() -> None:
    """Its nodes are of a size that our count does not see."""
    probes, late = [a_probe()], later(QUIET.total_seconds())
    found = demands((10, probes))
    found.update(probes, [], {}, late, Contradictions({"small": 1}))
    assert found.given_back(probes, (), {"small"}) == []


def test_node_that_comes_after_its_pod_was_taken_back_is_its_answer() -> None:
    probes = [a_probe()]
    found = demands((GRACE, probes))
    assert found.given_back(probes, [unplaced(needs("9"), "large")])
    found.update([], [a_new_node(GRACE + 20)], {}, later(GRACE + 21))
    assert (found.current.has_grown("small"), found.current.resting) == (True, frozenset())


def test_pod_that_is_taken_back_already_gives_up_no_second_time() -> None:
    probe = a_probe("large", cpu="9")
    found = demands((GRACE, [probe]))
    marked = Probe(a_job(shape="large", is_unplaced=True), probe.pod)
    assert found.given_back([marked], [unplaced(needs("4"), "small")]) == []


def test_place_is_given_up_once_however_often_it_is_asked_for_before_the_pod_is_gone() -> None:
    probes = [a_probe(f"shape-{number}", number, cpu="9") for number in range(3)]
    found, wanting = demands((GRACE, probes)), [unplaced(needs("4"), "small")]
    for _ in range(5):
        assert [(probe.job.shape, cause) for probe, cause in found.given_back(probes, wanting)] == [
            ("shape-0", GAVE_UP)
        ]
    marked = [Probe(replace(probes[0].job, is_unplaced=True), probes[0].pod), *probes[1:]]
    assert found.given_back(marked, wanting) == [], "its place is free in a moment"
    assert found.current.asked["shape-0"].tries == 1
    assert len(found.given_back(marked, [*wanting, unplaced(needs("4"), "other")])) == 1
    assert [one.shape for one in (probe.job for probe, _ in found.given_back(marked[1:], wanting))] == ["shape-1"]


@pytest.mark.parametrize(
    ("asking", "wanting", "given"),
    [
        ({"a1": "a", "a2": "a", "b1": "b"}, ("a",), ["a1"]),
        ({"a1": "a", "b1": "b"}, ("b",), ["b1"]),
        ({"a1": "a", "a2": "a", "b1": "b"}, ("c",), ["a1"]),
        ({"a1": "a", "a2": "a", "b1": "b"}, ("a", "a", "a", "a"), ["a1", "a2"]),
        ({"a1": "a"}, (), []),
        ({}, ("a",), []),
        ({"a-early": "a", "a-early-2": "a", "b1": "b"}, ("c",), ["b1"]),
    ],
)
def test_submitters_take_turns_among_their_own_shapes(
    asking: Mapping[str, str], wanting: Sequence[str], given: Sequence[str]
) -> None:
    """Team a wants many places, and never gets that of team b. A team whose grace is not over gives none."""
    pods = [unplaced(needs("1"), f"wanted-{number}", "q", who) for number, who in enumerate(wanting)]
    late = {shape: NOW for shape in asking if "early" not in shape}
    assert in_turns(asking, late, pods) == given


def test_shapes_that_nodes_come_for_hold_no_places_of_others() -> None:
    """The team that has most Pods that wait has grown. A new team gets the place of one that has not."""
    probes = [a_probe(f"grown-{n}", n, cpu="9") for n in range(3)] + [a_probe("small", 9, submitter="team_b", cpu="8")]
    answers = {f"pod-{n}": comes(2) for n in range(3)}
    found = demands((GRACE, probes), answers=answers)
    back = found.given_back(probes, [unplaced(needs("4"), "new", "default", "team_c")])
    assert [probe.job.shape for probe, _ in back] == ["small"]


def test_event_of_the_future_is_no_answer() -> None:
    """Whoever may write Events can give them any time, also the last one that there is."""
    for at in (datetime.max.replace(tzinfo=UTC), later(3600)):
        found = demands((10, [a_probe()]), answers={"pod-1": ScaleAnswer(True, at, "")})
        assert not found.current.has_grown("small")
        assert found.current.asked.keys() == {"small"}


def test_clock_that_went_back_stops_no_looks() -> None:
    """One replica of the API server is ten minutes ahead."""
    found = demands((600, [a_probe()]))
    found.update([a_probe()], [], {"pod-1": comes(5)}, later(10))
    assert found.current.has_grown("small")


def test_place_is_wanted_by_a_shape_of_which_no_pod_waits() -> None:
    waiting = {unplaced(needs(str(number)), f"shape-{number}", "default", "team_a"): 1 for number in (5, 6, 7)}
    asked = {"resting": DemandRecord(NOW, NOW, NOW)}
    snapshot = a_snapshot(room=room_of(FULL_NODE, waiting, demand=Demand(resting=frozenset({"resting"}), asked=asked)))
    wanted = {
        shape: wants_place(unplaced(needs("8"), shape, "default"), snapshot) for shape in ("new", "shape-5", "resting")
    }
    assert wanted == {"new": True, "shape-5": False, "resting": False}
    assert not wants_place(unplaced(needs("8"), "new"), a_snapshot(max_pending=0, room=snapshot.room))
    assert not wants_place(unplaced(needs("8"), "new"), a_snapshot(room=None))
    strict = a_snapshot(room=snapshot.room, is_strict=True)
    assert [wants_place(unplaced(needs("1"), shape), strict) for shape in ("new", "resting")] == [True, False]
