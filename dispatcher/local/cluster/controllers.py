"""The controllers at work: Jobs get their Pods, Pods their nodes, nodes their taints, and what is gone its end.

They hear of each change in the moment in which it is made, note what they have to look at, and look at it in one round
a moment later. A round that raises is told and repeated: what it had to look at is not forgotten.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from dispatcher.local.cluster.defaults import TRACKING
from dispatcher.local.cluster.events import Events
from dispatcher.local.cluster.extender import Extender, ExtenderFault
from dispatcher.local.cluster.faults import ApiFault
from dispatcher.local.cluster.garbage import Garbage
from dispatcher.local.cluster.jobs import build_pod, plan_step
from dispatcher.local.cluster.kinds import JOB, NODE, POD, Target
from dispatcher.local.cluster.placement import choose, rooms_of, tell_unschedulable, why_not, with_pod
from dispatcher.local.cluster.registry import Registry, with_condition
from dispatcher.local.cluster.storage import Change, Key

Json = dict[str, Any]
log = structlog.get_logger(component="local.cluster")
SCHEDULER: Final = "default-scheduler"
FAULT_SECONDS: Final = 1
COLLECT_SECONDS: Final = 20
OF_CONDITIONS: Final = {f"node.kubernetes.io/{what}" for what in ("not-ready", "unreachable", "unschedulable")}


class Controllers:
    """`run` until it is cancelled."""

    def __init__(self, registry: Registry, clock: Callable[[], datetime], extender: Extender | None = None) -> None:
        self._registry = registry
        self._clock = clock
        self._extender = extender
        self._events = Events(registry)
        self._garbage = Garbage(registry)
        self._jobs = JobLoop(registry, self._events, clock)
        self._collect_at = clock()
        self._wake = asyncio.Event()
        self._is_stale = True
        """Whether anything has changed that Pods without a node may have waited for."""
        registry.storage.listeners.append(self._hear)

    async def run(self) -> None:
        while True:
            self._wake.clear()
            try:
                self._jobs.run_once()
                self._garbage.run_once()
                self._collect_unplaced()
                self._keep_nodes()
                await self._schedule()
            except Exception:  # one bad object must not stop the cluster
                log.exception("a round of the controllers failed")
                await asyncio.sleep(FAULT_SECONDS)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(min(self._jobs.pause(), COLLECT_SECONDS)):
                    await self._wake.wait()

    def _hear(self, change: Change) -> None:
        self._garbage.hear(change)
        self._jobs.hear(change)
        self._is_stale = self._is_stale or change.kind in {POD, NODE}
        self._wake.set()

    def _collect_unplaced(self) -> None:
        if self._clock() >= self._collect_at:
            self._garbage.collect_unplaced()
            self._collect_at = self._clock() + timedelta(seconds=COLLECT_SECONDS)

    def _keep_nodes(self) -> None:
        """A node is taken when it says that it is ready, and not before."""
        for (_, name), entry in list(self._registry.storage.all(NODE).items()):
            taints = entry.object["spec"].get("taints") or []
            wanted = taints_of(entry.object)
            if wanted != taints:
                self._registry.patch(Target(NODE, "", name), {"spec": {"taints": wanted}})

    async def _schedule(self) -> None:
        """Pods in the order in which they came; each sees those before it on their nodes."""
        if not self._is_stale:
            return
        self._is_stale = False
        storage = self._registry.storage
        pods = [entry.object for entry in storage.all(POD).values()]
        waiting = [pod for pod in pods if is_unplaced(pod)]
        if not waiting:
            return
        rooms = rooms_of([entry.object for entry in storage.all(NODE).values()], pods)
        for pod in sorted(waiting, key=lambda pod: int(pod["metadata"]["resourceVersion"])):
            refused = {name: why_not(pod["spec"], room) for name, room in rooms.items()}
            names, words = (
                [name for name, why in refused.items() if not why],
                tell_unschedulable(list(refused.values())),
            )
            extra: dict[str, float] = {}
            if names and self._extender:
                names, extra, words = await ask(self._extender, pod, names, words)
            if names:
                name = choose(pod["spec"], [rooms[one] for one in names], extra)
                self._bind(pod, name)
                rooms[name] = with_pod(rooms[name], pod["spec"])
            else:
                self._refuse(pod, words)

    def _bind(self, pod: Json, node: str) -> None:
        meta = pod["metadata"]
        try:
            self._registry.bind(Target(POD, meta["namespace"], meta["name"]), node)
        except ApiFault as fault:  # it went while the extender was asked
            log.info("a Pod was not bound", pod=meta["name"], fault=str(fault))
            return
        self._events.tell(POD, pod, "Scheduled", f"Successfully assigned {meta['namespace']}/{meta['name']} to {node}")

    def _refuse(self, pod: Json, words: str) -> None:
        told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words,
                "lastTransitionTime": self._registry.now()}  # fmt: skip
        meta, conditions = pod["metadata"], pod["status"].get("conditions") or []
        changed = with_condition(conditions, told)
        if changed != conditions:
            target = Target(POD, meta["namespace"], meta["name"], "status")
            self._registry.patch(target, {"status": {"conditions": changed}})
            self._events.tell(POD, pod, "FailedScheduling", words, "Warning")


class JobLoop:
    """Jobs that changed, or whose Pods did, or whose deadline is over."""

    def __init__(self, registry: Registry, events: Events, clock: Callable[[], datetime]) -> None:
        self._registry = registry
        self._events = events
        self._clock = clock
        self._dirty: dict[Key, None] = {}
        self._due: dict[Key, datetime] = {}
        self._lost: list[str] = []
        self._pods: dict[str, set[Key]] = defaultdict(set)
        """By the uid of their Job."""

    def hear(self, change: Change) -> None:
        entry = change.after or change.before
        if change.kind is JOB:
            self._dirty[change.key] = None
            if change.after is None and change.before is not None:
                self._lost.append(change.before.object["metadata"]["uid"])
        elif change.kind is POD and entry is not None:
            for owner in entry.object["metadata"].get("ownerReferences") or ():
                if owner.get("controller") and owner["kind"] == "Job":
                    (self._pods[owner["uid"]].add if change.after else self._pods[owner["uid"]].discard)(change.key)
                    self._dirty[change.key[0], owner["name"]] = None

    def _let_go(self) -> None:
        """Pods whose Job is gone are nobody's to count."""
        while self._lost:
            for namespace, name in sorted(self._pods.pop(self._lost.pop(), ())):
                self._release(Target(POD, namespace, name))

    def pause(self) -> float:
        """Seconds until a deadline."""
        now = self._clock()
        return max(0.01, min(((at - now).total_seconds() for at in self._due.values()), default=math.inf))

    def run_once(self) -> None:
        now = self._clock()
        for key in [key for key, at in self._due.items() if at <= now]:
            self._dirty[key] = None
            del self._due[key]
        while self._dirty or self._lost:
            self._let_go()
            for key in list(self._dirty):
                self._sync(key)

    def _sync(self, key: Key) -> None:
        del self._dirty[key]
        entry = self._registry.storage.get(JOB, key)
        if entry is None:
            self._due.pop(key, None)
            return
        job, namespace = entry.object, key[0]
        found = [self._registry.storage.get(POD, pod) for pod in sorted(self._pods[job["metadata"]["uid"]])]
        step = plan_step(job, [pod.object for pod in found if pod is not None], self._clock())
        if step.again_at:
            self._due[key] = step.again_at
        else:
            self._due.pop(key, None)
        if step.status is not None:
            self._registry.update(Target(JOB, *key, "status"), {**job, "status": step.status})
            self._tell_end(job, step.status)
        if step.is_short:
            made = self._registry.create(Target(POD, namespace), build_pod(job))
            self._events.tell(JOB, job, "SuccessfulCreate", f"Created pod: {made.object['metadata']['name']}")
        for name in step.delete:
            self._registry.delete(Target(POD, namespace, name))
            self._events.tell(JOB, job, "SuccessfulDelete", f"Deleted pod: {name}")
        for name in step.release:
            self._release(Target(POD, namespace, name))

    def _tell_end(self, job: Json, status: Json) -> None:
        told = (status.get("conditions") or [{"type": ""}])[-1]
        if told["type"] == "Complete":
            self._events.tell(JOB, job, "Completed", "Job completed")
        elif told["type"] == "Failed":
            self._events.tell(JOB, job, told["reason"], told["message"], "Warning")

    def _release(self, target: Target) -> None:
        held = self._registry.get(target).object["metadata"].get("finalizers") or []
        self._registry.patch(target, {"metadata": {"finalizers": [one for one in held if one != TRACKING]}})


def taints_of(node: Json) -> list[Json]:
    """Somebody's own, and those that say what the node is: not ready, silent, cordoned."""
    conditions = node["status"].get("conditions") or ()
    ready = next((one["status"] for one in conditions if one["type"] == "Ready"), "False")
    keys = {"True": [], "Unknown": ["unreachable"]}.get(ready, ["not-ready"])
    keys += ["unschedulable"] if node["spec"].get("unschedulable") else []
    theirs = [taint for taint in node["spec"].get("taints") or [] if taint["key"] not in OF_CONDITIONS]
    return [*theirs, *({"key": f"node.kubernetes.io/{key}", "effect": "NoSchedule"} for key in keys)]


def is_unplaced(pod: Json) -> bool:
    spec = pod["spec"]
    is_ours = spec["schedulerName"] == SCHEDULER and not spec.get("nodeName") and not spec.get("schedulingGates")
    return is_ours and "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] == "Pending"


async def ask(
    extender: Extender, pod: Json, names: Sequence[str], words: str
) -> tuple[list[str], dict[str, float], str]:
    """The nodes that pass the extender, its points for them, and what is told if there are none."""
    try:
        passed = await extender.filter(pod, list(names))
    except ExtenderFault as fault:
        return [], {}, str(fault)
    left = passed.node_names or []
    refused = {**(passed.failed_nodes or {}), **(passed.failed_and_unresolvable_nodes or {})}
    if not left:
        return [], {}, tell_unschedulable([[why] for why in refused.values()]) if refused else words
    return left, await extender.prioritize(pod, left), words
