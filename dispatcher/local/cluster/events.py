"""Events about objects, as `kubectl describe` shows them. Only the newest `KEPT` are stored."""

import secrets
import uuid
from collections import deque
from typing import Any, Final

from dispatcher.local.cluster.kinds import EVENT, Kind
from dispatcher.local.cluster.registry import Registry

Json = dict[str, Any]
KEPT: Final = 1000


class Events:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._told: deque[tuple[str, str]] = deque()

    def tell(self, kind: Kind, about: Json, reason: str, message: str, sort: str = "Normal") -> None:
        """Stores one Event. `sort`: Normal or Warning."""
        meta, now = about["metadata"], self._registry.now()
        namespace = meta.get("namespace", "default")
        key = (namespace, f"{meta['name']}.{secrets.token_hex(8)}")
        involved = {"kind": kind.kind, "apiVersion": kind.api_version, "name": meta["name"], "namespace": namespace}
        own = {"name": key[1], "namespace": namespace, "creationTimestamp": now, "uid": str(uuid.uuid4())}
        self._registry.storage.put(EVENT, key, {
            "metadata": own,
            "involvedObject": {**involved, "uid": meta["uid"]}, "reason": reason, "message": message, "type": sort,
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
        })  # fmt: skip
        self._told.append(key)
        if len(self._told) > KEPT and self._registry.storage.get(EVENT, oldest := self._told.popleft()):
            self._registry.storage.drop(EVENT, oldest)
