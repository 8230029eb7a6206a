"""Demand that is taken back: of a queue that is paused or over its cap, and for rows that could run."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dispatcher.admission.claims import Claim
from dispatcher.admission.cycle import (
    MOST_YIELDS,
    PAUSE_GRACE,
    outdated_shapes,
    plan_outranked,
    plan_pauses,
    plan_taken_back,
    plan_yields,
    rows_at_a_cap,
)
from dispatcher.admission.demand import DemandPods
from dispatcher.admission.gates import RowBehind
from dispatcher.admission.room import Room, room_of
from dispatcher.admission.snapshot import Load, plan_load, plan_shares
from dispatcher.jobs.picture import find_probes
from dispatcher.model.cluster import Quota, Quotas
from dispatcher.model.jobs import Job, ObjectWrite, Phase
from dispatcher.model.launches import PodKind, Probe
from dispatcher.model.needs import PodNeeds
from dispatcher.model.tasks import Queue
from dispatcher.model.verdicts import MUCH_TEXT, Hold, HoldReason
from tests.rig.builders import NOW, a_cluster, a_job, a_pod, a_queue, a_snapshot, ago, later
from tests.unit.rooms import a_bound_pod, a_node, needs, unplaced, view_of

PAUSED = a_queue(paused_until=later(3600))
LONG_PAUSED = {"default": NOW - PAUSE_GRACE}


def a_probe(number: int = 1, *, created_at: datetime = NOW, **changes: Any) -> Probe:
    job = a_job(task_id=number, name=f"job-{number}", uid=f"uid-{number}", created_at=created_at, **changes)
    return Probe(job, a_pod(job, uid=f"pod-{number}", name=f"job-{number}-abcde", unschedulable_since=ago(100)))


def taken(
    probes: list[Probe], queue: Queue = PAUSED, load: int = 0, since: dict[str, datetime] = LONG_PAUSED
) -> list[tuple[str, str]]:
    """(kind, name) of the writes."""
    snapshot = a_snapshot(queue, load=Load(load, {"default": load}))
    return [(end.kind, end.name) for end in plan_taken_back(probes, snapshot, since)]


def test_job_of_a_paused_queue_is_marked_in_the_version_that_was_judged() -> None:
    probe = a_probe(resource_version="17")
    assert plan_taken_back([probe], a_snapshot(PAUSED), LONG_PAUSED) == [
        ObjectWrite("mark", "job-1", "uid-1", "its queue is paused", resource_version="17")
    ]


def test_pod_of_a_marked_job_is_deleted_even_if_the_pause_is_over() -> None:
    assert taken([a_probe(is_unplaced=True)], a_queue(), since={}) == [("unplaced-pods", "job-1-abcde")]


@pytest.mark.parametrize("seconds", [0, 59])
def test_short_pause_takes_nothing_back(seconds: int) -> None:
    assert taken([a_probe()], since={"default": ago(seconds)}) == []


def test_other_queues_keep_their_probes() -> None:
    assert taken([a_probe(queue="other")]) == []


def test_pause_counts_since_it_was_first_seen_and_a_new_pause_begins_anew() -> None:
    queues = [PAUSED, a_queue("ended", paused_until=ago(1)), a_queue("never")]
    first = plan_pauses({}, queues, NOW)
    assert first == {"default": NOW}
    assert plan_pauses(first, queues, NOW + timedelta(seconds=90)) == {"default": NOW}
    assert plan_pauses(first, [a_queue()], NOW) == {}
    assert plan_pauses({"default": NOW + timedelta(hours=1)}, queues, NOW) == first, "the clock was set back"


@pytest.mark.parametrize(
    ("load", "cap", "expected"),
    [
        (5, None, []),
        (5, 5, []),
        (5, 4, ["job-3"]),
        (5, 3, ["job-3", "job-2"]),
        (50, 1, ["job-3", "job-2", "job-1"]),
        (5, 0, ["job-3", "job-2", "job-1"]),
    ],
)
def test_queue_over_its_cap_gives_its_newest_probes_back(load: int, cap: int | None, expected: list[str]) -> None:
    probes = [a_probe(number, created_at=ago(100 - number)) for number in (2, 3, 1)]
    assert taken(probes, a_queue(max_jobs=cap), load, {}) == [("mark", name) for name in expected]


@pytest.mark.parametrize(
    ("asked", "made", "is_outdated"),
    [
        (needs("1"), needs("64"), True),
        (needs("1"), needs("1", selector=(("pool", "away"),)), True),
        (needs("1"), needs("2"), False),
        (needs("64"), needs("65"), False),
        (needs("64"), None, False),
        (None, needs("64"), False),
    ],
    ids=["a default", "a selector", "it fits", "its row asks for as much", "as it was asked for", "not known"],
)
def test_shape_is_outdated_if_admission_alone_keeps_it_from_every_node(
    asked: PodNeeds | None, made: PodNeeds | None, is_outdated: bool
) -> None:
    probe = replace(a_probe(shape="small", needs=asked), made=made)
    found = outdated_shapes([probe], view_of([a_node()], [a_bound_pod("n1", cpu="4")]))
    assert found == (frozenset({"small"}) if is_outdated else frozenset())


# Places for rows that could run

FREE = room_of(view_of([a_node(cpu="2")]), {})
ONE_CORE = unplaced(needs("1"), "small", "default", "team_a")


def yields(probes: list[Probe], *capped: tuple[PodKind, HoldReason], room: Room | None = FREE) -> list[str]:
    """Names of the Jobs that are marked for these rows."""
    shapes = frozenset(probe.job.shape for probe in probes) if room is None else frozenset()
    return [end.name for end in plan_yields(capped, probes, a_snapshot(room=room, stuck_shapes=shapes))]


@pytest.mark.parametrize(
    ("cap", "names"),
    [
        (HoldReason.JOB_CAP, ["job-4"]),
        (HoldReason.QUEUE_CAP, ["job-3"]),
        (HoldReason.SUBMITTER_CAP, ["job-2"]),
    ],
)
def test_newest_pod_within_the_cap_gives_its_place_to_a_row_that_could_run(cap: HoldReason, names: list[str]) -> None:
    probes = [
        a_probe(1, created_at=ago(9)), a_probe(2, created_at=ago(8)),
        a_probe(3, created_at=ago(7), submitted_by="team_b"), a_probe(4, created_at=ago(6), queue="other"),
    ]  # fmt: skip
    assert yields(probes, (ONE_CORE, cap)) == names


def test_row_whose_job_has_much_text_takes_no_place_of_a_pod_that_waits() -> None:
    """It waits for its turn, and a free place brings no turn."""
    cap, text = (Hold(HoldReason.SUBMITTER_CAP, words) for words in ("3 of 3", f"{MUCH_TEXT}: 16000 bytes"))
    assert yields([a_probe(1)], *rows_at_a_cap([(ONE_CORE, cap)])) == ["job-1"]
    assert yields([a_probe(1)], *rows_at_a_cap([(ONE_CORE, text)])) == []


def test_only_so_many_places_are_given_as_rows_could_run() -> None:
    probes, row = [a_probe(number) for number in range(1, 9)], (ONE_CORE, HoldReason.JOB_CAP)
    assert len(yields(probes, *[row] * 5)) == 2, "the node has two cores"
    assert yields(probes, (unplaced(needs("3"), "large", "default"), HoldReason.JOB_CAP)) == []
    assert yields([], row) == []
    assert yields(probes, (unplaced(needs("1"), "small", "other"), HoldReason.QUEUE_CAP)) == [], "of another queue"
    large = room_of(view_of([a_node(cpu="100", memory="100Gi", pods="100")]), {})
    many = [a_probe(number) for number in range(1, 40)]
    assert len(yields(many, *[row] * 30, room=large)) == MOST_YIELDS


def test_rows_of_a_shape_that_waits_get_no_place_without_judged_room() -> None:
    """Nodes cannot be read. Where no Pod of the row's shape waits, the row could run."""
    probes = [a_probe(number, shape="huge", created_at=ago(number)) for number in (1, 2)]
    huge = unplaced(needs("1"), "huge", "default", "team_b")
    assert yields(probes, (huge, HoldReason.JOB_CAP), (ONE_CORE, HoldReason.JOB_CAP), room=None) == ["job-1"]


def test_submitter_with_most_pods_that_wait_gives_first_without_judged_room() -> None:
    """Rows of a hostile team, each of another shape, take the places of its own Pods."""
    probes = [a_probe(number, shape=f"shape-{number}", submitted_by="hostile") for number in range(2, 5)]
    probes.append(a_probe(1, shape="huge", created_at=later(9)))
    assert yields(probes, (unplaced(needs("1"), "new"), HoldReason.JOB_CAP), room=None) == ["job-4"]


def test_pod_that_is_taken_back_already_makes_place_too() -> None:
    row = (ONE_CORE, HoldReason.JOB_CAP)
    probes = [a_probe(1, created_at=ago(9)), a_probe(2, is_unplaced=True)]
    assert yields(probes, row) == []
    assert yields(probes, row, row) == ["job-1"]


# Places for rows that come first

FULL = room_of(view_of([a_node(cpu="4")]), {})


def outranked(
    behind: list[RowBehind],
    probes: list[Probe],
    *queues: Queue,
    running: dict[str, int] | None = None,
    priorities: Mapping[int, int] = {1: 0, 2: 0},
    most: int = 1000,
    **facts: Any,
) -> list[str]:
    """Names of the Jobs that are marked. `running`: Pods of each queue on nodes. `facts`: of the snapshot."""
    waiting = DemandPods()
    for probe in probes:
        waiting = waiting.with_pods(unplaced(needs("1"), probe.job.shape, probe.job.queue, probe.job.submitted_by))
    shares = plan_shares({unplaced(needs("1"), "small", *name.split("/")): n for name, n in (running or {}).items()},
                         {"cpu": 40_000})  # fmt: skip
    room = replace(facts.pop("room", FULL), waiting=waiting)
    snapshot = a_snapshot(*queues, room=room, **{"shares": shares, "max_pending": most, **facts})
    return [end.name for end in plan_outranked(behind, probes, priorities, snapshot, NOW)]


def behind(queue: str = "default", priority: int = 0, submitter: str = "team_a", shape: str = "small") -> RowBehind:
    return RowBehind(unplaced(needs("1"), shape, queue, submitter), priority)


def small(number: int, **changes: Any) -> Probe:
    return a_probe(number, shape="small", created_at=ago(100 - number), **changes)


@pytest.mark.parametrize(("priority", "names"), [(0, []), (5, []), (-1, ["job-2"])])
def test_better_priority_takes_the_place_of_the_newest_pod(priority: int, names: list[str]) -> None:
    assert outranked([behind(priority=priority)], [small(1), small(2)]) == names
    worst_first = outranked([behind(priority=priority)], [small(1), small(2)], priorities={1: 3, 2: 0})
    assert worst_first == (["job-1"] if priority < 3 else [])


def test_place_is_kept_for_five_seconds_and_by_pods_of_other_shapes() -> None:
    better = behind(priority=-1)
    young = small(1)
    assert outranked([better], [Probe(young.job, replace(young.pod, unschedulable_since=ago(4)))]) == []
    assert outranked([better], [a_probe(1, shape="large")]) == []
    assert outranked([better], [small(1), small(2, is_unplaced=True)]) == [], "one place at a time"
    assert outranked([better, behind(priority=-2)], [small(1), small(2)]) == ["job-2"]


@pytest.mark.parametrize(
    ("running", "weights", "waiting", "names"),
    [
        ({"a/x": 5, "b/y": 4}, (1, 1), 1, ["job-1"]),
        ({"a/x": 5, "b/y": 5}, (1, 1), 1, []),  # the other way round it would be just the same
        ({"a/x": 5, "b/y": 6}, (1, 1), 1, []),
        ({"a/x": 9, "b/y": 30}, (1, 3), 1, []),
        ({"a/x": 10, "b/y": 26}, (1, 3), 1, ["job-1"]),
        ({"a/x": 1, "b/y": 0}, (1, 1), 3, ["job-3"]),
        ({"a/x": 0, "b/y": 1}, (1, 1), 9, []),  # by launches the place would come back
    ],
)
def test_place_goes_to_the_queue_that_has_less_for_its_weight(
    running: dict[str, int], weights: tuple[int, int], waiting: int, names: list[str]
) -> None:
    queues = [a_queue("a", weight=weights[0]), a_queue("b", weight=weights[1])]
    probes = [small(number, queue="a", submitted_by="x") for number in range(1, waiting + 1)]
    assert outranked([behind("b", submitter="y")], probes, *queues, running=running) == names


def test_place_goes_to_the_submitter_that_has_less_where_submitters_are_fair() -> None:
    probes, row = [small(1, submitted_by="x")], behind(submitter="y")
    running = {"default/x": 3, "default/y": 1}
    assert outranked([row], probes, a_queue(fair_submitters=True), running=running) == ["job-1"]
    assert outranked([row], probes, a_queue(), running=running) == []
    assert outranked([behind(submitter="x")], probes, a_queue(fair_submitters=True), running=running) == []


@pytest.mark.parametrize(
    ("facts", "names"),
    [
        ({}, ["job-1"]),
        ({"load": plan_load([("b", "y")])}, []),
        ({"held": plan_load({("b", "y"): 10})}, []),
        ({"quotas": Quotas((Quota("q", {"pods": 1000}, {"pods": 1000}),))}, []),
    ],
    ids=["nothing holds it", "a cap", "its Jobs that others hold", "a quota"],
)
@pytest.mark.parametrize("cap", ["max_jobs", "max_jobs_per_submitter"])
def test_row_that_something_holds_takes_no_place(facts: dict[str, Any], names: list[str], cap: str) -> None:
    """Places would be taken for it again and again."""
    queues = [a_queue("a"), a_queue("b", **{cap: 1})]
    row, running = behind("b", submitter="y"), {"a/x": 9}
    assert outranked([row], [small(1, queue="a", submitted_by="x")], *queues, running=running, **facts) == names


def test_pod_of_a_row_with_a_claim_keeps_its_place() -> None:
    """Its claim would end with the Pod, and all that the claim holds would go out, and be taken back again."""
    better, room = behind(priority=-1), room_of(view_of([a_node(cpu="4")]), {}, [a_claim_of(1)])
    assert outranked([better], [small(1)], room=room) == []
    assert outranked([better], [small(2)], room=room) == ["job-2"]


def a_claim_of(task: int) -> Claim:
    return Claim(task, "default", needs("4"), "n1")


def test_place_within_its_own_cap_goes_to_the_better_row() -> None:
    """The Pod that is taken back makes place in the cap."""
    queue, load = a_queue(max_jobs=1, max_jobs_per_submitter=1), plan_load([("default", "team_a")])
    assert outranked([behind(priority=-1)], [small(1)], queue, load=load) == ["job-1"]


def test_queue_at_its_own_max_pending_takes_no_place_of_another() -> None:
    probes = [small(1, queue="a"), small(2, queue="b")]
    for most, names in ((1, []), (2, ["job-1"])):
        queues = [a_queue("a"), a_queue("b", max_pending=most)]
        assert outranked([behind("b", submitter="y")], probes, *queues, running={"a/x": 9}) == names


def an_unplaced(**changes: Any) -> Job:
    return a_job(uid="j", **changes)


@pytest.mark.parametrize(
    ("job", "pod", "is_probe"),
    [
        ({}, {}, True),
        ({}, {"unschedulable_since": None}, False),
        ({}, {"node_name": "node-1"}, False),
        ({}, {"nominated_node": "node-1"}, False),
        ({}, {"deleting": True}, False),
        ({}, {"had_run": True}, False),
        ({"phase": Phase.FAILING}, {}, False),
        ({"phase": Phase.FAILED}, {}, False),
        ({"suspended": True}, {}, False),
        ({"deleting": True}, {}, False),
    ],
)
def test_probe_is_a_job_whose_one_pod_waits_for_a_node(
    job: dict[str, Any], pod: dict[str, Any], is_probe: bool
) -> None:
    one = an_unplaced(**job)
    waiting = a_pod(one, **{"unschedulable_since": ago(5), "node_name": "", **pod})
    assert [probe.job for probe in find_probes([one], a_cluster([waiting]))] == ([one] if is_probe else [])
    assert list(find_probes([one], a_cluster([waiting, waiting]))) == []
