"""What cache keepers tell, as the ConfigMaps of our own namespace hold it."""

from urllib.parse import quote

import msgspec

from dispatcher.kube.listing import Resource
from dispatcher.kube.wire import Meta, Wire
from dispatcher.model.identity import LABEL_INSTALLATION
from dispatcher.model.node_caches import CACHES_OF, KEY, NodeCaches, name_of_map, read_node_caches


class WireCaches(Wire, frozen=True):
    metadata: Meta = Meta()
    data: dict[str, str] | None = None


def node_caches(namespace: str, installation: str) -> Resource[NodeCaches]:
    """The words of all keepers. Those in a ConfigMap of another node's name are not believed."""
    prefix = f"{installation}-{name_of_map('')}"

    def read(raw: msgspec.Raw) -> NodeCaches | None:
        found = msgspec.json.decode(raw, type=WireCaches)
        told = read_node_caches((found.data or {}).get(KEY, ""))
        return told if told is not None and found.metadata.name == f"{prefix}{told.node}" else None

    labels = {LABEL_INSTALLATION: installation, **CACHES_OF}
    return Resource(
        name="configmaps",
        path=f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps",
        read=read,
        selector=",".join(f"{name}={value}" for name, value in labels.items()),
        key=lambda meta: meta.name.removeprefix(prefix),
    )
