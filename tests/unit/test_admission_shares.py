"""Shares of the cluster, by dominant resource."""

import pytest

from dispatcher.admission.cycle import plan_cycle
from dispatcher.admission.gates import Candidate
from dispatcher.admission.last_cycle import LastCycle
from dispatcher.admission.snapshot import Shares, holders, plan_load, plan_shares
from dispatcher.model.launches import JobsVerdict, Launch, Offer, PodKind
from dispatcher.model.needs import PodNeeds
from tests.rig.builders import a_picture, a_queue, a_snapshot, a_task, later
from tests.unit.rooms import needs, unplaced


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


def test_demand_counts_in_no_share() -> None:
    pod = jobs_of("team_a", needs("1"))
    waiting = {pod: 2}
    assert plan_shares({pod: 3}, SIZE, waiting) == plan_shares({pod: 1}, SIZE)
    assert plan_shares({pod: 2}, SIZE, waiting) == plan_shares({}, SIZE)
