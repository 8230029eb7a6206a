"""Local copies of Jobs, Pods and nodes, and one view of all of them."""

from collections.abc import Callable
from typing import Final

from dispatcher.kube.job_api import jobs_path, pods_path
from dispatcher.kube.listing import Resource
from dispatcher.kube.objects import read_job, read_node, read_pod
from dispatcher.kube.reflector import Reflector
from dispatcher.kube.reflectors import Reflectors, faults_of
from dispatcher.model.capacity import BoundPod
from dispatcher.model.cluster import Node, Pod
from dispatcher.model.identity import job_selector
from dispatcher.model.jobs import Job, Phase
from dispatcher.model.snapshot import ClusterView
from dispatcher.runtime.metrics import JOBS_ENDED

NODES: Final[Resource[Node]] = Resource("nodes", "/api/v1/nodes", read_node)


class Mirror:
    """Jobs and Pods of the installation and, if `with_nodes`, the nodes of the cluster.

    `all_pods`: a resource with the Pods of all namespaces, which this process follows anyway. Ours are taken from it.
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
        self._nodes_of_pods: set[str] = set()
        self._jobs = reflectors.of(Resource[Job]("jobs", jobs_path(namespace), read_job, ours))
        self._pods: Reflector[Pod] | Reflector[BoundPod]
        if all_pods is None:
            self._pods = reflectors.of(Resource[Pod]("pods", pods_path(namespace), read_pod, ours))
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

        Jobs and Pods are the same objects as before if nothing has changed.
        """
        if self._own_view is None:
            self._own_view = dict(self._own_pods)
        return ClusterView(
            now=self._client.now(),
            jobs=self._jobs.store.view(),
            pods=self._own_view,
            nodes=self._nodes.store.view() if self._nodes else {},
            jobs_version=self._jobs.store.resource_version,
            stale=self.stale(),
        )

    def stale(self) -> str:
        """The stores that are not listed yet or too old to decide by, with reasons; empty if all are fresh."""
        return faults_of(*self._all)

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
            if after.node_name and not self._nodes:
                self._nodes_of_pods.add(after.node_name)
        self._tell()

    def _hear(self, _before: object, _after: object) -> None:
        self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()


def count_end(before: Job | None, after: Job | None) -> None:
    """Counts the end of a Job. A Job that was finished when it was first seen may have ended long ago."""
    if before is not None and after is not None and after.is_finished and not before.is_finished:
        JOBS_ENDED.labels(after.phase).inc()
