"""What is to be told about an object: it becomes an Event, which `kubectl describe` shows below the object."""

from collections import Counter
from collections.abc import Sequence
from itertools import islice

from msgspec import Struct

MOST, MOST_TRIES = 1000, 10


class Notice(Struct, frozen=True, gc=False):
    """`name` with its namespace before a slash; `uid`: an object of the same name may be another."""

    kind: str
    name: str
    uid: str
    reason: str
    words: str
    is_warning: bool = False


class Notices:
    """In the order in which they came up; of an object and a reason the newest alone.

    Not guaranteed: that all are told. Of a burst MOST wait for their turn, and the rest is dropped, as is one that
    could not be told MOST_TRIES times.
    """

    def __init__(self) -> None:
        self._due: dict[tuple[str, str], Notice] = {}
        self._tries: Counter[tuple[str, str]] = Counter()
        self.dropped: Counter[str] = Counter()
        """How many, by reason."""

    def say(self, notice: Notice) -> None:
        key = notice.uid, notice.reason
        if len(self._due) < MOST or key in self._due:
            self._due[key] = notice
        else:
            self.dropped[notice.reason] += 1

    def due(self, most: int) -> Sequence[Notice]:
        """Those that are next; they stay until they are told."""
        return list(islice(self._due.values(), most))

    def told(self, notice: Notice) -> None:
        """Unless there is a newer one by now."""
        key = notice.uid, notice.reason
        if self._due.get(key) is notice:
            del self._due[key]
            self._tries.pop(key, None)

    def put_off(self, notice: Notice) -> None:
        """It could not be told: the others first."""
        key = notice.uid, notice.reason
        self._tries[key] += 1
        newest = self._due.pop(key, notice)
        if self._tries[key] < MOST_TRIES:
            self._due[key] = newest
        else:
            del self._tries[key]
            self.dropped[notice.reason] += 1
