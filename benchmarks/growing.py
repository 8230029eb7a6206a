"""Promise: in a cluster that grows, rows start about as soon as plain Jobs do.

A group of nodes begins at zero. A played autoscaler looks each 10 s; a node of 4 cores comes 40 s after it was ordered,
and has a startup taint for 5 s more. 500 rows, or plain Jobs, of one core each. The figure is the time until 90 % of
them have a node, as a ratio to that of plain Jobs in the same run.

* With announcements (Events on Pods): at most 1.5. Without: at most 2.5. With DEMAND=all: at most 1.1.
* A second burst, while the nodes are still there: at most 1.1.
* Nodes that came and never ran anything: at most 5 %.

KUBE_WRITES_PER_SECOND (50, a hundred at once) lets 500 rows go out within 8 s. Plain Jobs are made within 2 s. So
DEMAND=all is measured with more writes, too: that shows what the rate costs. Copies of a Job of ours that a simple
client makes show what the size of our Jobs costs the servers.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import Any

from benchmarks.figures import Figure, run, tell
from benchmarks.servers import Servers, launched
from tests.controlplane.api import Json
from tests.controlplane.autoscaler import Autoscaler, Group
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.janitoring import Janitor

ROWS = 500
MOST_SECONDS = 600
POOL = "benchmarks.dispatcher.internal/pool"
STEER = {"run-seconds": "20"}
INSERT = """
INSERT INTO dispatch.tasks (template, spec) SELECT 'open', '{"cpu": "1"}' FROM generate_series(1, $1)
"""
SHARES = {"with announcements": 1.5, "without": 2.5, "DEMAND=all": 1.1, "DEMAND=all, 1000 writes a second": 1.1}
MOST_IDLE = 0.05
MADE_LABELS = ("controller-uid", "job-name")
"""The ends of the labels that the API server gives the Pods of a Job."""
SECOND = 1.1


Make = Callable[[Place], Coroutine[Any, Any, None]]


class Started:
    """Our Pods that have had a node, and the nodes that they had."""

    def __init__(self, place: Place) -> None:
        self.pods: set[str] = set()
        self.nodes: set[str] = set()
        self._path = f"/api/v1/namespaces/{place.namespace}/pods"
        self._plane = place.control_plane

    async def until(self, count: int, make: Coroutine[Any, Any, None]) -> float:
        """Makes Pods. Seconds until so many more have had a node."""
        clock, wanted = asyncio.get_running_loop().time, len(self.pods) + count
        began = clock()
        async with asyncio.timeout(MOST_SECONDS), asyncio.TaskGroup() as tasks:
            tasks.create_task(make)
            async with aclosing(self._plane.api.follow(self._path)) as changes:
                async for change in changes:
                    self._note(change.objects)
                    if len(self.pods) >= wanted:
                        break
        return clock() - began

    def _note(self, pods: Iterable[Json]) -> None:
        for pod in pods:
            if node := pod["spec"].get("nodeName"):
                self.pods.add(pod["metadata"]["uid"])
                self.nodes.add(node)

    async def all_ended(self, count: int) -> None:
        """Waits until so many Pods have had a node, and none of them runs."""

        async def are_over() -> bool:
            pods = (await self._plane.admin("GET", self._path))["items"]
            self._note(pods)
            return len(self.pods) >= count and all(pod["status"]["phase"] == "Succeeded" for pod in pods)

        await wait_for(are_over, "the burst is over", MOST_SECONDS)


def plain_job(place: Place) -> Json:
    steer = {f"play.dispatcher.internal/{key}": value for key, value in STEER.items()}
    container = {"name": "task", "image": "app:1", "resources": {"requests": {"cpu": "1", "memory": "16Mi"}}}
    pod = {"restartPolicy": "Never", "nodeSelector": {POOL: place.namespace}, "containers": [container]}
    template = {"metadata": {"annotations": steer}, "spec": pod}
    return {"metadata": {"generateName": "plain-"}, "spec": {"backoffLimit": 0, "template": template}}


def jobs_path(place: Place) -> str:
    return f"/apis/batch/v1/namespaces/{place.namespace}/jobs"


async def make_plain(place: Place) -> None:
    await make_jobs(place, plain_job(place), ROWS)


async def make_jobs(place: Place, job: Json, count: int) -> None:
    """Posts so many copies of a Job over 16 connections."""
    path, places = jobs_path(place), asyncio.Semaphore(16)

    async def make() -> None:
        async with places:
            await place.control_plane.admin("POST", path, job)

    await asyncio.gather(*(make() for _ in range(count)))


def copy_of(job: Json, place: Place) -> Json:
    """A Job of ours, as a client would make it here."""
    pod, meta = job["spec"]["template"], job["metadata"]
    own = {key: value for key, value in pod["metadata"]["labels"].items() if not key.endswith(MADE_LABELS)}
    copied = {
        "metadata": {"generateName": "copy-", "labels": meta["labels"], "annotations": meta["annotations"]},
        "spec": {key: value for key, value in job["spec"].items() if key != "selector"}
        | {"template": pod | {"metadata": {"labels": own, "annotations": pod["metadata"]["annotations"]}}},
    }
    found: Json = json.loads(json.dumps(copied).replace(meta["namespace"], place.namespace))
    return found


async def insert(place: Place) -> None:
    await (await place.database.session("team_a")).execute(INSERT, ROWS)


async def turn(servers: Servers, group: Group, make: Make, **settings: object) -> Json:
    """Seconds of the first and of a second burst, the part of the nodes that ran nothing, and one of the Jobs."""
    place = await servers.place()
    place.template("open", row_may_set="env,cpu", max_cpu="1000", steer=STEER, report="exit-code")
    grown = Autoscaler(servers.plane, replace(group, labels={POOL: place.namespace}))
    async with AsyncExitStack() as stack:
        started = Started(place)
        if make is insert:
            selector = f"{POOL}={place.namespace}"
            ours = Dispatcher(place, NODE_SELECTOR=selector, MAX_JOBS=ROWS, POLL_SECONDS=None, **settings)
            await (await stack.enter_async_context(ours)).ready()
            await stack.enter_async_context(Janitor(place, PARK_SECONDS=600))
        await stack.enter_async_context(grown)  # it looks for the first time when the Pods come
        first = await started.until(ROWS * 9 // 10, make(place))
        await started.all_ended(ROWS)
        second = await started.until(ROWS * 9 // 10, make(place))
        idle = 1 - len(started.nodes & grown.nodes.keys()) / len(grown.nodes)
        what = f"{first:.0f} s, {second:.0f} s, {len(grown.nodes)} nodes, {idle:.2f} idle, seen {grown.seen}"
        print(f"{settings} {what}", flush=True)
        job = (await servers.plane.admin("GET", jobs_path(place), params={"limit": "1"}))["items"][0]
        return {"first": first, "second": second, "idle": idle, "job": job}


async def main() -> int:
    group = Group({}, most=ROWS // 4)
    async with launched() as servers:
        plain = await turn(servers, group, make_plain)
        found = {
            "with announcements": await turn(servers, group, insert),
            "without": await turn(servers, replace(group, says=False), insert),
            "DEMAND=all": await turn(servers, group, insert, DEMAND="all"),
            "DEMAND=all, 1000 writes a second": await turn(
                servers, group, insert, DEMAND="all", KUBE_WRITES_PER_SECOND=1000
            ),
        }
        job = found["DEMAND=all"]["job"]
        copies = await turn(servers, group, lambda place: make_jobs(place, copy_of(job, place), ROWS))
        versions = await servers.versions()
    figures = [Figure(f"{name} / plain", one["first"] / plain["first"], SHARES[name]) for name, one in found.items()]
    figures += [
        Figure(f"{name}, second / plain", one["second"] / plain["second"], SECOND) for name, one in found.items()
    ]
    figures += [Figure(f"{name}: idle nodes", one["idle"], MOST_IDLE) for name, one in found.items()]
    every = {"plain": plain, "copies of our Jobs": copies, **found}
    context = {f"{name}, {which}, seconds": one[which] for name, one in every.items() for which in ("first", "second")}
    return tell("growing", figures, context, versions)


if __name__ == "__main__":
    run(main)
