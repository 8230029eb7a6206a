"""Pods, nodes, free capacity and ResourceQuotas, as decisions see them. Times are by the API server's clock.

`ClusterView`: the cluster at one moment, with its Jobs.

`NodeCapacities`: only bound Pods that have not ended count, as in kube-scheduler. A Pod is not known here while
kube-scheduler has chosen its node but not bound it. Amounts are in thousandths.

`Quotas`: the rules are those of the API server's quota admission. The API server counts a Job when it is created, and
its Pod when the Job controller creates it. A quota that cannot be judged here holds nothing: a row is held only if its
Pod would be refused. A LimitRange may only add to the requests of a Pod, so its defaults are left out.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from dispatcher.model.jobs import Job
from dispatcher.model.needs import PodNeeds, Taint, is_met
from dispatcher.model.resources import NOTHING, Amounts, add_to, added, less, take_from, written

NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})
LONG_AGO: Final = datetime.fromisoformat("1970-01-02T00:00:00+00:00")
"""Stands for a time that an object does not have. kubelet reports 1970-01-01 for a container that never started."""
ENDED: Final = frozenset({"Succeeded", "Failed"})
"""Phases of Pods whose containers run no more."""
LATEST: Final = datetime.fromisoformat("9000-01-01T00:00:00+00:00")
"""The latest time that is accepted from a Pod's status. A later one plus a run limit could overflow."""
CRITICAL: Final = 2_000_000_000
"""The priority of system-cluster-critical. Pods of it, or of a higher one, may use reserved room."""
DEADLINE: Final = "DeadlineExceeded"
"""Reason of a Pod that ended at its run limit. Every other reason is kubelet's, about the node."""
CRASHES: Final = "CrashLoopBackOff"
"""Waiting reason of a sidecar that ends again and again. Only init containers that always restart have this reason."""
SAYS_A_FAULT: Final = re.compile(r"^(Err|Invalid)|(Error|Failed|BackOff|Unavailable|CannotRun)$")
"""Kubelet's names for what keeps a container from its start, such as ErrImagePull, SignatureValidationFailed or
CreateContainerError. Each version has new names. Each runtime and virtual node also has names for a start that only
takes time.
"""
START_FAULTS: Final = frozenset({"StartError", "ContainerCannotRun"})
"""Causes of the end of a container that its node could not start."""
FORGOTTEN: Final = frozenset({"Unknown", "ContainerStatusUnknown"})
"""Causes of the end of a container that was gone when its node looked for it."""


class PodEnd(Struct, frozen=True, kw_only=True):
    """How a Pod failed, or how its task's container ended, in Kubernetes' words.

    reason, message: why kubelet ended the Pod, such as Evicted; empty: kubelet did not.
    disruption: why somebody else disrupted it, such as PreemptionByScheduler or EvictionByEvictionAPI; empty: nobody.
    container: the container that ended: `task` for that of the template, or the first one that failed; empty: none.
    exit_code: the container's exit code; None: it never ran.
    was_told: whether the Pod had been told to stop before the container ended.
    cause: why the container ended, such as OOMKilled or Error.
    output: its termination message, which is the end of its log by default; at most 2 KiB.
    memory_limit: its limit of memory in the Pod; empty: none.
    started_at, ended_at: None: not known.
    """

    reason: str = ""
    disruption: str = ""
    message: str = ""
    container: str = ""
    exit_code: int | None = None
    was_told: bool = False
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
    unschedulable_since: since when kube-scheduler finds no node for it.
    waiting_reason: why a container cannot start, such as ImagePullBackOff; empty while it starts normally.
    waiting_message: the same in words, or why kube-scheduler finds no node.
    had_run: whether the process of its task's container existed.
    had_begun: whether the process of any container existed, an init container's too.
    had_prepared: whether the process of an init container existed; sidecars do not count.
    end: how it failed; None: it has not.
    exit: how its task's container ended, whatever the others do; None: it has not, or nobody knows.
    kept_by: finalizers of others, if it is being deleted.
    is_disrupted: whether it has the condition DisruptionTarget.
    scheduler: name of its scheduler.
    is_gated: whether scheduling gates keep kube-scheduler from it.
    limit_seconds: its own run limit, which a policy may have changed; 0: none.
    needs: what it needs of a node, as admitted; None if another Pod of its shape was read lately.
    """

    name: str
    uid: str
    job_uid: str
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
    had_begun: bool = False
    had_prepared: bool = False
    end: PodEnd | None = None
    exit: PodEnd | None = None
    kept_by: tuple[str, ...] = ()
    deleting: bool = False
    is_disrupted: bool = False
    scheduler: str = "default-scheduler"
    is_gated: bool = False
    limit_seconds: int = 0
    needs: PodNeeds | None = None

    @property
    def cannot_start(self) -> bool:
        """Whether the image or the configuration of a container is wrong. Such a Job never fails by itself."""
        return bool(SAYS_A_FAULT.search(self.waiting_reason)) and not (self.had_run or self.waiting_reason == CRASHES)

    @property
    def is_rejected(self) -> bool:
        """Whether the kubelet of its node refused it. No container of it has existed, and the node is at fault."""
        reason = self.end.reason if self.end is not None else ""
        return bool(self.node_name and reason) and not self.had_begun and reason != DEADLINE

    @property
    def has_ended(self) -> bool:
        """Whether its containers have ended, so that it holds no room."""
        return self.phase in ENDED


class PodRefusal(Struct, frozen=True):
    """The API server refuses the Pods of a Job, as the Events of the Job controller say.

    since: time of the first such Event.
    message: the server's words.
    is_quota: a ResourceQuota refuses them. It may have room later.
    is_outage: nothing refused the Pod; a webhook or etcd did not answer.
    """

    since: datetime
    message: str
    is_quota: bool = False
    is_outage: bool = False


class ScaleAnswer(Struct, frozen=True):
    """An autoscaler's words on a Pod that waits for a node. `comes`: True: a node comes for it; False: none will."""

    comes: bool
    at: datetime
    words: str = ""


class Node(Struct, frozen=True):
    """A node.

    created_at: tells it from an earlier node of the same name.
    size: what it has for Pods (allocatable), in thousandths.
    unreachable: its kubelet ends no container: it does not report, or reports that it cannot work.
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


class BoundPod(Struct, frozen=True, gc=False):
    """A Pod of any namespace that uses room of a node.

    name: `namespace/name`.
    node: name of the node; empty if the Pod is one of ours and uses no room, because it has no node or has ended.
    asks: the Pod's requests; Pods with equal requests share one object.
    keys: names by which a reservation may call the Pod.
    own: the same Pod as the dispatcher's decisions see it; None for a Pod of somebody else.
    priority: its priority.
    nominated: the node that kube-scheduler makes free for it by preemption; empty if it has a node.
    """

    name: str
    node: str
    asks: Amounts
    keys: tuple[str, ...] = ()
    own: Pod | None = None
    priority: int = 0
    nominated: str = ""


class FreeCapacity(Struct, frozen=True, gc=False):
    """The free amounts of a node. They are below 0 where its Pods request more than it has."""

    cpu: int
    memory: int
    created_at: datetime


class NodeCapacities:
    """Free capacity of every known node (`of`), from changes of nodes and Pods in any order."""

    def __init__(self) -> None:
        self.of: dict[str, FreeCapacity] = {}
        self._nodes: dict[str, Node] = {}
        self._asked: dict[str, dict[str, int]] = defaultdict(dict)
        """Changed in place: anybody may bind Pods with thousands of resources to a node that is not even there."""

    def hear_node(self, before: Node | None, after: Node | None) -> None:
        if after is not None:
            self._nodes[after.name] = after
            self._measure(after.name)
        elif before is not None:
            self._nodes.pop(before.name, None)
            self.of.pop(before.name, None)

    def hear_pod(self, before: BoundPod | None, after: BoundPod | None) -> None:
        if before is not None:
            take_from(self._asked[before.node], before.asks)
            self._measure(before.node)
        if after is not None:
            add_to(self._asked[after.node], after.asks)
            self._measure(after.node)

    def free_of(self, name: str) -> Amounts:
        """Free amount of each resource of a node; empty for an unknown node."""
        node = self._nodes.get(name)
        return less(node.size, self._asked.get(name, {})) if node is not None else {}

    def compact(self) -> None:
        """Moves all names and free capacities next to each other in memory.

        After a list they lie between the Pods that were read. A walk over 5,000 of them then takes three times as long.
        """
        side_by_side = {
            name.encode().decode(): FreeCapacity(room.cpu + 0, room.memory + 0, room.created_at)
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
            self.of[name] = FreeCapacity(free["cpu"], free["memory"], node.created_at)


ONE: Final = 1000
"""The amount of one object, in thousandths."""
JOBS: Final = "count/jobs.batch"
OF_A_POD: Final = {"pods": ONE, "count/pods": ONE}
WITHOUT_PREFIX: Final = ("cpu", "memory", "ephemeral-storage")
"""Resources whose requests a quota may name without `requests.`. Huge pages are the others."""


class Scope(Struct, frozen=True):
    """A condition on the Pods that a quota counts."""

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()


class Quota(Struct, frozen=True):
    """A ResourceQuota.

    hard: the limits that the API server enforces, from its status, in thousandths.
    used: what is used of them.
    scopes: it counts only Pods that meet all of them.
    """

    name: str
    hard: Amounts
    used: Amounts
    scopes: tuple[Scope, ...] = ()


FINISHED_COUNT: Final = (JOBS, "count/pods")
"""The resources by which a quota counts Jobs that have finished."""


def is_full_of_objects(quotas: Iterable[Quota]) -> bool:
    """Whether a quota has no room for one more Job or Pod, so that finished Jobs keep new ones away."""
    return any(
        quota.hard[name] - quota.used.get(name, 0) < ONE
        for quota in quotas
        for name in FINISHED_COUNT
        if name in quota.hard
    )


class Quotas(Struct, frozen=True):
    """All quotas of a namespace, less what is on its way there.

    every: the quotas.
    coming: by quota, what the Jobs and Pods use that it does not count yet.
    answers: answers of `why_not`, which never change.
    """

    every: tuple[Quota, ...] = ()
    coming: Mapping[str, Amounts] = {}
    answers: dict[PodNeeds | None, str] = {}

    def why_not(self, needs: PodNeeds | None) -> str:
        """The first quota that one more Job would exceed, with its numbers. Empty: there is none."""
        if not self.every:
            return ""
        if needs not in self.answers:
            self.answers[needs] = next(self._excesses(needs, with_job=True), "")
        return self.answers[needs]

    def has_room(self, needs: PodNeeds | None) -> bool:
        """Whether no quota refuses one more Pod, whose Job is counted already."""
        return next(self._excesses(needs, with_job=False), None) is None

    def _excesses(self, needs: PodNeeds | None, *, with_job: bool) -> Iterator[str]:
        for quota in self.every:
            coming = self.coming.get(quota.name, NOTHING)
            for name, asked in usage(quota, needs, with_job=with_job).items():
                used = quota.used[name] + coming.get(name, 0)
                if used + asked > quota.hard[name]:
                    numbers = [written(bare(name), amount) for amount in (asked, used, quota.hard[name])]
                    yield f"ResourceQuota {quota.name}: {name} {numbers[0]} asked, {numbers[1]} of {numbers[2]} used"

    def with_launches(self, needs: PodNeeds | None, count: int = 1, *, with_job: bool = True) -> "Quotas":
        """The quotas after `count` further equal Pods. `with_job`: False for Pods whose Jobs are counted already."""
        if not self.every:
            return self
        coming = dict(self.coming)
        for quota in self.every:
            more = {name: amount * count for name, amount in usage(quota, needs, with_job=with_job).items()}
            coming[quota.name] = added(coming.get(quota.name, NOTHING), more)
        return Quotas(self.every, coming)


def usage(quota: Quota, needs: PodNeeds | None, *, with_job: bool) -> Amounts:
    """What one Pod, and its Job if `with_job`, use of the quota. Only resources whose limit and use are known."""
    found: dict[str, int] = {JOBS: ONE} if with_job and not quota.scopes else {}
    if all(meets(needs, scope) for scope in quota.scopes):
        found |= OF_A_POD
        found |= dict(named(needs)) if needs is not None else {}
    return {name: amount for name, amount in found.items() if name in quota.hard and name in quota.used}


def named(needs: PodNeeds) -> Iterator[tuple[str, int]]:
    """The requests and limits of a Pod by the names that quotas give them."""
    for name, amount in needs.asks:
        yield f"requests.{name}", amount
        if name in WITHOUT_PREFIX or name.startswith("hugepages-"):
            yield name, amount
    for name, amount in needs.limits:
        yield f"limits.{name}", amount


def meets(needs: PodNeeds | None, scope: Scope) -> bool:
    """Whether a Pod of ours certainly meets the scope. Every Pod of ours has a run limit, so it is `Terminating`."""
    if scope.name == "Terminating":
        return True
    if needs is None:
        return False
    if scope.name in {"BestEffort", "NotBestEffort"}:
        return is_best_effort(needs) is (scope.name == "BestEffort")
    # The cluster's default class is not known here, so a Pod without a class may meet the scope or not.
    known = scope.name == "PriorityClass" and needs.priority_class
    return bool(known) and is_met(scope.operator, needs.priority_class, scope.values)


def is_best_effort(needs: PodNeeds) -> bool:
    """Whether the Pod has no request and no limit of cpu or memory."""
    return not any(name in {"cpu", "memory"} for name, _ in (*needs.asks, *needs.limits))


def bare(name: str) -> str:
    """The resource that a name of a quota is about: `memory` for `limits.memory`."""
    return name.removeprefix("requests.").removeprefix("limits.")


class ClusterView(Struct, frozen=True):
    """The cluster at one moment.

    now: the API server's clock.
    jobs: Jobs by name.
    pods: Pods by name.
    nodes: nodes by name.
    jobs_version: resourceVersion up to which the Jobs are known; empty: not known.
    stale: the part of the view that is too old or missing; empty: none.
    refusals: Jobs whose Pods are refused, by UID.
    made: what Pods of each shape need of a node, as the API server makes them.
    suspensions: why Jobs are suspended, in the words of others, by UID.
    """

    now: datetime
    jobs: Mapping[str, Job]
    pods: Mapping[str, Pod]
    nodes: Mapping[str, Node]
    jobs_version: str = ""
    stale: str = ""
    refusals: Mapping[str, PodRefusal] = {}
    made: Mapping[str, PodNeeds] = {}
    suspensions: Mapping[str, str] = {}

    def has_seen(self, resource_version: str) -> bool:
        """Whether the view is at least as new as a write with this version (KEP-5504: versions are integers)."""
        ours, theirs = self.jobs_version, resource_version
        return ours.isdigit() and theirs.isdigit() and int(ours) >= int(theirs)


class StoreAge(Struct, frozen=True):
    """The age of something that decisions or answers rest on.

    age: seconds since the last sign of life; infinite before the first.
    most: an older one is stale.
    fault: why it must not be used; empty: nothing is known.
    """

    store: str
    age: float
    most: float
    fault: str = ""
