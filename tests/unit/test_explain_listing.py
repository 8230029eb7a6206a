"""A page of rows, each with the reason why it waits."""

import pytest
from msgspec import structs

from dispatcher.admission.last_cycle import LastCycle, RowReason
from dispatcher.admission.snapshot import plan_load
from dispatcher.model.history import MOST_MATCHING, ListedRow, RowFilter, RowMatches
from dispatcher.model.launches import Offer
from dispatcher.model.tasks import Status, Task
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.views.rows import ReadRows, judged_ids, labels_of, page_of, queues_behind
from tests.rig.builders import CREATED, NOW, a_picture, a_queue, a_snapshot, a_task, later
from tests.unit.explaining import Offers

EVERY, ONE, READ_AT = RowFilter(), RowMatches([42], 1), later(3)


def row(id_: int = 42) -> ListedRow:
    return ListedRow(id_, "default", "waiting", 1, 100, "default", "team_a", CREATED, None, None, None, None)


def a_cycle(*, leads: bool = True, launched: tuple[int, ...] = (), is_full: bool = False, **told: str) -> LastCycle:
    """A cycle. `told`: reasons by row, such as r42="Poison"."""
    load = plan_load([("default", "team_b")])
    snapshot = a_snapshot(a_queue(max_jobs=1), load=load) if is_full else a_snapshot()
    known = {
        int(id_[1:]): RowReason("default", 1, Hold(HoldReason(reason), "words"), NOW) for id_, reason in told.items()
    }
    picture = a_picture(offers=Offers(Offer("app:1", "small", "default")))
    return LastCycle(snapshot, picture, known, frozenset(launched), {}, {}, leads=leads)


def reason(cycle: LastCycle, task: Task | None) -> str | None:
    """The reason in the page of one row. `task`: as the gates judge it."""
    (found,) = page_of(ReadRows(READ_AT, [row()], {42: task} if task else {}), ONE, EVERY, cycle).tasks
    return found.reason


def test_a_row_that_was_judged_has_the_reason_that_was_told() -> None:
    (found,) = page_of(ReadRows(READ_AT, [row()], {42: a_task()}), ONE, EVERY, a_cycle(r42="Poison")).tasks
    assert (found.reason, found.message) == ("Poison", "the API server refuses its Job: words")
    assert reason(a_cycle(r42="Poison"), a_task(attempt=2)) == "InLine", "another attempt"


def test_a_row_that_was_not_judged_has_the_first_reason_that_would_hold_it() -> None:
    assert reason(a_cycle(), a_task()) == "InLine"
    assert reason(a_cycle(is_full=True), a_task()) == "QueueCap"
    assert reason(a_cycle(is_full=True), a_task(run_at=later(9))) == "NotDue"


def test_a_row_that_was_launched_a_moment_ago_is_told_as_such_by_the_leader() -> None:
    assert reason(a_cycle(launched=(42,)), a_task()) == "Launched"
    assert reason(a_cycle(launched=(42,), leads=False), a_task()) == "InLine"


@pytest.mark.parametrize("status", [Status.PROCESSING, Status.SUCCEEDED, Status.FAILED, Status.CANCELLED])
def test_a_row_that_does_not_wait_has_no_reason(status: Status) -> None:
    assert reason(a_cycle(), a_task(status=status)) is None


def test_a_row_that_went_between_two_reads_has_no_reason() -> None:
    assert reason(a_cycle(), None) is None


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
    page = page_of(ReadRows(READ_AT, [row(id_) for id_ in found.ids], {}), found, RowFilter(limit=2), a_cycle())
    assert (page.next_after, page.matching, page.looked_to) == (after, found.matching, found.looked_to)


def test_page_names_the_time_of_its_rows_and_that_of_its_reasons() -> None:
    page = page_of(ReadRows(READ_AT, [row()], {42: a_task()}), ONE, EVERY, a_cycle())
    assert (page.as_of, page.judged_at) == (READ_AT, NOW)


def test_rows_that_match_are_counted_up_to_a_limit() -> None:
    most = page_of(ReadRows(READ_AT, [], {}), RowMatches([42], MOST_MATCHING), EVERY, a_cycle())
    more = page_of(ReadRows(READ_AT, [], {}), RowMatches([42], MOST_MATCHING + 1), EVERY, a_cycle())
    assert [(page.matching, page.more_match) for page in (most, more)] == [(10_000, False), (10_000, True)]


def test_row_shows_its_batch_progress_and_note() -> None:
    one = structs.replace(row(), batch="april", progress=0.5, note="half")
    (found,) = page_of(ReadRows(READ_AT, [one], {}), ONE, EVERY, a_cycle()).tasks
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
    cycle = a_cycle(r1="Poison", r2="QueueCap", r3="Poison")
    assert judged_ids(HoldReason.POISON, cycle) == [1, 3]


def test_rows_behind_the_judged_ones_wait_for_the_reason_of_their_queue() -> None:
    queues = a_queue("full", max_jobs=1), a_queue("paused", paused_until=later(9)), a_queue("open"), a_queue("whole")
    snapshot = a_snapshot(*queues, load=plan_load([("full", "team_b")]))
    cycle = structs.replace(a_cycle(), snapshot=snapshot, whole=frozenset({"whole"}))

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
    found = page_of(read, RowMatches([42, 43], 2), RowFilter(reason=HoldReason.NOT_DUE), a_cycle())
    assert [(one.task, one.reason) for one in found.tasks] == [(43, "NotDue")]
