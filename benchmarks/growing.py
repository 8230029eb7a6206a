"""Promise: in a cluster that grows, rows start about as soon as plain Jobs do.

A group of nodes begins at zero. A played autoscaler looks each 10 s; a node of 4 cores comes 40 s after it was ordered,
and has a startup taint for 5 s more. 500 rows, or plain Jobs, of one core each. The figure is the time until 90 % of
them have a node, as a ratio to that of plain Jobs in the same run.

* With announcements (Events on Pods): at most 1.5. Without: at most 2.5. With DEMAND=all: at most 1.1.
* A second burst, while the nodes are still there: at most 1.1. It begins when the Job controller is at rest.
* Nodes that came and never ran anything: at most 5 %.

The controllers write as often as upstream lets them (kubeadm, kind and k3s change nothing): the Job controller 20 times
a second, kube-scheduler 50 times. DEMAND=all is measured with quick controllers, too: the Pods of plain Jobs are then
all there within 2 s, and KUBE_WRITES_PER_SECOND (50, a hundred at once) lets 500 rows go out within 8 s. A turn with
more writes shows what the rate costs.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing
from types import MappingProxyType
from typing import Any

from benchmarks.figures import Figure, run, tell
from benchmarks.servers import launched
from tests.controlplane.api import Json
from tests.controlplane.autoscaler import Autoscaler, Group
from tests.controlplane.cluster import ControlPlane
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
SHARES = {
    "with announcements": 1.5, "without": 2.5, "DEMAND=all": 1.1,
    "quick controllers, DEMAND=all": 1.1, "the same, 1000 writes a second": 1.1,
}  # fmt: skip
MOST_IDLE = 0.05
SECOND = 1.1


Make = Callable[[Place], Coroutine[Any, Any, None]]


class Ordinary(ControlPlane):
    """Its controllers write as often as they do in most clusters, and no more: the flags are those of upstream."""

    flags = MappingProxyType(
        {
            "kube-controller-manager": ("--kube-api-qps=20", "--kube-api-burst=30", "--concurrent-job-syncs=5"),
            "kube-scheduler": ("--kube-api-qps=50", "--kube-api-burst=100"),
        }
    )


class Started:
    """Our Pods that have had a node, and the nodes that they had."""

    def __init__(self, place: Place) -> None:
        self.pods: set[str] = set()
        self.nodes: set[str] = set()
        self._path, self._jobs = f"/api/v1/namespaces/{place.namespace}/pods", jobs_path(place)
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

    async def all_ended(self) -> None:
        """Waits until all Pods of a burst have had a node, and the Job controller has ended all their Jobs."""

        async def are_over() -> bool:
            self._note((await self._plane.admin("GET", self._path))["items"])
            jobs = (await self._plane.admin("GET", self._jobs))["items"]
            return len(self.pods) >= ROWS and all("completionTime" in job["status"] for job in jobs)

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


async def insert(place: Place) -> None:
    await (await place.database.session("team_a")).execute(INSERT, ROWS)


async def turn(kind: type[ControlPlane], make: Make = insert, *, says: bool = True, **settings: object) -> Json:
    """Seconds of the first and of a second burst, and the part of the nodes that ran nothing.

    `kind`: of the control plane, which is a fresh one: its controllers owe nothing to an earlier turn.
    `says`: the autoscaler announces nodes. `settings`: of the dispatcher.
    """
    async with launched(kind, has_room=False) as servers, AsyncExitStack() as stack:
        place = await servers.place()
        place.template("open", row_may_set="env,cpu", max_cpu="1000", steer=STEER, report="exit-code")
        grown = Autoscaler(servers.plane, Group({POOL: place.namespace}, most=ROWS // 4, says=says))
        started = Started(place)
        if make is insert:
            selector = f"{POOL}={place.namespace}"
            ours = Dispatcher(place, NODE_SELECTOR=selector, MAX_JOBS=ROWS, POLL_SECONDS=None, **settings)
            await (await stack.enter_async_context(ours)).ready()
            await stack.enter_async_context(Janitor(place, PARK_SECONDS=600))
        await stack.enter_async_context(grown)  # it looks for the first time when the Pods come
        first = await started.until(ROWS * 9 // 10, make(place))
        await started.all_ended()
        second = await started.until(ROWS * 9 // 10, make(place))
        versions = await servers.versions()
    idle = 1 - len(started.nodes & grown.nodes.keys()) / len(grown.nodes)
    what = f"{first:.1f} s, {second:.1f} s, {len(grown.nodes)} nodes, {idle:.2f} idle, seen {grown.seen}"
    print(f"{settings} {what}", flush=True)
    return {"first": first, "second": second, "idle": idle, "versions": versions}


def figures_of(plain: Json, found: Mapping[str, Json]) -> Iterator[Figure]:
    for name, one in found.items():
        yield Figure(f"{name} / plain", one["first"] / plain["first"], SHARES[name])
        yield Figure(f"{name}, second / plain", one["second"] / plain["second"], SECOND)
        yield Figure(f"{name}: idle nodes", one["idle"], MOST_IDLE)


async def main() -> int:
    plain = await turn(Ordinary, make_plain)
    found = {
        "with announcements": await turn(Ordinary),
        "without": await turn(Ordinary, says=False),
        "DEMAND=all": await turn(Ordinary, DEMAND="all"),
    }
    quick_plain = await turn(ControlPlane, make_plain)
    quick_found = {
        "quick controllers, DEMAND=all": await turn(ControlPlane, DEMAND="all"),
        "the same, 1000 writes a second": await turn(ControlPlane, DEMAND="all", KUBE_WRITES_PER_SECOND=1000),
    }
    figures = [*figures_of(plain, found), *figures_of(quick_plain, quick_found)]
    every = {"plain": plain, "quick controllers, plain": quick_plain, **found, **quick_found}
    context = {f"{name}, {which}, seconds": one[which] for name, one in every.items() for which in ("first", "second")}
    return tell("growing", figures, context, plain["versions"])


if __name__ == "__main__":
    run(main)
