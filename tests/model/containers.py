"""Steps of containers: start, report, end, or run on without a Pod object."""

from tests.model import row as rows
from tests.model.properties import check_finish, check_start
from tests.model.row import Call, StartAnswer, is_over
from tests.model.state import (
    ACTIVE,
    BROKEN,
    BY_NODE,
    COMPLETE,
    CRASHED,
    DELETING,
    DISRUPTED,
    FAILING,
    GONE,
    HOLDS,
    LOST,
    MARKED,
    NEVER_RAN,
    NEW,
    NOTED,
    NOTES,
    REFUSED,
    REJECTED,
    REPORTED,
    SECOND,
    SILENT,
    UNPLACED,
    UNTOLD,
    AttemptHistory,
    Detached,
    Job,
    State,
    find,
    find_uid,
    put,
    put_detached,
)
from tests.model.world import LOST_START, World, moved, spent

Container = Job | Detached
COUNT_LIMIT = 2
"""Counts stop at the number that reaches every bound. Without a limit the number of states would be infinite."""


def container_steps(world: World, state: State) -> None:
    for job in state.jobs:
        if job.phase <= FAILING and job.container <= REPORTED and not job.flags & UNPLACED:
            if not world.config.is_stuck:
                container_acts(world, state, job)
            if job.container == REPORTED:
                world.step("{} ends after its report", job, advanced(state, job, SILENT), fair=True)
    for detached_one in state.detached:
        container_acts(world, state, detached_one)
        world.step("{} dies", detached_one, advanced(state, detached_one, CRASHED), fair=True)


def container_acts(world: World, state: State, actor: Container) -> None:
    if actor.container in {NEW, UNTOLD}:
        start_steps(world, state, actor)
    elif actor.container == HOLDS:
        report_steps(world, state, actor)
    if world.config.exits and actor.container < REPORTED and isinstance(actor, Job):
        world.step("{} ends with 1", actor, advanced(state, actor, CRASHED))
        world.step("{} ends with 0 and has not reported", actor, advanced(state, actor, SILENT))


def start_steps(world: World, state: State, actor: Container) -> None:
    is_second = isinstance(actor, Job) and bool(actor.flags & SECOND)
    process = 1 + is_second if world.config.names_process else 0
    call = Call(actor.attempt, actor.launch, actor.uid, pod_of(actor), process=process)
    row, answer = rows.start(state.row, call, world.config.max_failures, world.rules.without)
    check_start(world, state, call, answer, is_second=is_second)
    if answer is StartAnswer.NOTHING:
        # A run of this launch has begun, and nobody reports it: with its Job's end it counts as a failed run.
        failed = state.history.failed + (row.second - state.row.second)
        history = state.history._replace(failed=min(failed, COUNT_LIMIT))
        refused = advanced(state._replace(row=row, history=history), actor, REFUSED)
        world.step("{} calls task_start, is refused and ends with 0", actor, refused, fair=True)
        return
    history = accepted(state, actor) if answer is StartAnswer.NEW else state.history
    after = state._replace(row=row, history=history)
    world.step("{} starts", actor, advanced(after, actor, HOLDS), fair=True)
    if actor.container == NEW and world.may(LOST_START, state):
        lost = after._replace(left=spent(state.left))
        world.step("{} starts, and the answer is lost", actor, advanced(lost, actor, UNTOLD))


def accepted(state: State, actor: Container) -> AttemptHistory:
    """The history with this start. The run counts as failed at once if its Job has failed or is gone, because a
    dispatcher may take it for a failed run.
    """
    job, history = find_uid(state.jobs, actor.uid), state.history
    looks_failed = job is None or job.phase == BROKEN
    return history._replace(accepted=history.accepted | 1 << actor.launch, failed=history.failed + looks_failed)


def report_steps(world: World, state: State, actor: Container) -> None:
    """Reports of the container. A report of success stands for one of failure, too, because both end the row. With a
    cancel they differ, so `retry` is reported as well.
    """
    outcomes = [("succeeded", True)]
    if world.config.retry_reports or state.row.cancel:
        outcomes.append(("retry", bool(state.row.cancel)))
    call = Call(actor.attempt, actor.launch, actor.uid, pod_of(actor))
    for outcome, fair in outcomes:
        row, answer = rows.finish(state.row, call.token, outcome, world.config.max_failures, world.rules.without)
        if answer is None:
            world.step("the report of {} is answered with lost", actor, advanced(state, actor, CRASHED), fair=True)
            return
        check_finish(state, call, row, world.config.max_failures)
        if row.attempt > world.config.attempts:
            world.is_cut = True
            continue
        world.step("{} reports " + outcome, actor, advanced(moved(state, row), actor, REPORTED), fair=fair)


def pod_of(actor: Container) -> int:
    return actor.pod if isinstance(actor, Detached) else 0


def advanced(state: State, actor: Container, container: int) -> State:
    """The state with this container in its next state. Its Job follows when the container ends."""
    if isinstance(actor, Detached):
        is_alive = container < REPORTED
        after = actor._replace(container=container) if is_alive else None
        return state._replace(detached=put_detached(state.detached, actor, after))
    if container <= REPORTED:
        return state._replace(jobs=put(state.jobs, actor, actor._replace(container=container)))
    return finished(state, actor, container)


def finished(state: State, job: Job, container: int) -> State:
    """The container of a Job has ended, and the Job controller sets the condition."""
    if job.flags & (DELETING | LOST) and job.container <= REPORTED:
        return state._replace(
            jobs=put(state.jobs, job, job._replace(container=container))
        )  # the Job does not show it yet
    phase = COMPLETE if container in {REFUSED, SILENT} else BROKEN
    phase = DISRUPTED if job.phase == FAILING else phase
    is_failure = phase == BROKEN and not job.flags & (NOTED | BY_NODE | REJECTED)
    history = counted_failure(state, job) if is_failure else state.history
    return state._replace(jobs=put(state.jobs, job, ended(job, phase, container)), history=history)


def ended(job: Job, phase: int, container: int) -> Job:
    """A finished Job needs no flags but its marks. I1 asks for LATE only where a Job is unfinished."""
    marks = MARKED | NOTES | REJECTED | GONE
    return job._replace(phase=phase, flags=job.flags & marks, container=container)


def without_rejected_pod(state: State, job: Job) -> State:
    """The rejected Pod of a finished Job is gone. If the Job does not tell of it, it is as if it had never started."""
    is_newest = find(state.jobs, job.attempt, job.launch + 1) is None
    history = counted_failure(state, job) if is_newest and not job.flags & BY_NODE else state.history
    gone = job._replace(flags=job.flags & ~REJECTED | GONE)
    return state._replace(jobs=put(state.jobs, job, gone), history=history)


def failed_by_disruption(state: State, job: Job) -> State:
    """The Pod of a disrupted Job is gone. A container that still ran has ended with it."""
    end = NEVER_RAN if job.container == NEW else CRASHED
    after = job.container if job.container > REPORTED else end
    return state._replace(jobs=put(state.jobs, job, ended(job, DISRUPTED, after)))


def counted_failure(state: State, job: Job) -> AttemptHistory:
    """The history after a launch failed by itself: one more failed run, or one more launch that never started."""
    history = state.history
    if is_over(state.row) or job.attempt != state.row.attempt:
        return history
    if job.container in {UNTOLD, HOLDS}:
        return history._replace(failed=min(history.failed + 1, COUNT_LIMIT))
    if history.accepted >> job.launch & 1:
        return history
    return history._replace(unstarted=min(history.unstarted + 1, COUNT_LIMIT))


def end_pod(state: State, job: Job) -> State:
    """The Pod of an active Job is deleted: its container dies, and the Job fails and stays."""
    if job.phase != ACTIVE or job.flags & DELETING:
        return state
    return finished(state, job, NEVER_RAN if job.container in {NEW, NEVER_RAN} else CRASHED)


def lose_pod(state: State, job: Job) -> State:
    """The Pod object is deleted by force: its Job fails, and its container may run on."""
    if job.phase == FAILING:
        after = failed_by_disruption(state, job)
    else:
        after = finished(state, job, NEVER_RAN if job.container == NEW else CRASHED)
    if job.container >= REPORTED:
        return after
    detached_one = Detached(job.attempt, job.launch, job.made, job.container)
    return after._replace(detached=put_detached(state.detached, None, detached_one))
