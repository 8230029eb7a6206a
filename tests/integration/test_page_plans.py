"""The queries of the dashboard's pages read few rows of the full database, each from its index."""

import pytest

from tests.integration.full_database import QUEUES, full, reader
from tests.integration.list_plans import LISTS, lists, used
from tests.integration.plans import explain
from tests.rig.postgres import Connection

__all__ = ["full", "reader"]


@pytest.mark.slow
@pytest.mark.parametrize("name", LISTS)
async def test_list_is_read_from_its_index(reader: Connection, name: str) -> None:
    now = await reader.fetchval("SELECT now()")
    plan = await explain(reader, name, *lists(now)[name])
    assert (used(plan), plan.scanned <= {"queues"}) == (LISTS[name], True)


async def test_page_of_rows_reads_the_newest_rows_alone(reader: Connection) -> None:
    """A filter that no row matches reads as many rows as are looked at, and no more."""
    every = await explain(reader, "matching", 2**60, *[None] * 6, 101, 100, 50_000)
    assert (every.rows, every.pages < 200) == (1, True)
    nothing = await explain(reader, "matching", 2**60, "nowhere", *[None] * 5, 101, 100, 5000)
    assert (nothing.dropped, nothing.pages < 1000) == (5000, True)
    old = await explain(reader, "matching", 500_000, None, "waiting", *[None] * 4, 101, 100, 5000)
    assert (old.dropped, old.pages < 1000) == (5000, True)


async def test_failed_rows_are_read_from_the_newest_on(reader: Connection) -> None:
    """A tenth of a million rows failed. Nothing else that ended is read."""
    since = await reader.fetchval("SELECT now() - interval '30 days'")
    plan = await explain(reader, "failed", since, 3000)
    assert (plan.indexes, plan.rows, plan.dropped) == ({"tasks_failed"}, 3000, 0)
    assert plan.pages < 1.1 * plan.rows + 100


async def test_page_of_a_queue_is_read_from_its_newest_ends_and_starts(reader: Connection) -> None:
    """Ten thousand rows of the queue have ended, beside a million of others."""
    now = await reader.fetchval("SELECT now()")
    starts = await explain(reader, "starts", QUEUES[0], now, 500)
    assert (starts.indexes, starts.scanned, starts.rows) == ({"task_launches_starts", "tasks_pkey"}, set(), 500)
    ends = await explain(reader, "queue_ends", QUEUES[0], 20)
    assert (ends.indexes, ends.scanned, ends.rows, ends.dropped) == ({"tasks_finished_of_queue"}, set(), 20, 0)
    assert ends.pages <= 2 * ends.rows
    times = await explain(reader, "queue_times", QUEUES[0], 1000)
    assert (times.indexes, times.scanned, times.rows) == ({"tasks_finished_of_queue"}, set(), 1)
    assert times.pages <= 1100
    assert (await explain(reader, "queue_settings", QUEUES[0])).pages < 20


async def test_warm_keys_are_counted_from_the_newest_ends(reader: Connection) -> None:
    plan = await explain(reader, "warm_keys", [f"node-{number}" for number in range(101)], 2000)
    assert (plan.indexes, plan.scanned) == ({"tasks_finished"}, set())
    assert plan.pages <= 2100
