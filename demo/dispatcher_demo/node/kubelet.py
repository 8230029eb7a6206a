"""A kubelet whose containers are processes of this machine. It is a plain client of the Kubernetes API.

In each round the kubelet looks at the Pods bound to its node and at the folders of its containers, decides
(`plan_step`) and acts. Its whole state is in these folders and in the API server, so it may be killed at any moment and
continues after a restart. Its containers survive that: each has a shim of its own.

Not supported: images, namespaces, network, limits, probes, `kubectl exec`, and on a real cluster `kubectl logs`; the
embedded one reads the files of the containers. `containers.why_refused` says which Pods are refused.

`plan_step`: decides from the Pod and the states of its containers alone.

`LocalPods`: the Pods of one node in the API server: what the kubelet reads there, and what it writes.
"""

import asyncio
import base64
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
import structlog
from msgspec import Struct

from dispatcher.kube.client import KubeClient
from dispatcher.kube.reflector import Reflector, Resource
from dispatcher.kube.wire import full_name
from dispatcher.model.errors import ClusterError
from dispatcher.model.stored_json import Json
from dispatcher.runtime.clock import elapsed
from dispatcher_demo.node.containers import (
    CreateContainerConfigFault,
    Source,
    build_order,
    make_volumes,
    references,
    sources_of,
    why_refused,
    why_too_big,
)
from dispatcher_demo.node.node import LocalNode, Sandbox, reap
from dispatcher_demo.node.statuses import (
    DEADLINE,
    TERMINAL,
    ContainerReasons,
    ProcessState,
    build_refusal,
    build_status,
    build_unstarted,
)

GRACE_SECONDS = 30


class PodRound(Struct, frozen=True):
    """Acts of one round, in their order.

    start: start the containers that do not run yet.
    end_as: send SIGTERM; the text is the reason of the Pod's end. None: no SIGTERM.
    kill: kill the containers.
    status: the status to write, or None.
    delete: delete the Pod from the API server.
    """

    start: bool = False
    end_as: str | None = None
    kill: bool = False
    status: Json | None = None
    delete: bool = False


def plan_step(pod: Json, seen: Mapping[str, ProcessState | None], ending: Json, now: float) -> PodRound:
    """The next acts. `ending`: when SIGTERM was sent (`at`, seconds since 1970) and why (`reason`), or empty."""
    is_deleting = "deletionTimestamp" in pod["metadata"]
    known = [one for one in seen.values() if one is not None]
    is_whole = len(known) == len(seen)
    is_over = (is_whole or is_deleting) and all(one.is_over for one in known)
    if pod.get("status", {}).get("phase") in TERMINAL and all(one.is_over for one in known):
        return PodRound(delete=is_deleting)
    if not known and (is_deleting or is_late(pod, now)):
        refusal = build_unstarted(pod, now) if is_deleting else build_refusal(pod, *DEADLINE, now)
        return PodRound(status=refusal, delete=is_deleting)
    if not is_whole and not is_deleting:
        return PodRound(start=True)
    reasons = ContainerReasons(ended=DEADLINE if ending.get("reason") == DEADLINE[0] else ("", ""))
    status = build_status(pod, seen, reasons, now)
    changed = None if status == pod.get("status") else status
    if is_over:
        return PodRound(status=changed, delete=is_deleting)
    if is_deleting or ending or is_late(pod, now):
        reason = DEADLINE[0] if is_late(pod, now) and not is_deleting else ""
        return PodRound(
            end_as=None if ending else reason,
            kill=bool(ending) and now >= ending["at"] + grace(pod),
            status=changed,
        )
    return PodRound(status=changed)


def is_late(pod: Json, now: float) -> bool:
    """Whether the Pod has reached its activeDeadlineSeconds."""
    limit, began = pod["spec"].get("activeDeadlineSeconds"), pod.get("status", {}).get("startTime")
    return limit is not None and began is not None and now >= datetime.fromisoformat(began).timestamp() + limit


def grace(pod: Json) -> float:
    """Seconds between SIGTERM and SIGKILL: of the delete, else of the Pod."""
    of_pod = pod["spec"].get("terminationGracePeriodSeconds", GRACE_SECONDS)
    return float(pod["metadata"].get("deletionGracePeriodSeconds", of_pod))


class LocalPod(Struct, frozen=True):
    """A Pod as the watch shows it. `whole`: the object as JSON."""

    name: str
    uid: str
    version: int
    whole: Json


def read_pod(raw: msgspec.Raw | bytes) -> LocalPod:
    whole: Json = msgspec.json.decode(raw)
    meta = whole["metadata"]
    return LocalPod(f"{meta['namespace']}/{meta['name']}", meta["uid"], int(meta["resourceVersion"]), whole)


class LocalPods:
    """The Pods bound to the node. `wake` is called at each change."""

    def __init__(self, client: KubeClient, node: str, wake: Callable[[], None]) -> None:
        self._client = client
        bound = Resource("pods", "/api/v1/pods", read_pod, fields=f"spec.nodeName={node}", key=full_name)
        self._watched = Reflector[LocalPod](client, bound)
        self._watched.on_list(wake)
        self._watched.store.on_each(lambda _before, _after: wake())
        self._newest: dict[str, LocalPod] = {}

    async def run(self) -> None:
        """Follows the Pods until it is cancelled."""
        await self._watched.run()

    @property
    def is_synced(self) -> bool:
        return self._watched.store.is_synced

    def uids(self) -> set[str]:
        """The uids of all Pods that exist, as the watch shows them."""
        return {pod.uid for pod in self._watched.store.view().values()}

    def now(self) -> list[LocalPod]:
        """The Pods of the watch, or of our own newer writes."""
        shown = {pod.uid: pod for pod in self._watched.store.view().values()}
        self._newest = {
            uid: pod for uid, pod in self._newest.items() if uid in shown and pod.version > shown[uid].version
        }
        return list((shown | self._newest).values())

    async def write_status(self, pod: LocalPod, status: Json) -> bool:
        """Writes a status. False: another client changed or deleted the Pod, and nothing was written."""
        whole = {**pod.whole, "apiVersion": "v1", "kind": "Pod", "status": status}
        reply = await self._client.request("PUT", f"{path_of(pod)}/status", msgspec.json.encode(whole))
        if reply.status in {404, 409}:
            return False
        self._newest[pod.uid] = read_pod(reply.expect(f"status of Pod {pod.name}"))
        return True

    async def delete(self, pod: LocalPod) -> None:
        """Deletes the Pod without a grace period, because nothing of it is left on the node."""
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
        reply = await self._client.request("DELETE", path_of(pod), msgspec.json.encode(options))
        if reply.status not in {404, 409}:
            reply.expect(f"delete Pod {pod.name}")

    async def sources(self, pod: LocalPod) -> dict[Source, dict[str, str]]:
        """The ConfigMaps and Secrets that containers and volumes name, decoded. Missing ones are left out."""
        namespace, found = pod.whole["metadata"]["namespace"], dict[Source, dict[str, str]]()
        named = {source for container in pod.whole["spec"]["containers"] for source in references(container)}
        for volume in pod.whole["spec"].get("volumes", ()):
            named |= {source for source, _ in sources_of(volume)}
        for kind, name in named:
            reply = await self._client.request("GET", f"/api/v1/namespaces/{namespace}/{kind.lower()}s/{name}")
            if reply.status != 404:
                held = msgspec.json.decode(reply.expect(f"read {kind} {name}")).get("data") or {}
                found[kind, name] = {k: read_secret(v) if kind == "Secret" else v for k, v in held.items()}
        return found


def read_secret(value: str) -> str:
    """The decoded value. Bytes that are not UTF-8 reach environment and files unchanged."""
    return base64.b64decode(value).decode(errors="surrogateescape")


def path_of(pod: LocalPod) -> str:
    namespace, name = pod.name.split("/")
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


log = structlog.get_logger(component="demo.kubelet")

EVERY_SECONDS: Final = 0.1
"""Seconds between two looks at the containers. The real kubelet takes a second."""
NODE_SECONDS: Final = 3
"""Seconds between two writes of the node's readiness and lease."""
FAULT_SECONDS: Final = 1
"""Seconds before a Pod is looked at again after a fault."""
CONFLICT_SECONDS: Final = 0.2
"""The same after a conflict with another client."""
CONFIG_SECONDS: Final = 3
"""Seconds before a missing ConfigMap or Secret is looked for again."""
ACTS_AT_ONCE: Final = 16
"""Pods that are worked on at the same time, at most."""


class Kubelet:
    """One node. `folder`: its disk and state. A hostPath is a folder below it, never a path of the machine."""

    def __init__(
        self, client: KubeClient, node: LocalNode, name: str, folder: Path, clock: Callable[[], float] = time.time
    ) -> None:
        self._node = node
        self._folder = folder
        self._clock = clock
        self._wake = asyncio.Event()
        self._pods = LocalPods(client, name, self._wake.set)
        self._deleted: set[str] = set()
        self._busy: set[str] = set()
        self._again_at: dict[str, float] = {}
        self._slots = asyncio.Semaphore(ACTS_AT_ONCE)

    async def run(self) -> None:
        """Runs until cancellation. The containers go on."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._node.run(NODE_SECONDS))
            group.create_task(self._pods.run())
            group.create_task(self._sync(group))

    async def _sync(self, group: asyncio.TaskGroup) -> None:
        """Handles each Pod in a task of its own: a slow answer for one Pod delays no other."""
        while True:
            if self._pods.is_synced:
                for pod in self._pods.now():
                    if pod.uid not in self._busy and self._again_at.get(pod.uid, 0) <= elapsed():
                        self._busy.add(pod.uid)
                        group.create_task(self._sync_pod(pod))
                for uid in self._gone():
                    self._busy.add(uid)
                    group.create_task(self._clear_away(uid))
                reap()
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY_SECONDS):
                    await self._wake.wait()

    async def _sync_pod(self, pod: LocalPod) -> None:
        async with self._slots:
            try:
                await self._act(pod)
            except ClusterError as fault:
                log.warning("a Pod has to wait", pod=pod.name, fault=str(fault))
                self._put_off(pod, FAULT_SECONDS)
            except Exception:  # one Pod's fault must not stop the others
                log.exception("a Pod cannot be looked after", pod=pod.name)
                self._put_off(pod, FAULT_SECONDS)
            finally:
                self._busy.discard(pod.uid)

    def _put_off(self, pod: LocalPod, seconds: float) -> None:
        self._again_at[pod.uid] = elapsed() + seconds

    async def _act(self, pod: LocalPod) -> None:
        sandbox, meta = self._sandbox(pod.uid), pod.whole["metadata"]
        if pod.whole["status"].get("phase") in TERMINAL and "deletionTimestamp" not in meta:
            return
        containers = [sandbox.container(container["name"]) for container in pod.whole["spec"]["containers"]]
        seen = {container.name: container.look() for container in containers}
        step = plan_step(pod.whole, seen, sandbox.recall("ending"), self._clock())
        if step.start:
            await self._start(pod, sandbox)
        self._end(sandbox, step)
        for container in containers:
            state = seen[container.name]
            if state is not None and state.is_ordered and container.is_stranded(self._clock()):
                container.revive()
        is_written = step.status is None or await self._write_status(pod, step.status)
        if is_written and step.delete and pod.uid not in self._deleted:
            await self._pods.delete(pod)
            self._deleted.add(pod.uid)

    def _end(self, sandbox: Sandbox, step: PodRound) -> None:
        """Sends SIGTERM in each round until every shim can receive it. Only then does the grace period begin."""
        containers = sandbox.started()
        if step.end_as is not None and min([container.terminate() for container in containers]):
            sandbox.note("ending", {"at": self._clock(), "reason": step.end_as})
        if step.kill:
            for container in containers:
                container.kill()

    async def _start(self, pod: LocalPod, sandbox: Sandbox) -> None:
        if words := why_refused(pod.whole):
            await self._write_status(pod, build_refusal(pod.whole, "NotAProcess", words, self._clock()))
            return
        containers = pod.whole["spec"]["containers"]
        try:
            sources = await self._pods.sources(pod)
            places = make_volumes(pod.whole, self._folder / "disk", sandbox.folder / "volumes", sources)
            orders = {one["name"]: build_order(one, pod.whole, sources, places) for one in containers}
        except CreateContainerConfigFault as fault:
            reasons = ContainerReasons(waiting=("CreateContainerConfigError", str(fault)))
            seen = {one["name"]: sandbox.container(one["name"]).look() for one in containers}
            status = build_status(pod.whole, seen, reasons, self._clock())
            if status != pod.whole["status"]:
                await self._write_status(pod, status)
            self._put_off(pod, CONFIG_SECONDS)
            return
        # Checked last, with no `await` before the start: two Pods may have come together.
        others = [one.whole for one in self._pods.now() if one.uid != pod.uid and self._is_active(one)]
        reason, words = why_too_big(pod.whole, others, self._node.size)
        if words:
            await self._write_status(pod, build_refusal(pod.whole, reason, words, self._clock()))
            return
        for name in orders.keys() - {container.name for container in sandbox.started()}:
            sandbox.container(name).start(orders[name])

    async def _write_status(self, pod: LocalPod, status: Json) -> bool:
        """Writes a status. False: another client changed the Pod. A later round sees that, and writes again."""
        is_written = await self._pods.write_status(pod, status)
        if not is_written:
            self._put_off(pod, CONFLICT_SECONDS)
        return is_written

    def _sandbox(self, uid: str) -> Sandbox:
        return Sandbox(self._folder / "pods" / uid)

    def _is_active(self, pod: LocalPod) -> bool:
        """Whether the Pod uses resources of the node. A started Pod counts even before its status says so."""
        is_known = bool(pod.whole["status"].get("startTime")) or bool(self._sandbox(pod.uid).started())
        return is_known and pod.whole["status"].get("phase") not in TERMINAL

    def _gone(self) -> list[str]:
        """Uids of Pods that have a folder here, but no object in the API server any more."""
        known = self._pods.uids()
        self._deleted &= known
        self._again_at = {uid: at for uid, at in self._again_at.items() if uid in known}
        found = {folder.name for folder in (self._folder / "pods").glob("*")}
        return sorted(found - known - self._busy)

    async def _clear_away(self, uid: str) -> None:
        """Kills the containers of a Pod that is gone. Removes its folder once they have ended."""
        sandbox = self._sandbox(uid)
        alive = [container for container in sandbox.started() if container.is_alive()]
        for container in alive:
            container.kill()
        if not alive:
            await asyncio.to_thread(sandbox.remove)
        self._busy.discard(uid)
