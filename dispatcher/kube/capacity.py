"""Local copies of the cluster's objects, kept up to date by watches, and their listeners.

`QuotaMirror`: the ResourceQuotas of the namespace of Jobs. While they are not known for certain, they hold no row: the
API server's own refusal names them.

`NeedsOfShapes`: what the API server made of the newest Pod of each shape.

`Mirror`: Jobs, Pods and nodes, and one view of all of them.

`RoomMirror`, `CapacityMirror`: nodes, Pods and reservations of the whole cluster, for the free room of nodes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, Protocol

import msgspec

from dispatcher.kube.job_api import jobs_path, pods_path
from dispatcher.kube.objects import (
    own_pod_reader,
    pod_reader,
    read_bound_pod,
    read_job,
    read_node,
    read_priority_class,
)
from dispatcher.kube.reflector import Reflector, Reflectors, Resource, fault_of, faults_of, is_lost
from dispatcher.kube.reservations import RESERVATIONS, amounts_of
from dispatcher.kube.wire import Meta, Wire, full_name, in_namespace
from dispatcher.model.cluster import LONG_AGO, BoundPod, ClusterView, Node, Pod, PriorityClass, Quota, Scope
from dispatcher.model.jobs import Job, Phase
from dispatcher.model.launches import job_selector
from dispatcher.model.needs import KUBE_SCHEDULERS, PodNeeds
from dispatcher.model.reservations import Reservation
from dispatcher.runtime.clock import Clock, elapsed
from dispatcher.runtime.metrics import JOBS_ENDED


class WireScope(Wire, frozen=True):
    scope_name: str = ""
    operator: str = ""
    values: list[str] | None = None


class WireSelector(Wire, frozen=True):
    match_expressions: list[WireScope] | None = None


class QuotaSpec(Wire, frozen=True):
    scopes: list[str] | None = None
    scope_selector: WireSelector | None = None


class QuotaStatus(Wire, frozen=True):
    hard: dict[str, str] | None = None
    used: dict[str, str] | None = None


class WireQuota(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


def read_quota(raw: bytes | msgspec.Raw) -> Quota:
    """Reads a ResourceQuota by its status, because quota admission enforces the status, not the spec."""
    wire = msgspec.json.decode(raw, type=WireQuota)
    return Quota(
        wire.metadata.name,
        amounts_of("resourcequotas", wire.status.hard),
        amounts_of("resourcequotas", wire.status.used),
        tuple(scopes_of(wire.spec)),
    )


def scopes_of(spec: QuotaSpec) -> Iterator[Scope]:
    for name in spec.scopes or ():
        yield Scope(name)
    for one in (spec.scope_selector.match_expressions if spec.scope_selector else None) or ():
        yield Scope(one.scope_name, one.operator, tuple(one.values or ()))


class QuotaMirror:
    """The ResourceQuotas of one namespace, as last seen."""

    def __init__(self, reflectors: Reflectors, namespace: str) -> None:
        path = in_namespace("/api/v1", namespace, "resourcequotas")
        self._reflector = reflectors.of(Resource[Quota]("resourcequotas", path, read_quota))

    def quotas(self) -> tuple[Quota, ...]:
        """The quotas by name; none if they are not known for certain."""
        if fault_of(self._reflector):
            return ()
        return tuple(sorted(self._reflector.store.view().values(), key=lambda quota: quota.name))

    def on_change(self, listener: Callable[[], None]) -> None:
        self._reflector.store.on_each(lambda _before, _after: listener())


MOST_SHAPES: Final = 2_000
"""Shapes whose needs are remembered, at most."""
BELIEVED_SECONDS: Final = 2_400
"""Seconds for which the needs of a shape are believed after its last Pod. The longest pause of demand is shorter."""
LOOK_SECONDS: Final = 60
"""Seconds between two looks at which shapes have Pods."""


class NeedsOfShapes:
    """What Pods of each shape need, as the newest one shows it: the next Pod will have the same needs.

    What admission adds may change, and then no Pod shows it while a quota or our own count holds the rows of the shape.
    So the needs are forgotten a while after its last Pod, and the next rows are judged by their template.

    view: needs by shape. It never changes; news replace it.
    """

    def __init__(self, clock: Clock = elapsed) -> None:
        self.view: Mapping[str, PodNeeds] = {}
        self._clock = clock
        self._known: dict[str, tuple[datetime, PodNeeds]] = {}
        self._lived_at: dict[str, float] = {}
        self._looked_at = clock()

    def learn(self, pod: Pod) -> None:
        known_at, known = self._known.get(pod.shape, (LONG_AGO, None))
        if pod.needs is None or pod.created_at < known_at:
            return
        self._known.pop(pod.shape, None)
        if len(self._known) >= MOST_SHAPES:
            self._forget(next(iter(self._known)))  # the one that was read longest ago
        self._known[pod.shape] = pod.created_at, pod.needs
        self._lived_at[pod.shape] = self._clock()
        if pod.needs != known:
            self._show()

    def look(self, pods: Iterable[Pod]) -> None:
        """Forgets shapes of which no Pod has lived for a while. `pods`: ours. It looks at them once a minute."""
        now = self._clock()
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        alive = {pod.shape for pod in pods if not pod.has_ended}
        self._lived_at.update(dict.fromkeys(alive & self._known.keys(), now))
        if old := [shape for shape, at in self._lived_at.items() if now - at >= BELIEVED_SECONDS]:
            for shape in old:
                self._forget(shape)
            self._show()

    def _forget(self, shape: str) -> None:
        del self._known[shape], self._lived_at[shape]

    def _show(self) -> None:
        self.view = {shape: needs for shape, (_, needs) in self._known.items()}


MOST_NODES: Final = 15_000
"""Nodes of Pods that are remembered, at most, where nodes are not watched."""
NODES: Final[Resource[Node]] = Resource("nodes", "/api/v1/nodes", read_node)


class Mirror:
    """Jobs and Pods of the installation and, if `with_nodes`, the nodes of the cluster.

    all_pods: a resource with the Pods of all namespaces, which this process follows anyway. Ours are taken from it.
    """

    def __init__(
        self, reflectors: Reflectors, namespace: str, installation: str,
        *, with_nodes: bool, all_pods: Resource[BoundPod] | None = None,
    ) -> None:  # fmt: skip
        ours = job_selector(installation)
        self._client = reflectors.client
        self._listeners: list[Callable[[], None]] = []
        self._own_pods: dict[str, Pod] = {}
        self._own_view: dict[str, Pod] | None = None
        self._nodes_of_pods: dict[str, None] = {}
        self._made = NeedsOfShapes()
        self._jobs = reflectors.of(Resource[Job]("jobs", jobs_path(namespace), read_job, ours))
        self._pods: Reflector[Pod] | Reflector[BoundPod]
        if all_pods is None:
            own = own_pod_reader(installation, elapsed)  # by owner, too: a policy may take labels from Pods
            self._pods = reflectors.of(Resource[Pod]("pods", pods_path(namespace), own))
            self._pods.store.on_each(self._hear_own_pod)
        else:
            self._pods = reflectors.of(all_pods)
            self._pods.store.on_each(self._hear_any_pod)
        self._nodes = reflectors.of(NODES) if with_nodes else None
        self._all = (self._jobs, self._pods, *([self._nodes] if self._nodes else []))
        for one in self._all:
            one.on_list(self._tell)
        self._jobs.store.on_each(self._hear)
        self._jobs.store.on_each(count_end)
        for phase in (Phase.COMPLETE, Phase.FAILED):
            JOBS_ENDED.labels(phase)  # from 0, because Prometheus sees no increase in a series that begins at 1
        if self._nodes:
            self._nodes.store.on_each(self._hear)

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def relist(self) -> None:
        """Makes Jobs and Pods stale until they are listed again. A new leader counts from a list of its own term."""
        self._jobs.relist()
        self._pods.relist()

    def has_shown(self, node: str) -> bool:
        """Whether the API server has shown a node of this name.

        If nodes are not watched, a Pod of ours that is bound to the node is enough.
        """
        return node in (self._nodes.store if self._nodes else self._nodes_of_pods)

    def view(self) -> ClusterView:
        """The cluster as known at this moment. The view does not change later.

        Its maps of Jobs and Pods are the same objects as before if nothing has changed.
        """
        if self._own_view is None:
            self._own_view = dict(self._own_pods)
        self._made.look(self._own_view.values())
        return ClusterView(
            now=self._client.now(),
            jobs=self._jobs.store.view(),
            pods=self._own_view,
            nodes=self._nodes.store.view() if self._nodes else {},
            jobs_version=self._jobs.store.resource_version,
            stale=self.stale(),
            made=self._made.view,
        )

    def stale(self) -> str:
        """The stores that are not listed yet or too old to decide by, with reasons; empty if all are fresh."""
        return faults_of(*self._all)

    def is_lost(self) -> bool:
        """Whether one of the stores cannot be kept fresh."""
        return any(map(is_lost, self._all))

    def _hear_any_pod(self, before: BoundPod | None, after: BoundPod | None) -> None:
        self._hear_own_pod(before.own if before else None, after.own if after else None)

    def _hear_own_pod(self, before: Pod | None, after: Pod | None) -> None:
        if before == after:
            return
        self._own_view = None
        if before is not None:
            del self._own_pods[before.name]
        if after is not None:
            self._own_pods[after.name] = after
            self._made.learn(after)
            if after.node_name and not self._nodes:
                self._remember_node(after.node_name)
        self._tell()

    def _remember_node(self, name: str) -> None:
        """Keeps the name after its Pods are gone: a later Pod may want the cache of the node."""
        self._nodes_of_pods.pop(name, None)
        self._nodes_of_pods[name] = None
        if len(self._nodes_of_pods) > MOST_NODES:
            del self._nodes_of_pods[next(iter(self._nodes_of_pods))]  # the one that got a Pod longest ago

    def _hear(self, _before: object, _after: object) -> None:
        self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()


def count_end(before: Job | None, after: Job | None) -> None:
    """Counts the end of a Job. A Job that was finished when it was first seen may have ended long ago."""
    if before is not None and after is not None and after.is_finished and not before.is_finished:
        JOBS_ENDED.labels(after.phase).inc()


BOUND: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
"""Field selector of Pods that use room: bound to a node, and not ended."""
BOUND_PODS: Final = Resource("pods", "/api/v1/pods", read_bound_pod, fields=BOUND, key=full_name)


def pods_of_all(namespace: str, installation: str, scheduler: str | None = None) -> Resource[BoundPod]:
    """Pods of all namespaces: those that use room, and those of the installation in `namespace`, whatever their phase.

    scheduler: the scheduler of our Pods; None: the cluster's default.
    """
    read = pod_reader(namespace, installation, {scheduler} if scheduler else KUBE_SCHEDULERS, elapsed)
    return Resource("pods", "/api/v1/pods", read, key=full_name)


PRIORITY_CLASSES: Final = Resource(
    "priorityclasses", "/apis/scheduling.k8s.io/v1/priorityclasses", read_priority_class, is_optional=True
)


class CapacityListener(Protocol):
    """Hears each change. `before` is None for a new object, `after` is None for a deleted one."""

    def hear_node(self, before: Node | None, after: Node | None) -> None: ...
    def hear_pod(self, before: BoundPod | None, after: BoundPod | None) -> None: ...
    def hear_reservation(self, before: Reservation | None, after: Reservation | None) -> None: ...


class RoomListener(CapacityListener, Protocol):
    """Hears the changes of PriorityClasses, too."""

    def hear_priority_class(self, before: PriorityClass | None, after: PriorityClass | None) -> None: ...


class RoomMirror:
    """Tells a listener each change of nodes, of Pods that use room, and of PriorityClasses.

    with_reservations: also of NodeReservations. If the kind or the right to read it is missing, there are none.
    """

    def __init__(
        self, reflectors: Reflectors, listener: RoomListener, pods: Resource[BoundPod], *, with_reservations: bool
    ) -> None:
        self._classes = reflectors.of(PRIORITY_CLASSES)
        self._all = (reflectors.of(NODES), reflectors.of(pods), self._classes)
        reflectors.of(NODES).store.on_each(listener.hear_node)
        reflectors.of(pods).store.on_each(listener.hear_pod)
        self._classes.store.on_each(listener.hear_priority_class)
        if with_reservations:
            reflectors.of(RESERVATIONS).store.on_each(listener.hear_reservation)

    def stale(self) -> str:
        """The stores that are not listed yet or too old to decide by, with reasons; empty if all are fresh."""
        return faults_of(*self._all)


class CapacityMirror:
    """Tells a listener each change of nodes, bound Pods and reservations.

    pods: the resource to follow. Its Pods without a node are left out.
    """

    def __init__(self, reflectors: Reflectors, listener: CapacityListener, pods: Resource[BoundPod]) -> None:
        self._listener = listener
        self._nodes, self._pods = reflectors.of(NODES), reflectors.of(pods)
        self._reservations = reflectors.of(RESERVATIONS)
        self._all = (self._nodes, self._pods, self._reservations)
        self._nodes.store.on_each(listener.hear_node)
        self._pods.store.on_each(self._hear_pod)
        self._reservations.store.on_each(listener.hear_reservation)

    def _hear_pod(self, before: BoundPod | None, after: BoundPod | None) -> None:
        self._listener.hear_pod(bound_only(before), bound_only(after))

    def is_synced(self) -> bool:
        """Whether all three resources were listed once."""
        return all(one.store.is_synced for one in self._all)

    def hears(self) -> bool:
        """Whether news of a Pod that is bound now would arrive at once. They would not during a relist."""
        return self._pods.is_following

    def knows_reservations(self) -> bool:
        """Whether the reservations are fresh, even if nodes or Pods are not."""
        return not fault_of(self._reservations)

    def bound(self) -> Iterable[BoundPod]:
        return filter(bound_only, self._pods.store.values())

    def stale(self) -> str:
        """The stores that are not listed yet or too old to decide by, with reasons; empty if all are fresh."""
        return faults_of(*self._all)


def bound_only(pod: BoundPod | None) -> BoundPod | None:
    return pod if pod is not None and pod.node else None
