"""The meaning of the API server's answers to a create, and the memory of refused rows.

`Breaker`: pauses that answers of the API server ask for.

`SlowCreates`: creates that take long, or may take long, leave places to others.

`Refusals`: a row that our own rules refuse is held until it or a template changes. One that the API server refused is
tried again after minutes: a policy of the cluster may be the cause, and may be gone. Three refused rows hold similar
rows for a minute, because each try costs a write. Refused rows never hold rows of another submitter.

`read_create`: the meaning of an answer (docs/protocol.md, section 4).
"""

import re
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from dispatcher.model.errors import NOT_READY_YET, doubled
from dispatcher.model.jobs import ApiAnswer, Job
from dispatcher.model.launches import LaunchSpec, is_same
from dispatcher.model.tasks import IndexedRow, Task
from dispatcher.model.verdicts import Hold, HoldReason, NotReady

K = TypeVar("K")
V = TypeVar("V")
ALIKE_SECONDS: Final = 60
"""Seconds for which refused rows hold similar rows."""
REFUSED_ROWS_ALIKE: Final = 3
"""Refused rows after which similar rows are held."""
REFUSED_ROWS_OF_A_SUBMITTER: Final = 10
"""Refused rows after which new rows of the submitter are tried one by one."""
REFUSED_EVERY_SECONDS: Final = 1
"""Seconds between tries of new rows of a submitter with many refused rows. Each try costs a write that others need."""
MOST_REMEMBERED: Final = 100_000
"""Refusals of each sort that are remembered, at most."""
Attempt = tuple[int, int]
"""Task and attempt. A refusal ends with the attempt."""
Likeness = tuple[str, bytes, str | None, bytes]
"""Submitter, kind, cache key and placement of a row."""
PAUSE_SECONDS: Final = 0.5
"""Seconds of the first pause. The pause doubles with each failure."""
LONGEST_PAUSE_SECONDS: Final = 30
"""The longest of these pauses."""
LONGEST_WISH_SECONDS: Final = 300
"""The longest Retry-After that is obeyed. After this time one create asks again."""
SLOW_SECONDS: Final = 1
"""Seconds after which a create is slow."""
SLOW_AT_A_TIME: Final = 12
"""Slow creates under way at the same time, at most. 16 creates may be under way."""
UNKNOWN_AT_A_TIME: Final = 14
"""These, and creates of origins of which none has been quick yet, at most: a person may have many logins."""
SLOW_FOR_SECONDS: Final = 60
"""Seconds for which creates of a template and submitter count as slow after a slow one."""
Origin = tuple[str, str]
"""Template and submitter of a row."""


def origin_of(task: Task) -> Origin:
    return task.template, task.submitted_by


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
        """Whether a create failed and none has succeeded since. Then only one create at a time is sent."""
        return self._failures > 0


TOO_SLOW: Final = Hold(
    HoldReason.DISPATCHER_NOT_READY, f"{NotReady.API_THROTTLED}: creates that take long use the places for its create"
)


class SlowOrigins(Struct, frozen=True):
    """The origins whose creates take long.

    origins: those whose creates are slow.
    quick: those whose last create was quick.
    places: slow creates that may begin now.
    unknown: creates that may begin now of all origins but the quick ones.
    """

    origins: frozenset[Origin] = frozenset()
    quick: Collection[Origin] = ()
    places: int = SLOW_AT_A_TIME
    unknown: int = UNKNOWN_AT_A_TIME

    def may_begin(self, origin: Origin) -> bool:
        """Whether a create of this origin may begin now."""
        if origin in self.origins:
            return self.places > 0 and self.unknown > 0
        return origin in self.quick or self.unknown > 0

    def hold(self, origin: Origin) -> Hold | None:
        """The hold of all rows of an origin; None: no hold."""
        return None if not self.origins or self.may_begin(origin) else TOO_SLOW


class SlowCreates:
    """Which creates take long. A webhook that verifies images asks their registry, which may be slow for one team.

    If the API server is slow, all are.
    """

    def __init__(self) -> None:
        self._at: dict[Origin, float] = {}
        self._quick: dict[Origin, None] = {}

    def learn(self, origin: Origin, sent_at: float, now: float) -> None:
        """Notes that a create has its answer now."""
        if now - sent_at >= SLOW_SECONDS:
            trimmed(self._at)[origin] = now
            self._quick.pop(origin, None)
        else:
            trimmed(self._quick)[origin] = None

    def known(self, under_way: Collection[tuple[Origin, float]], now: float) -> SlowOrigins:
        """`under_way`: the creates without an answer, each with the time at which it was sent."""
        self._at = {origin: at for origin, at in self._at.items() if now - at < SLOW_FOR_SECONDS}
        origins = self._at.keys() | {origin for origin, at in under_way if now - at >= SLOW_SECONDS}
        slow = sum(origin in origins for origin, _ in under_way)
        begun = slow + sum(origin not in origins and origin not in self._quick for origin, _ in under_way)
        return SlowOrigins(frozenset(origins), self._quick.keys(), SLOW_AT_A_TIME - slow, UNKNOWN_AT_A_TIME - begun)


def likeness(order: LaunchSpec) -> Likeness:
    """What similar rows share: submitter, kind, cache key and placement. Their Jobs differ only in the command.

    The submitter is part of it, so that rows of one submitter never hold rows of another. The placement is part of it,
    because containers report their nodes: a placement may come from a container of another team.
    """
    placement = msgspec.json.encode(order.placement, order="deterministic")
    return order.task.submitted_by, order.task.kind, order.request.cache_key, placement


class RefusedRows(Struct, frozen=True):
    """The refused rows, as a copy for one cycle.

    parked: rows held until they or a template change.
    resting: rows held because similar rows were refused, and the end of the hold in seconds of this process's clock.
    """

    parked: Mapping[Attempt, Hold] = {}
    resting: Mapping[Attempt, tuple[Hold, float]] = {}

    def hold(self, row: Task | IndexedRow, now: float) -> Hold | None:
        """The hold of a row that was refused, or that is similar to refused rows; None: no hold."""
        if (hold := self.parked.get((row.id, row.attempt))) is not None:
            return hold
        hold, until = self.resting.get((row.id, row.attempt), (None, now))
        return hold if now < until else None


class Refusals:
    """Remembers at most MOST_REMEMBERED refusals of each sort."""

    def __init__(self) -> None:
        self._parked: dict[Attempt, Hold] = {}
        self._resting: dict[Attempt, tuple[Hold, float]] = {}
        """Holds of similar rows, and when each ends."""
        self._alike: dict[Likeness, tuple[int, float]] = {}
        """Number of refused rows that are alike, and when the last one was refused."""
        self._of_submitter: dict[str, tuple[int, float]] = {}
        """The same for each submitter."""
        self._accepted: dict[tuple[str, bytes], None] = {}
        """Kinds of each submitter of which a row was accepted and none was refused since. They are tried at once."""

    def rows(self, now: float = 0) -> RefusedRows:
        """A copy of the held rows. Those whose rest is over are forgotten."""
        self._resting = {attempt: rest for attempt, rest in self._resting.items() if rest[1] > now}
        return RefusedRows(dict(self._parked), dict(self._resting))

    def park(self, task: Task, hold: Hold) -> None:
        """Holds a row until it or a template changes."""
        trimmed(self._parked)[task.id, task.attempt] = hold

    def rest(self, task: Task, hold: Hold, until: float) -> None:
        """Holds a row until `until`. No event ends the hold earlier."""
        trimmed(self._resting)[task.id, task.attempt] = (hold, until)

    def refused(self, order: LaunchSpec, now: float) -> None:
        """Counts a row that the API server refused."""
        submitter, kind = order.task.submitted_by, order.task.kind
        count_up(self._alike, likeness(order), now)
        count_up(self._of_submitter, submitter, now)
        self._accepted.pop((submitter, kind), None)

    def rests(self, order: LaunchSpec, now: float) -> bool:
        """Whether the row is held now for a minute, because similar rows were refused."""
        hold = self._why_to_rest(order, now) if self._alike else None
        if hold is not None:
            trimmed(self._resting)[order.task.id, order.task.attempt] = (hold, now + ALIKE_SECONDS)
        return hold is not None

    def accepted(self, order: LaunchSpec) -> None:
        """Ends the holds of similar rows, because a Job was made."""
        if self._alike:
            self._alike.pop(likeness(order), None)
            trimmed(self._accepted)[order.task.submitted_by, order.task.kind] = None

    def forget(self) -> None:
        for known in (self._parked, self._resting, self._alike, self._of_submitter, self._accepted):
            known.clear()

    def _why_to_rest(self, order: LaunchSpec, now: float) -> Hold | None:
        submitter = order.task.submitted_by
        count, last = self._alike.get(likeness(order), (0, now))
        if count >= REFUSED_ROWS_ALIKE and now - last < ALIKE_SECONDS:
            return Hold(
                HoldReason.POISON, f"{count} rows of this submitter, of this kind and placed alike were refused"
            )
        count, last = self._of_submitter.get(submitter, (0, now))
        if (submitter, order.task.kind) in self._accepted or count < REFUSED_ROWS_OF_A_SUBMITTER:
            return None
        if now - last < REFUSED_EVERY_SECONDS:
            told = "rows of this submitter were refused; rows of new kinds are tried, one each second"
            return Hold(HoldReason.POISON, f"{count} {told}")
        self._of_submitter[submitter] = (count, now)  # this row is the one of this second
        return None


def count_up(known: dict[K, tuple[int, float]], key: K, now: float) -> None:
    """Adds one refusal of `key`, with its time. After a minute without a refusal the count begins again."""
    count, last = known.get(key, (0, now))
    trimmed(known)[key] = (1 if now - last >= ALIKE_SECONDS else count + 1, now)


def trimmed(known: dict[K, V]) -> dict[K, V]:
    """Removes the oldest entry if `known` is full. Returns `known`."""
    if len(known) >= MOST_REMEMBERED:
        known.pop(next(iter(known)))
    return known


class CreateOutcome(StrEnum):
    """Whether a Job was made, and why not."""

    CREATED = "created"
    EXISTS = "exists"  # ours or foreign: a GET is needed
    QUOTA = "quota"
    TERMINATING = "terminating"
    NO_NAMESPACE = "no-namespace"
    FORBIDDEN = "forbidden"
    DENIED = "denied"
    UNAUTHORIZED = "unauthorized"
    POISON = "poison"
    NOT_SENT = "not-sent"
    UNKNOWN = "unknown"  # maybe made: counts as active, and the same POST is sent again


OF_THE_ROW = frozenset({CreateOutcome.POISON, CreateOutcome.DENIED})
"""Answers after which no Job can be made of the row as it is."""
POISON_STATUS = frozenset({400, 413, 422})
OF_A_POLICY = re.compile(
    r'admission webhook "|policy \'[^\' ]+\' with binding \'[^\' ]+\' denied request: |'
    r'\S+ "[^" ]+" is forbidden: ValidatingAdmissionPolicy \''
)
"""Beginnings of the messages of webhooks and of mutating and validating policies. Values of a row stand later."""


def read_create(answer: ApiAnswer) -> CreateOutcome:
    """The meaning of one answer. An answer that does not say for certain that no Job was made is UNKNOWN."""
    if not answer.is_sent:
        return CreateOutcome.NOT_SENT
    if 200 <= answer.status < 300:
        return CreateOutcome.CREATED
    if not answer.is_told:
        return CreateOutcome.UNKNOWN
    if is_of_a_policy(answer.message):
        return CreateOutcome.DENIED  # first: it chooses any status from 400, and says nothing about other Jobs
    known = {
        **dict.fromkeys(POISON_STATUS, CreateOutcome.POISON),
        401: CreateOutcome.UNAUTHORIZED,
        403: read_forbidden(answer),
        404: CreateOutcome.NO_NAMESPACE,
    }
    if answer.reason == "AlreadyExists":
        known[409] = CreateOutcome.EXISTS
    return known.get(answer.status, CreateOutcome.UNKNOWN)


def read_forbidden(answer: ApiAnswer) -> CreateOutcome:
    """The cause of a 403, one of five. Kubernetes has a code for one of them. The others differ only by their text
    (apiserver `responsewriters/errors.go` and quota `admission/resourcequota/controller.go`).
    """
    if "NamespaceTerminating" in answer.causes:
        return CreateOutcome.TERMINATING
    if "exceeded quota: " in answer.message or "status unknown for quota: " in answer.message:
        return CreateOutcome.QUOTA
    if "is forbidden: User " in answer.message and " cannot create resource " in answer.message:
        return CreateOutcome.FORBIDDEN
    return CreateOutcome.UNKNOWN if NOT_READY_YET.match(answer.message) else CreateOutcome.DENIED


TIMED_OUT: Final = 504
"""A webhook did not answer, or nobody answered a proxy."""
OF_A_FIREWALL: Final = frozenset({400, 403, 406, 413, 431})
"""Statuses of the pages by which a proxy refuses one request, for its words or its size."""


def may_be_of_one_job(answer: ApiAnswer) -> bool:
    """Whether this Job alone may be the cause of an answer that does not tell what became of the create."""
    return answer.status == TIMED_OUT or (not answer.is_told and answer.status in OF_A_FIREWALL)


def is_of_a_policy(message: str) -> bool:
    """Whether the message is that of an admission policy or a webhook."""
    return bool(OF_A_POLICY.match(message))


def is_absent(answer: ApiAnswer) -> bool:
    """Whether the API server itself says that the object does not exist. A 404 from a proxy is not believed."""
    return answer.status == 404 and answer.is_told


def are_over(jobs: Iterable[Job], identity: str, left: Collection[str] = ()) -> bool:
    """Whether all Jobs of the row are over. A later attempt waits for this (docs/protocol.md, section 4).

    left: UIDs of Jobs whose Pods have ended, kept by a foreign finalizer.
    """
    return all(job.is_finished or job.uid in left for job in jobs if is_same(job.identity, identity))
