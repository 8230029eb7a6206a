"""ConfigMaps of our own namespace, and the Pods that use cache directories of a node.

`ConfigMaps`: texts that we keep, each in its ConfigMap. People read them with kubectl.

`node_caches`: the reports of cache keepers.

`pods_of_node`: the Pods that use folders of one node, or may come to use them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct

from dispatcher.kube.client import OF_A_ROUND_SECONDS, KubeClient
from dispatcher.kube.job_api import always, pods_path
from dispatcher.kube.reflector import Resource
from dispatcher.kube.wire import Meta, Wire, in_namespace
from dispatcher.model.caches import CACHES_OF, KEY, NodeCaches, name_of_map, read_node_caches
from dispatcher.model.errors import ClusterRefused
from dispatcher.model.launches import LABEL_INSTALLATION, MANAGED_BY, MANAGER

NOT_FOUND, CONFLICT, INVALID = 404, 409, 422


class WireConfigMap(Wire, frozen=True):
    data: dict[str, str] | None = None


class ConfigMaps:
    """The ConfigMaps of one installation. `may_write` is asked before each write, because a term may end meanwhile.

    more: labels and owner of each ConfigMap that is written.
    """

    def __init__(
        self, client: KubeClient, namespace: str, installation: str,
        may_write: Callable[[], bool] = always, more: Mapping[str, Any] = {},
    ) -> None:  # fmt: skip
        self._more = more
        self._namespace = namespace
        self._client = client
        self._path = in_namespace("/api/v1", namespace, "configmaps")
        self._installation = installation
        self._may_write = may_write

    async def read(self, name: str, key: str) -> str | None:
        """The text of `key` in `{INSTALLATION}-{name}`; None: there is none. Raises ClusterError."""
        return (await self.read_all(name)).get(key)

    async def read_all(self, name: str) -> Mapping[str, str]:
        """All texts; empty: there is no such ConfigMap. Raises ClusterError."""
        reply = await self._client.request("GET", self._own(name), seconds=OF_A_ROUND_SECONDS)
        if reply.status == NOT_FOUND:
            return {}
        return reply.read(f"read ConfigMap {self._installation}-{name}", WireConfigMap).data or {}

    async def change(self, name: str, texts: Mapping[str, str | None]) -> None:
        """Writes some texts, and removes those that are None. The others stay as they are. Raises ClusterError."""
        given = {key: text for key, text in texts.items() if text is not None}
        await self._send(name, "PATCH", msgspec.json.encode({"data": texts}), self._body(name, given))

    async def write(self, name: str, key: str, text: str) -> bool:
        """Writes the text, and removes all other texts of the ConfigMap. False: this replica does not lead any more.

        Raises ClusterError.
        """
        if not self._may_write():
            return False
        body = self._body(name, {key: text})
        await self._send(name, "PUT", body, body)
        return True

    async def _send(self, name: str, method: str, body: bytes, whole: bytes) -> None:
        """Changes the ConfigMap by this method, or makes it as a whole. Raises ClusterError.

        Our account may delete no ConfigMap, so a person has to delete an immutable one.
        """
        request = partial(self._client.request, seconds=OF_A_ROUND_SECONDS)
        reply = await request(method, self._own(name), body)
        if reply.status == NOT_FOUND and self._may_write():
            reply = await request("POST", self._path, whole)
            if reply.status == CONFLICT and self._may_write():  # somebody made it meanwhile
                reply = await request(method, self._own(name), body)
        doing = f"write ConfigMap {self._installation}-{name}"
        if reply.status == INVALID and b"immutable" in reply.body:
            named = f"-n {self._namespace} delete configmap {self._installation}-{name}"
            raise ClusterRefused(
                doing, INVALID, "Immutable", f"it is immutable; delete it, and it is made anew: kubectl {named}"
            )
        reply.expect(doing)

    def _body(self, name: str, texts: Mapping[str, str]) -> bytes:
        named = {"name": f"{self._installation}-{name}", "labels": {MANAGED_BY: MANAGER}}
        return msgspec.json.encode(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {**named, **self._more}, "data": texts}
        )

    def _own(self, name: str) -> str:
        return f"{self._path}/{self._installation}-{name}"


class WireCaches(Wire, frozen=True):
    metadata: Meta = Meta()
    data: dict[str, str] | None = None


def node_caches(namespace: str, installation: str) -> Resource[NodeCaches]:
    """The reports of all keepers. A report in the ConfigMap of another node is not believed."""
    prefix = f"{installation}-{name_of_map('')}"

    def read(raw: msgspec.Raw) -> NodeCaches | None:
        found = msgspec.json.decode(raw, type=WireCaches)
        told = read_node_caches((found.data or {}).get(KEY, ""))
        return told if told is not None and found.metadata.name == f"{prefix}{told.node}" else None

    labels = {LABEL_INSTALLATION: installation, **CACHES_OF}
    return Resource(
        name="configmaps",
        path=in_namespace("/api/v1", namespace, "configmaps"),
        read=read,
        selector=",".join(f"{name}={value}" for name, value in labels.items()),
        key=lambda meta: meta.name.removeprefix(prefix),
    )


LIVING: Final = "status.phase!=Succeeded,status.phase!=Failed"


class CachePod(Struct, frozen=True):
    """A Pod, and the folders of its node that it mounts."""

    name: str
    uid: str
    paths: Sequence[str]


class HostPath(Wire, frozen=True):
    path: str = ""


class Volume(Wire, frozen=True):
    host_path: HostPath | None = None


class MountingSpec(Wire, frozen=True):
    volumes: list[Volume] | None = None


class MountingWirePod(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: MountingSpec = MountingSpec()


def read_cache_pod(raw: msgspec.Raw) -> CachePod:
    pod = msgspec.json.decode(raw, type=MountingWirePod)
    paths = [volume.host_path.path for volume in pod.spec.volumes or () if volume.host_path is not None]
    return CachePod(pod.metadata.name, pod.metadata.uid, paths)


def pods_of_node(namespace: str, node: str) -> Resource[CachePod]:
    """The living Pods of a node. `node` empty: the Pods that have no node yet."""
    return Resource("pods", pods_path(namespace), read_cache_pod, fields=f"spec.nodeName={node},{LIVING}")
