"""The API server's clock, as its answers tell it: ages and ends are taken against the clock that set them.

An answer names a second that has begun, so the estimate lags by up to one. It is kept as long as answers do not
contradict it, and each of them that comes early in its second brings it nearer.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

SECOND = timedelta(seconds=1)


class ServerClock:
    """`began`: this machine's own word, until the first answer; `clock`: seconds, from whenever."""

    def __init__(self, began: datetime, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told = began, clock()
        self._date = ""

    def now(self) -> datetime:
        told, at = self._told
        return told + timedelta(seconds=self._clock() - at)

    def hear(self, date: str | None) -> None:
        """The Date header of an answer. One that is no date leaves the clock as it is."""
        if date is None or date == self._date:
            return  # a second has many answers, and the first says most
        self._date = date
        try:
            told = parsedate_to_datetime(date).astimezone(UTC)
        except (TypeError, ValueError):
            return
        if not told <= self.now() < told + SECOND:
            self._told = told, self._clock()
