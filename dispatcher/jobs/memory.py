"""What this process remembers of its own creates. A cache: losing it costs a request, never correctness.

Unseen creates count against the caps until the watch has shown them; unanswered ones until it is known what became of
them. That is what keeps a cap when the watch lags, and one unanswered create per row (PROTOCOL 3.3).
"""

from collections import Counter

import msgspec
from msgspec import Struct

from dispatcher.model import Candidate, Hold, HoldReason, Task
from dispatcher.snapshot import ClusterView

PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30
POISONED_ROWS_OF_A_KIND = 3
MOST_REMEMBERED = 100_000


class Unseen(Struct, frozen=True):
    """A create that the watch has not shown. No resource version: not answered yet."""

    name: str
    task_id: int
    queue: str
    submitted_by: str
    sent_at: float
    resource_version: str | None = None

    @property
    def is_answered(self) -> bool:
        return self.resource_version is not None


class Breaker:
    """Stops a kind of request after an answer that asks for it; then lets one through to see."""

    def __init__(self) -> None:
        self._failures = 0
        self._until = float("-inf")
        self._hold: Hold | None = None

    def trip(self, hold: Hold, now: float, at_least: float = 0) -> None:
        """Opens for a pause that doubles, or for as long as the server asks."""
        if now < self._until and self._failures:
            at_least, doubling = max(at_least, self._until - now), 0.0
        else:
            doubling = min(PAUSE_SECONDS * 2**self._failures, LONGEST_PAUSE_SECONDS)
            self._failures = min(self._failures + 1, 16)
        self._until = now + max(at_least, doubling)
        self._hold = hold

    def reset(self) -> None:
        self._failures = 0
        self._until = float("-inf")
        self._hold = None

    def hold(self, now: float) -> Hold | None:
        return self._hold if now < self._until else None

    @property
    def is_probing(self) -> bool:
        """It has failed and not yet succeeded since: one request at a time is enough to learn more."""
        return self._failures > 0


class Memory:
    """Unseen creates, and rows that the API server will never take as they are."""

    def __init__(self) -> None:
        self.unseen: dict[str, Unseen] = {}
        self.api = Breaker()
        self.quota = Breaker()
        self._parked: dict[tuple[int, int], Hold] = {}
        self._poisoned: Counter[bytes] = Counter()

    def sent(self, name: str, task: Task, now: float) -> None:
        self.unseen[name] = Unseen(name, task.id, task.queue, task.submitted_by, now)

    def answered(self, name: str, resource_version: str) -> None:
        if (unseen := self.unseen.get(name)) is not None:
            self.unseen[name] = msgspec.structs.replace(unseen, resource_version=resource_version)

    def not_made(self, name: str) -> None:
        self.unseen.pop(name, None)

    def observe(self, view: ClusterView) -> None:
        """Forgets creates that the view shows, or that it is newer than: those came and went."""
        for unseen in list(self.unseen.values()):
            rv = unseen.resource_version
            if unseen.name in view.jobs or (rv is not None and view.has_seen(rv)):
                del self.unseen[unseen.name]

    def park(self, task: Task, hold: Hold) -> None:
        """Holds a row until it or a template changes. Three of a kind hold the kind: the fault is no row's."""
        if len(self._parked) >= MOST_REMEMBERED:
            self._parked.pop(next(iter(self._parked)))
        self._parked[task.id, task.attempt] = hold
        if hold.reason is HoldReason.POISON:
            self._poisoned[task.kind] += 1

    def accepted(self, task: Task) -> None:
        self._poisoned.pop(task.kind, None)

    def parked(self, row: Task | Candidate) -> Hold | None:
        """Why the API server will never take a row, or any row of its kind, as it is."""
        if (hold := self._parked.get((row.id, row.attempt))) is not None:
            return hold
        count = self._poisoned.get(row.kind, 0)
        if count < POISONED_ROWS_OF_A_KIND:
            return None
        return Hold(HoldReason.POISON, f"{count} rows of this kind were refused by the API server")

    def templates_changed(self) -> None:
        """What was refused before may be taken now."""
        self._parked.clear()
        self._poisoned.clear()
