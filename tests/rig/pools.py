"""A pool of nodes for one journey, and the rows and Pods in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.controlplane.api import Json
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place, QuickDispatcher
from tests.rig.steps import core_path, looks_again

POOL = "test.dispatcher.internal/pool"
CORE: dict[str, object] = {"template": "open", "spec": {"cpu": "1"}, "env": {"PLAY": "hang"}}
"""A row that runs for ever on one core. A node has four."""


class Pool:
    """Nodes of four cores, for the Pods of one place."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.plane = place.control_plane
        self.names: list[str] = []

    async def add(self, count: int = 1, **facts: Any) -> list[str]:
        names = await self.plane.add_nodes(count, labels={POOL: self.place.namespace}, **{"cpu": "4", **facts})
        self.names += names
        return names

    async def change(self, name: str, spec: Json) -> None:
        await self.plane.admin("PATCH", f"/api/v1/nodes/{name}", {"spec": spec})

    async def occupy(self, node: str, cpu: str = "4") -> str:
        """A Pod of somebody else on the node."""
        container = {"name": "x", "image": "x", "resources": {"requests": {"cpu": cpu}}}
        pod = {"metadata": {"generateName": "foreign-"}, "spec": {"nodeName": node, "containers": [container]}}
        made = await self.plane.admin("POST", core_path(self.place, "pods"), pod)
        return str(made["metadata"]["name"])

    async def vacate(self, pod: str) -> None:
        await self.plane.admin("DELETE", core_path(self.place, "pods", pod), {"gracePeriodSeconds": 0})

    async def pods(self) -> tuple[int, int]:
        """Numbers of the dispatcher's Pods with a node, and without one."""
        pods = (await self.plane.admin("GET", core_path(self.place, "pods")))["items"]
        ours = [bool(pod["spec"].get("nodeName")) for pod in pods if "foreign" not in pod["metadata"]["name"]]
        return sum(ours), len(ours) - sum(ours)

    async def have(self, dispatcher: Dispatcher, placed: int, waiting: int, seconds: float = 20) -> None:
        """Waits until so many Pods have a node and so many have none, and there is no Job beside them."""
        seen: list[tuple[int, int, int]] = []

        async def are_there() -> bool:
            seen[:] = [(*await self.pods(), len(await self.place.jobs()))]
            return seen == [(placed, waiting, placed + waiting)]

        what = f"{placed} placed Pods and {waiting} waiting ones"
        try:
            await wait_for(are_there, what, seconds, check=dispatcher.check)
        except TimeoutError:
            pytest.fail(f"{what}: (placed, waiting, Jobs) is {seen}")

    async def stay(self, dispatcher: Dispatcher, placed: int, waiting: int) -> None:
        """Checks that nothing follows in ten more cycles."""
        await self.have(dispatcher, placed, waiting)
        await looks_again(dispatcher, 10)
        assert (*await self.pods(), len(await self.place.jobs())) == (placed, waiting, placed + waiting)


@asynccontextmanager
async def a_pool(place: Place, count: int, **facts: Any) -> AsyncIterator[Pool]:
    pool = Pool(place)
    place.template("open", row_may_set="env,cpu", max_cpu="1000")
    try:
        await pool.add(count, **facts)
        yield pool
    finally:
        for name in pool.names:
            await pool.plane.remove_node(name)


def in_pool(place: Place, **settings: object) -> Dispatcher:
    """A dispatcher of a pool that grows by hand alone."""
    return Dispatcher(place, NODE_SELECTOR=f"{POOL}={place.namespace}", **{"DEMAND": "one", **settings})


def quick_in_pool(place: Place, **settings: object) -> Dispatcher:
    return QuickDispatcher(place, NODE_SELECTOR=f"{POOL}={place.namespace}", **{"DEMAND": "one", **settings})


async def pod_of_task(pool: Pool, task_id: int) -> Json:
    """The Pod of a row, once kube-scheduler has found no node for it."""
    selector = {"labelSelector": f"dispatcher.internal/task-id={task_id}"}

    async def is_there() -> Json | None:
        pods = (await pool.plane.admin("GET", core_path(pool.place, "pods"), params=selector))["items"]
        return next((pod for pod in pods if unschedulable(pod)), None)

    found = await wait_for(is_there, "a Pod waits for a node", 20)
    assert found is not None
    return found


def unschedulable(pod: Json) -> Json | None:
    conditions: list[Json] = pod["status"].get("conditions", [])
    return next((one for one in conditions if one.get("reason") == "Unschedulable"), None)


async def has_waited(pool: Pool, pod: Json, minutes: int) -> None:
    """Makes the Pod look as if kube-scheduler had found no node for it for so long."""
    since = (datetime.now(UTC) - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    change = {"status": {"conditions": [{**(unschedulable(pod) or {}), "lastTransitionTime": since}]}}
    await pool.plane.admin("PATCH", core_path(pool.place, "pods", pod["metadata"]["name"]) + "/status", change)


async def end_runs(place: Place, rows: list[int]) -> None:
    """The rows are over, and their Jobs have to go."""
    admin = await place.database.connect()
    await admin.execute(
        "UPDATE dispatch_private.tasks SET status = 'succeeded', finished_at = now() - interval '1 hour', "
        "run_digest = NULL WHERE id = ANY ($1)", rows,
    )  # fmt: skip
