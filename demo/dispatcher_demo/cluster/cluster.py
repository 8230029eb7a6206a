"""The whole cluster: `async with EmbeddedCluster() as cluster` serves it on loopback until the block ends.

`Garbage`: dependents of deleted objects, the content of namespaces, Pods that no kubelet will end.

`JobLoop`: finds the Jobs to look at, and carries out what `jobs.plan_step` decides about each.

`PlaceLoop`: gives waiting Pods their nodes, one after the other, as `jobs.choose` decides.

`Controllers`: each change calls the controllers at once. They note what to look at, and look at all of it in one round
a moment later. A round that raises is logged and repeated: nothing noted is lost.
"""

import asyncio
import math
import secrets
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Self

import structlog
import yaml
from aiohttp import web

from dispatcher.model.stored_json import Json
from dispatcher.runtime.health import Site
from dispatcher_demo.cluster.api import Api
from dispatcher_demo.cluster.jobs import (
    build_pod,
    choose,
    is_ended,
    plan_step,
    rooms_of,
    tell_unschedulable,
    why_not,
    with_pod,
)
from dispatcher_demo.cluster.kinds import (
    JOB,
    KINDS,
    NAMESPACE,
    NODE,
    POD,
    TRACKING,
    ApiFault,
    ObjectKind,
    Target,
    with_condition,
)
from dispatcher_demo.cluster.registry import FOREGROUND, ORPHAN, Change, EventLog, Key, Registry, Storage, StoredVersion

Place = tuple[ObjectKind, Key]


class Garbage:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._dependents: dict[str, set[Place]] = defaultdict(set)
        self._owners: dict[str, Place] = {}
        self._dirty: dict[Place, None] = {}
        self._orphaned: dict[str, None] = {}

    def hear(self, change: Change) -> None:
        place = (change.kind, change.key)
        if entry := change.after or change.before:
            meta = entry.object["metadata"]
            for owner in meta.get("ownerReferences") or ():
                self._note(owner["uid"], place, is_there=change.after is not None)
            if change.after is None:
                self._orphaned[meta["uid"]] = None
                self._look_at_namespace(change.key[0])
            elif "deletionTimestamp" in meta:
                self._owners[meta["uid"]] = place
                self._dirty[place] = None

    def run_once(self) -> None:
        while self._dirty or self._orphaned:
            orphaned, self._orphaned = self._orphaned, {}
            for uid in orphaned:
                self._owners.pop(uid, None)
                for kind, key in sorted(self._dependents.pop(uid, ()), key=lambda place: place[1]):
                    self._delete(kind, key)
            dirty, self._dirty = self._dirty, {}
            for kind, key in dirty:
                if (entry := self._registry.storage.get(kind, key)) is not None:
                    self._end(kind, key, entry)

    def _look_at_namespace(self, name: str) -> None:
        """Notes a namespace that is being deleted: its last object may be gone."""
        found = self._registry.storage.get(NAMESPACE, ("", name))
        if found is not None and "deletionTimestamp" in found.object["metadata"]:
            self._dirty[NAMESPACE, ("", name)] = None

    def collect_unplaced(self) -> None:
        """Fails Pods that were deleted before they had a node: no kubelet reports their end."""
        for key, entry in list(self._registry.storage.all(POD).items()):
            pod = entry.object
            if "deletionTimestamp" in pod["metadata"] and not pod["spec"].get("nodeName") and not is_ended(pod):
                self._write(POD, key, {"status": {"phase": "Failed"}}, "status")

    def _note(self, uid: str, place: Place, *, is_there: bool) -> None:
        if is_there:
            self._dependents[uid].add(place)
            return
        self._dependents[uid].discard(place)
        if uid in self._owners:
            self._dirty[self._owners[uid]] = None

    def _end(self, kind: ObjectKind, key: Key, entry: StoredVersion) -> None:
        """Takes one object under deletion a step further."""
        meta = entry.object["metadata"]
        if kind is NAMESPACE:
            self._empty(key)
        if FOREGROUND in (finalizers := meta.get("finalizers") or []):
            left = self._dependents[meta["uid"]]
            for place in sorted(left, key=lambda one: one[1]):
                self._delete(*place)
            if not self._dependents[meta["uid"]]:
                self._write(kind, key, {"metadata": {"finalizers": [one for one in finalizers if one != FOREGROUND]}})
        elif ORPHAN in finalizers:
            for place in self._dependents.pop(meta["uid"], set()):
                self._write(*place, {"metadata": {"ownerReferences": None}})
            self._write(kind, key, {"metadata": {"finalizers": [one for one in finalizers if one != ORPHAN]}})

    def _empty(self, key: Key) -> None:
        storage, is_empty = self._registry.storage, True
        for kind in KINDS:
            for place in [one for one in storage.all(kind) if kind.namespaced and one[0] == key[1]]:
                is_empty = False
                self._delete(kind, place)
        if is_empty:
            storage.drop(NAMESPACE, key)

    def _delete(self, kind: ObjectKind, key: Key) -> None:
        entry = self._registry.storage.get(kind, key)
        if entry is not None and "deletionTimestamp" not in entry.object["metadata"]:
            self._registry.delete(Target(kind, *key), {"propagationPolicy": "Background"})

    def _write(self, kind: ObjectKind, key: Key, patch: Json, part: str = "") -> None:
        try:
            self._registry.patch(Target(kind, *key, part), patch)
        except ApiFault as fault:
            if fault.code != 404:
                raise


log = structlog.get_logger(component="demo.cluster")
FAULT: Final = timedelta(seconds=1)
"""Pause before a Job that raised a fault is looked at again. Its namespace may be terminating, for example."""


class JobLoop:
    """Looks at a Job when the Job or one of its Pods has changed, and when its deadline is over."""

    def __init__(self, registry: Registry, events: EventLog, clock: Callable[[], datetime]) -> None:
        self._registry = registry
        self._events = events
        self._clock = clock
        self._dirty: dict[Key, None] = {}
        self._due: dict[Key, datetime] = {}
        self._lost: list[str] = []
        self._pods: dict[str, set[Key]] = defaultdict(set)
        """Keys of Pods, by the uid of their Job."""

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

    def _release_lost(self) -> None:
        """Releases Pods whose Job is gone: nothing counts them any more."""
        while self._lost:
            for namespace, name in sorted(self._pods.pop(self._lost.pop(), ())):
                self._release(Target(POD, namespace, name))

    def pause(self) -> float:
        """Seconds until the next deadline."""
        now = self._clock()
        return max(0.01, min(((at - now).total_seconds() for at in self._due.values()), default=math.inf))

    def run_once(self) -> None:
        now = self._clock()
        for key in [key for key, at in self._due.items() if at <= now]:
            self._dirty[key] = None
            del self._due[key]
        while self._dirty or self._lost:
            self._release_lost()
            for key in list(self._dirty):
                del self._dirty[key]
                try:
                    self._sync(key)
                except Exception:  # one Job's fault must not stop the others
                    log.exception("a Job cannot be looked after", job=key[1])
                    self._due[key] = now + FAULT

    def _sync(self, key: Key) -> None:
        entry = self._registry.storage.get(JOB, key)
        if entry is None:
            self._due.pop(key, None)
            return
        job, namespace = entry.object, key[0]
        found = [self._registry.storage.get(POD, pod) for pod in sorted(self._pods[job["metadata"]["uid"]])]
        step = plan_step(job, [pod.object for pod in found if pod is not None], self._clock())
        self._due.pop(key, None)
        if step.again_at:
            self._due[key] = step.again_at
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
        last = (status.get("conditions") or [{"type": ""}])[-1]
        if last["type"] == "Complete":
            self._events.tell(JOB, job, "Completed", "Job completed")
        elif last["type"] == "Failed":
            self._events.tell(JOB, job, last["reason"], last["message"], "Warning")

    def _release(self, target: Target) -> None:
        held = self._registry.get(target).object["metadata"].get("finalizers") or []
        self._registry.patch(target, {"metadata": {"finalizers": [one for one in held if one != TRACKING]}})


SCHEDULER: Final = "default-scheduler"


class PlaceLoop:
    """Places Pods after each change for which a Pod without a node may have waited."""

    def __init__(self, registry: Registry, events: EventLog) -> None:
        self._registry = registry
        self._events = events
        self._is_stale = True

    def hear(self, change: Change) -> None:
        self._is_stale = self._is_stale or change.kind in {POD, NODE}

    def run_once(self) -> None:
        """Places Pods in the order of their last change. Each Pod sees those before it on their nodes."""
        if self._is_stale:
            self._is_stale = False
            try:
                self._place_all()
            except BaseException:  # raised again: the next round looks at all waiting Pods
                self._is_stale = True
                raise

    def _place_all(self) -> None:
        storage = self._registry.storage
        pods = [entry.object for entry in storage.all(POD).values()]
        waiting = [pod for pod in pods if is_unplaced(pod)]
        if not waiting:
            return
        rooms = rooms_of([entry.object for entry in storage.all(NODE).values()], pods)
        for pod in sorted(waiting, key=lambda pod: int(pod["metadata"]["resourceVersion"])):
            refused = {name: why_not(pod["spec"], room) for name, room in rooms.items()}
            names = [name for name, why in refused.items() if not why]
            if names:
                name = choose(pod["spec"], [rooms[one] for one in names])
                self._bind(pod, name)
                rooms[name] = with_pod(rooms[name], pod["spec"])
            else:
                self._refuse(pod, tell_unschedulable(list(refused.values())))

    def _bind(self, pod: Json, node: str) -> None:
        meta = pod["metadata"]
        self._registry.bind(Target(POD, meta["namespace"], meta["name"]), node)
        self._events.tell(POD, pod, "Scheduled", f"Successfully assigned {meta['namespace']}/{meta['name']} to {node}")

    def _refuse(self, pod: Json, words: str) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words,
                     "lastTransitionTime": self._registry.now()}  # fmt: skip
        meta, conditions = pod["metadata"], pod["status"].get("conditions") or []
        changed = with_condition(conditions, condition)
        if changed != conditions:
            target = Target(POD, meta["namespace"], meta["name"], "status")
            self._registry.patch(target, {"status": {"conditions": changed}})
            self._events.tell(POD, pod, "FailedScheduling", words, "Warning")


def is_unplaced(pod: Json) -> bool:
    spec = pod["spec"]
    is_ours = spec["schedulerName"] == SCHEDULER and not spec.get("nodeName") and not spec.get("schedulingGates")
    return is_ours and "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] == "Pending"


FAULT_SECONDS: Final = 1
COLLECT_SECONDS: Final = 20
CONDITION_TAINTS: Final = {f"node.kubernetes.io/{what}" for what in ("not-ready", "unreachable", "unschedulable")}


class Controllers:
    """All controllers. `run` ends by cancellation."""

    def __init__(self, registry: Registry, clock: Callable[[], datetime]) -> None:
        self._registry = registry
        self._clock = clock
        events = EventLog(registry)
        self._garbage = Garbage(registry)
        self._jobs = JobLoop(registry, events, clock)
        self._places = PlaceLoop(registry, events)
        self._collect_at = clock()
        self._wake = asyncio.Event()
        registry.storage.listeners.append(self._hear)

    async def run(self) -> None:
        while True:
            self._wake.clear()
            try:
                self._jobs.run_once()
                self._garbage.run_once()
                self._collect_unplaced()
                self._keep_nodes()
                self._places.run_once()
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
        self._places.hear(change)
        self._wake.set()

    def _collect_unplaced(self) -> None:
        if self._clock() >= self._collect_at:
            self._garbage.collect_unplaced()
            self._collect_at = self._clock() + timedelta(seconds=COLLECT_SECONDS)

    def _keep_nodes(self) -> None:
        """Sets the taints of nodes: a node gets Pods only once it reports that it is ready."""
        for (_, name), entry in list(self._registry.storage.all(NODE).items()):
            taints = entry.object["spec"].get("taints") or []
            wanted = taints_of(entry.object)
            if wanted != taints:
                self._registry.patch(Target(NODE, "", name), {"spec": {"taints": wanted}})


def taints_of(node: Json) -> list[Json]:
    """The taints that others set, then those for the node's state: not ready, unreachable, cordoned."""
    conditions = node["status"].get("conditions") or ()
    ready = next((one["status"] for one in conditions if one["type"] == "Ready"), "False")
    keys = {"True": [], "Unknown": ["unreachable"]}.get(ready, ["not-ready"])
    keys += ["unschedulable"] if node["spec"].get("unschedulable") else []
    theirs = [taint for taint in node["spec"].get("taints") or [] if taint["key"] not in CONDITION_TAINTS]
    return [*theirs, *({"key": f"node.kubernetes.io/{key}", "effect": "NoSchedule"} for key in keys)]


NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")


def utc_now() -> datetime:
    return datetime.now(UTC)


class EmbeddedCluster:
    """API server and controllers, on a free port. `nodes`: the folder with the nodes' folders, if it is known."""

    def __init__(self, nodes: Path | None = None) -> None:
        self._nodes = nodes
        self.token = secrets.token_hex(16)
        self.registry = Registry(Storage(), utc_now)
        self.url = ""

    async def __aenter__(self) -> Self:
        for name in NAMESPACES:
            self.registry.create(Target(NAMESPACE), {"metadata": {"name": name}})
        self._controlling = asyncio.create_task(Controllers(self.registry, utc_now).run())
        app = Api(self.registry, self.token, self._nodes).app()
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await Site(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        self._controlling.cancel()
        with suppress(asyncio.CancelledError):
            await self._controlling

    def write_kubeconfig(self, path: Path, namespace: str = "default") -> Path:
        """Writes a kubeconfig, readable for this account alone: its token allows to run processes of this machine.

        The token is also in the server's address: kubectl sends no token of a user without TLS.
        """
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "embedded",
            "clusters": [{"name": "embedded", "cluster": {"server": f"{self.url}/{self.token}"}}],
            "users": [{"name": "embedded", "user": {"token": self.token}}],
            "contexts": [
                {"name": "embedded", "context": {"cluster": "embedded", "user": "embedded", "namespace": namespace}}
            ],
        }))  # fmt: skip
        return path
