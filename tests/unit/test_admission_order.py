"""The order of launches."""

from dispatcher.admission.cycle import LaunchOrder
from dispatcher.admission.gates import Candidate
from dispatcher.admission.snapshot import plan_load
from dispatcher.model.launches import JobsVerdict, Launch, Offer
from tests.rig.builders import a_queue, a_snapshot, a_task

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
