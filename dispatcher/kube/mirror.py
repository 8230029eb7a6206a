"""Local copies of Jobs, Pods and nodes: three reflectors, and one view of all of them."""

import asyncio
from collections.abc import Callable

from dispatcher.kube.client import KubeClient
from dispatcher.kube.job_api import jobs_path, pods_path
from dispatcher.kube.listing import Resource
from dispatcher.kube.objects import read_job, read_node, read_pod
from dispatcher.kube.reflector import Pace, Reflector
from dispatcher.model.cluster import Node, Pod
from dispatcher.model.identity import job_selector
from dispatcher.model.jobs import Job
from dispatcher.model.snapshot import ClusterView
from dispatcher.runtime.clock import elapsed
from dispatcher.runtime.metrics import STORE_AGE

MOST_SECONDS = 100
"""A store without proof for longer is stale. Bookmarks come about once a minute; 90 s of silence end a watch."""


class Mirror:
    """Jobs and Pods of the installation and, if `with_nodes`, the nodes of the cluster."""

    def __init__(
        self, client: KubeClient, namespace: str, installation: str, *, with_nodes: bool, pace: Pace = Pace()
    ) -> None:
        ours = job_selector(installation)
        self._client = client
        self._listeners: list[Callable[[], None]] = []
        jobs, pods = jobs_path(namespace), pods_path(namespace)
        self._jobs = Reflector[Job](client, Resource("jobs", jobs, read_job, ours), self._tell, pace)
        self._pods = Reflector[Pod](client, Resource("pods", pods, read_pod, ours), self._tell, pace)
        self._nodes = Reflector[Node](client, Resource("nodes", "/api/v1/nodes", read_node), self._tell, pace)
        self._with_nodes = with_nodes
        self._nodes_of_pods: set[str] = set()
        self._pods.store.on_each(self._remember_node)
        self._ages = {name: STORE_AGE.labels(name) for name in ("jobs", "pods", "nodes")[: 2 + with_nodes]}

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def relist(self) -> None:
        """Makes Jobs and Pods stale until they are listed again. A new leader counts from a list of its own term."""
        self._jobs.relist()
        self._pods.relist()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._jobs.run())
            group.create_task(self._pods.run())
            if self._with_nodes:
                group.create_task(self._nodes.run())

    def has_shown(self, node: str) -> bool:
        """Whether the API server has shown a node of this name.

        If nodes are not watched, a Pod of ours that is bound to the node is enough.
        """
        return node in (self._nodes.store if self._with_nodes else self._nodes_of_pods)

    def _remember_node(self, _before: Pod | None, pod: Pod | None) -> None:
        if pod is not None and pod.node_name and not self._with_nodes:
            self._nodes_of_pods.add(pod.node_name)

    def view(self) -> ClusterView:
        """The cluster as known at this moment. The view does not change later."""
        return ClusterView(
            now=self._client.now(),
            jobs=self._jobs.store.view(),
            pods=self._pods.store.view(),
            nodes=self._nodes.store.view(),
            jobs_version=self._jobs.store.resource_version,
            stale=self.stale(),
        )

    def stale(self) -> str:
        """The stores that are not listed yet or too old to decide by, with reasons; empty if all are fresh."""
        faults = (self._fault_of(reflector) for reflector in (self._jobs, self._pods, self._nodes))
        return "; ".join(fault for fault in faults if fault)

    def _fault_of(self, reflector: Reflector[Job] | Reflector[Pod] | Reflector[Node]) -> str:
        if reflector is self._nodes and not self._with_nodes:
            return ""
        age = reflector.store.age(elapsed())
        self._ages[reflector.resource.name].set(min(age, 1e9))
        if reflector.fault or age > MOST_SECONDS:
            return f"{reflector.resource.name}: {reflector.fault or f'no sign of life for {age:.0f} s'}"
        return ""

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()
