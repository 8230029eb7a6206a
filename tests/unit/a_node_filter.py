"""A node filter with two nodes and one reservation, and a Pod, for short tests."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from dispatcher.extender.book import ReservationBook
from dispatcher.extender.hold_index import REFUSED
from dispatcher.extender.nodes import ClusterFacts, NodeFilter, always
from dispatcher.extender.wire import ExtenderPod
from dispatcher.model.cluster import BoundPod, Node, NodeCapacities
from dispatcher.model.notices import Notices
from dispatcher.model.reservations import Reservation, key_of
from tests.rig.builders import NOW

CPU = REFUSED.format("cpu")
NODES = {"a": None, "b": None}
ONE_NODE = {"a": None}


def a_pod(cpu: str = "3", *, priority: int | None = None, **meta: Any) -> ExtenderPod:
    metadata = {
        "name": "p", "namespace": "team", "uid": "u", "ownerReferences": [{"kind": "Job", "uid": "j"}],
        "labels": {"batch.kubernetes.io/job-name": "job-1", "job-name": "job-1", "dispatcher.internal/task-id": "7"},
    }  # fmt: skip
    spec = {"containers": [{"resources": {"requests": {"cpu": cpu}}}], "priority": priority}
    return msgspec.json.decode(msgspec.json.encode({"metadata": metadata | meta, "spec": spec}), type=ExtenderPod)


def a_node_filter(
    target: str = key_of("podName", "team", "other"), bound: tuple[BoundPod, ...] = (), **facts: bool
) -> NodeFilter:
    """Two nodes of four cores. On node `a` two cores are reserved for a minute."""
    book = ReservationBook(NodeCapacities())
    for name in NODES:
        book.hear_node(None, Node(name, NOW, {"cpu": 4000, "pods": 110_000}))
    for pod in bound:
        book.hear_pod(None, pod)
    ends_at = (NOW + timedelta(minutes=1)).timestamp()
    book.hear_reservation(None, Reservation("team/r", "r", "a", {"cpu": 2000}, target, ends_at))
    answers = {name: lambda answer=answer: answer for name, answer in facts.items()}
    return NodeFilter(book, ClusterFacts(now=NOW.timestamp, bound_pods=lambda: bound, **answers), Notices())


def a_node_filter_with_clock(is_certain: Callable[[], bool] = always) -> tuple[NodeFilter, list[float]]:
    """As `a_node_filter`, with its clock: a list of one number, which tests change."""
    seconds = [NOW.timestamp()]
    facts = ClusterFacts(is_certain=is_certain, now=lambda: seconds[0], elapsed=lambda: seconds[0])
    return NodeFilter(a_node_filter()._book, facts, Notices()), seconds
