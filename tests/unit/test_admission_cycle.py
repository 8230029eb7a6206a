"""A cycle: each candidate is judged once, in its order, after the admissions before it."""

import pytest

from dispatcher.admission.cycle import Plan, plan_cycle
from dispatcher.admission.gates import Candidate
from dispatcher.admission.room import room_of
from dispatcher.admission.snapshot import Allowance, ClusterSnapshot, plan_load
from dispatcher.model.jobs import End, LaunchGroup
from dispatcher.model.launches import JobsVerdict, Launch, Offer
from dispatcher.model.verdicts import Hold, HoldReason
from tests.rig.builders import FIRST_LAUNCH, a_queue, a_snapshot, a_task, later
from tests.unit.rooms import a_node, needs, view_of
from tests.unit.scanning import a_candidate

END = End("jobs", "x", "uid", "superseded", "7")


def plan(*candidates: Candidate, snapshot: ClusterSnapshot | None = None) -> Plan:
    return plan_cycle(snapshot or a_snapshot(), candidates)


def launched(plan: Plan) -> list[int]:
    return [candidate.task.id for candidate in plan.launches]


def reasons(plan: Plan) -> dict[int, str]:
    return {number: str(hold.reason) for number, hold in plan.holds.items()}


def test_plan_without_candidates_is_empty() -> None:
    assert plan() == Plan((), {}, (), a_snapshot())


def test_rows_are_launched_in_their_order() -> None:
    assert launched(plan(a_candidate(1), a_candidate(2, priority=0), a_candidate(3, priority=0))) == [2, 3, 1]


def test_cap_admits_the_first_rows_of_the_order() -> None:
    done = plan(*(a_candidate(number) for number in (4, 1, 3, 2)), snapshot=a_snapshot(max_jobs=2))
    assert launched(done) == [1, 2]
    assert reasons(done) == {3: "JobCap", 4: "JobCap"}
    assert done.holds[4].detail == "2 of 2"


def test_without_a_look_at_room_rows_whose_pods_would_only_wait_come_last() -> None:
    huge = Candidate(a_task(id=1, priority=0), Offer("app:1", "huge", "default"), JobsVerdict(FIRST_LAUNCH))
    done = plan(huge, a_candidate(2), snapshot=a_snapshot(max_jobs=1, stuck_shapes=frozenset({"huge"})))
    assert (launched(done), reasons(done)) == ([2], {1: "JobCap"})


def test_caps_count_the_rows_admitted_before() -> None:
    queues = (a_queue(max_jobs=2, max_jobs_per_submitter=1), a_queue("other"))
    done = plan(
        a_candidate(1), a_candidate(2), a_candidate(3, submitted_by="b"), a_candidate(4, submitted_by="c"),
        a_candidate(5, queue="other"), snapshot=a_snapshot(*queues),
    )  # fmt: skip
    assert launched(done) == [1, 5, 3], "the queue without a Job comes before the second row of the other"
    assert reasons(done) == {2: "SubmitterCap", 4: "QueueCap"}


def test_row_that_would_wait_takes_no_place_of_a_row_that_could_run() -> None:
    room = room_of(view_of([a_node()]), {})
    large = Candidate(a_task(id=1, priority=0), Offer("app:1", "l", "default", needs("9")), JobsVerdict(FIRST_LAUNCH))
    small = Candidate(a_task(id=2), Offer("app:1", "s", "default", needs("1")), JobsVerdict(FIRST_LAUNCH))
    done = plan(large, small, snapshot=a_snapshot(max_jobs=1, room=room))
    assert (launched(done), reasons(done)) == ([2], {1: "JobCap"})
    assert launched(plan(large, small, snapshot=a_snapshot(max_jobs=2, room=room))) == [2, 1]


def test_rate_and_the_batch_end_a_cycle() -> None:
    three = [a_candidate(number) for number in (1, 2, 3)]
    assert reasons(plan(*three, snapshot=a_snapshot(allowance=Allowance(2, 9)))) == {3: "RateLimited"}
    assert reasons(plan(*three, snapshot=a_snapshot(allowance=Allowance(9, 1)))) == {2: "NextCycle", 3: "NextCycle"}


def test_strict_mode_holds_all_rows_after_one_pending_pod() -> None:
    done = plan(a_candidate(1), a_candidate(2), snapshot=a_snapshot(is_strict=True))
    assert (launched(done), reasons(done)) == ([1], {2: "PendingPods"})


def test_failing_image_gets_one_launch() -> None:
    failing = frozenset({LaunchGroup("default", "default", "app:1")})
    both = a_snapshot(a_queue(), a_queue("q"), failing_groups=failing)
    done = plan(a_candidate(1), a_candidate(2), a_candidate(3, queue="q"), snapshot=both)
    assert (launched(done), reasons(done)) == ([1, 3], {2: "TemplateFailing"})


def test_held_row_takes_no_place_of_other_rows() -> None:
    held = a_candidate(1, verdict=Hold(HoldReason.BACKOFF))
    done = plan(held, a_candidate(2), snapshot=a_snapshot(max_jobs=1))
    assert (launched(done), reasons(done)) == ([2], {1: "Backoff"})


def test_repeated_create_takes_no_second_slot() -> None:
    repeat = a_candidate(1, verdict=Launch(1, is_repeat=True))
    full = a_snapshot(max_jobs=2, load=plan_load([("default", "team_a")]))
    done = plan(repeat, a_candidate(2), a_candidate(3), snapshot=full)
    assert (launched(done), reasons(done)) == ([1, 2], {3: "JobCap"})


def test_deletes_are_planned_for_held_launched_and_terminal_rows() -> None:
    done = plan(
        a_candidate(1, verdict=None, ends=(END,)),
        a_candidate(2, verdict=Hold(HoldReason.FINISHING), ends=(END, END)),
        a_candidate(3, ends=(END,)),
    )
    assert len(done.ends) == 4
    assert (launched(done), reasons(done)) == ([3], {2: "Finishing"})


def test_row_that_is_over_is_neither_launched_nor_held() -> None:
    assert plan(a_candidate(1, verdict=None)) == Plan((), {}, (), a_snapshot())


@pytest.mark.parametrize("parked", [HoldReason.UNKNOWN_TEMPLATE, HoldReason.INVALID_TEMPLATE, HoldReason.POLICY_DENIED])
def test_launched_row_is_not_parked_because_its_template_changed(parked: HoldReason) -> None:
    """ARCHITECTURE, promise 6: a row's reason is true. The janitor would end a parked row while its Job runs."""
    launched = Candidate(a_task(), Hold(parked), JobsVerdict(Hold(HoldReason.LAUNCHED, "Running")))
    assert reasons(plan(launched)) == {42: "Launched"}


def test_row_that_is_being_cancelled_is_not_parked_either() -> None:
    cancelled = JobsVerdict(Hold(HoldReason.FINISHING, "a cancel was asked"))
    assert reasons(plan(Candidate(a_task(), Hold(HoldReason.UNKNOWN_TEMPLATE), cancelled))) == {42: "Finishing"}


def test_launched_row_is_not_held_by_the_pause_of_its_queue() -> None:
    running = a_candidate(1, verdict=Hold(HoldReason.LAUNCHED, "Running"))
    assert reasons(plan(running, snapshot=a_snapshot(a_queue(paused_until=later(60))))) == {1: "Launched"}
