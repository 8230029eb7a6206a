"""Free room of nodes: what they have, less what the Pods on them ask for; kept up with every change.

Only what is bound and has not ended counts, as for kube-scheduler; what it has chosen a node for and not bound yet is
not known here. Amounts in thousandths.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

from msgspec import Struct

from dispatcher.amounts import Amounts, added, less, without
from dispatcher.identity import LABEL_TASK_ID

LANDED: Final = "Landed"
JOB_NAMES: Final = ("batch.kubernetes.io/job-name", "job-name")


class NodeSize(Struct, frozen=True):
    """What a node has for Pods, and since when it exists: one of the same name may be another."""

    name: str
    created_at: datetime
    size: Amounts


class Bound(Struct, frozen=True, gc=False):
    """A Pod on a node; `name` with its namespace before a slash. `asks` is shared by all that ask alike; `keys`: what
    a reservation may call it.
    """

    name: str
    node: str
    asks: Amounts
    keys: tuple[str, ...] = ()


class Reservation(Struct, frozen=True, gc=False):
    """A NodeReservation: so much of a node is held for a Pod still to come. `name` with its namespace; `target`: one of
    the Pod's keys; `made_at` and `ends_at` in seconds of the API server's clock; `phase` and `message`: as its status
    says.
    """

    name: str
    uid: str
    node: str
    amounts: Amounts
    target: str
    ends_at: float
    made_at: float = 0
    phase: str = ""
    message: str = ""

    @property
    def has_landed(self) -> bool:
        """For good: of what a status says, this alone counts."""
        return self.phase == LANDED


class Room(Struct, frozen=True, gc=False):
    """What is free of a node; below 0 where more is asked than it has."""

    cpu: int
    memory: int
    created_at: datetime


class Rooms:
    """Hears of nodes and Pods, in any order; `of` has every node that is there."""

    def __init__(self) -> None:
        self.of: dict[str, Room] = {}
        self._nodes: dict[str, NodeSize] = {}
        self._asked: dict[str, Amounts] = defaultdict(dict)

    def hear_node(self, before: NodeSize | None, after: NodeSize | None) -> None:
        if after is not None:
            self._nodes[after.name] = after
            self._measure(after.name)
        elif before is not None:
            self._nodes.pop(before.name, None)
            self.of.pop(before.name, None)

    def hear_pod(self, before: Bound | None, after: Bound | None) -> None:
        if before is not None:
            self._asked[before.node] = without(self._asked[before.node], before.asks)
            self._measure(before.node)
        if after is not None:
            self._asked[after.node] = added(self._asked[after.node], after.asks)
            self._measure(after.node)

    def free_of(self, name: str) -> Amounts:
        """Of every resource that the node has; nothing of one that is not there."""
        node = self._nodes.get(name)
        return less(node.size, self._asked.get(name, {})) if node is not None else {}

    def compact(self) -> None:
        """Lays all names and rooms side by side in memory. After a list they lie among the Pods that they were told
        from, and to walk over 5,000 of them takes three times as long.
        """
        side_by_side = {
            name.encode().decode(): Room(room.cpu + 0, room.memory + 0, room.created_at)
            for name, room in self.of.items()
        }
        self.of.clear()
        self.of.update(side_by_side)

    def _measure(self, name: str) -> None:
        asked = self._asked[name]
        if not asked:
            del self._asked[name]
        if (node := self._nodes.get(name)) is not None:
            free = less({"cpu": 0, "memory": 0, **node.size}, asked)
            self.of[name] = Room(free["cpu"], free["memory"], node.created_at)


def key_of(kind: str, namespace: str, value: object) -> str:
    """What a reservation is for, and what a Pod answers to: `jobName builds/dispatcher-7-…`. `kind`: a field of the
    reservation's target.
    """
    return f"{kind} {namespace}/{value}"


def keys_of(
    namespace: str, name: str, uid: str, labels: Mapping[str, str], owners: Iterable[str]
) -> tuple[str, ...]:  # fmt: skip
    """All that a Pod answers to, each once. `uid` is that of the Pod, or of its Job (`owners`)."""
    jobs = {labels[label] for label in JOB_NAMES if label in labels}
    tasks = [labels[LABEL_TASK_ID]] if LABEL_TASK_ID in labels else []
    return (
        key_of("podName", namespace, name),
        *(key_of("uid", namespace, one) for one in dict.fromkeys((uid, *owners))),
        *(key_of("jobName", namespace, job) for job in sorted(jobs)),
        *(key_of("taskId", namespace, task) for task in tasks),
    )
