"""Caps, order and turns for any mix of rows. The expected decision comes from `oracle.py`."""

from collections import Counter
from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.admission.cycle import LaunchOrder, plan_cycle
from dispatcher.admission.heads import KnownRows, take_turns
from dispatcher.admission.scan import Scan
from dispatcher.model.launches import Offer
from dispatcher.model.tasks import IndexedRow, Kind
from dispatcher.model.verdicts import Hold, HoldReason
from tests.property.drawn import draw_cycles
from tests.property.oracle import decide
from tests.property.profiles import FACT, amount
from tests.rig.builders import a_kind, a_queue, a_snapshot, an_indexed_row
from tests.rig.indexing import RowIndex

CYCLES = amount(gate=3_000, whole=9_000, nightly=100_000)


def test_cycle_decides_as_the_oracle_does() -> None:
    """Whatever order the candidates come in."""
    for drawn in draw_cycles(CYCLES):
        expected = decide(drawn.snapshot, drawn.candidates, drawn.in_flight)
        plan = plan_cycle(drawn.snapshot, drawn.candidates)
        assert [one.task.id for one in plan.launches] == [one.task.id for one in expected.launched], drawn.number
        assert {id_: str(hold.reason) for id_, hold in plan.holds.items()} == expected.reasons, drawn.number


def test_probing_tries_every_row_once_before_any_row_twice() -> None:
    """A row that was tried moves to the end. So n rows are tried within n looks."""
    for drawn in draw_cycles(CYCLES // 30):
        candidates, tried, now = drawn.candidates, [], 10.0
        for _ in candidates:
            first = LaunchOrder(candidates, a_snapshot(is_probing=True)).pop(a_snapshot())
            assert first is not None
            tried.append(first.task.id)
            now += 1
            candidates = [msgspec.structs.replace(one, tried_at=now) if one is first else one for one in candidates]
        assert sorted(tried) == sorted(one.task.id for one in candidates)


rows = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), max_size=30)


@FACT
@given(rows)
def test_queues_take_turns(drawn: list[tuple[int, str]]) -> None:
    """In every prefix: of two queues that both have rows left, none is more than one row ahead."""
    indexed_rows = [an_indexed_row(id_, priority=priority, queue=queue) for id_, (priority, queue) in enumerate(drawn)]
    heads = {name: sorted((row for row in indexed_rows if row.queue == name), key=lambda row: (row.priority, row.id))
             for name in "abc"}  # fmt: skip
    taken = take_turns(heads.values())
    assert {name: [row for row in taken if row.queue == name] for name in "abc"} == heads
    for length in range(len(taken) + 1):
        served = Counter(row.queue for row in taken[:length])
        going_on = [name for name in "abc" if served[name] < len(heads[name])]
        assert len({served[name] for name in going_on}) <= 2
        assert max(served.values(), default=0) - min((served[name] for name in going_on), default=99) <= 1


class OfferIndex(RowIndex):
    """Rows and offers by kind: good rows, denied rows, and rows that the API server refused."""

    def __init__(self, indexed_rows: list[IndexedRow], parked: set[int]) -> None:
        super().__init__(indexed_rows)
        self._parked = parked
        self._known: dict[bytes, Offer | Hold] = {}

    async def kinds(self, ids: Sequence[int]) -> list[Kind]:
        return [a_kind(digest=row.kind) for row in self.rows if row.id in set(ids)]

    def offer(self, kind: Kind) -> Offer | Hold:
        good = Offer("app:1", "small", "default")
        self._known[kind.digest] = good if kind.digest == b"good" else Hold(HoldReason.POLICY_DENIED)
        return self._known[kind.digest]

    def known_offer(self, digest: bytes) -> Offer | Hold | None:
        return self._known.get(digest)

    def refused(self, row: IndexedRow) -> Hold | None:
        return Hold(HoldReason.POISON) if row.id in self._parked else None


row_groups = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from([b"good", b"bad", b"worse"]), st.booleans(),
              st.sampled_from([1, 2, 40, 500])), max_size=6,
)  # fmt: skip


@FACT
@given(row_groups, st.none() | st.integers(0, 5))
async def test_every_head_row_is_read_or_has_one_reason_or_waits_for_a_place(
    row_groups: list[tuple[str, bytes, bool, int]], most: int | None
) -> None:
    """I19, and I7 for windows: a few thousand held rows hide no row that can be launched."""
    drawn = [(queue, kind, bad) for queue, kind, bad, count in row_groups for _ in range(count)]
    table = [an_indexed_row(id_, queue=queue, kind=kind) for id_, (queue, kind, _) in enumerate(drawn)]
    parked = {id_ for id_, (_, _, is_parked) in enumerate(drawn) if is_parked}
    index = OfferIndex(table, parked)
    snapshot = a_snapshot(a_queue("a", max_jobs=most), a_queue("b"))
    found = await Scan(10).run(index, index, snapshot, KnownRows())
    launchable = {name: [row.id for row in table if row.queue == name and row.kind == b"good" and row.id not in parked]
                  for name in "ab"}  # fmt: skip
    room = {"a": 10 if most is None else min(most, 10), "b": 10}
    for name in "ab":
        assert [id_ for id_ in found.ids if table[id_].queue == name] == launchable[name][: room[name]]
    if most != 0:
        held = sum(found.held.values())
        assert held <= len(table) - sum(map(len, launchable.values()))
        if all(len(ids) <= room[name] for name, ids in launchable.items()):
            assert held == len(table) - len(found.ids)
