"""Faults of a cluster while tasks run lose no row and do none twice. `build/node/faults.md` has the longest stalls."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from tests.node import ahead, breaking
from tests.node.book import Book
from tests.node.disk import fill
from tests.node.install import ready
from tests.node.installation import Installation
from tests.node.load import LONGEST_STALL, Held, Load, Outcome
from tests.node.node import Node

OUTAGE_SECONDS = 60
HELD, FEW, SOME, WHOLE, MANY = 4, 14, 24, 30, 50  # twelve run at once
LIMIT_SECONDS = 5
DISRUPTED = {"Disrupted: its Pod was evicted, preempted or deleted", "DeletionByPodGC"}
"""The second one is Kubernetes' own word, which the Pod has for a moment before it goes."""
PODS_OF_NO_NODE_SECONDS = 80
"""kube-controller-manager looks for Pods without a node every 20 s. It waits for the node for 40 s, and looks again."""
EVICTION_SECONDS = 90
"""Kubelet looks every 10 s, at amounts that are up to 10 s old. Unused images, ended containers and other Pods may go
before the Pods of the rows."""
RELAUNCH_SECONDS = 15
"""The pause before a second launch is 10 s. Then its container starts."""
KUBELETS_PAUSE_SECONDS = 10
"""Kubelet tries a Pod again so long after it could not start it (backOffPeriod)."""
LATE_SECONDS = 15
"""The container starts, kubelet looks at its limit every second, and the janitor writes down what ended it."""


@pytest_asyncio.fixture(loop_scope="session")
async def whole(there: Installation) -> AsyncIterator[Installation]:
    """The installation, which is ready before the test and after it."""
    await ready(there.site)
    yield there
    await ready(there.site)


def nothing_lost_or_done_twice(found: Outcome) -> bool:
    return (found.lost, found.doubles) == (0, 0)


async def test_rows_of_a_healthy_cluster_run_once(whole: Installation, book: Book) -> None:
    load = Load(whole, WHOLE)
    await load.start()
    found = await load.ended()
    book.enter("none", found)
    assert nothing_lost_or_done_twice(found)
    assert found.stall_seconds <= LONGEST_STALL
    assert found.again == 0


async def test_deleted_leader_loses_nothing(whole: Installation, book: Book) -> None:
    load = Load(whole, WHOLE)
    before = await breaking.leader(whole.site)
    await load.start()
    await breaking.delete_leader(whole.site)
    found = await load.ended()
    book.enter("leader's Pod deleted", found)
    assert await breaking.leader(whole.site) not in {"", before}
    assert nothing_lost_or_done_twice(found)
    assert found.stall_seconds <= LONGEST_STALL
    assert found.again == 0


async def test_rollout_of_everything_loses_nothing(whole: Installation, book: Book) -> None:
    load = Load(whole, MANY)
    await load.start()
    await breaking.restart_everything(whole.site)
    found = await load.ended()
    book.enter("rollout restart of everything", found)
    assert nothing_lost_or_done_twice(found)
    assert found.stall_seconds <= LONGEST_STALL
    assert found.again == 0


async def test_kubelet_away_for_a_minute_loses_nothing(whole: Installation, book: Book) -> None:
    load = Load(whole, SOME)
    await load.start()
    await breaking.stop_kubelet(whole.site, whole.site.nodes[0], OUTAGE_SECONDS)
    found = await load.ended()
    book.enter(f"kubelet stopped for {OUTAGE_SECONDS} s", found)
    assert nothing_lost_or_done_twice(found)
    assert found.stall_seconds <= OUTAGE_SECONDS + LONGEST_STALL  # Pods that were bound to the node wait for it


async def test_drained_node_loses_nothing(whole: Installation, book: Book) -> None:
    load = Load(whole, FEW, seconds=5)
    await load.start()
    node = whole.site.nodes[0]
    await breaking.drain(whole.site, node)
    found = await load.ended()
    await breaking.cordon(whole.site, node, is_closed=False)
    book.enter("node drained", found)
    assert nothing_lost_or_done_twice(found)
    assert found.stall_seconds <= LONGEST_STALL


async def test_restart_of_postgres_loses_nothing(whole: Installation, book: Book) -> None:
    load = Load(whole, FEW)
    await load.start()
    await breaking.restart_postgres(whole.site)
    found = await load.ended()
    book.enter("Postgres restarted", found)
    assert nothing_lost_or_done_twice(found)
    assert found.stall_seconds <= LONGEST_STALL


async def test_restart_of_the_api_server_loses_nothing(whole: Installation, book: Book) -> None:
    load = Load(whole, FEW)
    await load.start()
    await breaking.restart_api_server(whole.site)
    found = await load.ended()
    book.enter("API server restarted", found)
    assert nothing_lost_or_done_twice(found)
    assert found.stall_seconds <= LONGEST_STALL


async def test_restart_of_containerd_loses_nothing(whole: Installation, book: Book) -> None:
    load = Load(whole, FEW)
    await load.start()
    for node in whole.site.nodes:
        node.restart(node.containerd)
    found = await load.ended()
    book.enter("containerd of both nodes restarted", found)
    assert nothing_lost_or_done_twice(found)
    assert found.stall_seconds <= LONGEST_STALL + KUBELETS_PAUSE_SECONDS


async def test_node_gone_for_good_gives_its_rows_back_when_it_is_deleted(whole: Installation, book: Book) -> None:
    node, clock = await breaking.without_janitor(whole.site), asyncio.get_running_loop().time
    held, others = Held(whole, HELD), Load(whole, FEW)
    await held.start_on(node)
    began = clock()
    async with breaking.gone(node):
        await held.are_told("NodeLost")
        await others.start()
        elsewhere = await others.ended()
        assert [len(launches) for launches in await held.histories()] == [1] * HELD  # none may run a second time yet
        await held.release()
        await whole.site.plane.remove_node(node.name)
        outage_seconds = clock() - began
        found = await held.ended()
    book.enter("node gone for good: its rows", found)
    book.enter("node gone for good: rows of the other node", elsewhere)
    assert nothing_lost_or_done_twice(found)
    assert nothing_lost_or_done_twice(elsewhere)
    assert (found.again, elsewhere.again) == (HELD, 0)
    await whole.site.plane.wait_for(partial(are_disrupted, held), "the janitor has told why each launch ended", 60)
    assert elsewhere.stall_seconds <= LONGEST_STALL
    assert found.stall_seconds <= outage_seconds + PODS_OF_NO_NODE_SECONDS + RELAUNCH_SECONDS


async def are_disrupted(held: Held) -> bool:
    return {launches[0]["reason"] for launches in await held.histories()} <= DISRUPTED


async def test_full_disk_of_a_node_moves_its_rows_to_the_other_node(whole: Installation, book: Book) -> None:
    site = whole.site
    other, node = site.nodes
    held, others = Held(whole, HELD), Load(whole, FEW)
    await held.start_on(node)
    async with released(held), breaking.full_disk(site, node):
        await others.start()
        elsewhere = await others.ended()
        moved = await site.plane.wait_for(partial(restarted, held, node), "a row runs on the other node", 120)
    found = await held.ended()
    book.enter("disk of a node full: its rows", found)
    book.enter("disk of a node full: rows of the other node", elsewhere)
    assert nothing_lost_or_done_twice(found)
    assert nothing_lost_or_done_twice(elsewhere)
    assert all(first["reason"].startswith("Evicted: ") and last["node_name"] == other.name for first, last in moved)
    assert elsewhere.again == 0
    assert elsewhere.stall_seconds <= LONGEST_STALL
    assert found.stall_seconds <= EVICTION_SECONDS + RELAUNCH_SECONDS
    again = Held(whole, 1)
    await again.start_on(node)  # it is usable again
    await again.release()
    assert nothing_lost_or_done_twice(await again.ended())


@asynccontextmanager
async def released(held: Held) -> AsyncIterator[None]:
    """The rows go on at the end, also of a test that fails: the next one needs the nodes."""
    try:
        yield
    finally:
        await held.release()


async def restarted(held: Held, node: Node) -> list[list[dict[str, Any]]]:
    """The launches of each row that runs again. The disk stays full: kubelet may find other things to remove first."""
    fill(node.disk)
    return [launches for launches in await held.histories() if len(launches) > 1 and launches[-1]["started_at"]]


@pytest.mark.skipif(ahead.why_not_here() is not None, reason=str(ahead.why_not_here()))
async def test_clock_of_a_node_ahead_keeps_run_limits_and_loses_nothing(whole: Installation, book: Book) -> None:
    node, other = whole.site.nodes
    near, far = Load(whole, FEW // 2), Load(whole, FEW // 2)
    async with breaking.clock_ahead(whole.site, node):
        began = datetime.now(UTC)
        async with breaking.only(whole.site, node):
            late = await whole.insert("sleep", 600, timeout_seconds=LIMIT_SECONDS, max_failures=1)
            await whole.site.plane.wait_for(partial(placed_on, whole, late), f"task {late} runs", 60)
        (launch,) = await whole.site.plane.wait_for(partial(told, whole, late), f"the end of task {late}", 60)
        seconds = (datetime.now(UTC) - began).total_seconds()
        await near.start_on(node)
        await far.start_on(other)
        found, elsewhere = await near.ended(), await far.ended()
    book.enter("clock of a node five minutes ahead: its rows", found)
    book.enter("clock of a node five minutes ahead: rows of the other node", elsewhere)
    assert nothing_lost_or_done_twice(found)
    assert nothing_lost_or_done_twice(elsewhere)
    assert (found.again, elsewhere.again) == (0, 0)
    assert max(found.stall_seconds, elsewhere.stall_seconds) <= LONGEST_STALL
    assert (launch["node_name"], launch["reason"]) == (node.name, f"ran over its limit of {LIMIT_SECONDS} s")
    assert LIMIT_SECONDS - 1 <= seconds <= LIMIT_SECONDS + LATE_SECONDS  # a Pod's start has whole seconds


async def placed_on(there: Installation, task_id: int) -> str | None:
    """The node of a row that runs."""
    node: str | None = (await there.database.task(task_id))["node_name"]
    return node


async def told(there: Installation, task_id: int) -> list[dict[str, Any]]:
    """The launches of the row whose end is told."""
    return [launch for launch in await there.history(task_id) if launch["reason"]]
