"""The controllers: Jobs get Pods, Pods get nodes, nodes get taints, deleted objects are removed.

Each change calls the controllers at once. They note what to look at, and look at all of it in one round a moment later.
A round that raises is logged and repeated: nothing noted is lost.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from dispatcher.local.cluster.events import Events
from dispatcher.local.cluster.garbage import Garbage
from dispatcher.local.cluster.job_loop import JobLoop
from dispatcher.local.cluster.kinds import NODE, Target
from dispatcher.local.cluster.place_loop import PlaceLoop
from dispatcher.local.cluster.registry import Registry
from dispatcher.local.cluster.storage import Change

Json = dict[str, Any]
log = structlog.get_logger(component="local.cluster")
FAULT_SECONDS: Final = 1
COLLECT_SECONDS: Final = 20
CONDITION_TAINTS: Final = {f"node.kubernetes.io/{what}" for what in ("not-ready", "unreachable", "unschedulable")}


class Controllers:
    """All controllers. `run` ends by cancellation."""

    def __init__(self, registry: Registry, clock: Callable[[], datetime]) -> None:
        self._registry = registry
        self._clock = clock
        events = Events(registry)
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
