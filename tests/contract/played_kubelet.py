"""A kubelet played by the test: the test makes the nodes, and writes the status of the Pods on them.

It uses only the API, so it works with every API server. Every node has a name, a label and a taint of its own. Only
Pods made here ask for the label and tolerate the taint, so tests that run at the same time do not meet. At its end
`playing` deletes the test's Pods at once and removes the nodes, as no kubelet is there to end anything.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

from tests.contract.played_kubelet_objects import (
    ended,
    is_bound,
    is_unschedulable,
    job_body,
    merged,
    node_status,
    now,
    pod_status,
    running,
    says,
    taints,
)
from tests.controlplane.api import UNREACHABLE, Json, KubeFault
from tests.controlplane.cluster import ControlPlane

# The heartbeats of nodes that a test plays. A node without them is tainted as unreachable after 50 seconds.

HEARTBEAT_SECONDS = 10


@asynccontextmanager
async def heartbeats(plane: ControlPlane, nodes: Sequence[str]) -> AsyncIterator[None]:
    """Renews the heartbeats of these nodes as a kubelet does, while the context lasts."""
    over = asyncio.Event()

    async def renew() -> None:
        while not over.is_set():
            for name in nodes:
                await beat(plane, name)
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), HEARTBEAT_SECONDS)

    task = asyncio.create_task(renew())
    try:
        yield
    finally:
        over.set()
        await task


async def beat(plane: ControlPlane, name: str) -> None:
    """Reports the same conditions at the current time. After a conflict the next report does it."""
    path = f"/api/v1/nodes/{name}"
    try:
        node = await plane.admin("GET", path)
        for condition in node["status"]["conditions"]:
            condition["lastHeartbeatTime"] = now()
        await plane.admin("PUT", f"{path}/status", node)
    except UNREACHABLE:
        return
    except KubeFault as fault:
        if fault.status not in {404, 409}:
            raise


OWN = "kubelet.test.internal/own"
SIZE = {"cpu": "4", "memory": "8Gi", "pods": "20"}


class PlayedKubelet:
    """The nodes, Jobs and Pods of one test."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane = plane
        self.core = f"/api/v1/namespaces/{namespace}"
        self.jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self.own = secrets.token_hex(4)
        self.taint = {"key": OWN, "value": self.own, "effect": "NoSchedule"}
        self.nodes: list[str] = []

    # Nodes

    async def join(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        tainted: Sequence[Json] = (),
        size: Mapping[str, str] | None = None,
        ready: bool = True,
    ) -> str:
        """Makes a new node. Returns its name, for a ready node once it takes Pods."""
        name = f"played-{self.own}-{len(self.nodes)}"
        meta = {"name": name, "labels": {OWN: self.own, "kubernetes.io/hostname": name, **(labels or {})}}
        self.nodes.append(name)
        whole = SIZE | dict(size or {})
        # A kubelet reports a new node as not ready first. A node without a report would lose the taint.
        body = {"metadata": meta, "spec": {"taints": [self.taint, *tainted]}, "status": node_status("False", whole)}
        await self.plane.admin("POST", "/api/v1/nodes", body)
        if ready:
            await self.tell_node(name, "True", whole)
            await self.until_node(name, lambda node: taints(node) == [], f"{name} takes Pods")
        return name

    async def tell_node(self, name: str, ready: str = "True", size: Mapping[str, str] | None = None) -> None:
        """Writes the kubelet's report on its node: whether it is ready, and its size."""
        await self._put_status(f"/api/v1/nodes/{name}", node_status(ready, dict(size) if size else None))

    async def change_node(self, name: str, patch: Json) -> None:
        await self.plane.admin("PATCH", f"/api/v1/nodes/{name}", patch)

    async def until_node(self, name: str, is_so: Callable[[Json], bool], what: str) -> Json:
        return await self._until(f"/api/v1/nodes/{name}", is_so, what)

    # Jobs

    async def submit(self, name: str = "job", spec: Json | None = None, pod: Json | None = None) -> Json:
        """Makes a Job as the dispatcher makes it."""
        body = job_body(name, self.pod_spec() | (pod or {}), spec or {})
        return await self.plane.admin("POST", self.jobs, body, params={"fieldValidation": "Strict"})

    async def job(self, name: str = "job") -> Json:
        return await self.plane.admin("GET", f"{self.jobs}/{name}")

    async def until_job(self, is_so: Callable[[Json], bool], what: str, name: str = "job") -> Json:
        return await self._until(f"{self.jobs}/{name}", is_so, what)

    async def until_said(self, condition: str, name: str = "job") -> Json:
        """The Job, once that condition is True."""
        return await self.until_job(lambda job: says(job, condition), f"{name} is {condition}", name)

    async def delete_job(self, policy: str, name: str = "job") -> None:
        await self.plane.admin("DELETE", f"{self.jobs}/{name}", {"propagationPolicy": policy})

    async def turn(self, name: str = "clock") -> None:
        """Waits until the Job controller has seen another Job from its create to its end: it had time for the rest."""
        await self.submit(name, pod={"nodeName": "nowhere-of-this-test"})
        await self.succeed(await self.pod_of(name))
        await self.until_said("Complete", name)

    async def until_job_gone(self, name: str = "job") -> None:
        await self._until_gone(f"{self.jobs}/{name}")

    async def pods_of(self, job: str = "job") -> list[Json]:
        labels = {"labelSelector": f"batch.kubernetes.io/job-name={job}"}
        found: list[Json] = (await self.plane.admin("GET", f"{self.core}/pods", params=labels))["items"]
        return found

    async def pod_of(self, job: str = "job", *, bound: bool = True) -> str:
        """The name of the Job's Pod, once the Pod exists and, if `bound`, is on a node."""

        async def look() -> list[Json]:
            return [pod for pod in await self.pods_of(job) if is_bound(pod) or not bound]

        return str((await self.plane.wait_for(look, f"a Pod of {job}"))[0]["metadata"]["name"])

    # Pods

    def pod_spec(self, requests: Mapping[str, str] | None = None) -> Json:
        """A Pod spec that fits only the nodes made here."""
        amounts = {"resources": {"requests": requests, "limits": requests}} if requests else {}
        container = {"name": "task", "image": "localhost/x:1", **amounts}
        return {
            "restartPolicy": "Never",
            "nodeSelector": {OWN: self.own},
            "tolerations": [{"key": OWN, "operator": "Equal", "value": self.own, "effect": "NoSchedule"}],
            "containers": [container],
        }

    async def make_pod(self, name: str, requests: Mapping[str, str] | None = None, spec: Json | None = None) -> Json:
        body = {"metadata": {"name": name}, "spec": self.pod_spec(requests) | (spec or {})}
        return await self.plane.admin("POST", f"{self.core}/pods", body)

    async def pod(self, name: str) -> Json:
        return await self.plane.admin("GET", f"{self.core}/pods/{name}")

    async def until_pod(self, name: str, is_so: Callable[[Json], bool], what: str) -> Json:
        return await self._until(f"{self.core}/pods/{name}", is_so, what)

    async def placed(self, name: str) -> str:
        """The node that the scheduler chose for the Pod."""
        return str((await self.until_pod(name, is_bound, f"{name} is placed"))["spec"]["nodeName"])

    async def held(self, name: str) -> Json:
        """The Pod, once the scheduler found no node for it."""
        return await self.until_pod(name, is_unschedulable, f"{name} is unschedulable")

    async def refused(self, name: str, requests: Mapping[str, str] | None = None, spec: Json | None = None) -> None:
        """Makes such a Pod again until it is held: the scheduler may learn of a node later than of a newer Pod."""

        async def is_held() -> bool:
            await self.make_pod(name, requests, spec)
            pod = await self.until_pod(name, lambda seen: is_bound(seen) or is_unschedulable(seen), f"{name} is judged")
            if not is_bound(pod):
                return True
            await self.reap(name)
            return False

        await self.plane.wait_for(is_held, f"{name} is held")

    async def delete_pod(self, name: str) -> None:
        """Asks for the end of the Pod. On a node its kubelet does the rest."""
        await self.plane.admin("DELETE", f"{self.core}/pods/{name}")

    async def until_pod_gone(self, name: str) -> None:
        await self._until_gone(f"{self.core}/pods/{name}")

    # The kubelet's reports on a Pod

    async def run(self, name: str) -> None:
        await self.tell_pod(name, pod_status("Running", running()))

    async def succeed(self, name: str) -> None:
        await self.tell_pod(name, pod_status("Succeeded", ended(0)))

    async def fail(self, name: str, exit_code: int = 1) -> None:
        await self.tell_pod(name, pod_status("Failed", ended(exit_code)))

    async def tell_pod(self, name: str, status: Json) -> None:
        await self._put_status(f"{self.core}/pods/{name}", status)

    async def reap(self, name: str) -> None:
        """The kubelet's last step for a Pod that was to end: removes the object. A Pod that is gone already is no
        fault.
        """
        await self.plane.remove(f"{self.core}/pods/{name}", {"gracePeriodSeconds": 0})

    # Events

    async def until_event(self, name: str, reason: str) -> Json:
        async def look() -> list[Json]:
            found = (await self.plane.admin("GET", f"{self.core}/events"))["items"]
            return [event for event in found if (event["involvedObject"]["name"], event["reason"]) == (name, reason)]

        return (await self.plane.wait_for(look, f"an Event {reason} about {name}"))[0]

    # Parts of the methods above

    async def _until(self, path: str, is_so: Callable[[Json], bool], what: str) -> Json:
        last: Json = {}

        async def look() -> bool:
            nonlocal last
            last = await self.plane.admin("GET", path)
            return is_so(last)

        try:
            await self.plane.wait_for(look, what)
        except TimeoutError as late:
            late.add_note(f"last seen: {last.get('metadata')} {last.get('status')}")
            raise
        return last

    async def _until_gone(self, path: str) -> None:
        async def is_so() -> bool:
            return not await self.plane.exists(path)

        await self.plane.wait_for(is_so, f"{path} is gone")

    async def _put_status(self, path: str, said: Json) -> None:
        """Puts the status, and tries again after a conflict."""

        async def put() -> bool:
            found = await self.plane.admin("GET", path)
            try:
                status = merged(found.get("status", {}), said)
                await self.plane.admin("PUT", f"{path}/status", found | {"status": status})
            except KubeFault as fault:
                if fault.status != 409:
                    raise
                return False
            return True

        await self.plane.wait_for(put, f"the status of {path} is put")


@asynccontextmanager
async def playing(plane: ControlPlane, namespace: str) -> AsyncIterator[PlayedKubelet]:
    kubelet = PlayedKubelet(plane, namespace)
    try:
        yield kubelet
    finally:
        for pod in (await plane.admin("GET", f"{kubelet.core}/pods"))["items"]:
            await kubelet.reap(pod["metadata"]["name"])
        for name in kubelet.nodes:
            await plane.remove(f"/api/v1/nodes/{name}")


@asynccontextmanager
async def playing_alone(plane: ControlPlane) -> AsyncIterator[PlayedKubelet]:
    """Like `playing`, with one node and a namespace of its own: for tests that share both and tell their Jobs apart by
    name. The node sends heartbeats, because many tests may take longer than a node lives without them.
    """
    namespace = await plane.create_namespace()
    try:
        async with playing(plane, namespace) as kubelet:
            await kubelet.join()
            async with heartbeats(plane, kubelet.nodes):
                yield kubelet
    finally:
        await plane.empty_namespace(namespace)


@asynccontextmanager
async def following(plane: ControlPlane, path: str) -> AsyncIterator[list[Json]]:
    """Every version of the objects at `path` that a watch shows while this is open, each once."""
    seen: set[str] = set()
    told: list[Json] = []
    listed = asyncio.Event()

    async def follow() -> None:
        async for change in plane.api.follow(path):
            fresh = [one for one in change.objects if one["metadata"]["resourceVersion"] not in seen]
            seen.update(one["metadata"]["resourceVersion"] for one in fresh)
            told.extend(fresh if change.type != "DELETED" else [])
            listed.set()

    task = asyncio.create_task(follow())
    try:
        await plane.wait_for(listed.is_set, f"a first list of {path}")
        yield told
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
