"""The next rows of a queue: their order, and the reason, message and estimate that `explain` gives."""

from collections.abc import Mapping, Sequence

from dispatcher.admission.last_cycle import LastCycle, RowReason
from dispatcher.admission.snapshot import plan_shares
from dispatcher.model.history import Start
from dispatcher.model.jobs import Job
from dispatcher.model.launches import Offer, PodKind
from dispatcher.model.tasks import IndexedRow, LinePosition, Queue, Status, Task
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.views.explanation import RowFacts, explain
from dispatcher.views.queue import NextRow, in_order, next_places, next_rows
from tests.rig.builders import NOW, a_failed_job, a_job, a_picture, a_queue, a_snapshot, a_task, ago, an_indexed_row
from tests.unit.explaining import Offers

OFFER = Offer("app:1", "small", "default", None)
STARTS = [(ago(10 * n), b"kind" if n % 2 == 0 else None) for n in range(60)]
"""A start every ten seconds; of the same kind every twenty."""


def a_cycle(
    told: Mapping[int, HoldReason] = {}, jobs: Sequence[Job] = (), queue: Queue | None = None, **snapshot: object
) -> LastCycle:
    picture = a_picture(jobs, offers=Offers(OFFER))
    holds = {id_: RowReason("default", 1, Hold(reason), NOW) for id_, reason in told.items()}
    return LastCycle(
        a_snapshot(queue or a_queue(), **snapshot), picture, holds, frozenset(), {}, {}, leads=True
    )  # fmt: skip


def rows_of(cycle: LastCycle, rows: Sequence[IndexedRow], **changes: object) -> list[NextRow]:
    tasks = {row.id: a_task(id=row.id, priority=row.priority, **changes) for row in rows}
    return next_rows(next_places(in_order(rows, "default", cycle), cycle), tasks, STARTS, cycle)


def ids(rows: Sequence[IndexedRow]) -> list[int]:
    return [row.id for row in rows]


def test_rows_come_by_priority_then_by_id() -> None:
    rows = [an_indexed_row(3, priority=5), an_indexed_row(2), an_indexed_row(1)]
    assert [(row.task, row.place) for row in rows_of(a_cycle(), rows)] == [(3, 1), (1, 2), (2, 3)]


def test_submitters_of_a_fair_queue_take_turns_and_the_one_with_less_in_flight_is_first() -> None:
    rows = [an_indexed_row(n, submitted_by="a") for n in (1, 2)] + [an_indexed_row(n, submitted_by="b") for n in (3, 4)]
    fair = a_queue(fair_submitters=True)
    assert ids(in_order(rows, "default", a_cycle(queue=fair))) == [1, 3, 2, 4]
    shares = plan_shares({PodKind("default", "a", "small", None): 1}, {})
    assert ids(in_order(rows, "default", a_cycle(queue=fair, shares=shares))) == [3, 1, 4, 2]


def test_row_whose_job_is_there_is_left_out_and_keeps_its_place() -> None:
    jobs = [a_job(task_id=1), a_failed_job(task_id=2), a_job(3, task_id=3)]
    found = rows_of(a_cycle(jobs=jobs), [an_indexed_row(n) for n in (1, 2, 3)])
    assert [(row.task, row.place) for row in found] == [(2, 2), (3, 3)]


def test_at_most_fifty_rows_are_told() -> None:
    found = rows_of(a_cycle(), [an_indexed_row(n) for n in range(1, 80)])
    assert (len(found), found[-1].task) == (50, 50)


def test_row_that_moved_on_meanwhile_is_left_out() -> None:
    rows, cycle = [an_indexed_row(n) for n in (1, 2, 3)], a_cycle()
    tasks = {1: a_task(id=1, status=Status.PROCESSING), 2: a_task(id=2, attempt=2)}
    assert next_rows(next_places(rows, cycle), tasks, STARTS, cycle) == []


def test_each_row_is_told_as_explain_tells_it() -> None:
    reasons = [HoldReason.QUEUE_CAP, HoldReason.NO_ROOM_NOW, HoldReason.POISON, HoldReason.NEXT_CYCLE, None]
    rows = [an_indexed_row(n, kind=b"other" if n == 1 else b"kind") for n in range(1, 6)]
    cycle = a_cycle({row.id: reason for row, reason in zip(rows, reasons, strict=True) if reason})
    starts = [Start(at, is_alike=kind == b"kind") for at, kind in STARTS]
    for before, found in enumerate(rows_of(cycle, rows)):
        line = LinePosition(before, 5, 10_000, max(0, before - 1))
        told = explain(RowFacts(task_of(found), line, starts), cycle, "jobs")
        assert (found.place, found.reason, found.message, found.since) == (
            told.position, told.reason, told.message, told.since
        )  # fmt: skip
        assert (found.whose_turn, found.estimate) == (told.whose_turn, told.estimate)
    assert {row.estimate is None for row in rows_of(cycle, rows)} == {True, False}


def task_of(row: NextRow) -> Task:
    return a_task(id=row.task, priority=row.priority)


def test_long_message_is_cut() -> None:
    cycle = a_cycle(not_ready=Hold(HoldReason.DISPATCHER_NOT_READY, "x" * 5000))
    (row,) = rows_of(cycle, [an_indexed_row(1)])
    assert len(row.message) == 300
