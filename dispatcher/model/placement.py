"""Where a Pod has to go, and where it had better go."""

from collections.abc import Mapping

from msgspec import Struct


class Pool(Struct, frozen=True):
    """The set of nodes that a Pod is bound to, by a label of theirs; private: it has them for itself, by a taint."""

    label: str
    value: str
    is_private: bool = False


class Placement(Struct, frozen=True):
    """Where a Pod has to go, where it had better go, what is told of it there, and the cache that it finds."""

    pool: Pool | None = None
    preferred: tuple[str, ...] = ()
    notes: Mapping[str, str] = {}
    cache_path: str = ""
