"""One row with its Jobs, its containers, two dispatchers and a janitor: a state of the model.

All are tuples of small numbers, because a million of them are hashed. A uid is made of attempt, launch and the number
of the object among those of its name; a number that nothing refers to any more is given again, which loses nothing:
uids are only ever compared.
"""

from functools import cache
from typing import Final, NamedTuple

from tests.model.row import End, Return, Row

ACTIVE: Final = 0
FAILING: Final = 1  # FailureTarget: disrupted, its Pod is not gone yet
COMPLETE: Final = 2
BROKEN: Final = 3  # Failed by its container's exit or by the end of its Pod
DISRUPTED: Final = 4  # Failed by the rule of its podFailurePolicy
PHASES: Final = ("active", "failing", "complete", "failed", "disrupted")

NEW: Final = 0  # has not asked, or runs and will ask
UNTOLD: Final = 1  # its start was accepted, the answer was lost
HOLDS: Final = 2  # has a token
REPORTED: Final = 3
CRASHED: Final = 4
REFUSED: Final = 5  # was given no row, ended with 0
NEVER_RAN: Final = 6
SILENT: Final = 7  # ended with 0, without a report where one was due

DELETING: Final = 1
LOST: Final = 2  # its node is not reached
LATE: Final = 4  # made by a POST that landed after its sender's leadership

HIDDEN_PENDING: Final = 4
RAN: Final = 8


class Job(NamedTuple):
    attempt: int
    launch: int
    made: int  # how many of this name there were before
    phase: int = ACTIVE
    unstarted: int = 0
    disrupted: int = 0
    flags: int = 0
    container: int = NEW

    @property
    def uid(self) -> int:
        return uid_of(self.attempt, self.launch, self.made)


class Seen(NamedTuple):
    """A Job as a dispatcher sees it: of its container only whether its Pod is pending, or ran."""

    attempt: int
    launch: int
    made: int
    phase: int
    unstarted: int
    disrupted: int
    flags: int

    @property
    def uid(self) -> int:
        return uid_of(self.attempt, self.launch, self.made)


class Ghost(NamedTuple):
    """A container whose Pod object is gone, or a second Pod of its Job (`pod` 1)."""

    attempt: int
    launch: int
    made: int
    container: int
    pod: int = 0

    @property
    def uid(self) -> int:
        return uid_of(self.attempt, self.launch, self.made)


class Create(NamedTuple):
    """A launch on its way to the API server."""

    stage: int
    attempt: int
    launch: int
    unstarted: int
    disrupted: int
    ask: str


QUESTION: Final = 0  # its live question is not answered yet
SENT: Final = 1
UNANSWERED: Final = 2  # no answer came, and no POST of it is on the way
ASKED_AGAIN: Final = 3  # unanswered, and its live question is asked for the repeat

MADE: Final = Create(4, 0, 0, 0, 0, "")
"""An answered create that the view does not show yet."""

View = tuple[Seen, ...]
Intent = Row | Return | End | tuple[int, int] | None
"""What a janitor holds: the row as read, or the call that it will make; (attempt, token): to end a cancelled run."""


class Left(NamedTuple):
    """What may still happen. `foreign`: somebody deleted a tombstone of a live row (docs/protocol.md, section 11)."""

    faults: int = 0
    cancels: int = 0
    retries: int = 0
    deposed: int = 0
    restores: int = 0
    creates: int = 0
    foreign: int = 0


class CacheHistory(NamedTuple):
    """What the checks remember of the row's attempt: accepted launches as bits, and how many launches ended by
    themselves, started or not, as it was when their Job ended.
    """

    accepted: int = 0
    failed: int = 0
    unstarted: int = 0


class State(NamedTuple):
    row: Row
    left: Left
    past: CacheHistory = CacheHistory()
    jobs: tuple[Job, ...] = ()
    ghosts: tuple[Ghost, ...] = ()
    view: View = ()
    create: Create | None = None
    late: Create | None = None
    stale: View | Create | Row | None = None
    janitor: Intent = None
    backup: tuple[Row, CacheHistory] | None = None


def uid_of(attempt: int, launch: int, made: int) -> int:
    return (attempt * 8 + launch) * 4 + made + 1


@cache
def seen(jobs: tuple[Job, ...]) -> View:
    """What a dispatcher that looks now sees."""
    return tuple(Seen(*job[:6], job.flags & (DELETING | LOST) | told(job)) for job in jobs)


@cache
def tidied(jobs: tuple[Job, ...], attempt: int, is_over: bool) -> tuple[Job, ...]:
    """Without what means nothing any more, and without what nobody can tell apart.

    A finished Job whose row is over or past its attempt is swept sooner or later; that it stays for a while only keeps
    its name from a late POST, which may as well never land. How a container ended tells only a refused one from others,
    and one that never ran.
    """
    kept = [job for job in jobs if not is_finished(job) or not (is_over or job.attempt < attempt)]
    return tuple(job._replace(container=SILENT) if job.container == CRASHED else job for job in kept)


@cache
def tidied_view(view: View, attempt: int, is_over: bool) -> View:
    """No decision looks at a finished Job whose row is past its attempt, and no attempt comes back."""
    return tuple(job for job in view if not is_finished(job) or not (is_over or job.attempt < attempt))


def told(job: Job) -> int:
    if job.phase in {ACTIVE, FAILING}:
        return HIDDEN_PENDING if job.container == NEW else 0
    return 0 if job.container == NEVER_RAN else RAN


def is_finished(job: Job | Seen) -> bool:
    return job.phase >= COMPLETE


def find(jobs: tuple[Job, ...], attempt: int, launch: int) -> Job | None:
    return next((job for job in jobs if job.attempt == attempt and job.launch == launch), None)


def find_uid(jobs: tuple[Job, ...], uid: int) -> Job | None:
    return next((job for job in jobs if job.uid == uid), None)


@cache
def put(jobs: tuple[Job, ...], old: Job | None, new: Job | None) -> tuple[Job, ...]:
    """With `new` in the place of `old`; the same tuple for the same Jobs, so that states share it."""
    return tuple(sorted([job for job in jobs if job != old] + ([new] if new else [])))


@cache
def put_ghost(ghosts: tuple[Ghost, ...], old: Ghost | None, new: Ghost | None) -> tuple[Ghost, ...]:
    return tuple(sorted([ghost for ghost in ghosts if ghost != old] + ([new] if new else [])))


def unused(state: State, attempt: int, launch: int) -> int:
    """A number for a new Job of this name that nothing knows."""
    taken = {uid for part in state for uid in uids(part)}
    return next(made for made in range(4) if uid_of(attempt, launch, made) not in taken)


def uids(part: object) -> list[int]:
    """The uids that a part of a state knows."""
    if isinstance(part, Row):
        return [part.uid, (part.token - 1) // 2]
    if isinstance(part, End | Job | Seen | Ghost):
        return [part.uid]
    if isinstance(part, Return):
        return [(part.token - 1) // 2]
    if isinstance(part, Create | Left | CacheHistory) or not isinstance(part, tuple):
        return []
    return [uid for one in part for uid in uids(one)] + [(one - 1) // 2 for one in part if isinstance(one, int)]
