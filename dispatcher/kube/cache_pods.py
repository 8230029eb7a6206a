"""The Pods that use folders of one node, or may come to use them."""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct

from dispatcher.kube.job_api import pods_path
from dispatcher.kube.listing import Resource
from dispatcher.kube.wire import Meta, Wire

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
    """The living Pods of a node. `node` is empty: those that have no node yet."""
    return Resource("pods", pods_path(namespace), read_cache_pod, fields=f"spec.nodeName={node},{LIVING}")
