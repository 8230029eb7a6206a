"""A Pod that asks for a node: by what it may be reserved for, and what it asks for."""

from collections.abc import Collection
from typing import Final

from msgspec import Struct

from dispatcher.amounts import Amounts
from dispatcher.placement.wire import Pod, asks
from dispatcher.room import keys_of

CRITICAL: Final = 2_000_000_000
"""system-cluster-critical, and above it system-node-critical."""
OF_NODES: Final = frozenset({("apps/v1", "DaemonSet"), ("v1", "Node")})
"""Who controls Pods that belong to their node: daemons, and mirrors of static Pods."""


class Asker(Struct, frozen=True, gc=False):
    """`name` with its namespace; `keys`: what a reservation may call it, each once; `is_exempt`: what a node cannot do
    without.
    """

    name: str
    keys: Collection[str]
    asks: Amounts
    is_exempt: bool = False
    uid: str = ""


def read_asker(pod: Pod) -> Asker:
    meta, owners = pod.metadata, pod.metadata.owner_references or []
    keys = keys_of(meta.namespace, meta.name, meta.uid, meta.labels or {}, (owner.uid for owner in owners))
    controllers = {(owner.api_version, owner.kind) for owner in owners if owner.controller}
    is_exempt = (pod.spec.priority or 0) >= CRITICAL or not controllers.isdisjoint(OF_NODES)
    return Asker(f"{meta.namespace}/{meta.name}", keys, asks(pod), is_exempt, meta.uid)
