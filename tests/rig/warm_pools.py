"""A pool of nodes with the extender and kube-scheduler, for journeys of warm caches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.contract.installed import installed
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.rig.deployed import rendered
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.postgres import Record
from tests.rig.steps import reaches
from tests.scheduling.kube_scheduler import KubeScheduler
from tests.scheduling.own_extender import OwnExtender

ACCOUNT = "dispatcher-scheduler"
POOL = "test.dispatcher.internal/pool"
SIZE = {"cpu": "8", "memory": "16Gi"}


def deployment(namespace: str = "dispatcher") -> tuple[Json, ...]:
    return rendered("everything", namespace, only="scheduler")


def configuration_of(objects: tuple[Json, ...]) -> Json:
    (text,) = [one["data"]["scheduler.yaml"] for one in objects if one["kind"] == "ConfigMap"]
    found: Json = yaml.safe_load(text)
    return found


class DeployedScheduler(KubeScheduler):
    """kube-scheduler with the account and the lease of the Deployment."""

    def __init__(self, plane: ControlPlane, folder: Path, wanted: Json, kubeconfig: Path, namespace: str) -> None:
        self._own = kubeconfig
        self._namespace = namespace
        super().__init__(plane, folder, wanted)

    def _fitted(self, wanted: Json, kubeconfig: Path) -> Json:
        fitted = super()._fitted(wanted, kubeconfig)
        connection = {**fitted["clientConnection"], "kubeconfig": str(self._own)}
        lease = {**wanted["leaderElection"], "resourceNamespace": self._namespace}
        return {**fitted, "clientConnection": connection, "leaderElection": lease}


@asynccontextmanager
async def deployed(place: Place) -> AsyncIterator[tuple[DeployedScheduler, OwnExtender]]:
    """Both containers of the Deployment as processes, with the rights that the manifests grant in this namespace."""
    plane, folder = place.control_plane, place.folder / "deployed"
    folder.mkdir()
    rights = rendered("everything", place.namespace, only="scheduler-rbac")
    async with installed(plane, place.namespace, rights):
        token = await plane.service_account_token(place.namespace, ACCOUNT)
        kubeconfig = plane.kubeconfig(folder / "kubeconfig", token=token, namespace=place.namespace)
        async with OwnExtender(kubeconfig) as extender:
            await extender.ready()
            wanted = configuration_of(deployment(place.namespace))
            wanted["extenders"][0]["urlPrefix"] = extender.url
            scheduler = DeployedScheduler(plane, folder, wanted, kubeconfig, place.namespace)
            scheduler.start()
            try:
                yield scheduler, extender
            finally:
                scheduler.kill()


class Pool:
    """Nodes of one test, and the tasks that land on them."""

    def __init__(self, place: Place, dispatcher: Dispatcher) -> None:
        self.place = place
        self.dispatcher = dispatcher

    async def runs(self, **row: Any) -> Record:
        """Inserts a row, waits until it succeeded, and returns it."""
        task_id = await self.place.database.insert_task(**row)
        return await reaches(self.place, self.dispatcher, task_id, "succeeded")

    async def pod_of(self, row: Record) -> Any:
        path = f"/api/v1/namespaces/{self.place.namespace}/pods/{row['pod_name']}"
        return await self.place.control_plane.admin("GET", path)


@asynccontextmanager
async def pools(place: Place, number: int, **settings: object) -> AsyncIterator[tuple[Pool, list[str]]]:
    """`number` equal nodes of this test alone, and a dispatcher whose Pods go to them."""
    labels = {POOL: place.namespace}
    nodes = await place.control_plane.add_nodes(number, labels=labels, **SIZE)  # type: ignore[arg-type]  # cpu, memory
    chosen = {"NODE_SELECTOR": f"{POOL}={place.namespace}", **settings}
    try:
        async with place.playing(), Dispatcher(place, **chosen) as dispatcher:
            await dispatcher.ready()
            yield Pool(place, dispatcher), nodes
    finally:
        for node in nodes:
            await place.control_plane.remove_node(node)
