"""A state of the model: one row with its Jobs, its containers, two dispatchers and a janitor.

All parts are tuples of small numbers, because the search hashes a million of them. A uid is made of attempt, launch and
the number of the object among the objects of its name. A number that no part refers to any more is used again. That
loses nothing, because uids are only compared.
"""

from functools import cache
from typing import Final, NamedTuple

from tests.model.row import End, Return, Row

ACTIVE: Final = 0
FAILING: Final = 1  # FailureTarget: disrupted, and its Pod is not gone yet
COMPLETE: Final = 2
BROKEN: Final = 3  # Failed by its container's exit or by the end of its Pod
DISRUPTED: Final = 4  # Failed by the rule of its podFailurePolicy
PHASES: Final = ("active", "failing", "complete", "failed", "disrupted")

NEW: Final = 0  # has not called task_start yet
UNTOLD: Final = 1  # its start was accepted, and the answer was lost
HOLDS: Final = 2  # has a token
REPORTED: Final = 3
CRASHED: Final = 4
REFUSED: Final = 5  # its start was refused, and it ended with 0
NEVER_RAN: Final = 6
SILENT: Final = 7  # ended with 0 and without a report

DELETING: Final = 1
LOST: Final = 2  # its node is unreachable
LATE: Final = 4  # made by a POST that arrived after its sender had lost the leadership

HIDDEN_PENDING: Final = 4
RAN: Final = 8
UNPLACED: Final = 16  # its Pod has no node yet
MARKED: Final = 32  # marked as unplaced: its probe is taken back
SECOND: Final = 64  # its kubelet has started its container again, in the same Pod
TOLD: Final = 128  # somebody else deletes its Pod, which has not ended
NOTED: Final = 256  # its Job tells that somebody else has deleted its Pod
OURS: Final = 512  # its Job tells that we delete its Pod
BY_NODE: Final = 1024  # its Job tells that a kubelet has rejected its Pod
REJECTED: Final = 2048  # the kubelet of its node has rejected its Pod
GONE: Final = 4096  # its rejected Pod is gone
NOTES: Final = NOTED | OURS | BY_NODE


class Job(NamedTuple):
    attempt: int
    launch: int
    made: int  # how many Jobs of this name were made before
    phase: int = ACTIVE
    unstarted: int = 0
    disrupted: int = 0
    flags: int = 0
    container: int = NEW
    unplaced: int = 0

    @property
    def uid(self) -> int:
        return uid_of(self.attempt, self.launch, self.made)


class Seen(NamedTuple):
    """A Job as a dispatcher sees it. The container is not part of it; flags tell if the Pod is pending, or has run."""

    attempt: int
    launch: int
    made: int
    phase: int
    unstarted: int
    disrupted: int
    flags: int
    unplaced: int = 0

    @property
    def uid(self) -> int:
        return uid_of(self.attempt, self.launch, self.made)


class Detached(NamedTuple):
    """A container without a Pod object, or the container of a second Pod of its Job (`pod` 1)."""

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
    unplaced: int = 0


QUESTION: Final = 0  # its live question has no answer yet
SENT: Final = 1
UNANSWERED: Final = 2  # no answer came, and no POST is on its way
ASKED_AGAIN: Final = 3  # unanswered, and the live question of the repeat has no answer yet

MADE: Final = Create(4, 0, 0, 0, 0, "")
"""An answered create that the view does not show yet."""

View = tuple[Seen, ...]
Intent = Row | Return | End | tuple[int, int] | None
"""The row as the janitor read it, or the call that the janitor will make. A tuple (attempt, token) is the call of
`janitor_cancel`.
"""


class Left(NamedTuple):
    """How often each event may still happen.

    creates: the creates so far.
    pauses: how often a probe may be taken back.
    foreign: 1 after somebody deleted a tombstone of a live row (docs/protocol.md, section 11).
    """

    faults: int = 0
    cancels: int = 0
    retries: int = 0
    deposed: int = 0
    restores: int = 0
    creates: int = 0
    foreign: int = 0
    pauses: int = 0


class AttemptHistory(NamedTuple):
    """The row's attempt so far, as the laws need it.

    accepted: one bit for each launch with an accepted start.
    failed: runs that failed by themselves after their start.
    unstarted: launches that failed by themselves before a start. Both counts are of the moment when the Job ended.
    """

    accepted: int = 0
    failed: int = 0
    unstarted: int = 0


class State(NamedTuple):
    row: Row
    left: Left
    history: AttemptHistory = AttemptHistory()
    jobs: tuple[Job, ...] = ()
    detached: tuple[Detached, ...] = ()
    view: View = ()
    create: Create | None = None
    late: Create | None = None
    stale: View | Create | Row | None = None
    janitor: Intent = None
    backup: tuple[Row, AttemptHistory] | None = None


def uid_of(attempt: int, launch: int, made: int) -> int:
    return (attempt * 8 + launch) * 4 + made + 1


@cache
def seen(jobs: tuple[Job, ...]) -> View:
    """The Jobs as a dispatcher with a fresh view sees them."""
    kept = DELETING | LOST | UNPLACED | MARKED | TOLD | NOTES | REJECTED | GONE
    return tuple(Seen(*job[:6], job.flags & kept | pod_flags(job), job.unplaced) for job in jobs)


@cache
def tidied(jobs: tuple[Job, ...], attempt: int, is_over: bool) -> tuple[Job, ...]:
    """The Jobs without the differences that cannot matter any more.

    A finished Job is left out if its row is terminal or past its attempt: the sweep deletes it sooner or later. Until
    then it only blocks its name for a late POST, and a late POST may as well never arrive. Ends of containers count as
    one, except a refused container and one that never ran.
    """
    kept = [job for job in jobs if not is_finished(job) or not (is_over or job.attempt < attempt)]
    return tuple(job._replace(container=SILENT) if job.container == CRASHED else job for job in kept)


@cache
def tidied_view(view: View, attempt: int, is_over: bool) -> View:
    """The view without finished Jobs of earlier attempts or of a terminal row: no decision looks at them."""
    return tuple(job for job in view if not is_finished(job) or not (is_over or job.attempt < attempt))


def pod_flags(job: Job) -> int:
    if job.phase in {ACTIVE, FAILING}:
        return HIDDEN_PENDING if job.container == NEW and not job.flags & SECOND else 0
    return 0 if job.container == NEVER_RAN else RAN


def is_finished(job: Job | Seen) -> bool:
    return job.phase >= COMPLETE


def find(jobs: tuple[Job, ...], attempt: int, launch: int) -> Job | None:
    return next((job for job in jobs if job.attempt == attempt and job.launch == launch), None)


def find_uid(jobs: tuple[Job, ...], uid: int) -> Job | None:
    return next((job for job in jobs if job.uid == uid), None)


@cache
def put(jobs: tuple[Job, ...], old: Job | None, new: Job | None) -> tuple[Job, ...]:
    """The Jobs with `new` in place of `old`. Equal Jobs give the same tuple object, so that states share it."""
    return tuple(sorted([job for job in jobs if job != old] + ([new] if new else [])))


@cache
def put_detached(detached: tuple[Detached, ...], old: Detached | None, new: Detached | None) -> tuple[Detached, ...]:
    return tuple(sorted([detached_one for detached_one in detached if detached_one != old] + ([new] if new else [])))


def unused(state: State, attempt: int, launch: int) -> int:
    """A number for a new Job of this name that no part of the state refers to."""
    taken = {uid for part in state for uid in uids(part)}
    return next(made for made in range(4) if uid_of(attempt, launch, made) not in taken)


def uids(part: object) -> list[int]:
    """The uids that a part of a state refers to."""
    if isinstance(part, Row):
        return [part.uid, (part.token - 1) // 2]
    if isinstance(part, End | Job | Seen | Detached):
        return [part.uid]
    if isinstance(part, Return):
        return [(part.token - 1) // 2]
    if isinstance(part, Create | Left | AttemptHistory) or not isinstance(part, tuple):
        return []
    return [uid for one in part for uid in uids(one)] + [(one - 1) // 2 for one in part if isinstance(one, int)]
