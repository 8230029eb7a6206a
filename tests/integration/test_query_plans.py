"""Every query is prepared with the dispatcher's login, and the hot ones stay cheap in a full database.

The database has a million finished rows, and a hundred thousand waiting ones in a hundred queues. The tests check the
plan and the pages that it touches; times depend on the machine.
"""

import functools
from datetime import timedelta

import pytest

from dispatcher.doctor.finding import FindingState
from dispatcher.pg.connect import open_connection
from dispatcher.pg.migrate import NEWEST
from dispatcher.pg.queries import query
from dispatcher.pg.tasks import NEEDED_INDEXES
from tests.controlplane.waiting import wait_for
from tests.integration.doctoring_database import findings
from tests.integration.full_database import PROCESSING, QUEUES, SUBMITTERS, WAITING, WINDOW, full, reader
from tests.integration.list_plans import LISTS, SMALL_INDEXES, lists, used
from tests.integration.plans import explain
from tests.rig.postgres import Connection, Database
from tests.rig.statements import OF_READER, of_reader

__all__ = ["full", "reader"]


async def vacuumed(admin: Connection) -> bool:
    """Runs VACUUM. A background ANALYZE of the same database keeps pages from becoming all-visible while it runs."""
    await admin.execute("VACUUM dispatch_private.tasks")
    told = "SELECT relallvisible >= relpages FROM pg_class WHERE oid = 'dispatch_private.tasks'::regclass"
    return bool(await admin.fetchval(told))


async def ids(reader: Connection, status: str, count: int) -> list[int]:
    """Ids of rows from all parts of the table."""
    rows = await reader.fetch(
        "SELECT id FROM dispatch_private.tasks WHERE status = $1 ORDER BY kind, id LIMIT $2", status, count, timeout=60
    )
    return [row["id"] for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_READER)
async def test_query_may_be_run_by_the_login_of_the_reader(reader: Connection, name: str) -> None:
    await reader.prepare(of_reader(name))


COUNTS = {"tasks": 5000, "statuses": 5000, "kinds": 3000, "contenders": 200}


@pytest.mark.fault(10)
async def test_heads_of_a_hundred_queues_are_read_from_two_indexes(full: Database, reader: Connection) -> None:
    """Of each queue: up to a window of ready rows and as many of those that became due. No other row is read."""
    now = await reader.fetchval("SELECT clock_timestamp()")
    plan = await explain(reader, "candidates", QUEUES, [WINDOW] * len(QUEUES), now)
    assert plan.indexes == {"tasks_ready", "tasks_due"}
    assert (plan.kinds_of_scan, plan.dropped) == ({"Index Only Scan"}, 0)
    assert plan.rows == len(QUEUES) * (WINDOW + WAITING // len(QUEUES) // 20)
    assert plan.pages < 1.2 * plan.rows  # each row is looked up in the table until a VACUUM has run
    await wait_for(functools.partial(vacuumed, await full.session("admin")), "every page is all-visible", 60)
    again = await explain(reader, "candidates", QUEUES, [WINDOW] * len(QUEUES), now)
    assert (again.rows, again.indexes, again.kinds_of_scan) == (plan.rows, plan.indexes, {"Index Only Scan"})
    assert again.pages < again.rows / 10


@pytest.mark.fault(10)
async def test_wide_window_of_one_queue_is_read_from_two_indexes(reader: Connection) -> None:
    now = await reader.fetchval("SELECT clock_timestamp()")
    plan = await explain(reader, "candidates", QUEUES[:1], [50_000], now)
    assert (plan.indexes, plan.dropped) == ({"tasks_ready", "tasks_due"}, 0)
    assert plan.rows == WAITING // len(QUEUES) * 19 // 20
    assert plan.pages < 1.2 * plan.rows


async def test_queue_without_a_waiting_row_costs_one_index_lookup(reader: Connection) -> None:
    now = await reader.fetchval("SELECT clock_timestamp()")
    plan = await explain(reader, "candidates", [f"empty-{number}" for number in range(100)], [WINDOW] * 100, now)
    assert (plan.rows, plan.scanned, plan.dropped) == (0, set(), 0)
    assert plan.pages <= 100 * 2 * 4  # two indexes, with their depth


async def test_submitters_of_a_queue_are_found_by_skipping_through_the_index(reader: Connection) -> None:
    """Each submitter costs one look-up in each of two indexes, however many rows of it wait."""
    plan = await explain(reader, "submitters", QUEUES[:1], 1000)
    assert plan.indexes - SMALL_INDEXES == {"tasks_ready_of_submitter", "tasks_due_of_submitter"}
    assert (plan.rows, plan.scanned, plan.dropped) == (SUBMITTERS, set(), 2)  # dropped: the ends of the two walks
    assert plan.pages <= 2 * (SUBMITTERS + 1) * 5


async def test_submitters_query_stops_at_its_limit(reader: Connection) -> None:
    plan = await explain(reader, "submitters", QUEUES[:1], 3)
    assert plan.rows == 3
    assert plan.pages <= 2 * (3 + 1) * 5


async def test_heads_of_the_submitters_are_read_from_two_indexes(reader: Connection) -> None:
    """Of each submitter: up to a window of ready rows and as many of those that became due. No other row is read."""
    now, window = await reader.fetchval("SELECT clock_timestamp()"), 10
    teams = [f"team-{number}" for number in range(SUBMITTERS)]
    plan = await explain(reader, "candidates_of", QUEUES[:1] * SUBMITTERS, teams, [window] * SUBMITTERS, now)
    assert plan.indexes == {"tasks_ready_of_submitter", "tasks_due_of_submitter"}
    assert (plan.scanned, plan.dropped) == (set(), 0)
    assert SUBMITTERS * window <= plan.rows <= 2 * SUBMITTERS * window
    assert plan.pages < plan.rows + SUBMITTERS * 2 * 5


async def test_place_of_a_row_in_its_queue_is_counted_in_two_indexes(reader: Connection) -> None:
    """Each count stops at its limit, however many rows of the queue wait."""
    now, most = await reader.fetchval("SELECT clock_timestamp()"), 1000
    plan = await explain(reader, "line", QUEUES[0], 1000, 2**60, now, most, b"kind")
    assert (plan.indexes, plan.scanned, plan.rows) == ({"tasks_ready", "tasks_due"}, set(), 1)
    assert plan.kinds_of_scan <= {"Index Only Scan", "Index Scan"}
    assert plan.pages <= 3 * most + 50


OF_RATES = {"tasks_finished", "task_launches_starts"}


async def test_waiting_rows_are_counted_in_two_indexes(reader: Connection) -> None:
    """The oldest row of a queue is one look-up. Of rows that ended, only those of the last minutes are read."""
    now = await reader.fetchval("SELECT clock_timestamp()")
    plan = await explain(reader, "counts", now, [])
    assert plan.indexes - SMALL_INDEXES <= {
        "tasks_ready",
        "tasks_ready_of_submitter",
        "tasks_due",
        "tasks_due_of_submitter",
        "tasks_pkey",
        *OF_RATES,
    }
    assert (plan.scanned <= {"queues"}, plan.rows) == (True, len(QUEUES) + 1)
    counted = await reader.fetch(query("counts", "queues"), now, [])
    assert sum(row["due"] + row["not_due"] for row in counted) == WAITING


async def test_start_secret_is_one_small_read(reader: Connection) -> None:
    plan = await explain(reader, "start_secret")
    assert plan.rows == 1
    assert plan.pages < 10


async def test_frame_of_a_look_is_read_from_small_indexes(reader: Connection) -> None:
    """Queues, the time of the next due row, and the rows that containers hold: each by its own small index.

    The first look of a session also reads what the catalog says of the functions.
    """
    await explain(reader, "frame", list(NEEDED_INDEXES), 0, NEWEST)
    for most, found in ((0, 0), (100, 100), (1000, PROCESSING)):
        plan = await explain(reader, "frame", list(NEEDED_INDEXES), most, NEWEST)
        assert plan.indexes - SMALL_INDEXES == {"tasks_due", "tasks_processing"}
        assert plan.scanned <= {"queues"}
        assert plan.dropped == len(NEEDED_INDEXES)  # the needed indexes that exist; no row of a task
        assert plan.pages <= found + 5 * (len(QUEUES) + 2) + 50


MANY_RUN = """
INSERT INTO dispatch_private.tasks (status, launch, run_digest, finished_at, kind)
SELECT CASE n % 20 WHEN 0 THEN 'processing' ELSE 'succeeded' END, 1, CASE n % 20 WHEN 0 THEN sha256(int4send(n)) END,
       CASE WHEN n % 20 > 0 THEN now() END, 'x'
FROM generate_series(1, 20000) AS n
"""


async def test_held_rows_are_read_from_their_index_where_many_rows_run(database: Database) -> None:
    admin = await database.session("admin")
    await admin.execute(MANY_RUN)
    await admin.execute("ANALYZE dispatch_private.tasks")
    connection = await open_connection(database.url("reader"))
    plan = await explain(connection, "frame", list(NEEDED_INDEXES), 200, NEWEST)
    connection.terminate()
    assert plan.indexes - SMALL_INDEXES == {"tasks_due", "tasks_processing"}
    assert plan.dropped == len(NEEDED_INDEXES)


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("status", ["waiting", "succeeded"])
async def test_rows_by_id_are_read_by_the_primary_key(reader: Connection, name: str, status: str) -> None:
    """Read by the key, for any number of ids, and never completely."""
    for count in (1, COUNTS[name]):
        plan = await explain(reader, name, await ids(reader, status, count))
        assert (plan.indexes, plan.scanned, plan.rows) == ({"tasks_pkey"}, set(), count)
        assert plan.pages <= 4 * (count + 1)


@pytest.mark.fault(10)
async def test_plan_made_for_a_small_table_fits_a_large_one(database: Database) -> None:
    """A session keeps its plan until statistics change, and a team may insert a million rows before that."""
    connection = await open_connection(database.url("reader"))
    now = await connection.fetchval("SELECT now()")
    plans = {
        "candidates": await explain(connection, "candidates", ["default"], [200], now),
        "submitters": await explain(connection, "submitters", ["default"], 1000),
        "candidates_of": await explain(connection, "candidates_of", ["default"], ["team_a"], [200], now),
        "frame": await explain(connection, "frame", list(NEEDED_INDEXES), 200, NEWEST),
        "line": await explain(connection, "line", "default", 100, 1, now, 10, b"kind"),
        "counts": await explain(connection, "counts", now, []),
        "starts": await explain(connection, "starts", "default", now, 1000),
        "launches": await explain(connection, "launches", 1, 20),
        "marks": await explain(connection, "marks", 1),
        **{name: await explain(connection, name, *parameters) for name, parameters in lists(now).items()},
        "templates": await explain(connection, "templates"),
        "queue_settings": await explain(connection, "queue_settings", "default"),
        **{name: await explain(connection, name, "default", 1000) for name in ("queue_ends", "queue_times")},
        "warm_keys": await explain(connection, "warm_keys", ["node-1"], 2000),
        "ends": await explain(connection, "ends", now - timedelta(minutes=1), now),
        **{name: await explain(connection, name, ["default"], ["k"], 3) for name in ("histories", "runs")},
        **{name: await explain(connection, name, [1]) for name in COUNTS},
    }
    connection.terminate()
    assert [name for name, plan in plans.items() if plan.scanned - {"queues", "templates"}] == []
    assert plans["candidates"].indexes == plans["line"].indexes == {"tasks_ready", "tasks_due"}
    by_submitter = {"tasks_ready_of_submitter", "tasks_due_of_submitter"}
    assert plans["submitters"].indexes - SMALL_INDEXES == plans["candidates_of"].indexes == by_submitter
    assert plans["frame"].indexes - SMALL_INDEXES == {"tasks_due", "tasks_processing"}
    assert all(plans[name].indexes == {"tasks_pkey"} for name in COUNTS)
    assert plans["histories"].indexes == plans["runs"].indexes == {"tasks_history"}
    assert plans["starts"].indexes == {"task_launches_starts", "tasks_pkey"}
    assert {name: used(plans[name]) for name in LISTS} == LISTS
    assert (plans["launches"].indexes, plans["marks"].indexes) == ({"task_launches_pkey"}, {"tasks_pkey"})
    assert plans["queue_ends"].indexes == plans["queue_times"].indexes == {"tasks_finished_of_queue"}
    assert plans["warm_keys"].indexes == plans["ends"].indexes == {"tasks_finished"}


async def test_starts_of_a_queue_are_read_from_their_index(reader: Connection) -> None:
    """Five hundred of two hundred thousand launches, and their rows by the key."""
    now = await reader.fetchval("SELECT now()")
    plan = await explain(reader, "starts", QUEUES[0], now, 500)
    assert (plan.indexes, plan.scanned, plan.rows) == ({"task_launches_starts", "tasks_pkey"}, set(), 500)
    assert plan.pages <= 6 * plan.rows


async def test_launches_of_a_row_are_read_by_the_primary_key(reader: Connection) -> None:
    plan = await explain(reader, "launches", 1, 20)
    assert (plan.indexes, plan.scanned, plan.rows) == ({"task_launches_pkey"}, set(), 1)


async def test_marks_of_a_row_are_read_by_the_primary_key(reader: Connection) -> None:
    (row,) = await ids(reader, "succeeded", 1)
    plan = await explain(reader, "marks", row)
    assert (plan.indexes, plan.scanned, plan.rows, plan.pages <= 5) == ({"tasks_pkey"}, set(), 1, True)


async def test_ends_are_read_from_the_index_of_ends_alone(full: Database, reader: Connection) -> None:
    admin = await full.session("admin")
    last = await admin.fetchval("SELECT max(finished_at) FROM dispatch_private.tasks")
    plan = await explain(reader, "ends", last - timedelta(seconds=1), last)
    counted = await reader.fetch(of_reader("ends"), last - timedelta(seconds=1), last)
    read = await admin.fetchval(
        "SELECT count(*) FROM dispatch_private.tasks WHERE finished_at >= $1 AND finished_at < $2",
        last - timedelta(seconds=1), last,
    )  # fmt: skip
    assert (plan.indexes, plan.scanned, plan.dropped) == ({"tasks_finished"}, set(), 0)
    assert sum(row["rows"] for row in counted) == read


async def test_ping_reads_no_task(reader: Connection) -> None:
    plan = await explain(reader, "ping")
    assert plan.scanned == set()
    assert plan.pages < 10


@pytest.mark.parametrize("name", ["histories", "runs"])
async def test_history_of_cache_keys_is_read_from_its_index(reader: Connection, name: str) -> None:
    """A hundred unknown keys cost one look-up in the index each. For known keys see `test_pg_look`."""
    keys = [f"key-{number}" for number in range(100)]
    plan = await explain(reader, name, QUEUES, keys, 3)
    assert (plan.indexes, plan.scanned, plan.rows) == ({"tasks_history"}, set(), 0)
    assert plan.dropped <= 1  # for a key: its empty history
    assert plan.pages <= 100 * 4


def test_plan_of_every_query_is_tested() -> None:
    assert set(OF_READER) == {
        *("candidates", "candidates_of", "submitters", "line", "counts", "start_secret", "frame"),
        *COUNTS,
        *LISTS,
        *("ping", "histories", "runs", "starts", "launches", "marks", "statement_timeout", "templates"),
        *("queue_settings", "queue_ends", "ends", "queue_times", "warm_keys"),
    }


async def test_doctor_finds_each_plan_good_in_a_full_database(full: Database) -> None:
    found = [one for login in ("reader", "janitor") for one in await findings(full.url(login))]
    assert {one.state for one in found if one.what == "PlanWithoutIndex"} == {FindingState.GOOD}
