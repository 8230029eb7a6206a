"""What must hold: S1-S6, S8-S11 and I1 of docs/protocol.md, section 10. If one does not, `Broken` tells which."""

from collections.abc import Sequence
from functools import cache

from dispatcher.model.verdicts import PARKED, HoldReason
from tests.model.row import CANCELLED, FAILED, PROCESSING, SUCCEEDED, WAITING, Call, End, Gave, Row, is_over
from tests.model.state import (
    BROKEN,
    COMPLETE,
    DELETING,
    HOLDS,
    LATE,
    NEVER_RAN,
    REFUSED,
    SENT,
    UNTOLD,
    Create,
    Intent,
    Job,
    Seen,
    State,
    View,
    find,
    find_uid,
    is_finished,
    seen,
)
from tests.model.world import TWIN, Broken, World


def check_start(world: World, state: State, call: Call, gave: Gave) -> None:
    row = state.row
    if gave is Gave.SAME and (row.uid, row.pod) != (call.uid, call.pod):
        raise Broken("S1: two Pods hold one token", "a second Pod asks for the row, too")
    if gave is not Gave.NEW:
        return
    by = "launch {} starts"
    who = (call.attempt, call.launch)
    if row.attempt != call.attempt:
        raise Broken("S4: a start of another attempt is accepted", by, who)
    if is_over(row):
        raise Broken("S3: a row that is over is started", by, who)
    if row.cancel:
        raise Broken("S8: a row is started whose cancel was asked", by, who)
    if state.past.accepted >> call.launch & 1:
        raise Broken("S4: two starts of one launch are accepted", by, who)
    if state.past.accepted >> call.launch:
        raise Broken("S4: an older launch is accepted after a newer one", by, who)
    check_takeover(world, state, who)


def check_takeover(world: World, state: State, who: tuple[int, int]) -> None:
    if world.config.max_failures == 1 and state.past.accepted:
        raise Broken("S11: a task with max_failures 1 is started twice", "launch {} starts", who)
    if state.row.status != PROCESSING or state.left.foreign:
        return
    holder = find_uid(state.jobs, state.row.uid)
    if holder and lives(holder):
        raise Broken("S1: the run of a living Job is taken over", "launch {} starts", who)


def lives(job: Job) -> bool:
    return not is_finished(job) and job.container in {UNTOLD, HOLDS} and not job.flags & DELETING


def check_finish(state: State, call: Call, after: Row, max_failures: int) -> None:
    row, uid = state.row, call.uid
    if row.status != PROCESSING or (row.uid, row.pod) != (uid, call.pod):
        raise Broken("S2: a report is accepted that is not the newest start's", "{} reports", uid)
    if row.cancel and after.status not in {SUCCEEDED, CANCELLED}:
        raise Broken("S8: a cancelled run does not end", "{} reports", uid)
    if after.status == WAITING and after.failures >= max_failures:
        raise Broken("S5: a row waits again that has used its failures up", "{} reports", uid)
    check_next(row, after)


def check_next(row: Row, after: Row) -> None:
    if after.status == WAITING and (after.launch or after.cancel or after.token or after.attempt <= row.attempt):
        raise Broken("S9: a row is waiting again with something of its last attempt", "the row waits again")
    if is_over(after) and after.token:
        raise Broken("S9: a row that is over has a token", "the row ends")


def check_retry(row: Row, after: Row) -> None:
    check_next(row, after)


def check_launch(world: World, state: State, number: int, view: View) -> None:
    row, by = state.row, "a dispatcher decides to launch"
    if any(job.attempt == row.attempt and not is_finished(job) for job in view):
        raise Broken("I1: a launch is decided beside an unfinished Job that is seen", by)
    if is_over(row):
        raise Broken("S3: a launch is decided for a row that is over", by)
    if row.cancel and not state.stale:
        raise Broken("S8: a launch is decided for a row whose cancel was asked", by)
    newest = max((job for job in state.jobs if job.attempt == row.attempt), key=lambda job: job.launch, default=None)
    is_code = world.config.report == "exit-code" and row.status == WAITING
    if is_code and newest and number > newest.launch and has_exited(world, newest) and newest.container != NEVER_RAN:
        raise Broken("S11: a task whose exit code is its report has ended, and is launched again", by)


def check_sweep(state: State, judged: Seen) -> None:
    row, job = state.row, find_uid(state.jobs, judged.uid)
    if job is None or not is_finished(job):
        raise Broken("S6: the sweep hits a Job that it did not judge, or an unfinished one", "{} is swept", judged)
    if job.attempt > row.attempt or (job.attempt == row.attempt and not is_over(row)):
        raise Broken("S6: the sweep removes a Job that counts", "{} is swept", judged)


def check_removal(state: State, kind: str, judged: Seen) -> None:
    """What is removed because it is unfinished must not be a tombstone by now, nor another object of its name."""
    hit = find(state.jobs, judged.attempt, judged.launch)
    counts = hit is not None and hit.attempt == state.row.attempt and not is_over(state.row)
    if kind == "jobs" and hit and counts and (hit.uid != judged.uid or is_finished(hit)):
        raise Broken("S6: a removal hits what it did not judge", "a dispatcher deletes {}", judged)


def check_closing(world: World, state: State, asked: Intent, after: Row) -> None:
    """The janitor's call hit the row."""
    row = state.row
    assert asked is not None
    if isinstance(asked, Row):
        return
    by = "the janitor acts"
    if is_over(row):
        raise Broken("S10: the janitor ends a row that was over", by)
    if row.attempt != asked[0]:
        raise Broken("S10: the janitor judged another attempt", by)
    holder = find_uid(state.jobs, row.uid) if row.status == PROCESSING else None
    if holder and lives(holder):
        raise Broken("S10: the janitor ends the run of a living Job", by)
    if row.cancel and after.status == WAITING:
        raise Broken("S8: a cancelled run is run again", by)
    check_next(row, after)
    if isinstance(asked, End):
        check_word(world, state, asked)


def check_word(world: World, state: State, asked: End) -> None:
    row, by = state.row, "the janitor acts"
    if row.status == PROCESSING and row.uid != asked.uid:
        raise Broken("S10: a run is ended on another Job's word", by)
    judged = find_uid(state.jobs, asked.uid)
    if asked.status == SUCCEEDED and judged and judged.container == REFUSED:
        raise Broken("S10: a refused container's exit is success", by)
    if asked.status == FAILED and world.config.janitor == "fresh":
        check_park(world, state, world.decisions.ruling(row, seen(state.jobs)).hold)


def check_park(world: World, state: State, hold: HoldReason | None) -> None:
    """S5: whatever holds a row for good is true."""
    is_restored = state.left.restores < world.config.restores
    if hold not in PARKED or is_restored or TWIN in world.config.kinds:
        return  # a restored row knows less than its Jobs; the word of a Job with two Pods is the word of either
    row, past = state.row, state.past
    newest = max((job for job in state.jobs if job.attempt == row.attempt), key=lambda job: job.launch, default=None)
    last = max(row.launch, newest.launch if newest else 0)
    if hold is HoldReason.EXITED_WITHOUT_REPORT:
        is_true = newest is not None and newest.launch == last and has_exited(world, newest)
    elif hold is HoldReason.FAILURES_EXHAUSTED:
        once = world.config.max_failures == 1 and past.accepted
        is_true = bool(once) or row.failures + past.failed >= world.config.max_failures
    else:
        is_true = past.unstarted >= world.config.max_launches
    if not is_true:
        raise Broken(f"S5: {hold} is not true", "the row is parked")


def has_exited(world: World, job: Job) -> bool:
    by_code = job.phase == BROKEN and world.config.report == "exit-code"
    return (job.phase == COMPLETE or by_code) and job.container != REFUSED


def check_sent(state: State, create: Create) -> None:
    """A late POST may make a second Job; nobody may send a new attempt's first create beside a Job that is there."""
    if create.launch == 1 and create.attempt > 1 and any(not is_finished(job) for job in state.jobs):
        raise Broken("I1: a new attempt is launched beside an unfinished Job", "{} is sent", create)


def check_state(world: World, state: State) -> None:
    if not state.left.foreign and unfinished(state.jobs) > 1:
        raise Broken("I1: two unfinished Jobs of one row, none by a late POST")
    if world.config.most_creates and state.left.creates > world.config.most_creates:
        raise Broken(f"S5: more than {world.config.most_creates} creates")


@cache
def unfinished(jobs: Sequence[Job]) -> int:
    """Without those that late POSTs made."""
    return sum(1 for job in jobs if not is_finished(job) and not job.flags & LATE)


def check_end(world: World, state: State) -> None:
    """No fair step is left: it must be right to stand still."""
    if state.create is not None and state.create.stage == SENT:
        raise Broken("S5: a create is never answered")
    if state.ghosts:
        raise Broken("S5: a container never ends")
    if is_over(state.row) and all(job.attempt > state.row.attempt for job in state.jobs):
        return  # what is of a higher attempt tells that the database was restored, and stays
    hold = world.decisions.ruling(state.row, seen(state.jobs)).hold
    if hold not in PARKED or world.config.janitor:
        why = hold or "something to do, and nobody does it"
        raise Broken(f"S5: the row stands still: {why}")
