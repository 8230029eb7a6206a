"""Chooses the node for a Pod: the best of those where it fits.

Pure. Of kube-scheduler's plugins it has those that a template can use: resources, cordons, taints, node selector, node
affinity. The message for a Pod that fits nowhere is kube-scheduler's.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from dispatcher.local.cluster.conditions import ENDED
from dispatcher.model.amounts import Amounts, Written, added, amounts, asked_by, less
from dispatcher.model.needs import REFUSING, Taint, Toleration, is_met, tolerates

Json = dict[str, Any]
AFFINITY_WEIGHT: Final = 2
BEST: Final = 100


class Room(Struct, frozen=True):
    """A node, and the sum of the requests of its Pods (`used`)."""

    node: Json
    used: Amounts

    @property
    def name(self) -> str:
        return str(self.node["metadata"]["name"])

    @property
    def size(self) -> Amounts:
        return amounts(written(self.node["status"].get("allocatable") or {}))

    @property
    def free(self) -> Amounts:
        return less(self.size, self.used)


def rooms_of(nodes: Iterable[Json], pods: Iterable[Json]) -> dict[str, Room]:
    """Every node by name, with the requests of its Pods that have not ended."""
    used: dict[str, Amounts] = {}
    for pod in pods:
        if (name := pod["spec"].get("nodeName")) and pod["status"].get("phase") not in ENDED:
            used[name] = added(used.get(name, {}), asks(pod["spec"]))
    return {name: Room(node, used.get(name, {})) for node in nodes for name in [node["metadata"]["name"]]}


def with_pod(room: Room, spec: Json) -> Room:
    """The room once that Pod is on the node, too."""
    return Room(room.node, added(room.used, asks(spec)))


def asks(spec: Json) -> Amounts:
    containers = tuple(requests(one) for one in spec.get("containers") or ())
    first = tuple((requests(one), one.get("restartPolicy") == "Always") for one in spec.get("initContainers") or ())
    return asked_by((containers, first, written(spec.get("overhead") or {}), requests(spec)))


def requests(container: Json) -> Written:
    return written((container.get("resources") or {}).get("requests") or {})


def written(amounts: Mapping[str, object]) -> Written:
    return tuple((name, str(amount)) for name, amount in amounts.items())


def why_not(spec: Json, room: Room) -> list[str]:
    """Why the Pod does not fit on the node, in the words of kube-scheduler's plugins. Empty: it fits."""
    if room.node["spec"].get("unschedulable"):
        return ["node(s) were unschedulable"]
    if taint := untolerated(spec, room.node):
        return [f"node(s) had untolerated taint(s) {{{taint['key']}: {taint.get('value', '')}}}"]
    if not is_selected(spec, room.node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    free = room.free
    short = [name for name, amount in asks(spec).items() if amount and amount > free.get(name, 0)]
    return ["Too many pods" if name == "pods" else f"Insufficient {name}" for name in short]


def untolerated(spec: Json, node: Json) -> Json | None:
    tolerations = [toleration_of(one) for one in spec.get("tolerations") or ()]
    taints = [taint for taint in node["spec"].get("taints") or () if taint.get("effect") in REFUSING]
    return next((taint for taint in taints if not any(tolerates(one, taint_of(taint)) for one in tolerations)), None)


def toleration_of(one: Json) -> Toleration:
    return Toleration(one.get("key") or "", one.get("operator") or "", one.get("value") or "", one.get("effect") or "")


def taint_of(one: Json) -> Taint:
    return Taint(one["key"], one.get("value") or "", one["effect"])


def is_selected(spec: Json, node: Json) -> bool:
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    required = node_affinity(spec).get("requiredDuringSchedulingIgnoredDuringExecution")
    return not required or any(matches(term, node) for term in required["nodeSelectorTerms"])


def node_affinity(spec: Json) -> Json:
    found: Json = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return found


def matches(term: Json, node: Json) -> bool:
    labels, name = node["metadata"].get("labels") or {}, {"metadata.name": node["metadata"]["name"]}
    asked = [(labels, one) for one in term.get("matchExpressions") or ()]
    asked += [(name, one) for one in term.get("matchFields") or ()]
    return bool(asked) and all(
        is_met(one["operator"], where.get(one["key"]), tuple(one.get("values") or ())) for where, one in asked
    )


def score(spec: Json, room: Room, most: int) -> float:
    """Points as kube-scheduler's NodeAffinity and LeastAllocated give them. `most`: the highest preference of all."""
    free, size = with_pod(room, spec).free, room.size
    shares = [free[name] / size[name] for name in ("cpu", "memory") if size.get(name)]
    left = BEST * sum(shares) / len(shares) if shares else 0
    return left + AFFINITY_WEIGHT * BEST * preference(spec, room) / max(most, 1)


def preference(spec: Json, room: Room) -> int:
    preferred = node_affinity(spec).get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return sum(one["weight"] for one in preferred if matches(one["preference"], room.node))


def choose(spec: Json, rooms: Sequence[Room]) -> str:
    """The name of the best of nodes that fit."""
    most = max(preference(spec, room) for room in rooms)
    return max(rooms, key=lambda room: (score(spec, room, most), room.name)).name


def tell_unschedulable(reasons: Sequence[Sequence[str]]) -> str:
    """A text like `0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable.`"""
    counted = Counter(reason for node in reasons for reason in node)
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in counted.items()))
    return f"0/{len(reasons)} nodes are available: {listed}." if reasons else "no nodes available to schedule pods"
