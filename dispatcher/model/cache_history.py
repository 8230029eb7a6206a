"""Earlier runs of a cache key."""

from datetime import datetime

from msgspec import Struct


class Use(Struct, frozen=True):
    """Average real use of a run: `cpu` in cores, `memory` in bytes."""

    cpu: float
    memory: float


class Run(Struct, frozen=True):
    """A run that succeeded: its Pod, its start and its end. Times are by the database's clock."""

    pod: str
    began: datetime
    ended: datetime


class CacheHistory(Struct, frozen=True):
    """Nodes (newest first) and real use of earlier runs of a queue's cache key. It is advice, not a limit.

    cold: those of the nodes that have no cache yet.
    """

    nodes: tuple[str, ...] = ()
    uses: tuple[Use, ...] = ()
    cold: tuple[str, ...] = ()
