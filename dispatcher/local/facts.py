"""What is known of a container that is a process."""

from msgspec import Struct


class Order(Struct, frozen=True):
    """What a container is started as."""

    argv: list[str]
    env: dict[str, str]
    cwd: str


class Seen(Struct, frozen=True):
    """What a container came to so far; times are seconds since 1970. `is_gone`: nobody can tell how it ended."""

    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    fault: str = ""
    tail: str = ""
    is_gone: bool = False

    @property
    def is_ordered(self) -> bool:
        """It should run, and there is no word of it yet."""
        return self.started_at is None and not self.is_over

    @property
    def is_over(self) -> bool:
        return self.ended_at is not None or self.is_gone
