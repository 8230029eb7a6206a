"""Promise: where admission or kube-scheduler decides what our count does not see, rows get idle nodes about as soon as
plain Jobs do.

400 idle places, 400 rows or plain Jobs of the same Pod. The figure is the time until all of them have a node, as a
ratio to that of plain Jobs in the same run: at most 2, alone and beside ten shapes of another team that fit nowhere.

* `RuntimeClass`: the nodes have a taint, and only the admission of the RuntimeClass gives the Pods its toleration.
* `devices`: a resource that no node tells, as with DRA; kube-scheduler is told not to look for it among the nodes'.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import yaml

from benchmarks.figures import Figure, run, tell
from benchmarks.growing import POOL, Started
from benchmarks.servers import Servers, launched
from tests.controlplane.api import Json
from tests.journey.test_room_unseen import DEVICE, a_scheduler_that_ignores_the_device
from tests.rig.dispatching import TASK, Dispatcher, Place

NODES, ON_A_NODE, NOWHERE = 100, 4, 10
PLACES = NODES * ON_A_NODE
MOST = 2
INSERT = "INSERT INTO dispatch.tasks (template) SELECT 'unseen' FROM generate_series(1, $1)"
INSERT_NOWHERE = f"""
INSERT INTO dispatch.tasks (template, spec)
SELECT 'open', jsonb_build_object('cpu', (100 + n)::text) FROM generate_series(1, {NOWHERE}) AS n
"""


@asynccontextmanager
async def a_runtime_class(place: Place, name: str) -> AsyncIterator[None]:
    """Its Pods tolerate the taint of its nodes, and ask for a little more than their containers."""
    scheduling = {"tolerations": [{"key": name, "operator": "Exists"}]}
    made = {"metadata": {"name": name}, "handler": "runc", "scheduling": scheduling,
            "overhead": {"podFixed": {"cpu": "10m"}}}  # fmt: skip
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    await place.control_plane.admin("POST", path, made)
    try:
        yield
    finally:
        await place.control_plane.admin("DELETE", f"{path}/{name}")


async def make_plain(place: Place) -> None:
    """Jobs of the template, as it is."""
    job: dict[str, Any] = yaml.safe_load((place.templates / "unseen.yaml").read_text())
    pod = job["spec"]["template"]
    pod["spec"] |= {"restartPolicy": "Never", "nodeSelector": {POOL: place.namespace}}
    made: Json = {"metadata": {"generateName": "plain-"}, "spec": {"backoffLimit": 0, "template": pod}}
    path, places = f"/apis/batch/v1/namespaces/{place.namespace}/jobs", asyncio.Semaphore(16)

    async def make() -> None:
        async with places:
            await place.control_plane.admin("POST", path, made)

    await asyncio.gather(*(make() for _ in range(PLACES)))


async def insert(place: Place) -> None:
    await (await place.database.session("team_a")).execute(INSERT, PLACES)


async def turn(servers: Servers, what: str, who: str) -> float:
    """Seconds until all Pods have a node. `who`: plain, rows, or rows beside shapes that fit nowhere."""
    place = await servers.place()
    async with AsyncExitStack() as stack:
        settings: dict[str, object] = {"NODE_SELECTOR": f"{POOL}={place.namespace}", "MAX_JOBS": PLACES + NOWHERE}
        taints: list[Json] = []
        text = TASK.format(annotations="{}", steer='{"play.dispatcher.internal/run-seconds": "3600"}')
        text = text.replace("cpu: 10m", "cpu: 900m")
        if what == "RuntimeClass":
            taints = [{"key": place.namespace, "effect": "NoSchedule"}]
            await stack.enter_async_context(a_runtime_class(place, place.namespace))
            text = text.replace("      containers:", f"      runtimeClassName: {place.namespace}\n      containers:")
        else:
            scheduler = await stack.enter_async_context(a_scheduler_that_ignores_the_device(place))
            settings["SCHEDULER_NAME"] = scheduler.name
            text = text.replace("{cpu: 900m", f"{{{DEVICE}: 1, cpu: 900m")
            if who == "plain":
                text = text.replace("      containers:", f"      schedulerName: {scheduler.name}\n      containers:")
        (place.templates / "unseen.yaml").write_text(text)
        place.template("open", row_may_set="cpu", max_cpu="1000")
        labels = {POOL: place.namespace}
        nodes = await servers.plane.add_nodes(NODES, cpu=str(ON_A_NODE), labels=labels, taints=taints)
        if who != "plain":
            ours = Dispatcher(place, POLL_SECONDS=None, DEMAND="one", **settings)
            await (await stack.enter_async_context(ours)).ready()
        if who == "beside":
            await (await place.database.session("team_b")).execute(INSERT_NOWHERE)
            await asyncio.sleep(20)  # their Pods have asked
        make = make_plain(place) if who == "plain" else insert(place)
        seconds = await Started(place).until(PLACES, make)
        for node in nodes:
            await servers.plane.remove_node(node)
        print(f"{what}, {who}: {seconds:.1f} s", file=sys.stderr, flush=True)
        return seconds


async def main() -> int:
    figures, context = list[Figure](), dict[str, float]()
    async with launched() as servers:
        for what in ("RuntimeClass", "devices"):
            found = {who: await turn(servers, what, who) for who in ("plain", "rows", "beside")}
            figures.append(Figure(f"{what}: rows / plain", found["rows"] / found["plain"], MOST))
            figures.append(Figure(f"{what}, beside others: rows / plain", found["beside"] / found["plain"], MOST))
            context |= {f"{what}, {who}, seconds": seconds for who, seconds in found.items()}
        versions = await servers.versions()
    return tell("unseen_places", figures, context, versions)


if __name__ == "__main__":
    run(main)
