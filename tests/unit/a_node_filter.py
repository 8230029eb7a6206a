"""A gate before two nodes, and a Pod that asks, in the fewest words."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from dispatcher.extender.node_filter import ClusterFacts, NodeFilter, yes
from dispatcher.extender.wire import Pod
from dispatcher.model.capacity import BoundPod, NodeCapacities, NodeSize
from dispatcher.model.notices import Notices
from dispatcher.model.reservations import Reservation, key_of
from dispatcher.reservations.book import REFUSED, ReservationBook
from tests.builders import NOW

CPU = REFUSED.format("cpu")
NODES = {"a": None, "b": None}
ONE_NODE = {"a": None}


def a_pod(cpu: str = "3", *, priority: int | None = None, **meta: Any) -> Pod:
    metadata = {
        "name": "p", "namespace": "team", "uid": "u", "ownerReferences": [{"kind": "Job", "uid": "j"}],
        "labels": {"batch.kubernetes.io/job-name": "job-1", "job-name": "job-1", "dispatcher.internal/task-id": "7"},
    }  # fmt: skip
    spec = {"containers": [{"resources": {"requests": {"cpu": cpu}}}], "priority": priority}
    return msgspec.json.decode(msgspec.json.encode({"metadata": metadata | meta, "spec": spec}), type=Pod)


def a_gate(
    target: str = key_of("podName", "team", "other"), bound: tuple[BoundPod, ...] = (), **known: bool
) -> NodeFilter:
    """Two nodes of four cores; two are held on `a` until in a minute."""
    holds = ReservationBook(NodeCapacities())
    for name in NODES:
        holds.hear_node(None, NodeSize(name, NOW, {"cpu": 4000, "pods": 110_000}))
    for pod in bound:
        holds.hear_pod(None, pod)
    ends_at = (NOW + timedelta(minutes=1)).timestamp()
    holds.hear_reservation(None, Reservation("team/r", "r", "a", {"cpu": 2000}, target, ends_at))
    said = {name: lambda answer=answer: answer for name, answer in known.items()}
    return NodeFilter(holds, ClusterFacts(now=NOW.timestamp, bound=lambda: bound, **said), Notices())


def a_gate_with_clock(is_certain: Callable[[], bool] = yes) -> tuple[NodeFilter, list[float]]:
    """As `a_gate`; its clock stands still."""
    seconds = [NOW.timestamp()]
    gate = a_gate()
    known = ClusterFacts(is_certain=is_certain, now=lambda: seconds[0], elapsed=lambda: seconds[0])
    return NodeFilter(gate._book, known, Notices()), seconds
