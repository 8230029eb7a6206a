"""Notices about objects. A notice becomes an Event, which `kubectl describe` shows below the object."""

from collections import Counter
from collections.abc import Sequence
from itertools import islice

from msgspec import Struct

MOST, MOST_TRIES = 1000, 10


class Notice(Struct, frozen=True, gc=False):
    """One notice.

    kind, name: the object; `name` is `namespace/name`, or `/name` of a Node.
    uid: tells the object from another one of the same name.
    reason, words: reason and message of the Event.
    is_warning: type Warning instead of Normal.
    """

    kind: str
    name: str
    uid: str
    reason: str
    words: str
    is_warning: bool = False


class Notices:
    """Notices that wait to be written, oldest first. Each object and reason has only its newest notice.

    Not guaranteed: that all are written. At most MOST notices wait, and further ones are dropped. A notice that could
    not be written MOST_TRIES times is dropped, too.
    """

    def __init__(self) -> None:
        self._due: dict[tuple[str, str], Notice] = {}
        self._tries: Counter[tuple[str, str]] = Counter()
        self.dropped: Counter[str] = Counter()
        """Number of dropped notices, by reason."""

    def say(self, notice: Notice) -> None:
        key = notice.uid, notice.reason
        if len(self._due) < MOST or key in self._due:
            self._due[key] = notice
        else:
            self.dropped[notice.reason] += 1

    def due(self, most: int) -> Sequence[Notice]:
        """The oldest notices, at most `most`. They stay until `told` removes them."""
        return list(islice(self._due.values(), most))

    def told(self, notice: Notice) -> None:
        """Removes a notice that was written, unless a newer one has replaced it."""
        key = notice.uid, notice.reason
        if self._due.get(key) is notice:
            del self._due[key]
            self._tries.pop(key, None)

    def put_off(self, notice: Notice) -> None:
        """Moves a notice that could not be written behind the others."""
        key = notice.uid, notice.reason
        self._tries[key] += 1
        newest = self._due.pop(key, notice)
        if self._tries[key] < MOST_TRIES:
            self._due[key] = newest
        else:
            del self._tries[key]
            self.dropped[notice.reason] += 1
