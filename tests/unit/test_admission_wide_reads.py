"""Held rows are read again at a limited rate, and submitters take turns."""

from collections.abc import Mapping, Sequence

import pytest

from dispatcher.admission.heads import LEAST_WINDOW, QueueSubmitter
from dispatcher.admission.scan import ReadPace, WideRead
from dispatcher.model.tasks import IndexedRow
from dispatcher.model.verdicts import HoldReason
from tests.rig.builders import a_queue, a_snapshot, ago, later
from tests.unit.scanning import BAD, WANTED, KindJudge, Looking, Table, rows

A, B = ("queue", "a"), ("queue", "b")


def read(rows: int, seconds: float = 0, reason: HoldReason = HoldReason.NO_ROOM_NOW) -> WideRead:
    return WideRead(later(seconds), rows, {reason: rows})


def allowed(pace: ReadPace, last: Mapping[QueueSubmitter, WideRead], seconds: float) -> list[QueueSubmitter]:
    return pace.in_turn(last, last, later(seconds))


def test_submitter_may_read_twenty_thousand_held_rows_at_once() -> None:
    pace, last = ReadPace(), {A: read(10_000)}
    for _ in range(2):
        assert allowed(pace, last, 0) == [A]
        pace.charge(last, later(0))
    assert allowed(pace, last, 0) == [A]
    pace.charge(last, later(0))
    assert allowed(pace, last, 0) == []


@pytest.mark.parametrize(("seconds", "found"), [(0, []), (1.9, []), (2, [A]), (-1, [A])])
def test_submitter_is_not_read_until_the_rate_has_paid_for_its_held_rows(
    seconds: float, found: list[QueueSubmitter]
) -> None:
    """Debts do not count if the database's clock was set back."""
    pace, last = ReadPace(), {A: read(30_000)}
    pace.charge(last, later(0))
    assert allowed(pace, last, seconds) == found


def test_reads_of_all_queues_of_a_submitter_add_up() -> None:
    pace, last = ReadPace(), {("x", "a"): read(11_000), ("y", "a"): read(11_000)}
    pace.charge(last, later(0))
    assert allowed(pace, last, 0.39) == []
    assert allowed(pace, last, 0.4) == [("x", "a"), ("y", "a")]


def test_reads_of_many_submitters_add_up_to_the_rate_of_all() -> None:
    pace, last = ReadPace(), {("queue", f"team-{number}"): read(1000) for number in range(100)}
    pace.charge(last, later(0))
    assert [len(allowed(pace, last, seconds)) for seconds in (0.1, 5.9, 6)] == [0, 0, 100]


def test_submitter_that_was_read_longest_ago_comes_first() -> None:
    """Its other queues do not help it to more turns. A submitter that was never read comes before all."""
    x, y, new = ("x", "noisy"), ("y", "noisy"), ("queue", "new")
    last = {x: read(9000, -50), y: read(9000, -1), B: read(9000, -20)}
    assert ReadPace().in_turn([*last, new], last, later(0)) == [new, B, x, y]


@pytest.mark.parametrize(
    ("reason", "bad", "is_of_use"),
    [("NoRoomNow", 501, False), ("NoRoomNow", 500, True), ("SubmitterCap", 1000, True), ("NoRoomNow", 0, True)],
)
def test_window_is_of_use_unless_most_of_its_rows_are_read_in_vain(reason: str, bad: int, *, is_of_use: bool) -> None:
    assert WideRead(later(0), 1000, {HoldReason(reason): bad}).is_of_use is is_of_use


def test_debts_that_are_paid_are_forgotten() -> None:
    pace = ReadPace()
    for number in range(1000):
        pace.charge({("queue", f"team-{number}"): read(100)}, later(number))
    assert len(pace._of) == 1


class WideTable(Table):
    """Records the number of rows of each read that are beyond the first rows."""

    def __init__(self, rows: Sequence[IndexedRow]) -> None:
        super().__init__(rows)
        self.wide: list[int] = []

    async def indexed_rows_of(self, windows: Mapping[QueueSubmitter, int]) -> list[IndexedRow]:
        self.wide.append(sum(most for most in windows.values() if most > LEAST_WINDOW))
        return await super().indexed_rows_of(windows)


@pytest.mark.slow
async def test_held_rows_of_ten_teams_in_ten_queues_are_read_at_a_limited_rate() -> None:
    """Each team has 1,000 held rows in each queue. A cycle runs every tenth of a second."""
    pairs = [(f"queue-{n % 10}", f"team-{n // 10}") for n in range(100)]
    held = [rows(range(n * 1000, n * 1000 + 1000), queue=queue, submitted_by=who, kind=b"bad")
            for n, (queue, who) in enumerate(pairs)]  # fmt: skip
    table, queues = WideTable([row for own in held for row in own]), [a_queue(f"queue-{n}") for n in range(10)]
    looking = Looking(KindJudge({b"bad": BAD}), WANTED)
    for tenth in range(80):
        if tenth == 40:
            table.wide.clear()  # what may be read at once is read by now
        await looking.run(table, a_snapshot(*queues, now=later(60 + tenth / 10)), {})
    assert 4 * 7_500 <= sum(table.wide) <= 4 * 10_000 * 1.2
    assert max(table.wide) <= 10_000


async def test_clock_that_is_set_back_stops_no_read() -> None:
    table = Table([*rows(range(1000), kind=b"bad"), *rows([9000])])
    looking = Looking(KindJudge({b"bad": BAD}), WANTED)
    await looking.run(table, a_snapshot(), {})
    assert (await looking.run(table, a_snapshot(now=ago(3600)), {})).ids == [9000]
