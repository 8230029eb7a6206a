"""Nodes that a Pod must use, and nodes that it should use."""

from collections.abc import Mapping

from msgspec import Struct


class Pool(Struct, frozen=True):
    """A set of nodes that have one label. `is_private`: a taint keeps all other Pods away."""

    label: str
    value: str
    is_private: bool = False


class Placement(Struct, frozen=True):
    """Placement of one Pod.

    pool: the nodes that it must use; None: any node.
    preferred: names of the nodes that it should use, the last used one first.
    avoided: names of nodes that it should not use, because they are kept for other Pods.
    notes: annotations of the Pod about earlier runs.
    cache_path: its cache directory on the node; empty: none.
    """

    pool: Pool | None = None
    preferred: tuple[str, ...] = ()
    avoided: tuple[str, ...] = ()
    notes: Mapping[str, str] = {}
    cache_path: str = ""
