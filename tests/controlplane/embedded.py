"""The embedded cluster with the interface of the real control plane, so that one test can run on both."""

from pathlib import Path
from typing import Self

from dispatcher_demo.cluster.cluster import EmbeddedCluster
from tests.controlplane.api import Api
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.objects import write_kubeconfig


class EmbeddedPlane(ControlPlane):
    """The embedded cluster has no rights, quotas, kwok or outages. Tests of those use the real control plane only."""

    def __init__(self) -> None:
        super().__init__()
        self._cluster = EmbeddedCluster()

    async def __aenter__(self) -> Self:
        await self._cluster.__aenter__()
        self._api = Api(self.url, None, self.admin_token)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.api.close()
        await self._cluster.__aexit__()

    @property
    def url(self) -> str:
        return self._cluster.url

    @property
    def ca_file(self) -> Path | None:
        return None

    @property
    def admin_token(self) -> str:
        return self._cluster.token

    def check(self) -> None:
        """Nothing to check: the cluster is in this process."""

    async def create_namespace(self) -> str:
        self._names += 1
        name = f"test-{self._names}"
        await self.admin("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        return name

    async def empty_namespace(self, name: str) -> None:
        await self.delete_namespace(name)

    async def service_account_token(self, namespace: str, name: str) -> str:
        """The administrator's token: the embedded cluster has no other identity."""
        return self.admin_token

    def kubeconfig(self, path: Path, *, token: str, namespace: str) -> Path:
        return write_kubeconfig(path, url=self.url, ca_file=None, token=token, namespace=namespace)

    async def add_nodes(self, count: int, **_: object) -> list[str]:
        """No nodes, as there is no kwok. A test starts a process kubelet or plays a node."""
        return []

    async def apply(self, source: object, *, namespace: str) -> None:
        """Does nothing: tests apply only rights, and the embedded cluster has none."""
