"""A cycle: the order of candidates, shares, quotas, the first Pods of a shape, and one judgement of each candidate."""

from collections import Counter
from datetime import datetime

import pytest

from dispatcher.admission.cycle import LaunchOrder, Plan, plan_cycle, rows_in_turn
from dispatcher.admission.demand import FIRST, PATIENCE, FirstPods, Patience
from dispatcher.admission.gates import Candidate, judge
from dispatcher.admission.heads import shared_hold
from dispatcher.admission.last_cycle import LastCycle
from dispatcher.admission.room import room_of
from dispatcher.admission.snapshot import (
    Allowance,
    ClusterSnapshot,
    Shares,
    holders,
    plan_load,
    plan_quotas,
    plan_shares,
)
from dispatcher.model.cluster import JOBS, PodRefusal, Quota
from dispatcher.model.jobs import LaunchGroup, ObjectWrite
from dispatcher.model.launches import JobsVerdict, Launch, Offer, PodKind, UncountedPods
from dispatcher.model.needs import PodNeeds
from dispatcher.model.tasks import Queue
from dispatcher.model.verdicts import Hold, HoldReason
from tests.rig.builders import (
    FIRST_LAUNCH,
    NOW,
    a_cluster,
    a_job,
    a_picture,
    a_queue,
    a_snapshot,
    a_task,
    an_indexed_row,
    later,
)
from tests.unit.rooms import a_node, amounts_of, needs, unplaced, view_of
from tests.unit.scanning import a_candidate

END = ObjectWrite("jobs", "x", "uid", "superseded", "7")


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


def test_rows_whose_pods_would_only_wait_come_last_without_judged_room() -> None:
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
    failing = frozenset({LaunchGroup("default", "default", "app:1", "team_a")})
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


OFFER = Offer("i", "s", "default")


def candidates(*rows: tuple[int, int]) -> list[Candidate]:
    """One candidate for each (priority, id)."""
    return [Candidate(a_task(id=number, priority=priority), OFFER, JobsVerdict(Launch(1))) for priority, number in rows]


def candidate_in(queue: str, number: int, submitter: str = "team_a") -> Candidate:
    task = a_task(id=number, queue=queue, submitted_by=submitter)
    return Candidate(task, OFFER, JobsVerdict(Launch(1)))


def in_order(some: list[Candidate], *, is_probing: bool = False) -> list[Candidate]:
    order = LaunchOrder(some, a_snapshot(is_probing=is_probing))
    return list(iter(lambda: order.pop(a_snapshot()), None))


def turns(*rows: tuple[int, int]) -> list[int]:
    return [candidate.task.id for candidate in in_order(candidates(*rows))]


def test_lower_priorities_come_first_then_older_rows() -> None:
    assert turns((100, 3), (0, 9), (100, 2), (1000, 1), (0, 10)) == [9, 10, 2, 3, 1]


def test_queue_with_the_least_jobs_for_its_weight_comes_first() -> None:
    heavy, light = a_queue("heavy", weight=2), a_queue("light")
    rows = [(number, queue) for number, queue in enumerate(["heavy"] * 4 + ["light"] * 3)]
    snapshot, taken = a_snapshot(heavy, light), []
    order = LaunchOrder([candidate_in(queue, number) for number, queue in rows], snapshot)
    while (one := order.pop(snapshot)) is not None:
        taken.append(one.task.queue)
        snapshot = snapshot.with_launch(one.group, one.pod)
    assert taken == ["heavy", "light", "heavy", "heavy", "light", "heavy", "light"]


def test_submitter_with_the_least_jobs_comes_first_where_the_queue_says_so() -> None:
    load = plan_load([("q", "x")] * 2 + [("q", "y")])
    for is_fair, ids in ((True, [3, 1, 2]), (False, [1, 2, 3])):
        snapshot = a_snapshot(a_queue("q", fair_submitters=is_fair), load=load)
        rows = [candidate_in("q", 1, "x"), candidate_in("q", 2, "x"), candidate_in("q", 3, "y")]
        order = LaunchOrder(rows, snapshot)
        assert [one.task.id for one in iter(lambda: order.pop(snapshot), None)] == ids  # noqa: B023  # used at once


def test_held_row_leaves_the_turn_to_the_next_row_of_its_queue() -> None:
    """A held row takes no share."""
    snapshot = a_snapshot(a_queue("a"), a_queue("b"), load=plan_load([("b", "x")]))
    order = LaunchOrder([candidate_in("a", 1), candidate_in("a", 2), candidate_in("b", 3)], snapshot)
    assert [one.task.id for one in iter(lambda: order.pop(snapshot), None)] == [1, 2, 3]


def test_row_that_failed_last_comes_last_while_probing() -> None:
    never, before, just_now = [
        Candidate(a_task(id=number, priority=9 - number), OFFER, JobsVerdict(Launch(1)), at)
        for number, at in ((1, float("-inf")), (2, 5.0), (3, 7.0))
    ]
    assert in_order([just_now, before, never], is_probing=True) == [never, before, just_now]
    assert in_order([just_now, before, never]) == [just_now, before, never]


SMALL, LARGE = unplaced(needs("1"), "small"), unplaced(needs("2"), "large")
MADE = {"small": needs("3")}


def test_few_rows_of_an_unknown_shape_are_launched_in_a_cycle() -> None:
    rows = [
        Candidate(a_task(id=number), Offer("app:1", "new", "default"), JobsVerdict(FIRST_LAUNCH)) for number in range(9)
    ]
    done = plan_cycle(a_snapshot(first=FirstPods()), rows)
    assert len(done.launches) == FIRST
    assert {(str(hold.reason), hold.detail) for hold in done.holds.values()} == {
        ("NextCycle", "the first Pods of its shape show what it needs")
    }
    for known in (FirstPods(made={"new": needs("1")}), FirstPods(late=frozenset({"new"})), None):
        assert len(plan_cycle(a_snapshot(first=known), rows).launches) == 9


def test_launches_without_a_node_count_until_a_pod_of_the_shape_is_seen() -> None:
    found = Patience().look({SMALL: 7, LARGE: 4}, MADE, NOW)
    assert found == FirstPods(MADE, frozenset(), {"large": 4})
    assert [found.must_wait(shape) for shape in ("small", "large", "other")] == [False, False, False]
    assert found.with_launch("large").must_wait("large")
    assert found.with_launch("small") is found


def test_shape_whose_pods_are_not_seen_goes_on_after_a_while() -> None:
    patience = Patience()
    assert patience.look({LARGE: 9}, {}, NOW).must_wait("large")
    late = patience.look({LARGE: 9}, {}, NOW + PATIENCE)
    assert (late.late, late.must_wait("large")) == (frozenset({"large"}), False)
    assert patience.look({}, {}, later(60)) == FirstPods()
    assert patience.look({LARGE: 9}, {}, later(61)).must_wait("large"), "it is awaited anew"


ROOM_FOR_TWO = (Quota("team", amounts_of({"cpu": "2", JOBS: "2"}), amounts_of({"cpu": "0", JOBS: "0"})),)
ONE_CORE = Offer("app:1", "small", "default", needs("1"))
A_POD = unplaced(needs("1"))
CANDIDATE = Candidate(a_task(), ONE_CORE, JobsVerdict(FIRST_LAUNCH))


def a_snapshot_with(to_come: UncountedPods) -> ClusterSnapshot:
    return a_snapshot(quotas=plan_quotas(ROOM_FOR_TWO, to_come))


def test_row_beyond_the_quota_is_held_with_the_numbers() -> None:
    verdict = judge(CANDIDATE, a_snapshot_with(UncountedPods(jobs={A_POD: 2})))
    assert verdict == Hold(HoldReason.QUOTA_EXCEEDED, f"ResourceQuota team: {JOBS} 1 asked, 2 of 2 used")


def test_each_admission_of_a_cycle_counts_against_the_quota() -> None:
    snapshot = a_snapshot_with(UncountedPods())
    launched = 0
    while launched < 5 and not isinstance(judge(CANDIDATE, snapshot), Hold):
        snapshot, launched = snapshot.with_launch(CANDIDATE.group, CANDIDATE.pod), launched + 1
    assert launched == 2


def test_repeated_create_counts_once_and_is_never_held_by_the_quota() -> None:
    snapshot = a_snapshot_with(UncountedPods(jobs={A_POD: 1})).with_launch(CANDIDATE.group, CANDIDATE.pod, is_new=False)
    assert not isinstance(judge(CANDIDATE, snapshot), Hold)


def test_job_without_a_pod_counts_only_its_pod() -> None:
    assert judge(CANDIDATE, a_snapshot_with(UncountedPods(pods={A_POD: 2}))) == Hold(
        HoldReason.QUOTA_EXCEEDED, "ResourceQuota team: cpu 1 asked, 2 of 2 used"
    )


def test_scan_holds_rows_beyond_the_quota_so_that_they_hide_no_others() -> None:
    full = a_snapshot_with(UncountedPods(jobs={A_POD: 2}))
    hold = shared_hold(an_indexed_row(1), ONE_CORE, full)
    assert hold is not None
    assert hold.reason is HoldReason.QUOTA_EXCEEDED
    assert shared_hold(an_indexed_row(1), ONE_CORE, a_snapshot_with(UncountedPods())) is None


def test_picture_counts_only_jobs_that_will_make_a_pod() -> None:
    jobs = [
        a_job(task_id=1, needs=needs("1"), shape="small"),
        a_job(task_id=2, suspended=True),
        a_job(task_id=3, deleting=True),
    ]
    picture = a_picture(jobs)
    assert list(picture.to_come().pods.values()) == [1]
    assert picture.to_come().jobs == {}


@pytest.mark.parametrize(
    ("cpu", "refusal", "holds_others"),
    [
        ("1", PodRefusal(NOW, "Pod Security"), False),
        ("1", PodRefusal(NOW, "no answer of a webhook", is_outage=True), False),
        ("2", PodRefusal(NOW, "exceeded quota", is_quota=True), False),
        ("1", PodRefusal(NOW, "exceeded quota", is_quota=True), True),
        ("1", None, True),
    ],
)
def test_refused_pod_holds_rows_of_others_only_if_the_quota_has_room_for_it(
    cpu: str, refusal: PodRefusal | None, holds_others: bool
) -> None:
    job = a_job(needs=needs(cpu), shape="other")
    picture = a_picture([job], a_cluster(refusals={job.uid: refusal} if refusal else {}))
    room_for_one = Quota("team", amounts_of({"cpu": "2", JOBS: "9"}), amounts_of({"cpu": "1", JOBS: "1"}))
    verdict = judge(CANDIDATE, a_snapshot(quotas=plan_quotas((room_for_one,), picture.to_come())))
    assert isinstance(verdict, Hold) is holds_others


def jobs_of(submitter: str, needs: PodNeeds | None, queue: str = "q") -> PodKind:
    return PodKind(queue, submitter, "", needs)


SIZE = {"cpu": 100_000, "memory": 1000 * 2**30 * 1000, "pods": 1_000_000}
"""100 cores, 1,000 GiB, 1,000 Pods."""


@pytest.mark.parametrize(
    ("wanted", "share"),
    [
        (needs("10", "1Gi"), 0.1),
        (needs("1", "500Gi"), 0.5),
        (needs("0", "0"), 0.001),
        (needs("10", "1Gi", more={"example.com/gpu": "8"}), 0.1),
        (None, 0.001),
    ],
    ids=["cpu", "memory", "nothing but a Pod", "a resource that no node has", "needs are not known"],
)
def test_share_is_the_largest_part_of_any_one_resource(wanted: PodNeeds | None, share: float) -> None:
    shares = plan_shares({jobs_of("team_a", wanted): 1}, SIZE)
    assert shares.of_queue("q") == pytest.approx(share)
    assert shares.of_submitter("q", "team_a") == pytest.approx(share)
    assert (shares.of_queue("other"), shares.of_submitter("q", "team_b")) == (0, 0)


GPUS = {**SIZE, "example.com/gpu": 8000}


def test_extended_resource_can_be_the_dominant_one() -> None:
    shares = plan_shares({jobs_of("a", needs("1", "1Gi", more={"example.com/gpu": "4"})): 1}, GPUS)
    assert shares.of_queue("q") == 0.5


def test_share_is_a_number_of_jobs_if_the_size_of_the_cluster_is_not_known() -> None:
    shares = plan_shares({jobs_of("a", needs("10")): 2, jobs_of("b", None): 1}, {})
    assert (shares.of_queue("q"), shares.of_submitter("q", "a"), shares.of_submitter("q", "b")) == (3, 2, 1)


def test_jobs_of_a_queue_are_added_and_a_launch_changes_no_earlier_shares() -> None:
    before = plan_shares({jobs_of("a", needs("10", "1Gi")): 3, jobs_of("b", needs("20", "1Gi")): 1}, SIZE)
    after = before.with_launches({unplaced(needs("10", "1Gi"), queue="q", submitter="b"): 1})
    assert [one.of_queue("q") for one in (before, after)] == pytest.approx([0.5, 0.6])
    assert [one.of_submitter("q", "b") for one in (before, after)] == pytest.approx([0.2, 0.3])
    assert Shares().with_launches({unplaced(None): 1}).of_queue("q") == 1


def test_jobs_of_all_needs_count_for_their_holder() -> None:
    in_flight = {jobs_of("a", needs("1")): 2, jobs_of("a", None): 1, jobs_of("a", None, "r"): 4}
    assert holders(in_flight) == {("q", "a"): 3, ("r", "a"): 4}


def test_queue_of_large_pods_gets_as_much_of_the_cluster_as_a_queue_of_small_ones() -> None:
    """Ten cores each against one: ten small rows are launched for a large one."""
    large, small = (Offer("app:1", f"s{cpu}", "default", needs(cpu, "1Mi")) for cpu in ("10", "1"))
    rows = [
        Candidate(a_task(id=10 * number + n, queue=queue), offer, JobsVerdict(Launch(1)))
        for n, (queue, offer) in enumerate((("large", large), ("small", small)))
        for number in range(1, 60)
    ]
    snapshot = a_snapshot(a_queue("large"), a_queue("small"), max_jobs=44, shares=Shares(SIZE))
    started = [one.task.queue for one in plan_cycle(snapshot, rows).launches]
    assert (started.count("large"), started.count("small")) == (4, 40)


def test_queue_of_tiny_pods_gets_half_of_the_places_where_max_jobs_holds_rows() -> None:
    """Tiny Pods that run for long would keep almost all of them, because they use nothing of the nodes."""
    tiny, good = (Offer("app:1", f"s{cpu}", "default", needs(cpu, "1Mi")) for cpu in ("1m", "1"))
    rows = [
        Candidate(a_task(id=10 * number + n, queue=queue), offer, JobsVerdict(Launch(1)))
        for n, (queue, offer) in enumerate((("tiny", tiny), ("good", good)))
        for number in range(1, 60)
    ]
    running = {jobs_of("a", tiny.needs, "tiny"): 45, jobs_of("b", good.needs, "good"): 40}
    load = plan_load({("tiny", "a"): 45, ("good", "b"): 40})
    for places, started in ((100, (5, 10)), (0, (15, 0))):
        shares = plan_shares(running, SIZE, places=places)
        snapshot = a_snapshot(a_queue("tiny"), a_queue("good"), max_jobs=100, shares=shares, load=load)
        queues = [one.task.queue for one in plan_cycle(snapshot, rows).launches]
        assert (queues.count("tiny"), queues.count("good")) == started


def test_places_count_for_a_minute_after_max_jobs_was_used_up() -> None:
    """Some Jobs end at any time. The order of the queues must not change to and fro with each of them."""
    cycle, found = None, list[bool]()
    for seconds, total in ((0, 99), (1, 100), (2, 99), (61, 99), (62, 99)):
        snapshot = a_snapshot(now=later(seconds), max_jobs=100, load=plan_load({("q", "a"): total}))
        cycle = LastCycle(snapshot, a_picture(), {}, frozenset(), {}, {}, leads=True).after(cycle)
        found.append(cycle.lacks_places)
    assert found == [False, True, True, True, False]


def launches_of_each(queue: Queue, seconds: float) -> Counter[tuple[str, str]]:
    """Launches while all have a backlog. A cycle of a tenth of a second has one write.

    Rows of the queue `short` end at once, so it has no share.
    """
    rows = [a_candidate(n, queue="short") for n in range(1, 9)]
    rows += [a_candidate(n, queue="long", submitted_by=who) for n, who in ((11, "b"), (12, "c"))]
    shares = plan_shares({jobs_of("b", None, "long"): 9, jobs_of("c", None, "long"): 1}, {})
    at, found = dict[tuple[str, str], datetime](), Counter[tuple[str, str]]()
    for step in range(round(seconds * 10)):
        now = later(step / 10)
        snapshot = a_snapshot(
            queue, a_queue("short"), now=now, shares=shares, launched_at=at, allowance=Allowance(1, 9)
        )
        (one,) = [(row.task.queue, row.task.submitted_by) for row in plan_cycle(snapshot, rows).launches]
        at = {**at, one: now}
        found[one] += 1
    return found


def test_queue_of_short_rows_leaves_others_a_launch_a_second() -> None:
    found = launches_of_each(a_queue("long"), 9.95)
    assert found == {("short", "team_a"): 90, ("long", "b"): 10}
    fair = launches_of_each(a_queue("long", fair_submitters=True), 9.95)
    assert fair == {("short", "team_a"): 90, ("long", "b"): 5, ("long", "c"): 5}


@pytest.mark.parametrize(("seconds", "turns"), [(2, 0), (4, 40)])
def test_turns_of_many_queues_leave_most_writes_to_their_weights(seconds: float, turns: int) -> None:
    names = [f"q-{number}" for number in range(40)]
    snapshot = a_snapshot(now=later(seconds), launched_at={(name, "team_a"): NOW for name in names})
    assert len(rows_in_turn({name: [a_candidate(1, queue=name)] for name in names}, snapshot)) == turns


def test_turns_count_only_while_the_write_rate_or_the_batch_is_used_up() -> None:
    before: LastCycle | None = None
    found = []
    for seconds, reason, batch in ((0, "RateLimited", 9), (1, "NextCycle", 0), (2, "NoRoomNow", 9)):
        launched_at = {("q", f"team {seconds}"): later(seconds)}
        cycle = LastCycle(
            a_snapshot(now=later(seconds), allowance=Allowance(9, batch)), a_picture(), {}, frozenset(),
            {("q", HoldReason(reason)): 3}, {}, leads=True, launched_at=launched_at,
        ).after(before)  # fmt: skip
        found.append((cycle.lacks_writes, len(cycle.launched_at)))
        before = cycle
    assert found == [(True, 1), (True, 2), (False, 3)]


def test_demand_counts_in_no_share() -> None:
    pod = jobs_of("team_a", needs("1"))
    waiting = {pod: 2}
    assert plan_shares({pod: 3}, SIZE, waiting) == plan_shares({pod: 1}, SIZE)
    assert plan_shares({pod: 2}, SIZE, waiting) == plan_shares({}, SIZE)
