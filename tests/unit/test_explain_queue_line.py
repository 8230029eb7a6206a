"""Rows in lists: why each waits, the next rows of a queue, when they will start, and the demand by shape."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dispatcher.admission.demand import Demand, DemandPods, DemandRecord
from dispatcher.admission.last_cycle import LastCycle, RowReason
from dispatcher.admission.room import room_of
from dispatcher.admission.snapshot import plan_load, plan_shares
from dispatcher.model.history import MOST_MATCHING, ListedRow, RowFilter, RowMatches, Start
from dispatcher.model.jobs import Job
from dispatcher.model.launches import Offer, PodKind
from dispatcher.model.tasks import IndexedRow, LinePosition, Queue, Status, Task
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.runtime.metrics import ESTIMATE_HITS
from dispatcher.views.explanation import FEWEST_STARTS, Estimate, RowFacts, estimate_start, explain
from dispatcher.views.queue import NextRow, in_order, next_places, next_rows
from dispatcher.views.reads import MOST, Estimates
from dispatcher.views.rows import ReadRows, judged_ids, labels_of, page_of, queues_behind
from dispatcher.views.status import MOST_SHAPES, ShapeDemand, demand_of
from tests.rig.builders import (
    CREATED,
    NOW,
    a_failed_job,
    a_job,
    a_last_cycle,
    a_picture,
    a_queue,
    a_running_task,
    a_snapshot,
    a_task,
    ago,
    an_indexed_row,
    later,
)
from tests.unit.explaining import Offers
from tests.unit.rooms import needs, unplaced, view_of

OFFER = Offer("app:1", "small", "default", None)
STARTS = [(ago(10 * n), b"kind" if n % 2 == 0 else None) for n in range(60)]
"""A start every ten seconds; of the same kind every twenty."""


def a_cycle(
    told: Mapping[int, HoldReason] = {}, jobs: Sequence[Job] = (), queue: Queue | None = None, **snapshot: object
) -> LastCycle:
    picture = a_picture(jobs, offers=Offers(OFFER))
    holds = {id_: RowReason("default", 1, Hold(reason), NOW) for id_, reason in told.items()}
    return a_last_cycle(a_snapshot(queue or a_queue(), **snapshot), picture, holds)


def rows_of(cycle: LastCycle, rows: Sequence[IndexedRow], **changes: object) -> list[NextRow]:
    tasks = {row.id: a_task(id=row.id, priority=row.priority, **changes) for row in rows}
    return next_rows(next_places(in_order(rows, "default", cycle), cycle), tasks, STARTS, cycle)


def ids(rows: Sequence[IndexedRow]) -> list[int]:
    return [row.id for row in rows]


def test_rows_come_by_priority_then_by_id() -> None:
    rows = [an_indexed_row(3, priority=5), an_indexed_row(2), an_indexed_row(1)]
    assert [(row.task, row.place) for row in rows_of(a_cycle(), rows)] == [(3, 1), (1, 2), (2, 3)]


def test_submitters_of_a_fair_queue_take_turns_and_less_in_flight_is_first() -> None:
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


def every(seconds: float, number: int = 60) -> list[datetime]:
    """Starts at equal distances, the last one now."""
    return [ago(seconds * n) for n in range(number)]


def spans(found: Estimate | None) -> tuple[float, float]:
    assert found is not None
    return (found.earliest - NOW).total_seconds(), (found.latest - NOW).total_seconds()


@pytest.mark.parametrize("number", [0, 1, FEWEST_STARTS - 1])
def test_few_starts_give_no_estimate(number: int) -> None:
    assert estimate_start(1, every(10, number), NOW) is None


def test_a_row_without_a_place_has_no_estimate() -> None:
    assert estimate_start(0, every(10), NOW) is None


@pytest.mark.parametrize(("place", "seconds"), [(1, 10), (10, 100), (30, 300), (60, 600), (3000, 30_000)])
def test_a_place_takes_so_many_starts(place: int, seconds: float) -> None:
    """A start every ten seconds; a place beyond half of the starts is told by its multiple."""
    shortest, longest = spans(estimate_start(place, every(10), NOW))
    assert shortest <= seconds <= longest * 1.5
    assert longest == pytest.approx(seconds, rel=0.5)


def test_starts_in_bursts_give_a_wide_range() -> None:
    """Ten starts at once every ten minutes: whoever comes in between waits for the next burst."""
    starts = [ago(600 * burst + n / 10) for burst in range(6) for n in range(10)]
    shortest, longest = spans(estimate_start(1, starts, NOW))
    assert 60 < shortest < 240
    assert 360 < longest < 600


def test_a_queue_that_stands_still_has_no_estimate() -> None:
    """Nothing has started for longer than ever in the last hour."""
    assert estimate_start(1, [ago(60 + 10 * n) for n in range(60)], NOW) is None
    assert estimate_start(1, [NOW] * FEWEST_STARTS, NOW) is None


def test_the_number_of_starts_is_told() -> None:
    found = estimate_start(1, every(10, 25), NOW)
    assert found is not None
    assert found.starts == 25


@given(st.lists(st.integers(0, 3600), min_size=FEWEST_STARTS, max_size=200), st.integers(1, 10_000))
def test_a_range_lies_in_the_future(seconds: list[int], place: int) -> None:
    starts = [ago(one) for one in seconds]
    found = estimate_start(place, starts, NOW)
    assert found is None or NOW <= found.earliest <= found.latest


RANGE = Estimate(ago(60), ago(30), 20)


class Rows:
    """The rows, and what was asked for."""

    now = NOW

    def __init__(self, *tasks: Task) -> None:
        self._tasks = {task.id: task for task in tasks}
        self.asked: list[Sequence[int]] = []

    async def tasks(self, ids: Sequence[int]) -> dict[int, Task]:
        self.asked.append(ids)
        return self._tasks

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Rows"]:
        yield self


def counted() -> dict[str, float]:
    (metric,) = ESTIMATE_HITS.collect()
    return {one.labels["outcome"]: one.value for one in metric.samples if one.name.endswith("_total")}


async def outcome_of(task: Task | None, estimate: Estimate = RANGE) -> tuple[str, int]:
    """The outcome that is counted for a row, and how many estimates are looked at in the next round."""
    rows, before = Rows(*filter(None, [task])), counted()
    estimates = Estimates(rows.opened)
    estimates.note(42, 1, estimate)
    await estimates.run_once()
    await estimates.run_once()
    changed = [name for name, value in counted().items() if value != before.get(name, 0)]
    return "".join(changed), len(rows.asked) - 1


@pytest.mark.parametrize(
    ("started_at", "outcome"), [(ago(61), "early"), (ago(60), "hit"), (ago(30), "hit"), (ago(29), "late")]
)
async def test_estimate_of_a_row_that_started_is_counted_once(started_at: datetime, outcome: str) -> None:
    assert await outcome_of(a_running_task(started_at=started_at)) == (outcome, 0)
    over = a_running_task(started_at=started_at, status=Status.SUCCEEDED, finished_at=NOW)
    assert await outcome_of(over) == (outcome, 0)


async def test_row_that_waits_longer_than_was_told_is_late() -> None:
    assert await outcome_of(a_task()) == ("late", 0)


async def test_row_that_may_still_start_in_time_is_looked_at_again() -> None:
    assert await outcome_of(a_task(), Estimate(NOW, later(5), 20)) == ("", 1)


@pytest.mark.parametrize("task", [None, a_task(attempt=2), a_task(status=Status.CANCELLED, finished_at=NOW)])
async def test_row_that_will_not_start_any_more_is_not_counted(task: Task | None) -> None:
    assert await outcome_of(task) == ("", 0)


async def test_no_row_is_read_for_no_estimate() -> None:
    rows = Rows()
    estimates = Estimates(rows.opened)
    estimates.note(42, 1, None)
    await estimates.run_once()
    assert rows.asked == []


async def test_the_first_estimate_of_a_row_counts_and_their_number_is_bounded() -> None:
    rows = Rows(a_running_task(started_at=ago(45)))
    estimates, before = Estimates(rows.opened), counted().get("hit", 0)
    estimates.note(42, 1, RANGE)
    estimates.note(42, 1, Estimate(later(5), later(9), 20))
    for id_ in range(1000, 1000 + MOST):
        estimates.note(id_, 1, RANGE)
    await estimates.run_once()
    assert (len(rows.asked[0]), counted()["hit"]) == (MOST, before + 1)


def test_demand_is_told_shape_by_shape_with_its_answer() -> None:
    asked = {"small": DemandRecord(NOW, NOW, ago(90), since=ago(60), refused="max size")}
    waiting = {
        unplaced(needs("1"), "small", "a"): 2, unplaced(needs("1"), "small", "b"): 3, unplaced(needs("9"), "large"): 1,
    }  # fmt: skip
    demand = Demand(grown=frozenset({"small"}), asked=asked)
    assert demand_of(a_last_cycle(a_snapshot(room=room_of(view_of([]), waiting, demand=demand)))) == [
        ShapeDemand(
            asks="cpu 1, memory 1Gi", pods=5, has_grown=True, since=ago(60),
            answer="the autoscaler says: max size; a Pod like it waits for a node since 11:59:00 UTC",
        ),
        ShapeDemand(asks="cpu 9, memory 1Gi", pods=1, has_grown=False, since=None, answer=""),
    ]  # fmt: skip


def test_pods_that_wait_are_told_without_judged_room_too() -> None:
    demand = Demand(asked={"large": DemandRecord(NOW, NOW, ago(90), since=ago(60), refused="max size")})
    snapshot = a_snapshot(stuck=DemandPods(demand, {unplaced(needs("9"), "large"): 2}))
    (found,) = demand_of(a_last_cycle(snapshot))
    assert (found.pods, found.answer.partition(";")[0]) == (2, "the autoscaler says: max size")


def test_number_of_shapes_is_bounded() -> None:
    waiting = {unplaced(needs("9"), f"shape-{number}"): 1 for number in range(50)}
    found = demand_of(a_last_cycle(a_snapshot(room=room_of(view_of([]), waiting))))
    assert len(found) == MOST_SHAPES
    assert msgspec.json.encode(found)


EVERY, ONE, READ_AT = RowFilter(), RowMatches([42], 1), later(3)


def row(id_: int = 42) -> ListedRow:
    return ListedRow(id_, "default", "waiting", 1, 100, "default", "team_a", CREATED, None, None, None, None)


def a_judged_cycle(
    *, leads: bool = True, launched: tuple[int, ...] = (), is_full: bool = False, **told: str
) -> LastCycle:
    """A cycle. `told`: reasons by row, such as r42="Poison"."""
    load = plan_load([("default", "team_b")])
    snapshot = a_snapshot(a_queue(max_jobs=1), load=load) if is_full else a_snapshot()
    known = {
        int(id_[1:]): RowReason("default", 1, Hold(HoldReason(reason), "words"), NOW) for id_, reason in told.items()
    }
    picture = a_picture(offers=Offers(Offer("app:1", "small", "default")))
    return a_last_cycle(snapshot, picture, known, launched=frozenset(launched), leads=leads)


def reason(cycle: LastCycle, task: Task | None) -> str | None:
    """The reason in the page of one row. `task`: as the gates judge it."""
    (found,) = page_of(ReadRows(READ_AT, [row()], {42: task} if task else {}), ONE, EVERY, cycle).tasks
    return found.reason


def test_a_row_that_was_judged_has_the_reason_that_was_told() -> None:
    (found,) = page_of(ReadRows(READ_AT, [row()], {42: a_task()}), ONE, EVERY, a_judged_cycle(r42="Poison")).tasks
    assert (found.reason, found.message) == ("Poison", "the API server refuses its Job: words")
    assert reason(a_judged_cycle(r42="Poison"), a_task(attempt=2)) == "InLine", "another attempt"


def test_a_row_that_was_not_judged_has_the_first_reason_that_would_hold_it() -> None:
    assert reason(a_judged_cycle(), a_task()) == "InLine"
    assert reason(a_judged_cycle(is_full=True), a_task()) == "QueueCap"
    assert reason(a_judged_cycle(is_full=True), a_task(run_at=later(9))) == "NotDue"


def test_a_row_that_was_launched_a_moment_ago_is_told_as_such_by_the_leader() -> None:
    assert reason(a_judged_cycle(launched=(42,)), a_task()) == "Launched"
    assert reason(a_judged_cycle(launched=(42,), leads=False), a_task()) == "InLine"


@pytest.mark.parametrize("status", [Status.PROCESSING, Status.SUCCEEDED, Status.FAILED, Status.CANCELLED])
def test_a_row_that_does_not_wait_has_no_reason(status: Status) -> None:
    assert reason(a_judged_cycle(), a_task(status=status)) is None


def test_a_row_that_went_between_two_reads_has_no_reason() -> None:
    assert reason(a_judged_cycle(), None) is None


@pytest.mark.parametrize(
    ("found", "after"),
    [
        (RowMatches([9, 8], 3), 8),
        (RowMatches([9, 8], 2), None),
        (RowMatches([9, 8], 2, looked_to=5), 5),
        (RowMatches([9], 1, looked_to=5), 5),
        (RowMatches([], 0, looked_to=5), 5),
        (RowMatches([9], 1), None),
        (RowMatches([], 0), None),
    ],
)
def test_next_page_follows_the_rows_or_what_was_looked_at(found: RowMatches, after: int | None) -> None:
    page = page_of(ReadRows(READ_AT, [row(id_) for id_ in found.ids], {}), found, RowFilter(limit=2), a_judged_cycle())
    assert (page.next_after, page.matching, page.looked_to) == (after, found.matching, found.looked_to)


def test_page_names_the_time_of_its_rows_and_that_of_its_reasons() -> None:
    page = page_of(ReadRows(READ_AT, [row()], {42: a_task()}), ONE, EVERY, a_judged_cycle())
    assert (page.as_of, page.judged_at) == (READ_AT, NOW)


@pytest.mark.parametrize("leads", [True, False])
def test_answer_says_whether_its_replica_leads(leads: bool) -> None:
    cycle = a_judged_cycle(r42="Poison", leads=leads)
    told = explain(RowFacts(a_task(), LinePosition(0, 1, 10_000)), cycle, "jobs")
    page = page_of(ReadRows(READ_AT, [row()], {42: a_task()}), ONE, EVERY, cycle)
    assert (told.leads, page.leads) == (leads, leads)


def test_rows_that_match_are_counted_up_to_a_limit() -> None:
    most = page_of(ReadRows(READ_AT, [], {}), RowMatches([42], MOST_MATCHING), EVERY, a_judged_cycle())
    more = page_of(ReadRows(READ_AT, [], {}), RowMatches([42], MOST_MATCHING + 1), EVERY, a_judged_cycle())
    assert [(page.matching, page.more_match) for page in (most, more)] == [(10_000, False), (10_000, True)]


def test_row_shows_its_batch_progress_and_note() -> None:
    one = structs.replace(row(), batch="april", progress=0.5, note="half")
    (found,) = page_of(ReadRows(READ_AT, [one], {}), ONE, EVERY, a_judged_cycle()).tasks
    assert (found.batch, found.progress, found.note) == ("april", 0.5, "half")


@pytest.mark.parametrize(
    ("label", "json"),
    [(None, None), ("a=b", '{"a":"b"}'), ("a=", '{"a":""}'), ("a=b=c", '{"a":"b=c"}'), ('"=\\', '{"\\"":"\\\\"}')],
)
def test_label_is_asked_for_by_name_and_value(label: str | None, json: str | None) -> None:
    assert labels_of(RowFilter(label=label)) == json


@pytest.mark.parametrize("label", ["a", "=b", "="])
def test_label_without_name_or_sign_is_refused(label: str) -> None:
    with pytest.raises(ValueError, match="write NAME=VALUE"):
        labels_of(RowFilter(label=label))


def test_a_reason_is_known_of_the_rows_that_were_judged() -> None:
    cycle = a_judged_cycle(r1="Poison", r2="QueueCap", r3="Poison")
    assert judged_ids(HoldReason.POISON, cycle) == [1, 3]


def test_rows_behind_the_judged_ones_wait_for_the_reason_of_their_queue() -> None:
    queues = a_queue("full", max_jobs=1), a_queue("paused", paused_until=later(9)), a_queue("open"), a_queue("whole")
    snapshot = a_snapshot(*queues, load=plan_load([("full", "team_b")]))
    cycle = structs.replace(a_judged_cycle(), snapshot=snapshot, whole=frozenset({"whole"}))

    def queues_of(reason: HoldReason, queue: str | None = None) -> list[str]:
        return sorted(queues_behind(RowFilter(queue, reason=reason), cycle))

    assert [queues_of(reason) for reason in (HoldReason.QUEUE_CAP, HoldReason.PAUSED, HoldReason.POISON)] == [
        ["full"], ["paused"], [],
    ]  # fmt: skip
    assert "open" in queues_of(HoldReason.IN_LINE)
    assert "whole" not in queues_of(HoldReason.IN_LINE)
    assert (queues_of(HoldReason.PAUSED, "paused"), queues_of(HoldReason.PAUSED, "open")) == (["paused"], [])


def test_row_that_waits_for_another_reason_is_left_out_of_a_page_of_one_reason() -> None:
    tasks = {42: a_task(), 43: a_task(id=43, run_at=later(9))}
    read = ReadRows(READ_AT, [row(), row(43)], tasks)
    found = page_of(read, RowMatches([42, 43], 2), RowFilter(reason=HoldReason.NOT_DUE), a_judged_cycle())
    assert [(one.task, one.reason) for one in found.tasks] == [(43, "NotDue")]
