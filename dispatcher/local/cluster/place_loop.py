"""The scheduler: gives waiting Pods their nodes, one after the other, as `placement` and an extender decide."""

from collections.abc import Sequence
from typing import Any, Final

import structlog

from dispatcher.local.cluster.events import Events
from dispatcher.local.cluster.extender import Extender, ExtenderFault
from dispatcher.local.cluster.faults import ApiFault
from dispatcher.local.cluster.kinds import NODE, POD, Target
from dispatcher.local.cluster.placement import choose, rooms_of, tell_unschedulable, why_not, with_pod
from dispatcher.local.cluster.registry import Registry, with_condition
from dispatcher.local.cluster.storage import Change

Json = dict[str, Any]
log = structlog.get_logger(component="local.placing")
SCHEDULER: Final = "default-scheduler"


class PlaceLoop:
    """Places Pods after each change that a Pod without a node may wait for."""

    def __init__(self, registry: Registry, events: Events, extender: Extender | None) -> None:
        self._registry = registry
        self._events = events
        self._extender = extender
        self._is_stale = True

    def hear(self, change: Change) -> None:
        self._is_stale = self._is_stale or change.kind in {POD, NODE}

    async def run_once(self) -> None:
        """Places Pods in the order of their last change. Each Pod sees those before it on their nodes."""
        if self._is_stale:
            self._is_stale = False
            try:
                await self._place_all()
            except BaseException:  # raised again: the next round looks at all waiting Pods
                self._is_stale = True
                raise

    async def _place_all(self) -> None:
        storage = self._registry.storage
        pods = [entry.object for entry in storage.all(POD).values()]
        waiting = [pod for pod in pods if is_unplaced(pod)]
        if not waiting:
            return
        rooms = rooms_of([entry.object for entry in storage.all(NODE).values()], pods)
        for pod in sorted(waiting, key=lambda pod: int(pod["metadata"]["resourceVersion"])):
            refused = {name: why_not(pod["spec"], room) for name, room in rooms.items()}
            names = [name for name, why in refused.items() if not why]
            extra, words = dict[str, float](), tell_unschedulable(list(refused.values()))
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
        except ApiFault as fault:  # it was deleted while the extender was asked
            log.info("a Pod was not bound", pod=meta["name"], fault=str(fault))
            return
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


async def ask(
    extender: Extender, pod: Json, names: Sequence[str], words: str
) -> tuple[list[str], dict[str, float], str]:
    """The nodes that pass the extender, its points by node, and the message for the case that no node passes."""
    try:
        passed = await extender.filter(pod, list(names))
    except ExtenderFault as fault:
        return [], {}, str(fault)
    left = passed.node_names or []
    refused = {**(passed.failed_nodes or {}), **(passed.failed_and_unresolvable_nodes or {})}
    if not left:
        return [], {}, tell_unschedulable([[why] for why in refused.values()]) if refused else words
    return left, await extender.prioritize(pod, left), words
