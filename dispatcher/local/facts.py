"""A container that is a process: how to start it, and its state."""

from msgspec import Struct


class Order(Struct, frozen=True):
    """The process to start for a container."""

    argv: list[str]
    env: dict[str, str]
    cwd: str


class Seen(Struct, frozen=True):
    """The state of a container. Times are seconds since 1970.

    started_at: when its process started.
    ended_at: when it ended.
    exit_code: its exit status; 128 + n after signal n.
    fault: why it could not be started.
    tail: the end of its log.
    is_gone: it ended, and how it ended is unknown.
    """

    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    fault: str = ""
    tail: str = ""
    is_gone: bool = False

    @property
    def is_ordered(self) -> bool:
        """The container should run, and has neither started nor ended yet."""
        return self.started_at is None and not self.is_over

    @property
    def is_over(self) -> bool:
        return self.ended_at is not None or self.is_gone
