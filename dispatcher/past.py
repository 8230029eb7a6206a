"""What is known of earlier runs of a cache key, and where that, and its pool, put the next."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct


class Use(Struct, frozen=True):
    """What a run really used, on the average: cores and bytes."""

    cpu: float
    memory: float


class Run(Struct, frozen=True):
    """A run that succeeded: its Pod, and when, by the database's clock."""

    pod: str
    began: datetime
    ended: datetime


class Past(Struct, frozen=True):
    """What is known of earlier runs of a queue's cache key: nodes, the newest first, and uses. Advice, no bound."""

    nodes: tuple[str, ...] = ()
    uses: tuple[Use, ...] = ()


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
