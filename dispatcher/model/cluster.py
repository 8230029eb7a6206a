"""Pods and nodes, as decisions see them. Times are by the API server's clock."""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from dispatcher.model.amounts import NOTHING, Amounts
from dispatcher.model.needs import Taint

NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})
LONG_AGO: Final = datetime.fromisoformat("1970-01-02T00:00:00+00:00")
"""Stands for a time that an object does not have. kubelet reports 1970-01-01 for a container that never started."""
ENDED: Final = frozenset({"Succeeded", "Failed"})
"""Phases of Pods whose containers run no more."""


class PodEnd(Struct, frozen=True, kw_only=True):
    """How a Pod failed, in Kubernetes' words.

    reason, message: why its node or the cluster ended it, such as Evicted; empty: its containers ended by themselves.
    container: the container that failed: `task`, or the first one that failed; empty: none did.
    exit_code: its exit code; None: it never ran.
    cause: why it ended, such as OOMKilled or Error.
    output: its termination message, which is the end of its log by default; at most 2 KiB.
    memory_limit: its limit of memory as the Pod has it; empty: none.
    started_at, ended_at: None: not known.
    """

    reason: str = ""
    message: str = ""
    container: str = ""
    exit_code: int | None = None
    cause: str = ""
    output: str = ""
    memory_limit: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None


class Pod(Struct, frozen=True, kw_only=True):
    """A Pod of this installation.

    job_uid: uid of the Job that controls it; empty without one.
    shape: what its Job needs of a node, as a digest.
    nominated_node: the node that kube-scheduler makes free for it by preemption; empty: none.
    scheduled_at: when it got its node; None without a node, or if its condition does not say.
    unschedulable_since: when kube-scheduler found no node for it.
    waiting_reason: why a container cannot start, such as ImagePullBackOff; empty while it starts normally.
    waiting_message: the same in words, or why kube-scheduler finds no node.
    had_run: whether the process of its container `task` existed.
    end: how it failed; None: it has not.
    """

    name: str
    uid: str
    job_uid: str
    queue: str
    shape: str
    created_at: datetime
    phase: str = "Pending"
    node_name: str = ""
    nominated_node: str = ""
    scheduled_at: datetime | None = None
    unschedulable_since: datetime | None = None
    waiting_reason: str = ""
    waiting_message: str = ""
    had_run: bool = False
    end: PodEnd | None = None
    deleting: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether it holds no room any more."""
        return self.phase in ENDED


class PodRefusal(Struct, frozen=True):
    """The API server refuses the Pods of a Job, as the Events of the Job controller say.

    since: time of the first such Event.
    message: the server's words.
    is_quota: a ResourceQuota refuses them. It may have room later.
    """

    since: datetime
    message: str
    is_quota: bool = False


class Node(Struct, frozen=True):
    """A node.

    created_at: tells it from an earlier node of the same name.
    size: what it has for Pods (allocatable), in thousandths.
    unreachable: its kubelet has not reported for so long that the cluster gave up on it.
    labels: its labels.
    taints: its taints. A cordon is one of them.
    """

    name: str
    created_at: datetime = LONG_AGO
    size: Amounts = NOTHING
    ready: bool = True
    unreachable: bool = False
    labels: Mapping[str, str] = NO_LABELS
    taints: tuple[Taint, ...] = ()


class PriorityClass(Struct, frozen=True):
    """A PriorityClass.

    value: priority of its Pods.
    is_default: Pods without a class get this one.
    never_preempts: its Pods never preempt other Pods.
    """

    name: str
    value: int
    is_default: bool = False
    never_preempts: bool = False
