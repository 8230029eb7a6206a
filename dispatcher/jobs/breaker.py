"""Pauses that answers of the API server ask for."""

from typing import Final

from dispatcher.model.backoff import doubled
from dispatcher.model.verdicts import Hold

PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 30
LONGEST_WISH_SECONDS: Final = 300
"""The longest Retry-After that is obeyed. After this time one create asks again."""


class Breaker:
    """Stops creates after an answer that asks for a pause. Then one create at a time is sent until one succeeds."""

    def __init__(self) -> None:
        self._failures = 0
        self._until = float("-inf")
        self._hold: Hold | None = None

    def trip(self, hold: Hold, now: float, at_least: float = 0) -> None:
        """Stops creates for a pause that doubles with each failure, or for `at_least` seconds if that is longer."""
        if now < self._until and self._failures:
            at_least, doubling = max(at_least, self._until - now), 0.0
        else:
            doubling = doubled(PAUSE_SECONDS, self._failures, LONGEST_PAUSE_SECONDS)
            self._failures += 1
        self._until = now + max(min(at_least, LONGEST_WISH_SECONDS), doubling)
        self._hold = hold

    def reset(self) -> None:
        self._failures = 0
        self._until = float("-inf")
        self._hold = None

    def hold(self, now: float) -> Hold | None:
        return self._hold if now < self._until else None

    @property
    def is_probing(self) -> bool:
        """A create failed, and none has succeeded since. Only one create at a time is sent."""
        return self._failures > 0
