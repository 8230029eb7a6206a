"""What is known of earlier runs of a cache key."""

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


class CacheHistory(Struct, frozen=True):
    """What is known of earlier runs of a queue's cache key: nodes, the newest first, and uses. Advice, no bound."""

    nodes: tuple[str, ...] = ()
    uses: tuple[Use, ...] = ()
