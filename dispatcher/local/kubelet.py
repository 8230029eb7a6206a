"""A kubelet whose containers are processes of this machine. It is a plain client of the Kubernetes API.

In each round the kubelet looks at the Pods bound to its node and at the folders of its containers, decides (`syncing`)
and acts. Its whole state is in these folders and in the API server, so it may be killed at any moment and continues
after a restart. Its containers survive that: each has a shim of its own.

Not supported: images, namespaces, network, limits, probes, `kubectl logs` and `exec`. `containers.why_refused` says
which Pods are refused.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import structlog

from dispatcher.kube.client import KubeClient
from dispatcher.local.containers import build_order, why_refused, why_too_big
from dispatcher.local.environment import CreateContainerConfigFault
from dispatcher.local.node import LocalNode
from dispatcher.local.pods import LocalPod, LocalPods
from dispatcher.local.sandbox import Sandbox, reap
from dispatcher.local.statuses import TERMINAL, Reasons, build_refusal, build_status
from dispatcher.local.syncing import Step, plan_step
from dispatcher.local.volumes import make_volumes
from dispatcher.model.errors import ClusterError
from dispatcher.runtime.clock import elapsed

Json = dict[str, Any]
log = structlog.get_logger(component="local.kubelet")

EVERY_SECONDS: Final = 0.1
"""Pause between two looks at the containers. The real kubelet takes a second."""
NODE_SECONDS: Final = 3
FAULT_SECONDS: Final = 1
CONFLICT_SECONDS: Final = 0.2
CONFIG_SECONDS: Final = 3
"""Pause before an absent ConfigMap or Secret is looked for again."""
ACTS_AT_ONCE: Final = 16


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

    def _end(self, sandbox: Sandbox, step: Step) -> None:
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
            reasons = Reasons(waiting=("CreateContainerConfigError", str(fault)))
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
        """False: another client changed the Pod. A later round sees that change, and writes the status again."""
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
