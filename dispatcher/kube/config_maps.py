"""ConfigMaps that we keep in our own namespace, each with one text. People read them with kubectl."""

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from dispatcher.kube.client import KubeClient, Reply
from dispatcher.kube.job_api import always
from dispatcher.kube.wire import Wire
from dispatcher.model.identity import MANAGED_BY, MANAGER

REQUEST_SECONDS: Final = 5
NOT_FOUND, CONFLICT = 404, 409


class WireConfigMap(Wire, frozen=True):
    data: dict[str, str] | None = None


class ConfigMaps:
    """The ConfigMaps of one installation. `may_write` is asked before each write, because a term may end meanwhile.

    `more`: labels and owner of each ConfigMap that is written.
    """

    def __init__(
        self, client: KubeClient, namespace: str, installation: str,
        may_write: Callable[[], bool] = always, more: Mapping[str, Any] = {},
    ) -> None:  # fmt: skip
        self._more = more
        self._client = client
        self._path = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps"
        self._installation = installation
        self._may_write = may_write

    async def read(self, name: str, key: str) -> str | None:
        """The text in `{INSTALLATION}-{name}`; None: there is none. Raises ClusterError."""
        return (await self.read_all(name)).get(key)

    async def read_all(self, name: str) -> Mapping[str, str]:
        """All texts; empty: there is no such ConfigMap. Raises ClusterError."""
        reply = await self._client.request("GET", self._own(name), seconds=REQUEST_SECONDS)
        if reply.status == NOT_FOUND:
            return {}
        return reply.read(f"read ConfigMap {self._installation}-{name}", WireConfigMap).data or {}

    async def change(self, name: str, texts: Mapping[str, str | None]) -> None:
        """Writes some texts, and removes those that are None. The others stay as they are. Raises ClusterError."""
        doing, body = f"write ConfigMap {self._installation}-{name}", msgspec.json.encode({"data": texts})
        reply = await self._client.request("PATCH", self._own(name), body, seconds=REQUEST_SECONDS)
        if reply.status == NOT_FOUND:
            given = {key: text for key, text in texts.items() if text is not None}
            reply = await self._client.request("POST", self._path, self._body(name, given), seconds=REQUEST_SECONDS)
            if reply.status == CONFLICT:  # somebody made it meanwhile
                reply = await self._client.request("PATCH", self._own(name), body, seconds=REQUEST_SECONDS)
        reply.expect(doing)

    async def write(self, name: str, key: str, text: str) -> bool:
        """Writes the text, and removes what else is in the ConfigMap. False: this replica does not lead any more.

        Raises ClusterError.
        """
        if not self._may_write():
            return False
        body = self._body(name, {key: text})
        reply = await self._put(name, body)
        if reply.status == NOT_FOUND and self._may_write():
            reply = await self._client.request("POST", self._path, body, seconds=REQUEST_SECONDS)
            if reply.status == CONFLICT and self._may_write():  # somebody made it meanwhile
                reply = await self._put(name, body)
        reply.expect(f"write ConfigMap {self._installation}-{name}")
        return True

    def _body(self, name: str, texts: Mapping[str, str]) -> bytes:
        named = {"name": f"{self._installation}-{name}", "labels": {MANAGED_BY: MANAGER}}
        return msgspec.json.encode(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**named, **self._more}, "data": texts}
        )

    async def _put(self, name: str, body: bytes) -> Reply:
        return await self._client.request("PUT", self._own(name), body, seconds=REQUEST_SECONDS)

    def _own(self, name: str) -> str:
        return f"{self._path}/{self._installation}-{name}"
