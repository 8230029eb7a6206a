"""Held rows are read by submitter, in turns, at a limited rate. So rows of one submitter hide no rows of another."""

from collections.abc import Mapping, Sequence

import pytest

from dispatcher.admission.heads import FIRST_WINDOW, LEAST_WINDOW, WIDEST_WINDOW, QueueSubmitter
from dispatcher.admission.scan import ReadPace, WideRead
from dispatcher.admission.snapshot import plan_load
from dispatcher.model.tasks import IndexedRow
from dispatcher.model.verdicts import MUCH_TEXT, Hold, HoldReason
from tests.rig.builders import a_queue, a_snapshot, ago, an_indexed_row, later
from tests.unit.scanning import BAD, WANTED, KindJudge, Looking, Table, rows, scan


async def test_submitter_at_its_cap_hides_no_other_with_60000_rows() -> None:
    snapshot = a_snapshot(a_queue(max_jobs_per_submitter=1), load=plan_load([("default", "noisy")]))
    table = Table([*rows(range(60_000), submitted_by="noisy"), *rows([70_000])])
    looking = Looking(KindJudge({}), WANTED)
    for _ in range(2):
        assert (await looking.run(table, snapshot, {})).ids == [70_000]
    assert table.of_submitters == [{"noisy": 100, "team_a": 100}] * 2, (
        "rows at the cap of their submitter are not searched"
    )


async def test_rows_beyond_a_submitter_cap_hide_no_other_submitter() -> None:
    """The scan chooses only as many of a thousand launchable rows as the cap leaves."""
    snapshot = a_snapshot(a_queue(max_jobs_per_submitter=3), load=plan_load([("default", "noisy")]))
    table = Table([*rows(range(1000), submitted_by="noisy", priority=0), *rows([2000, 2001])])
    found = await scan(table, snapshot=snapshot)
    assert found.ids == [0, 1, 2000, 2001]
    assert table.of_submitters == [{"noisy": 100, "team_a": 100}]


async def test_denied_rows_of_a_submitter_hide_no_other_submitter() -> None:
    table = Table([*rows(range(60_000), submitted_by="noisy", kind=b"bad"), *rows([70_000])])
    looking = Looking(KindJudge({b"bad": BAD}), WANTED)
    for _ in range(2):
        assert (await looking.run(table, a_snapshot(), {})).ids == [70_000]


async def test_rows_of_a_crowded_queue_keep_their_order() -> None:
    held = rows(range(300), submitted_by="noisy", kind=b"bad", priority=0)
    able = [*rows([301, 304], submitted_by="x"), *rows([302, 303], submitted_by="y"), *rows([400], priority=1)]
    assert (await scan(Table([*held, *able]), KindJudge({b"bad": BAD}))).ids == [400, 301, 302, 303, 304]


async def test_every_submitter_is_read_in_every_look() -> None:
    names = [f"team-{number:03}" for number in range(100)]
    table = Table([row for n, name in enumerate(names) for row in rows(range(n * 30, n * 30 + 30), submitted_by=name)])
    full = plan_load([("default", name) for name in names[:-1]])
    found = await scan(table, snapshot=a_snapshot(a_queue(max_jobs_per_submitter=1), load=full))
    assert found.ids == [99 * 30], "as many rows as the cap leaves"
    assert set(table.of_submitters[0].values()) == {20}


MUCH = Hold(HoldReason.SUBMITTER_CAP, f"{MUCH_TEXT}: 16000 bytes")


@pytest.mark.parametrize(
    "book",
    [KindJudge({b"held": BAD}), KindJudge({}, refusals=dict.fromkeys(range(10_000), MUCH))],
    ids=["denied", "much text"],
)
async def test_wide_window_is_read_three_times_and_then_every_two_seconds(book: KindJudge) -> None:
    table = Table([*rows(range(10_000), submitted_by="noisy", kind=b"held"), *rows([70_000])])
    looking = Looking(book, WANTED)
    wide = []
    for tenth in range(41):
        table.of_submitters.clear()
        assert (await looking.run(table, a_snapshot(now=later(tenth / 10)), {})).ids == [70_000]
        if max(most for window in table.of_submitters for most in window.values()) > 100:
            wide.append(tenth)
    assert wide == [0, 1, 2, 20, 40]


async def test_new_row_behind_denied_rows_is_found_after_two_seconds_at_most() -> None:
    table = Table(rows(range(10_000), kind=b"bad"))
    looking = Looking(KindJudge({b"bad": BAD}), WANTED)
    for _ in range(3):
        assert (await looking.run(table, a_snapshot(), {})).ids == []
    table.rows = [*table.rows, *rows([20_000])]
    assert (await looking.run(table, a_snapshot(now=later(1.9)), {})).ids == []
    assert (await looking.run(table, a_snapshot(now=later(2)), {})).ids == [20_000]


@pytest.mark.slow
async def test_rows_behind_those_under_way_are_found_in_every_look() -> None:
    """A burst: rows wait in the table until their containers start."""
    table, known = Table(rows(range(3000))), dict[int, int]()
    looking = Looking(KindJudge({}), WANTED)
    for number in range(300):
        found = await looking.run(table, a_snapshot(now=later(number / 100)), known)
        assert found.ids[:WANTED] == list(range(number * WANTED, number * WANTED + WANTED))
        known |= dict.fromkeys(found.ids[:WANTED], 1)


async def test_the_next_row_of_a_capped_submitter_is_found_when_a_job_ends() -> None:
    table, queue = Table(rows(range(3000))), a_queue(max_jobs_per_submitter=1000)
    looking, known = Looking(KindJudge({}), WANTED), dict.fromkeys(range(999), 1)
    for row in (999, 1000):
        load = plan_load([("default", "team_a")] * 999)
        found = await looking.run(table, a_snapshot(queue, load=load, now=later(row / 10_000)), known)
        assert found.ids == [row]
        known[row] = 1


async def test_rows_at_the_cap_behind_held_rows_make_no_window_wider() -> None:
    """Rows that rest after a refusal leave places below the cap free, so that the submitter is read in every look."""
    queue, in_flight = a_queue(max_jobs_per_submitter=20), plan_load([("default", "team_a")] * 18)
    table = Table([*rows(range(250), kind=b"bad"), *rows(range(1000, 61_000))])
    looking, widths = Looking(KindJudge({b"bad": BAD}), WANTED), list[int]()
    for tenth in range(50):
        table.of_submitters.clear()
        assert (await looking.run(table, a_snapshot(queue, load=in_flight, now=later(tenth / 10)), {})).ids == [
            1000,
            1001,
        ]
        widths.append(max(most for window in table.of_submitters for most in window.values()))
    assert (max(widths[:1]), max(widths[1:])) == (8 * FIRST_WINDOW, 250 + FIRST_WINDOW)


async def test_counts_of_a_wide_look_are_told_until_the_next_one() -> None:
    table = Table(rows(range(10_000), kind=b"bad"))
    looking = Looking(KindJudge({b"bad": BAD}), WANTED)
    for seconds in (0, 1, 2):
        found = await looking.run(table, a_snapshot(now=later(seconds)), {})
        assert found.held == {("default", HoldReason.POLICY_DENIED): 10_000}


async def test_submitter_at_its_cap_is_not_searched_and_keeps_its_window() -> None:
    queue = a_queue(max_jobs_per_submitter=1)
    full = a_snapshot(queue, load=plan_load([("default", "team_a")]))
    table = Table([*rows(range(10_000), kind=b"bad"), *rows([20_000])])
    looking = Looking(KindJudge({b"bad": BAD}), WANTED)
    assert (await looking.run(table, a_snapshot(queue), {})).ids == [20_000]
    table.of_submitters.clear()
    assert (await looking.run(table, full, {})).ids == []
    assert table.of_submitters == [{"team_a": 200}]
    table.of_submitters.clear()
    assert (await looking.run(table, a_snapshot(queue, now=later(3)), {})).ids == [20_000]
    assert table.of_submitters == [{"team_a": 10_200}]


@pytest.mark.slow
async def test_wide_windows_of_held_rows_take_turns() -> None:
    """Three submitters have 40,000 denied rows each. Every four seconds one of the three is read."""
    names = ["a", "b", "c"]
    bad = [row for n, name in enumerate(names)
           for row in rows(range(n * 50_000, n * 50_000 + 40_000), submitted_by=name, kind=b"bad")]  # fmt: skip
    good = [row for n, name in enumerate(names) for row in rows([n * 50_000 + 45_000], submitted_by=name)]
    table, looking, found = Table([*bad, *good]), Looking(KindJudge({b"bad": BAD}), WANTED), set[int]()
    for second in range(16):
        table.of_submitters.clear()
        found |= set((await looking.run(table, a_snapshot(now=later(second)), {})).ids)
        assert len({who for window in table.of_submitters for who in window if window[who] > 10_000}) <= 1
    assert found == {row.id for row in good}


async def test_windows_of_rows_that_are_of_use_share_the_row_limit_of_a_look() -> None:
    """Three submitters have 50,000 rows of new kinds each. Each look judges some thousands of them."""
    table = Table([an_indexed_row(n * 50_000 + row, queue=name, submitted_by=name, kind=b"%d" % row)
                   for n, name in enumerate("abc") for row in range(50_000)])  # fmt: skip
    book = KindJudge({row.kind: BAD for row in table.rows})
    looking, found = Looking(book, WANTED), list[set[str]]()
    for _ in range(4):
        table.of_submitters.clear()
        await looking.run(table, a_snapshot(*map(a_queue, "abc")), {})
        found.append({who for one in table.of_submitters for who, most in one.items() if most == WIDEST_WINDOW})
    assert set.union(*found) == {"a", "b", "c"}
    assert len(found[-1]) == 2, "all three are of use now, and two of them fill the limit"


async def test_queue_is_read_in_order_again_when_its_head_is_free() -> None:
    noisy = rows(range(60_000), submitted_by="noisy")
    table, looking = Table([*noisy, *rows([70_000])]), Looking(KindJudge({}), WANTED)
    full = a_snapshot(a_queue(max_jobs_per_submitter=1), load=plan_load([("default", "noisy")]))
    assert (await looking.run(table, full, {})).ids == [70_000]
    for _ in range(2):
        assert (await looking.run(table, a_snapshot(a_queue()), {})).ids == list(range(WANTED))
    assert table.windows == [{"default": FIRST_WINDOW}] * 2


async def test_good_row_behind_30000_denied_rows_is_found_in_the_second_look() -> None:
    held = [row for n in range(20) for row in rows(range(n * 50, n * 50 + 30), submitted_by=f"t{n:02}", kind=b"bad")]
    table = Table(
        [*held, *rows(range(10_000, 40_000), submitted_by="deep", kind=b"bad"), *rows([50_000], submitted_by="deep")]
    )
    looking, found = Looking(KindJudge({b"bad": BAD}), WANTED), list[int]()
    for second in (0, 3):
        found += (await looking.run(table, a_snapshot(now=later(second)), {})).ids
    assert found == [50_000]


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
    ("bad", "at_cap", "is_of_use"),
    [(501, 0, False), (500, 0, True), (1000, 1000, True), (1000, 499, False), (0, 0, True)],
)
def test_window_is_of_use_unless_most_of_its_rows_are_read_in_vain(bad: int, at_cap: int, *, is_of_use: bool) -> None:
    assert WideRead(later(0), 1000, {HoldReason.NO_ROOM_NOW: bad}, at_cap).is_of_use is is_of_use


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
