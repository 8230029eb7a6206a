"""Every query is prepared with the dispatcher's login, and the hot ones stay cheap in a full database.

The database has a million finished rows, and a hundred thousand waiting ones in a hundred queues. The tests check the
plan and the pages that it touches; times depend on the machine.
"""

import functools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from dispatcher.pg.connect import open_connection
from dispatcher.pg.queries import query
from dispatcher.pg.tasks import NEEDED_INDEXES
from tests.controlplane.waiting import wait_for
from tests.integration.plans import explain
from tests.postgres import Connection, Database, PostgresServer

QUERIES = sorted(file.stem for file in (Path(__file__).parents[2] / "sql" / "queries").glob("*.sql"))
QUEUES = [f"queue-{number}" for number in range(100)]
FINISHED, WAITING, PROCESSING, WINDOW = 1_000_000, 100_000, 300, 200
LAUNCHES = 200_000
"""Half of them in the last hour."""
SUBMITTERS = 20
"""In each queue; each submitter has equally many waiting rows."""

INDEXES = """
SELECT indexrelid::regclass::text AS name, pg_get_indexdef(indexrelid) AS definition
FROM pg_index WHERE indrelid = 'dispatch.tasks'::regclass AND NOT indisprimary
"""
FILL = [
    # No trigger runs for a million rows, and the indexes are made again after the inserts.
    "SET session_replication_role = replica",
    "INSERT INTO dispatch.queues (name) SELECT 'queue-' || n FROM generate_series(0, 99) AS n",
    f"""
    INSERT INTO dispatch.tasks (queue, status, launch, finished_at, kind)
    SELECT 'queue-' || n % 100, CASE WHEN n % 10 = 0 THEN 'failed' ELSE 'succeeded' END, 1,
           now() - interval '1 s' * n, decode(md5((n % 1000)::text), 'hex')
    FROM generate_series(1, {FINISHED}) AS n
    """,
    # Of twenty rows, one has been due for some time, and one is due later.
    f"""
    INSERT INTO dispatch.tasks (queue, submitted_by, priority, run_at, kind)
    SELECT 'queue-' || n % 100, 'team-' || n / 2000 % {SUBMITTERS}, n / 100 % 3 * 50,
           CASE n / 100 % 20 WHEN 0 THEN now() - interval '1 s' * n WHEN 1 THEN now() + interval '1 s' * n END,
           decode(md5((n % 1000)::text), 'hex')
    FROM generate_series(1, {WAITING}) AS n
    """,
    f"""
    INSERT INTO dispatch.tasks (queue, status, launch, run_digest, started_at, heartbeat_at, kind)
    SELECT 'queue-' || n % 100, 'processing', 1, uuid_send(gen_random_uuid()), now(), now(), decode(md5('x'), 'hex')
    FROM generate_series(1, {PROCESSING}) AS n
    """,
    f"""
    INSERT INTO dispatch.task_launches (task_id, attempt, launch, job_uid, started_at, ended_at, outcome, queue)
    SELECT n, 1, 1, 'job', now() - interval '36 ms' * n, now(), 'succeeded', 'queue-' || n % 100
    FROM generate_series(1, {LAUNCHES}) AS n
    """,
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def full(postgres: PostgresServer) -> AsyncIterator[Database]:
    database = await postgres.create_database()
    admin = await database.session("admin")
    indexes = await admin.fetch(INDEXES)
    await admin.execute("DROP INDEX " + ", ".join(index["name"] for index in indexes))
    for statement in FILL:
        await admin.execute(statement)
    for index in indexes:
        await admin.execute(index["definition"])
    await admin.execute("ANALYZE dispatch.tasks, dispatch.queues")
    yield database
    await database.drop()


@pytest_asyncio.fixture(loop_scope="session")
async def reader(full: Database) -> AsyncIterator[Connection]:
    """A connection with the settings of every session of the dispatcher."""
    connection = await open_connection(full.url("reader"))
    yield connection
    connection.terminate()


async def vacuumed(admin: Connection) -> bool:
    """Runs VACUUM. A background ANALYZE of the same database keeps pages from becoming all-visible while it runs."""
    await admin.execute("VACUUM dispatch.tasks")
    told = "SELECT relallvisible >= relpages FROM pg_class WHERE oid = 'dispatch.tasks'::regclass"
    return bool(await admin.fetchval(told))


async def ids(reader: Connection, status: str, count: int) -> list[int]:
    """Ids of rows from all parts of the table."""
    rows = await reader.fetch(
        "SELECT id FROM dispatch.tasks WHERE status = $1 ORDER BY kind, id LIMIT $2", status, count, timeout=60
    )
    return [row["id"] for row in rows]


@pytest.mark.parametrize("name", QUERIES)
async def test_query_may_be_run_by_the_login_of_the_reader(reader: Connection, name: str) -> None:
    await reader.prepare(query(name))


SMALL_INDEXES = {"pg_index_indexrelid_index", "queues_pkey", "schema_version_pkey"}
"""Indexes of small tables, and of the catalog, which is long in a database with many tables."""
COUNTS = {"tasks": 5000, "kinds": 3000, "contenders": 200, "requests": 100}


@pytest.mark.fault(10)
async def test_heads_of_a_hundred_queues_are_read_from_two_indexes(full: Database, reader: Connection) -> None:
    """Of each queue: up to a window of ready rows and as many of those that became due. No other row is read."""
    now = await reader.fetchval("SELECT clock_timestamp()")
    plan = await explain(reader, "candidates", QUEUES, [WINDOW] * len(QUEUES), now)
    assert plan.indexes == {"tasks_ready", "tasks_due"}
    assert (plan.kinds_of_scan, plan.dropped) == ({"Index Only Scan"}, 0)
    assert plan.rows == len(QUEUES) * (WINDOW + WAITING // len(QUEUES) // 20)
    assert plan.pages < 1.2 * plan.rows  # each row is looked up in the table until a VACUUM has run
    await wait_for(functools.partial(vacuumed, await full.session("admin")), "every page is all-visible")
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
    assert plan.indexes == {"tasks_ready_of_submitter", "tasks_due_of_submitter"}
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
    plan = await explain(reader, "counts", now)
    assert plan.indexes - SMALL_INDEXES <= {
        "tasks_ready",
        "tasks_ready_of_submitter",
        "tasks_due",
        "tasks_pkey",
        *OF_RATES,
    }
    assert (plan.scanned <= {"queues"}, plan.rows) == (True, len(QUEUES) + 1)
    counted = await reader.fetch(query("counts"), now)
    assert sum(row["due"] + row["not_due"] for row in counted) == WAITING


async def test_start_secret_is_one_small_read(reader: Connection) -> None:
    plan = await explain(reader, "start_secret")
    assert plan.rows == 1
    assert plan.pages < 10


async def test_frame_of_a_look_is_read_from_small_indexes(reader: Connection) -> None:
    """Queues, the time of the next due row, and the rows that containers hold: each by its own small index."""
    for most, found in ((0, 0), (100, 100), (1000, PROCESSING)):
        plan = await explain(reader, "frame", list(NEEDED_INDEXES), most)
        assert plan.indexes - SMALL_INDEXES == {"tasks_due", "tasks_processing"}
        assert plan.scanned <= {"queues"}
        assert plan.dropped == len(NEEDED_INDEXES)  # the needed indexes that exist; no row of a task
        assert plan.pages <= found + 5 * (len(QUEUES) + 2) + 50


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("status", ["waiting", "succeeded"])
async def test_rows_by_id_are_read_by_the_primary_key(reader: Connection, name: str, status: str) -> None:
    """Read by the key, for any number of ids, and never completely."""
    for count in (1, COUNTS[name]):
        plan = await explain(reader, name, await ids(reader, status, count))
        assert (plan.indexes, plan.scanned, plan.rows) == ({"tasks_pkey"}, set(), count)
        assert plan.pages <= 4 * count


@pytest.mark.fault(10)
async def test_plan_made_for_a_small_table_fits_a_large_one(database: Database) -> None:
    """A session keeps its plan until statistics change, and a team may insert a million rows before that."""
    connection = await open_connection(database.url("reader"))
    now = await connection.fetchval("SELECT now()")
    plans = {
        "candidates": await explain(connection, "candidates", ["default"], [200], now),
        "submitters": await explain(connection, "submitters", ["default"], 1000),
        "candidates_of": await explain(connection, "candidates_of", ["default"], ["team_a"], [200], now),
        "frame": await explain(connection, "frame", list(NEEDED_INDEXES), 200),
        "line": await explain(connection, "line", "default", 100, 1, now, 10, b"kind"),
        "counts": await explain(connection, "counts", now),
        "starts": await explain(connection, "starts", "default", now, b"kind", 1000),
        "launches": await explain(connection, "launches", 1, 20),
        "page": await explain(connection, "page", 2**60, "default", None, None, None, 100),
        **{name: await explain(connection, name, ["default"], ["k"], 3) for name in ("histories", "runs")},
        **{name: await explain(connection, name, [1]) for name in COUNTS},
    }
    connection.terminate()
    assert [name for name, plan in plans.items() if plan.scanned - {"queues"}] == []
    assert plans["candidates"].indexes == plans["line"].indexes == {"tasks_ready", "tasks_due"}
    by_submitter = {"tasks_ready_of_submitter", "tasks_due_of_submitter"}
    assert plans["submitters"].indexes == plans["candidates_of"].indexes == by_submitter
    assert plans["frame"].indexes - SMALL_INDEXES == {"tasks_due", "tasks_processing"}
    assert all(plans[name].indexes == {"tasks_pkey"} for name in COUNTS)
    assert plans["histories"].indexes == plans["runs"].indexes == {"tasks_history"}
    assert (plans["starts"].indexes, plans["page"].indexes) == ({"task_launches_starts", "tasks_pkey"}, {"tasks_pkey"})
    assert plans["launches"].indexes == {"task_launches_pkey"}


async def test_starts_of_a_queue_are_read_from_their_index(reader: Connection) -> None:
    """Five hundred of two hundred thousand launches, and their rows by the key."""
    now = await reader.fetchval("SELECT now()")
    plan = await explain(reader, "starts", QUEUES[0], now, b"kind", 500)
    assert (plan.indexes, plan.scanned, plan.rows) == ({"task_launches_starts", "tasks_pkey"}, set(), 500)
    assert plan.pages <= 6 * plan.rows


async def test_page_of_rows_is_read_from_the_newest_on(reader: Connection) -> None:
    plan = await explain(reader, "page", 2**60, None, None, None, None, 100)
    assert (plan.indexes, plan.scanned, plan.rows) == ({"tasks_pkey"}, set(), 100)
    assert plan.pages < 50
    rare = await explain(reader, "page", 2**60, QUEUES[0], None, None, None, 100)
    assert (rare.rows, rare.pages < 1000) == (100, True)


async def test_launches_of_a_row_are_read_by_the_primary_key(reader: Connection) -> None:
    plan = await explain(reader, "launches", 1, 20)
    assert (plan.indexes, plan.scanned, plan.rows) == ({"task_launches_pkey"}, set(), 1)


async def test_ping_reads_no_task(reader: Connection) -> None:
    plan = await explain(reader, "ping")
    assert plan.scanned == set()
    assert plan.pages < 10


@pytest.mark.parametrize("name", ["histories", "runs"])
async def test_history_of_cache_keys_is_read_from_its_index(reader: Connection, name: str) -> None:
    """A hundred unknown keys cost one look-up in the index each. For known keys see `test_pg_history`."""
    keys = [f"key-{number}" for number in range(100)]
    plan = await explain(reader, name, QUEUES, keys, 3)
    assert (plan.indexes, plan.scanned, plan.rows) == ({"tasks_history"}, set(), 0)
    assert plan.dropped <= 1  # for a key: its empty history
    assert plan.pages <= 100 * 4


def test_plan_of_every_query_is_tested() -> None:
    assert set(QUERIES) == {
        *("candidates", "candidates_of", "submitters", "line", "counts", "start_secret", "frame"),
        *COUNTS,
        *("ping", "histories", "runs", "starts", "launches", "page"),
    }
