"""The laws S1-S6, S8-S11 and I1 of docs/protocol.md, section 10. A function that finds one broken raises `Broken`."""

from collections.abc import Sequence
from functools import cache

from dispatcher.model.verdicts import PARKED, HoldReason
from tests.model.row import CANCELLED, FAILED, PROCESSING, SUCCEEDED, WAITING, Call, End, Row, StartAnswer, is_over
from tests.model.state import (
    BROKEN,
    COMPLETE,
    DELETING,
    HOLDS,
    LATE,
    MARKED,
    NEVER_RAN,
    REFUSED,
    SENT,
    UNPLACED,
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


def check_start(world: World, state: State, call: Call, answer: StartAnswer, *, is_second: bool) -> None:
    row = state.row
    if answer is StartAnswer.SAME:
        check_same(world, state, call, is_second=is_second)
    if answer is not StartAnswer.NEW:
        return
    by = "launch {} starts"
    subject = (call.attempt, call.launch)
    if row.attempt != call.attempt:
        raise Broken("S4: a start of another attempt is accepted", by, subject)
    if is_over(row):
        raise Broken("S3: a terminal row is started", by, subject)
    if row.cancel:
        raise Broken("S8: a row with a cancel is started", by, subject)
    if state.history.accepted >> call.launch & 1:
        raise Broken("S4: two starts of one launch are accepted", by, subject)
    if state.history.accepted >> call.launch:
        raise Broken("S4: an older launch is accepted after a newer one", by, subject)
    check_takeover(world, state, subject)


def check_same(world: World, state: State, call: Call, *, is_second: bool) -> None:
    """A token is given again."""
    row = state.row
    if (row.uid, row.pod) != (call.uid, call.pod):
        raise Broken("S1: two Pods hold one token", "a second Pod calls task_start, too")
    if is_second and call.process:
        raise Broken("S1: two processes hold one token", "a second process of the Pod calls task_start, too")
    if is_second and world.config.max_failures == 1:
        raise Broken("S11: a task with max_failures 1 has two processes", "the second process calls task_start, too")


def check_takeover(world: World, state: State, subject: tuple[int, int]) -> None:
    if world.config.max_failures == 1 and state.history.accepted:
        raise Broken("S11: a task with max_failures 1 is started twice", "launch {} starts", subject)
    if state.row.status != PROCESSING or state.left.foreign:
        return
    holder = find_uid(state.jobs, state.row.uid)
    if holder and is_running(holder):
        raise Broken("S1: the run of a living Job is taken over", "launch {} starts", subject)


def is_running(job: Job) -> bool:
    return not is_finished(job) and job.container in {UNTOLD, HOLDS} and not job.flags & DELETING


def check_finish(state: State, call: Call, after: Row, max_failures: int) -> None:
    row, uid = state.row, call.uid
    if row.status != PROCESSING or (row.uid, row.pod) != (uid, call.pod):
        raise Broken("S2: a report of an older start is accepted", "{} reports", uid)
    if row.cancel and after.status not in {SUCCEEDED, CANCELLED}:
        raise Broken("S8: a run with a cancel does not end", "{} reports", uid)
    if after.status == WAITING and after.failures >= max_failures:
        raise Broken("S5: a row without failures left waits again", "{} reports", uid)
    check_next(row, after)


def check_next(row: Row, after: Row) -> None:
    if after.status == WAITING and (after.launch or after.cancel or after.token or after.attempt <= row.attempt):
        raise Broken("S9: a waiting row keeps launch, cancel, token or attempt", "the row waits again")
    if is_over(after) and after.token:
        raise Broken("S9: a terminal row has a token", "the row ends")


def check_retry(row: Row, after: Row) -> None:
    check_next(row, after)


def check_launch(world: World, state: State, number: int, view: View) -> None:
    row, by = state.row, "a dispatcher decides to launch"
    if any(job.attempt == row.attempt and not is_finished(job) for job in view):
        raise Broken("I1: a launch is decided although the view shows an unfinished Job", by)
    if is_over(row):
        raise Broken("S3: a launch is decided for a terminal row", by)
    if row.cancel and not state.stale:
        raise Broken("S8: a launch is decided for a row with a cancel", by)
    if not world.config.kinds and view == seen(state.jobs):
        check_failures(world, state, by)
    newest = max((job for job in state.jobs if job.attempt == row.attempt), key=lambda job: job.launch, default=None)
    is_code = world.config.report == "exit-code" and row.status == WAITING
    if is_code and newest and number > newest.launch and has_exited(world, newest) and newest.container != NEVER_RAN:
        raise Broken("S11: a task with report: exit-code has ended, and is launched again", by)


def check_failures(world: World, state: State, by: str) -> None:
    """Without faults every failed run is known. A fault may hide one, and then the row fails once more."""
    if state.row.failures + state.history.failed >= world.config.max_failures:
        raise Broken("S11: a row without failures left is launched", by)


def check_sweep(world: World, state: State, judged: Seen) -> None:
    row, job = state.row, find_uid(state.jobs, judged.uid)
    if job is None or not is_finished(job):
        raise Broken("S6: the sweep hits another Job, or an unfinished one", "{} is swept", judged)
    is_of_attempt = job.attempt == row.attempt and not is_over(row)
    is_needed = is_of_attempt and not (world.config.forgets and counts_for_nothing(state, job))
    if job.attempt > row.attempt or is_needed:
        raise Broken("S6: the sweep removes a Job that counts", "{} is swept", judged)


def counts_for_nothing(state: State, job: Job) -> bool:
    """A later Job has the counts; or it was taken back, and no launch of the attempt started or has failed."""
    is_last = not any(one.attempt == job.attempt and one.launch > job.launch for one in state.jobs)
    is_unused = not (state.history.accepted or state.history.failed or job.unstarted or job.disrupted)
    return not is_last or (is_unused and bool(job.flags & MARKED))


def check_removal(state: State, kind: str, judged: Seen) -> None:
    """S6: a delete of an unfinished Job hits neither a Job that has finished since, nor another Job of that name.

    S12: a Pod without a node is never deleted. A full cluster costs no launch.
    """
    if kind == "pods" and judged.flags & UNPLACED:
        raise Broken("S12: a Pod without a node is deleted", "a dispatcher deletes {}", judged)
    hit = find(state.jobs, judged.attempt, judged.launch)
    counts = hit is not None and hit.attempt == state.row.attempt and not is_over(state.row)
    if kind == "jobs" and hit and counts and (hit.uid != judged.uid or is_finished(hit)):
        raise Broken("S6: a delete hits an object that was not judged", "a dispatcher deletes {}", judged)


def check_taken_back(job: Job) -> None:
    if not job.flags & UNPLACED:
        raise Broken("S12: a Pod with a node is taken back", "a dispatcher takes {} back", job)


def check_closing(world: World, state: State, asked: Intent, after: Row) -> None:
    """S8 to S10 for a call of the janitor that changed the row."""
    row = state.row
    assert asked is not None
    if isinstance(asked, Row):
        return
    by = "the janitor acts"
    if is_over(row):
        raise Broken("S10: the janitor ends a terminal row", by)
    if row.attempt != asked[0]:
        raise Broken("S10: the janitor judged another attempt", by)
    holder = find_uid(state.jobs, row.uid) if row.status == PROCESSING else None
    if holder and is_running(holder):
        raise Broken("S10: the janitor ends the run of a living Job", by)
    if row.cancel and after.status == WAITING:
        raise Broken("S8: a row with a cancel runs again", by)
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
    """S5: a reason that parks a row is true."""
    is_restored = state.left.restores < world.config.restores
    if hold not in PARKED or is_restored or TWIN in world.config.kinds:
        return  # a restored row knows less than its Jobs; with two Pods of a Job, either one decides how the Job ends
    row, history = state.row, state.history
    newest = max((job for job in state.jobs if job.attempt == row.attempt), key=lambda job: job.launch, default=None)
    last = max(row.launch, newest.launch if newest else 0)
    if hold is HoldReason.EXITED_WITHOUT_REPORT:
        is_true = newest is not None and newest.launch == last and has_exited(world, newest)
    elif hold is HoldReason.FAILURES_EXHAUSTED:
        once = world.config.max_failures == 1 and history.accepted
        is_true = bool(once) or row.failures + history.failed >= world.config.max_failures
    else:
        is_true = history.unstarted >= world.config.max_launches
    if not is_true:
        raise Broken(f"S5: {hold} is not true", "the row is parked")


def has_exited(world: World, job: Job) -> bool:
    by_code = job.phase == BROKEN and world.config.report == "exit-code"
    return (job.phase == COMPLETE or by_code) and job.container != REFUSED


def check_sent(state: State, create: Create) -> None:
    """I1: no first create of a later attempt is sent while a Job is unfinished. A late POST may make a second Job."""
    if create.launch == 1 and create.attempt > 1 and any(not is_finished(job) for job in state.jobs):
        raise Broken("I1: a later attempt is launched while a Job is unfinished", "{} is sent", create)


def check_state(world: World, state: State) -> None:
    if not state.left.foreign and unfinished(state.jobs) > 1:
        raise Broken("I1: two unfinished Jobs of one row, none by a late POST")
    if world.config.most_creates and state.left.creates > world.config.most_creates:
        raise Broken(f"S5: more than {world.config.most_creates} creates")


@cache
def unfinished(jobs: Sequence[Job]) -> int:
    """The number of unfinished Jobs, without those that late POSTs made."""
    return sum(1 for job in jobs if not is_finished(job) and not job.flags & LATE)


def check_end(world: World, state: State) -> None:
    """S5: where no fair step is left, the row is terminal, or parked for a person."""
    if state.create is not None and state.create.stage == SENT:
        raise Broken("S5: a create is never answered")
    if state.detached:
        raise Broken("S5: a container never ends")
    if is_over(state.row) and all(job.attempt > state.row.attempt for job in state.jobs):
        return  # Jobs of a higher attempt stay: they show that the database was restored
    hold = world.decisions.ruling(state.row, seen(state.jobs)).hold
    if hold not in PARKED or world.config.janitor:
        why = hold or "no fair step, and no hold"
        raise Broken(f"S5: the row makes no progress: {why}")
    check_park(world, state, hold)
