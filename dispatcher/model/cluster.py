"""Pods and nodes, as decisions see them. Times are by the API server's clock."""

from datetime import datetime

from msgspec import Struct


class Pod(Struct, frozen=True, kw_only=True):
    """A Pod of this installation.

    job_uid: uid of the Job that controls it; empty without one.
    shape: what its Job needs of a node, as a digest.
    unschedulable_since: when kube-scheduler found no node for it.
    waiting_reason: why a container cannot start, such as ImagePullBackOff; empty while it starts normally.
    had_run: whether the process of its container `task` existed.
    """

    name: str
    uid: str
    job_uid: str
    queue: str
    shape: str
    created_at: datetime
    phase: str = "Pending"
    node_name: str = ""
    unschedulable_since: datetime | None = None
    waiting_reason: str = ""
    had_run: bool = False
    deleting: bool = False


class Node(Struct, frozen=True, kw_only=True):
    """A node. `unreachable`: its kubelet has not reported for so long that the cluster gave up on it."""

    name: str
    ready: bool
    unreachable: bool
