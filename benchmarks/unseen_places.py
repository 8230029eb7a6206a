"""Promise: rows get idle nodes that our count does not see about as soon as plain Jobs do.

400 idle places, 400 rows or plain Jobs of the same Pod. The figure is the time until all of them have a node, as a
ratio to that of plain Jobs in the same run: at most 2, alone and beside ten shapes of another team that fit nowhere.

* `RuntimeClass`: the nodes have a taint, and only the admission of the RuntimeClass gives the Pods its toleration.
* `devices`: Pods ask for a device of a driver (DRA) by the name of a resource. No node has that resource.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import yaml
from msgspec import Struct

from benchmarks.figures import Figure, run, tell
from benchmarks.growing import POOL, Started, make_jobs
from benchmarks.servers import Servers, launched
from tests.controlplane.api import Json
from tests.rig.devices import devices
from tests.rig.dispatching import TASK, Dispatcher, Place

NODES, ON_A_NODE, NOWHERE = 100, 4, 10
PLACES = NODES * ON_A_NODE
MOST = 2
STEER = '{"play.dispatcher.internal/run-seconds": "3600"}'
INSERT = "INSERT INTO dispatch.tasks (template) SELECT 'unseen' FROM generate_series(1, $1)"
INSERT_NOWHERE = f"""
INSERT INTO dispatch.tasks (template, spec)
SELECT 'open', jsonb_build_object('cpu', (100 + n)::text) FROM generate_series(1, {NOWHERE}) AS n
"""


class Hidden(Struct, frozen=True):
    """What our count does not see of a place.

    pod: fields of the Pod of rows and of plain Jobs.
    asks: resources that it asks for besides cores.
    nodes: names of the nodes.
    """

    pod: Mapping[str, str] = {}
    asks: Mapping[str, str] = {}
    nodes: Sequence[str] = ()

    def template(self) -> Json:
        job: Json = yaml.safe_load(TASK.format(annotations="{}", steer=STEER))
        pod = job["spec"]["template"]["spec"]
        pod |= self.pod
        asks = {"cpu": "900m", "memory": "16Mi", **self.asks}
        pod["containers"][0]["resources"] = {"requests": asks, "limits": asks}
        return job


@asynccontextmanager
async def runtime_class(place: Place) -> AsyncIterator[Hidden]:
    """Its Pods tolerate the taint of its nodes, and ask for a little more than their containers."""
    name, path = place.namespace, "/apis/node.k8s.io/v1/runtimeclasses"
    scheduling = {"tolerations": [{"key": name, "operator": "Exists"}]}
    made = {"metadata": {"name": name}, "handler": "runc", "scheduling": scheduling,
            "overhead": {"podFixed": {"cpu": "10m"}}}  # fmt: skip
    await place.control_plane.admin("POST", path, made)
    try:
        yield Hidden({"runtimeClassName": name}, nodes=await add_nodes(place, {"key": name, "effect": "NoSchedule"}))
    finally:
        await place.control_plane.admin("DELETE", f"{path}/{name}")


@asynccontextmanager
async def devices_of_a_driver(place: Place) -> AsyncIterator[Hidden]:
    nodes = await add_nodes(place)
    async with devices(place, nodes, ON_A_NODE) as device:
        yield Hidden(asks={device: "1"}, nodes=nodes)


async def add_nodes(place: Place, *taints: Json) -> list[str]:
    labels = {POOL: place.namespace}
    return await place.control_plane.add_nodes(NODES, cpu=str(ON_A_NODE), labels=labels, taints=[*taints])


KINDS: Mapping[str, Callable[[Place], AbstractAsyncContextManager[Hidden]]] = {
    "RuntimeClass": runtime_class,
    "devices": devices_of_a_driver,
}


async def turn(servers: Servers, what: str, who: str) -> float:
    """Seconds until all Pods have a node. `who`: plain, rows, or rows beside shapes that fit nowhere."""
    place = await servers.place()
    async with KINDS[what](place) as hidden:
        seconds = await (of_plain(place, hidden) if who == "plain" else of_rows(place, hidden, who))
        for node in hidden.nodes:
            await servers.plane.remove_node(node)
    print(f"{what}, {who}: {seconds:.1f} s", file=sys.stderr, flush=True)
    return seconds


async def of_plain(place: Place, hidden: Hidden) -> float:
    job = hidden.template()
    pod = job["spec"]["template"]["spec"]
    pod |= {"restartPolicy": "Never", "nodeSelector": {POOL: place.namespace}}
    plain = {"metadata": {"generateName": "plain-"}, "spec": {"backoffLimit": 0, "template": job["spec"]["template"]}}
    return await Started(place).until(PLACES, make_jobs(place, plain, PLACES))


async def of_rows(place: Place, hidden: Hidden, who: str) -> float:
    (place.templates / "unseen.yaml").write_text(yaml.safe_dump(hidden.template()))
    place.template("open", row_may_set="cpu", max_cpu="1000")
    settings = {"NODE_SELECTOR": f"{POOL}={place.namespace}", "MAX_JOBS": PLACES + NOWHERE, "DEMAND": "one"}
    async with Dispatcher(place, POLL_SECONDS=None, **settings) as ours:
        await ours.ready()
        if who == "beside":
            await (await place.database.session("team_b")).execute(INSERT_NOWHERE)
            await asyncio.sleep(20)  # their Pods have asked
        return await Started(place).until(PLACES, insert(place))


async def insert(place: Place) -> None:
    await (await place.database.session("team_a")).execute(INSERT, PLACES)


async def main() -> int:
    figures, context = list[Figure](), dict[str, float]()
    async with launched() as servers:
        for what in KINDS:
            found = {who: await turn(servers, what, who) for who in ("plain", "rows", "beside")}
            figures.append(Figure(f"{what}: rows / plain", found["rows"] / found["plain"], MOST))
            figures.append(Figure(f"{what}, beside others: rows / plain", found["beside"] / found["plain"], MOST))
            context |= {f"{what}, {who}, seconds": seconds for who, seconds in found.items()}
        versions = await servers.versions()
    return tell("unseen_places", figures, context, versions)


if __name__ == "__main__":
    run(main)
