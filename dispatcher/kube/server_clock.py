"""The API server's clock, estimated from its answers. Ages are measured with the clock that set the times of objects.

An answer names the second that has begun, so the estimate lags by up to a second. The estimate stays until an answer
contradicts it. An answer that comes early in its second improves the estimate.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

SECOND = timedelta(seconds=1)


class ServerClock:
    """The estimate. `began`: this machine's time, used until the first answer. `clock`: monotonic seconds."""

    def __init__(self, began: datetime, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told = began, clock()
        self._date = ""

    def now(self) -> datetime:
        told, at = self._told
        return told + timedelta(seconds=self._clock() - at)

    def hear(self, date: str | None) -> None:
        """Takes the Date header of an answer. Text that is no date changes nothing."""
        if date is None or date == self._date:
            return  # of many answers in one second, the first is the most exact
        self._date = date
        try:
            told = parsedate_to_datetime(date).astimezone(UTC)
        except (TypeError, ValueError):
            return
        if not told <= self.now() < told + SECOND:
            self._told = told, self._clock()
