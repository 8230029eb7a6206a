"""ConfigMaps that we keep in our own namespace, each with one text. People read them with kubectl."""

from collections.abc import Callable
from typing import Final
from urllib.parse import quote

import msgspec

from dispatcher.kube.client import KubeClient, Reply
from dispatcher.kube.wire import Wire

REQUEST_SECONDS: Final = 5
NOT_FOUND, CONFLICT = 404, 409


class WireConfigMap(Wire, frozen=True):
    data: dict[str, str] | None = None


class ConfigMaps:
    """The ConfigMaps of one installation. `may_write` is asked before each write, because a term may end meanwhile."""

    def __init__(self, client: KubeClient, namespace: str, installation: str, may_write: Callable[[], bool]) -> None:
        self._client = client
        self._path = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps"
        self._installation = installation
        self._may_write = may_write

    async def read(self, name: str, key: str) -> str | None:
        """The text in `{INSTALLATION}-{name}`; None: there is none. Raises ClusterError."""
        reply = await self._client.request("GET", self._own(name), seconds=REQUEST_SECONDS)
        if reply.status == NOT_FOUND:
            return None
        return (reply.read(f"read ConfigMap {name}", WireConfigMap).data or {}).get(key)

    async def write(self, name: str, key: str, text: str) -> bool:
        """Writes the text, and removes what else is in the ConfigMap. False: this replica does not lead any more.

        Raises ClusterError.
        """
        if not self._may_write():
            return False
        body = msgspec.json.encode({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": f"{self._installation}-{name}",
                "labels": {"app.kubernetes.io/managed-by": "dispatcher"},
            },
            "data": {key: text},
        })  # fmt: skip
        reply = await self._put(name, body)
        if reply.status == NOT_FOUND and self._may_write():
            reply = await self._client.request("POST", self._path, body, seconds=REQUEST_SECONDS)
            if reply.status == CONFLICT and self._may_write():  # somebody made it meanwhile
                reply = await self._put(name, body)
        reply.expect(f"write ConfigMap {self._installation}-{name}")
        return True

    async def _put(self, name: str, body: bytes) -> Reply:
        return await self._client.request("PUT", self._own(name), body, seconds=REQUEST_SECONDS)

    def _own(self, name: str) -> str:
        return f"{self._path}/{self._installation}-{name}"
