"""The Pods of one node in the API server: what the kubelet reads there, and what it writes."""

import base64
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from dispatcher.kube.client import KubeClient
from dispatcher.kube.listing import Resource
from dispatcher.kube.reflector import Reflector
from dispatcher.kube.wire import full_name
from dispatcher.local.environment import Source, references
from dispatcher.local.volumes import sources_of

Json = dict[str, Any]


class LocalPod(Struct, frozen=True):
    """A Pod as the watch shows it. `whole`: the object as JSON."""

    name: str
    uid: str
    version: int
    whole: Json


def read_pod(raw: msgspec.Raw | bytes) -> LocalPod:
    whole: Json = msgspec.json.decode(raw)
    meta = whole["metadata"]
    return LocalPod(f"{meta['namespace']}/{meta['name']}", meta["uid"], int(meta["resourceVersion"]), whole)


class LocalPods:
    """The Pods bound to the node. `wake` is called at each change."""

    def __init__(self, client: KubeClient, node: str, wake: Callable[[], None]) -> None:
        self._client = client
        bound = Resource("pods", "/api/v1/pods", read_pod, fields=f"spec.nodeName={node}", key=full_name)
        self._watched = Reflector[LocalPod](client, bound)
        self._watched.on_list(wake)
        self._watched.store.on_each(lambda _before, _after: wake())
        self._newest: dict[str, LocalPod] = {}

    async def run(self) -> None:
        """Follows the Pods until it is cancelled."""
        await self._watched.run()

    @property
    def is_synced(self) -> bool:
        return self._watched.store.is_synced

    def uids(self) -> set[str]:
        """The uids of all Pods that exist, as the watch shows them."""
        return {pod.uid for pod in self._watched.store.view().values()}

    def now(self) -> list[LocalPod]:
        """The Pods as the watch shows them, or as our own newer writes left them."""
        shown = {pod.uid: pod for pod in self._watched.store.view().values()}
        self._newest = {
            uid: pod for uid, pod in self._newest.items() if uid in shown and pod.version > shown[uid].version
        }
        return list((shown | self._newest).values())

    async def write_status(self, pod: LocalPod, status: Json) -> bool:
        """False: another client changed or deleted the Pod, and nothing was written."""
        whole = {**pod.whole, "apiVersion": "v1", "kind": "Pod", "status": status}
        reply = await self._client.request("PUT", f"{path_of(pod)}/status", msgspec.json.encode(whole))
        if reply.status in {404, 409}:
            return False
        self._newest[pod.uid] = read_pod(reply.expect(f"status of Pod {pod.name}"))
        return True

    async def delete(self, pod: LocalPod) -> None:
        """Deletes the Pod without a grace period, because nothing of it is left on the node."""
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}}
        reply = await self._client.request("DELETE", path_of(pod), msgspec.json.encode(options))
        if reply.status not in {404, 409}:
            reply.expect(f"delete Pod {pod.name}")

    async def sources(self, pod: LocalPod) -> dict[Source, dict[str, str]]:
        """The ConfigMaps and Secrets that containers and volumes name, decoded. Absent ones are left out."""
        namespace, found = pod.whole["metadata"]["namespace"], dict[Source, dict[str, str]]()
        named = {source for container in pod.whole["spec"]["containers"] for source in references(container)}
        for volume in pod.whole["spec"].get("volumes", ()):
            named |= {source for source, _ in sources_of(volume)}
        for kind, name in named:
            reply = await self._client.request("GET", f"/api/v1/namespaces/{namespace}/{kind.lower()}s/{name}")
            if reply.status != 404:
                held = msgspec.json.decode(reply.expect(f"read {kind} {name}")).get("data") or {}
                found[kind, name] = {k: read_secret(v) if kind == "Secret" else v for k, v in held.items()}
        return found


def read_secret(value: str) -> str:
    """The decoded value. Bytes that are not UTF-8 reach environment and files unchanged."""
    return base64.b64decode(value).decode(errors="surrogateescape")


def path_of(pod: LocalPod) -> str:
    namespace, name = pod.name.split("/")
    return f"/api/v1/namespaces/{namespace}/pods/{name}"
