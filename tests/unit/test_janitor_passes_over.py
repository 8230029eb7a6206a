"""One entry or row that the database refuses stops no other, and is named."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dispatcher.janitor.janitor import AGAIN_SECONDS, Retention
from dispatcher.model.errors import DatabaseAway, DatabaseUnfit
from dispatcher.pg.tasks import MOST_REFUSED, Deleted, pass_over


class Table:
    """Refuses each call with a bad entry, as a statement over a set does."""

    def __init__(self, *bad: int) -> None:
        self.bad, self.calls, self.written = set(bad), 0, list[int]()

    async def write(self, some: Sequence[int]) -> int:
        self.calls += 1
        if self.bad & set(some):
            raise DatabaseUnfit("a trigger says no")
        self.written += some
        return len(some)


@pytest.mark.parametrize("bad", [(), (0,), (99,), (3, 4, 50)])
async def test_all_entries_but_the_bad_ones_are_written_once_and_in_order(bad: tuple[int, ...]) -> None:
    table = Table(*bad)
    changed, refused = await pass_over(table.write, range(100))
    assert table.written == [one for one in range(100) if one not in bad]
    assert (changed, tuple(refused)) == (100 - len(bad), bad)
    assert table.calls <= 1 + 14 * len(bad)


async def test_fault_of_all_entries_is_raised_after_few_calls() -> None:
    table = Table(*range(200))
    with pytest.raises(DatabaseUnfit):
        await pass_over(table.write, range(200))
    assert table.calls < 4 * MOST_REFUSED + 8


async def test_fault_of_the_only_entry_is_raised() -> None:
    """It may be about every entry: a right that is missing."""
    with pytest.raises(DatabaseUnfit):
        await pass_over(Table(1).write, [1])


async def test_nothing_to_write_is_one_call_and_its_fault_is_raised() -> None:
    assert await pass_over(Table().write, []) == (0, [])

    async def fails(_: Sequence[int]) -> int:
        raise DatabaseUnfit("no right")

    with pytest.raises(DatabaseUnfit):
        await pass_over(fails, [])


async def test_absent_database_is_no_refusal() -> None:
    async def away(_: Sequence[int]) -> int:
        raise DatabaseAway("no answer")

    with pytest.raises(DatabaseAway):
        await pass_over(away, [1, 2])


class Rows:
    """Rows of which some cannot be deleted, 3 in a batch."""

    def __init__(self, *held: int) -> None:
        self.rows, self.held, self.time = list(range(9)), set(held), 0.0
        self.retention = Retention(self, lambda: self.time)

    async def delete_old(self, days: int, kept: Sequence[int]) -> Deleted:
        batch = [row for row in self.rows if row not in kept][:3]
        held = [row for row in batch if row in self.held]
        self.rows = [row for row in self.rows if row in held or row not in batch]
        return Deleted(len(batch) - len(held), held, "orders_task_id_fkey" if held else None)

    async def round(self, time: float = 0) -> list[int]:
        self.time = time
        await self.retention.delete(30)
        return self.rows


async def test_rows_that_cannot_be_deleted_are_passed_over_and_tried_again_each_hour() -> None:
    rows = Rows(0, 1, 2, 7)
    assert len(await rows.round()) == 9
    assert len(await rows.round()) == 6
    assert await rows.round() == [0, 1, 2, 7]
    rows.held.clear()
    assert await rows.round(AGAIN_SECONDS - 1) == [0, 1, 2, 7]
    assert await rows.round(AGAIN_SECONDS) == [7]
