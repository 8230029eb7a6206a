"""The order of launches."""

from dispatcher.admission.gates import Candidate
from dispatcher.admission.order import LaunchOrder
from dispatcher.model.launches import JobsVerdict, Launch, Offer
from tests.builders import a_snapshot, a_task

OFFER = Offer("i", "s", "default")


def candidates(*rows: tuple[int, int]) -> list[Candidate]:
    """One candidate for each (priority, id)."""
    return [Candidate(a_task(id=number, priority=priority), OFFER, JobsVerdict(Launch(1))) for priority, number in rows]


def in_order(some: list[Candidate], *, is_probing: bool = False) -> list[Candidate]:
    order = LaunchOrder(some, is_probing=is_probing)
    return list(iter(lambda: order.pop(a_snapshot()), None))


def turns(*rows: tuple[int, int]) -> list[int]:
    return [candidate.task.id for candidate in in_order(candidates(*rows))]


def test_lower_priorities_come_first_then_older_rows() -> None:
    assert turns((100, 3), (0, 9), (100, 2), (1000, 1), (0, 10)) == [9, 10, 2, 3, 1]


def test_row_that_failed_last_comes_last_while_probing() -> None:
    never, before, just_now = [
        Candidate(a_task(id=number, priority=9 - number), OFFER, JobsVerdict(Launch(1)), at)
        for number, at in ((1, float("-inf")), (2, 5.0), (3, 7.0))
    ]
    assert in_order([just_now, before, never], is_probing=True) == [never, before, just_now]
    assert in_order([just_now, before, never]) == [just_now, before, never]
