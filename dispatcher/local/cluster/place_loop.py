"""The scheduler: gives waiting Pods their nodes, one after the other, as `placement` decides."""

from typing import Any, Final

from dispatcher.local.cluster.conditions import with_condition
from dispatcher.local.cluster.events import Events
from dispatcher.local.cluster.kinds import NODE, POD, Target
from dispatcher.local.cluster.placement import choose, rooms_of, tell_unschedulable, why_not, with_pod
from dispatcher.local.cluster.registry import Registry
from dispatcher.local.cluster.storage import Change

Json = dict[str, Any]
SCHEDULER: Final = "default-scheduler"


class PlaceLoop:
    """Places Pods after each change that a Pod without a node may wait for."""

    def __init__(self, registry: Registry, events: Events) -> None:
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
