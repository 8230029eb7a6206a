"""The snapshot of a cycle: load, pending Pods, and the effect of an admitted launch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.admission.room import room_of
from dispatcher.admission.snapshot import Allowance, Load, PendingPods, effective_queues, plan_load, plan_pending
from dispatcher.model.cluster import ClusterView, Pod, PodRefusal
from dispatcher.model.jobs import Job, LaunchGroup, Phase
from dispatcher.model.launches import InFlight, PodKind
from tests.rig.builders import NOW, a_cluster, a_complete_job, a_job, a_picture, a_pod, a_queue, a_snapshot, ago, later
from tests.unit.rooms import needs, unplaced, view_of

holders = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["x", "y", "z"])), max_size=20)
GROUP = LaunchGroup("default", "default", "app:1", "team_a")
A_JOB = a_job(shape="small")
POD = PodKind("default", "team_a", "small", None)


def pending_of(*pods: Pod, jobs: tuple[Job, ...] = ()) -> PendingPods:
    known = {job.name: job for job in (A_JOB, *jobs)}
    view = ClusterView(NOW, known, {str(number): pod for number, pod in enumerate(pods)}, {})
    return plan_pending(view, a_picture(jobs, a_cluster(pods)).in_flight(), grace_seconds=30)


# Load


def test_load_without_jobs_is_zero() -> None:
    assert plan_load([]) == Load(0, {}, {})


def test_load_is_counted_in_all_by_queue_and_by_submitter_of_the_queue() -> None:
    load = plan_load([("a", "x"), ("a", "x"), ("a", "y"), ("b", "x")])
    assert load == Load(4, {"a": 3, "b": 1}, {("a", "x"): 2, ("a", "y"): 1, ("b", "x"): 1})


@given(holders, holders)
def test_folded_load_equals_counted_load(before: list[tuple[str, str]], more: list[tuple[str, str]]) -> None:
    load = plan_load(before)
    for queue, submitted_by in more:
        load = load.with_job(queue, submitted_by)
    assert load == plan_load(before + more)


def test_folding_does_not_change_the_earlier_load() -> None:
    before = plan_load([("a", "x")])
    before.with_job("a", "x")
    assert before == plan_load([("a", "x")])


def test_held_jobs_take_no_place_of_all_and_keep_those_of_their_queue() -> None:
    load = plan_load([("a", "x")] * 6)
    assert load.sparing(plan_load([("a", "x")] * 4)) == Load(2, load.by_queue, load.by_submitter)


def test_scan_sees_the_load_without_demand() -> None:
    room = room_of(
        view_of([]), {unplaced(needs("1"), "small", "a", "x"): 2, unplaced(needs("1"), "small", "b", "x"): 1}
    )
    load = plan_load([("a", "x")] * 3 + [("b", "x")])
    found = a_snapshot(load=load, room=room).without_demand()
    assert found.load == Load(1, {"a": 1, "b": 0}, {("a", "x"): 1, ("b", "x"): 0})
    blind = a_snapshot(load=load, stuck=room.waiting)
    assert blind.without_demand().load == found.load
    for whole in (a_snapshot(load=load), a_snapshot(load=load, room=room_of(view_of([]), {}))):
        assert whole.without_demand() is whole


# Pending Pods


def test_pending_without_pods_is_zero() -> None:
    assert pending_of() == PendingPods(0, {})


def test_all_pending_pods_count_but_only_unschedulable_ones_are_stuck() -> None:
    stuck, starting = a_pod(unschedulable_since=ago(60)), a_pod()
    assert pending_of(stuck, starting) == PendingPods(2, {"small": 1}, {("default", "small"): 1})


def test_running_ended_or_deleted_pod_is_not_pending() -> None:
    ended = [a_pod(phase=phase, unschedulable_since=ago(60)) for phase in ("Running", "Succeeded", "Failed")]
    assert pending_of(*ended, a_pod(deleting=True, unschedulable_since=ago(60))) == PendingPods(0, {})


@pytest.mark.parametrize(("seconds", "stuck"), [(0, {}), (29, {}), (31, {"small": 1}), (3600, {"small": 1})])
def test_pod_is_stuck_after_the_grace_as_unschedulable(seconds: float, stuck: dict[str, int]) -> None:
    assert pending_of(a_pod(unschedulable_since=ago(seconds))).stuck_by_shape == stuck


def test_pod_is_stuck_at_once_with_grace_zero() -> None:
    view = ClusterView(NOW, {A_JOB.name: A_JOB}, {"pod": a_pod(unschedulable_since=NOW)}, {})
    assert plan_pending(view, InFlight(), 0).stuck_by_shape == {"small": 1}


def test_pod_of_no_job_of_ours_is_not_pending() -> None:
    """Its author gave it our labels. In the mode `any` it would hold the launches of all teams."""
    stray = a_pod(job_uid="of-nobody", unschedulable_since=ago(60))
    assert pending_of(stray) == PendingPods(0, {})


def test_unseen_create_counts_as_a_pending_pod() -> None:
    assert plan_pending(ClusterView(NOW, {}, {}, {}), InFlight(unseen=3), 0).total == 3


def test_stuck_pods_are_counted_by_queue_and_shape_of_their_jobs() -> None:
    jobs = tuple(a_job(launch=number, shape=shape, queue="own") for number, shape in enumerate("sll", 2))
    pods = [a_pod(job, shape="", unschedulable_since=ago(60)) for job in jobs]  # a policy took their labels
    found = pending_of(*pods, jobs=jobs)
    assert (found.stuck_by_shape, found.stuck_of_queue) == ({"s": 1, "l": 2}, {("own", "s"): 1, ("own", "l"): 2})


def test_job_without_a_pod_counts_as_a_pending_pod() -> None:
    assert pending_of(jobs=(a_job(), a_job(launch=2))).total == 2


def test_suspended_job_counts_no_pending_pod() -> None:
    assert pending_of(jobs=(a_job(suspended=True),)).total == 0


def test_a_job_with_a_pod_of_any_phase_is_not_counted_twice() -> None:
    job = a_job()
    assert pending_of(a_pod(job), jobs=(job,)).total == 1
    assert pending_of(a_pod(job, phase="Running"), jobs=(job,)).total == 0


def test_refused_gated_or_overlooked_pod_of_one_team_is_not_pending() -> None:
    """Nobody knows when it goes on. In the mode `any` it would hold the launches of all teams meanwhile."""
    job, view = a_job(), ClusterView(NOW, {}, {}, {})
    refusals = {job.uid: PodRefusal(NOW, "exceeded quota", is_quota=True)}
    assert plan_pending(view, a_picture([job], a_cluster(refusals=refusals)).in_flight(), 0).total == 0
    assert pending_of(a_pod(job, node_name="", is_gated=True)).total == 0
    for seconds, total in ((29, 1), (30, 0)):  # its scheduler is not there
        assert pending_of(a_pod(job, node_name="", created_at=ago(seconds)), jobs=(job,)).total == total


@pytest.mark.parametrize("phase", [Phase.COMPLETE, Phase.FAILED])
def test_finished_job_counts_no_pending_pod(phase: Phase) -> None:
    assert pending_of(jobs=(a_complete_job(phase=phase),)).total == 0


# Folding a launch in


def test_launch_takes_a_slot_a_write_and_a_place_and_its_pod_is_pending() -> None:
    before = a_snapshot(allowance=Allowance(5, 4), pending=PendingPods(1, {"small": 1}))
    after = before.with_launch(GROUP, POD)
    assert after.load == plan_load([("default", "team_a")])
    assert after.allowance == Allowance(4, 3)
    assert after.pending == PendingPods(2, {"small": 1})
    assert after.busy_groups == {GROUP}
    assert (before.load, before.allowance, before.busy_groups) == (Load(), Allowance(5, 4), frozenset())


def test_repeated_create_adds_no_load() -> None:
    before = a_snapshot(load=plan_load([("default", "team_a")]))
    assert before.with_launch(GROUP, POD, is_new=False).load == before.load


def test_launch_groups_are_put_into_the_snapshot() -> None:
    other = LaunchGroup("default", "other", "app:1", "team_a")
    after = a_snapshot().with_groups(frozenset({GROUP}), frozenset({other}))
    assert (after.failing_groups, after.busy_groups) == (frozenset({GROUP}), frozenset({other}))


# Queues


def test_star_row_fills_in_unset_columns_of_a_queue() -> None:
    star = a_queue("*", max_jobs=10, max_jobs_per_submitter=3, max_pending=2)
    own = a_queue("own", weight=5, max_jobs=1, max_jobs_per_submitter=0, max_pending=0)
    queues = effective_queues([star, own, a_queue("open", weight=2)])
    assert queues == {
        "own": own,
        "open": a_queue("open", weight=2, max_jobs=10, max_jobs_per_submitter=3, max_pending=2),
    }


def test_weight_of_the_star_row_is_ignored() -> None:
    assert effective_queues([a_queue("*", weight=9), a_queue("q")])["q"].weight == 1


def test_queue_without_a_star_row_keeps_its_unset_columns() -> None:
    assert effective_queues([a_queue("q")]) == {"q": a_queue("q")}


@pytest.mark.parametrize(
    ("own", "of_all", "until"),
    [(None, None, None), (later(10), None, later(10)), (None, later(10), later(10)),
     (later(10), later(20), later(20)), (later(30), later(20), later(30))],
)  # fmt: skip
def test_a_queue_is_paused_until_both_its_own_and_the_global_pause_are_over(
    own: object, of_all: object, until: object
) -> None:
    queues = effective_queues([a_queue("*", paused_until=of_all), a_queue("q", paused_until=own)])
    assert queues["q"].paused_until == until


def test_undeclared_queue_has_no_cap_and_no_pause() -> None:
    unknown = a_snapshot(a_queue("q", max_jobs=0)).queue("gone")
    assert (unknown.max_jobs, unknown.max_jobs_per_submitter, unknown.max_pending) == (None, None, None)
    assert unknown.paused_until is None


# Writes that the view has seen


@pytest.mark.parametrize(
    ("view", "write", "seen"),
    [
        ("10", "9", True),
        ("10", "10", True),
        ("9", "10", False),
        ("", "10", False),
        ("10", "", False),
        ("x", "1", False),
    ],
)
def test_a_view_has_seen_a_write_when_its_version_is_as_high_as_a_number(view: str, write: str, seen: bool) -> None:
    assert ClusterView(NOW, {}, {}, {}, jobs_version=view).has_seen(write) is seen
