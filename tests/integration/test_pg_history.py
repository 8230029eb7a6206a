"""History and runs of cache keys: the right nodes in the right order.

One query serves a batch, and a key with a hundred thousand runs costs no more than any other.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from dispatcher.pg.connect import Session, open_connection
from dispatcher.pg.queries import query
from dispatcher.pg.tasks import look
from tests.controlplane.waiting import wait_for
from tests.integration.looking import opened
from tests.rig.postgres import Connection, Database

RUNS = """
INSERT INTO dispatch_private.tasks
    (queue, cache_key, status, launch, started_at, finished_at, node_name, pod_name, kind)
SELECT $1, $2, $3, 1, now() - interval '1 s' * (age + 5), now() - interval '1 s' * age, node, 'pod-' || age, 'x'
FROM unnest($4::text[], $5::int[]) AS run (node, age)
"""
MANY = """
INSERT INTO dispatch_private.tasks (queue, cache_key, status, launch, finished_at, node_name, kind)
SELECT 'default', $1, 'succeeded', 1, now() - interval '1 s' * n, $2 || n % $3, 'x' FROM generate_series(1, 100000) AS n
"""


async def ran(admin: Connection, *nodes: str | None, queue: str = "default", key: str = "k", **how: Any) -> None:
    """Inserts runs, one second apart, oldest first; the last run ended `ago` seconds ago."""
    last = how.get("ago", 0)
    ages = [last + len(nodes) - number for number in range(len(nodes))]
    await admin.execute("SET session_replication_role = replica")
    await admin.execute(RUNS, queue, key, how.get("status", "succeeded"), list(nodes), ages)


@pytest_asyncio.fixture(loop_scope="session")
async def session(database: Database) -> AsyncIterator[Session]:
    async with opened(database.url("reader")) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def admin(database: Database) -> Connection:
    return await database.session("admin")


async def histories(session: Session, *keys: tuple[str, str]) -> dict[tuple[str, str], tuple[str, ...]]:
    async with look(session) as rows:
        return {key: tuple(nodes) for key, nodes in (await rows.histories(keys)).items()}


async def history(session: Session, queue: str = "default", key: str = "k") -> tuple[str, ...]:
    return (await histories(session, (queue, key))).get((queue, key), ())


async def test_history_is_the_newest_three_distinct_nodes_newest_first(admin: Connection, session: Session) -> None:
    await ran(admin, "a", "b", "a", "a")
    assert await history(session) == ("a", "b")
    await ran(admin, "z", "y", "d", "c", "c", ago=-10)
    assert await history(session) == ("c", "d", "y")


async def test_history_tells_how_long_ago_each_node_had_its_last_run(admin: Connection, session: Session) -> None:
    await ran(admin, "old", ago=500)
    await ran(admin, "new", "new", ago=100)
    async with look(session) as rows:
        found = (await rows.histories([("default", "k")]))["default", "k"]
    assert list(found) == ["new", "old"]
    assert 100 <= found["new"] < 200
    assert 500 <= found["old"] < 600


async def test_only_success_on_a_known_node_counts(admin: Connection, session: Session) -> None:
    await ran(admin, "failed-here", status="failed")
    await ran(admin, "cancelled-here", status="cancelled")
    await ran(admin, None, "")
    assert await history(session) == ()
    await ran(admin, "a", ago=100)
    assert await history(session) == ("a",)


async def test_key_of_another_queue_is_another_key(admin: Connection, session: Session) -> None:
    await admin.execute("INSERT INTO dispatch.queues (name) VALUES ('other')")
    await ran(admin, "a")
    await ran(admin, "b", queue="other")
    await ran(admin, "c", key="")
    found = await histories(session, ("default", "k"), ("other", "k"), ("default", ""), ("default", "unknown"))
    assert found == {("default", "k"): ("a",), ("other", "k"): ("b",), ("default", ""): ("c",)}


async def test_node_is_found_behind_a_hundred_runs_on_other_nodes(admin: Connection, session: Session) -> None:
    await ran(admin, "b", "a", *["c"] * 100)
    assert await history(session) == ("c", "a", "b")


async def test_runs_are_the_newest_ten_with_their_pods_and_times(admin: Connection, session: Session) -> None:
    await ran(admin, *["a"] * 12)
    async with look(session) as rows:
        found = await rows.runs([("default", "k"), ("default", "unknown")])
    assert [run.pod for run in found["default", "k"]] == [f"pod-{age}" for age in range(1, 11)]
    assert {(run.ended - run.began).total_seconds() for run in found["default", "k"]} == {5.0}
    assert found["default", "unknown"] == []


async def pages(database: Database, key: str) -> int:
    """Pages that the query touches, by the plan that a session of the dispatcher has for it."""
    reader = await open_connection(database.url("reader"))
    try:
        await reader.execute(f"PREPARE looked_at AS {query('histories', 'caches')}")
        told = await reader.fetchval(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE looked_at ('{{default}}', '{{{key}}}', 3)"
        )
    finally:
        reader.terminate()
    plan = json.loads(told)[0]["Plan"]
    assert "tasks_history" in told
    assert '"Seq Scan"' not in told
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


@pytest.mark.slow
async def test_key_with_a_hundred_thousand_runs_costs_no_more_than_one_with_three(
    database: Database, admin: Connection
) -> None:
    await ran(admin, "a", "b", "c", key="few")
    await admin.execute(MANY, "on-every-node", "node-", 5000)
    await admin.execute(MANY, "on-three-nodes", "node-", 3)
    await admin.execute(MANY, "on-one-node", "node-", 1)

    async def vacuumed() -> bool:
        await admin.execute("VACUUM ANALYZE dispatch_private.tasks")
        return bool(await admin.fetchval("SELECT relallvisible = relpages FROM pg_class WHERE relname = 'tasks'"))

    await wait_for(vacuumed, "every page is all-visible", 60)
    few = await pages(database, "few")
    assert await pages(database, "on-every-node") <= few + 3
    assert await pages(database, "on-three-nodes") <= few + 3
    assert await pages(database, "on-one-node") <= 60, "at most a thousand entries of the index"
