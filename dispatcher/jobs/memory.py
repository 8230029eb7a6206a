"""What this process remembers of its own creates. A cache: losing it costs a request, never correctness.

Unseen creates count against the caps until the watch has shown them; unanswered ones until it is known what became of
them. That is what keeps a cap when the watch lags, and one unanswered create per row (docs/protocol.md, section 4).
"""

from typing import TypeVar

import msgspec
from msgspec import Struct

from dispatcher.model.jobs import LaunchGroup
from dispatcher.model.launches import Launch, Order
from dispatcher.model.snapshot import ClusterView
from dispatcher.model.tasks import IndexedRow, Task
from dispatcher.model.verdicts import Hold, HoldReason

K = TypeVar("K")
V = TypeVar("V")
PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30
LONGEST_WISH_SECONDS = 300
"""A Retry-After is obeyed up to here: then one create asks again."""
DEFER_SECONDS = 2
ALIKE_SECONDS = 60
REFUSED_ROWS_ALIKE = 3
REFUSED_ROWS_OF_A_SUBMITTER = 10
REFUSED_EVERY_SECONDS = 1
"""How often a submitter with many refused rows may have another one tried: each costs a write that others wait for."""
MOST_REMEMBERED = 100_000


class Unseen(Struct, frozen=True):
    """A create that the watch has not shown. No resource version: not answered yet; under way: its answer may come."""

    name: str
    task_id: int
    attempt: int
    group: LaunchGroup
    submitted_by: str
    sent_at: float
    resource_version: str | None = None
    is_under_way: bool = False

    @property
    def queue(self) -> str:
        return self.group.queue

    @property
    def is_answered(self) -> bool:
        return self.resource_version is not None

    @property
    def is_awaited(self) -> bool:
        """Its answer will come, or the watch will show it: nothing about the row is to be decided before."""
        return self.is_under_way or self.is_answered


def plan_create(launch: Launch, unseen: Unseen | None, name: str) -> Launch | Hold:
    """A launch of the table, as far as our own last create of the row allows it (docs/protocol.md, section 4): one
    unanswered create at a time, repeated under its name only while the row read anew still asks for that name.
    """
    if unseen is None:
        return launch
    if unseen.is_under_way:
        return Hold(HoldReason.LAUNCHED, "its create is under way")
    if unseen.is_answered:
        return Hold(HoldReason.LAUNCHED, "Created")
    if unseen.name != name:
        return Hold(HoldReason.FINISHING, f"what became of {unseen.name} is not known yet")
    return msgspec.structs.replace(launch, is_repeat=True)


Likeness = tuple[str, bytes, str | None, bytes]


def likeness(order: Order) -> Likeness:
    """What rows share whose Jobs the API server refuses alike: submitter, kind, cache key, and placement.

    A container says where it ran, so a placement may hold what another team's container said. And a submitter's own
    rows must not hold those of another.
    """
    placement = msgspec.json.encode(order.placement, order="deterministic")
    return order.task.submitted_by, order.task.kind, order.request.cache_key, placement


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
        """It has failed and not yet succeeded since: one request at a time is enough to learn more."""
        return self._failures > 0


class Memory:
    """Unseen creates, pauses that answers ask for, and rows that the API server will never take as they are."""

    def __init__(self) -> None:
        self.unseen: dict[str, Unseen] = {}
        self.api = Breaker()
        self.quota = Breaker()
        self._templates: dict[str, Breaker] = {}
        self._parked: dict[tuple[int, int], Hold] = {}
        self._refused: dict[Likeness, tuple[int, float]] = {}
        self._refused_of: dict[str, tuple[int, float]] = {}
        self._taken: dict[tuple[str, bytes], float] = {}
        self._resting: dict[tuple[int, int], tuple[Hold, float]] = {}
        self._failed: dict[int, float] = {}
        self._deferred: dict[int, float] = {}

    def of_template(self, name: str) -> Breaker:
        """A webhook that fails for one template must not stop the others: a 500 stops its template alone."""
        return self._templates.setdefault(name, Breaker())

    def begun(self, name: str, task: Task, group: LaunchGroup, now: float) -> None:
        """From here on it counts, and nobody begins it a second time until `ended`."""
        self.unseen[name] = Unseen(name, task.id, task.attempt, group, task.submitted_by, now, is_under_way=True)

    def sent(self, name: str, now: float) -> None:
        """The POST goes out only now: its question was asked before."""
        if (unseen := self.unseen.get(name)) is not None:
            self.unseen[name] = msgspec.structs.replace(unseen, sent_at=now)

    def ended(self, name: str) -> None:
        """Its answer came, or none will."""
        if (unseen := self.unseen.get(name)) is not None:
            self.unseen[name] = msgspec.structs.replace(unseen, is_under_way=False)

    def under_way(self) -> list[Unseen]:
        return [unseen for unseen in self.unseen.values() if unseen.is_under_way]

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

    def failed(self, task: Task, now: float) -> None:
        """Whoever was tried last is tried last again, while one at a time is let through."""
        trimmed(self._failed)[task.id] = now

    def tried_at(self, task_id: int) -> float:
        return self._failed.get(task_id, float("-inf"))

    def defer(self, task_id: int, now: float) -> None:
        """Its Job is there, and the watch will show it: no need to ask at every look."""
        self._deferred = {id_: until for id_, until in self._deferred.items() if until > now}
        self._deferred[task_id] = now + DEFER_SECONDS

    def is_deferred(self, task_id: int, now: float) -> bool:
        return now < self._deferred.get(task_id, now)

    def park(self, task: Task, hold: Hold) -> None:
        """Holds a row until it or a template changes."""
        trimmed(self._parked)[task.id, task.attempt] = hold

    def refused(self, order: Order, now: float) -> None:
        """Three refused rows hold those that are alike for a minute; ten of a submitter, all but one a second."""
        submitter, kind = order.task.submitted_by, order.task.kind
        count_up(self._refused, likeness(order), now)
        count_up(self._refused_of, submitter, now)
        self._taken.pop((submitter, kind), None)

    def rests(self, order: Order, now: float) -> bool:
        """True: Jobs like this one were refused; the row is not tried again before a minute is over."""
        hold = self._why_to_rest(order, now) if self._refused else None
        if hold is not None:
            trimmed(self._resting)[order.task.id, order.task.attempt] = (hold, now + ALIKE_SECONDS)
        return hold is not None

    def _why_to_rest(self, order: Order, now: float) -> Hold | None:
        submitter = order.task.submitted_by
        count, last = self._refused.get(likeness(order), (0, now))
        if count >= REFUSED_ROWS_ALIKE and now - last < ALIKE_SECONDS:
            return Hold(
                HoldReason.POISON, f"{count} rows of this submitter, of this kind and placed alike were refused"
            )
        count, last = self._refused_of.get(submitter, (0, now))
        is_new = (submitter, order.task.kind) not in self._taken
        if not is_new or count < REFUSED_ROWS_OF_A_SUBMITTER:
            return None
        if now - last < REFUSED_EVERY_SECONDS:
            told = "rows of this submitter were refused; others of new kinds are tried one a second"
            return Hold(HoldReason.POISON, f"{count} {told}")
        self._refused_of[submitter] = (count, now)  # the row of this second
        return None

    def accepted(self, order: Order) -> None:
        """One success ends every pause that could have stopped it."""
        task = order.task
        if self._refused:
            self._refused.pop(likeness(order), None)
            trimmed(self._taken)[task.submitted_by, task.kind] = 0
        self._failed.pop(task.id, None)
        for brake in (self.api, self.quota, self.of_template(task.template)):
            brake.reset()

    def parked(self, row: Task | IndexedRow, now: float) -> Hold | None:
        """Why the API server will not take a row, or rows like it, as they are."""
        if (hold := self._parked.get((row.id, row.attempt))) is not None:
            return hold
        hold, until = self._resting.get((row.id, row.attempt), (None, now))
        return hold if now < until else None

    def forget_rows(self) -> None:
        """Templates changed, or it is another database: what was refused before may be taken now."""
        for known in (
            self._parked,
            self._refused,
            self._refused_of,
            self._taken,
            self._resting,
            self._failed,
            self._deferred,
        ):
            known.clear()
        self._templates.clear()


def count_up(known: dict[K, tuple[int, float]], key: K, now: float) -> None:
    """One more, and when; a minute without any begins anew."""
    count, last = known.get(key, (0, now))
    trimmed(known)[key] = (1 if now - last >= ALIKE_SECONDS else count + 1, now)


def trimmed(known: dict[K, V]) -> dict[K, V]:
    """Without its oldest entry where there are too many."""
    if len(known) >= MOST_REMEMBERED:
        known.pop(next(iter(known)))
    return known
