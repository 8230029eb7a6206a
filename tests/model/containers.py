"""Steps of containers: they start, report, end, or live on where nobody sees them."""

from tests.model import row as rows
from tests.model.properties import check_finish, check_start
from tests.model.row import Call, Gave, is_over
from tests.model.state import (
    ACTIVE,
    BROKEN,
    COMPLETE,
    CRASHED,
    DELETING,
    DISRUPTED,
    FAILING,
    HOLDS,
    LOST,
    NEVER_RAN,
    NEW,
    REFUSED,
    REPORTED,
    SILENT,
    UNTOLD,
    CacheHistory,
    Ghost,
    Job,
    State,
    find_uid,
    put,
    put_ghost,
)
from tests.model.world import LOST_START, World, moved, spent

Container = Job | Ghost
MANY = 2
"""Counting ends where it tells that a bound is reached, or a run without end would have no end of states."""


def container_steps(world: World, state: State) -> None:
    for job in state.jobs:
        if job.phase <= FAILING and job.container <= REPORTED:
            if not world.config.is_stuck:
                live(world, state, job)
            if job.container == REPORTED:
                world.take("{} ends after its report", job, gone_on(state, job, SILENT), fair=True)
    for ghost in state.ghosts:
        live(world, state, ghost)
        world.take("{} dies", ghost, gone_on(state, ghost, CRASHED), fair=True)


def live(world: World, state: State, who: Container) -> None:
    if who.container in {NEW, UNTOLD}:
        starts(world, state, who)
    elif who.container == HOLDS:
        reports(world, state, who)
    if world.config.exits and who.container < REPORTED and isinstance(who, Job):
        world.take("{} ends with 1", who, gone_on(state, who, CRASHED))
        world.take("{} ends with 0 and has not reported", who, gone_on(state, who, SILENT))


def starts(world: World, state: State, who: Container) -> None:
    call = Call(who.attempt, who.launch, who.uid, pod_of(who))
    row, gave = rows.start(state.row, call, world.config.max_failures, world.rules.without)
    check_start(world, state, call, gave)
    if gave is Gave.NOTHING:
        world.take("{} asks for its row, is refused and ends with 0", who, gone_on(state, who, REFUSED), fair=True)
        return
    past = accepted(state, who) if gave is Gave.NEW else state.past
    after = state._replace(row=row, past=past)
    world.take("{} starts", who, gone_on(after, who, HOLDS), fair=True)
    if who.container == NEW and world.may(LOST_START, state):
        lost = after._replace(left=spent(state.left))
        world.take("{} starts, and the answer is lost", who, gone_on(lost, who, UNTOLD))


def accepted(state: State, who: Container) -> CacheHistory:
    """A lost container counts as a failed run from now on where its Job failed or is gone: so it may look."""
    job, past = find_uid(state.jobs, who.uid), state.past
    looks_failed = job is None or job.phase == BROKEN
    return past._replace(accepted=past.accepted | 1 << who.launch, failed=past.failed + looks_failed)


def reports(world: World, state: State, who: Container) -> None:
    """Success and failure end a row alike: the one stands for the other, unless a cancel was asked."""
    outcomes = [("succeeded", True)]
    if world.config.retry_reports or state.row.cancel:
        outcomes.append(("retry", bool(state.row.cancel)))
    call = Call(who.attempt, who.launch, who.uid, pod_of(who))
    for outcome, fair in outcomes:
        row, answer = rows.finish(state.row, call.token, outcome, world.config.max_failures, world.rules.without)
        if answer is None:
            world.take("{} hears that its row is lost", who, gone_on(state, who, CRASHED), fair=True)
            return
        check_finish(state, call, row, world.config.max_failures)
        if row.attempt > world.config.attempts:
            world.is_cut = True
            continue
        world.take("{} reports " + outcome, who, gone_on(moved(state, row), who, REPORTED), fair=fair)


def pod_of(who: Container) -> int:
    return who.pod if isinstance(who, Ghost) else 0


def gone_on(state: State, who: Container, container: int) -> State:
    """The state with this container one step further; its Job follows when it ends."""
    if isinstance(who, Ghost):
        is_alive = container < REPORTED
        after = who._replace(container=container) if is_alive else None
        return state._replace(ghosts=put_ghost(state.ghosts, who, after))
    if container <= REPORTED:
        return state._replace(jobs=put(state.jobs, who, who._replace(container=container)))
    return finished(state, who, container)


def finished(state: State, job: Job, container: int) -> State:
    """The container of a Job ended, and the Job controller says so."""
    if job.flags & (DELETING | LOST) and job.container <= REPORTED:
        return state._replace(jobs=put(state.jobs, job, job._replace(container=container)))  # nobody hears of it yet
    phase = COMPLETE if container in {REFUSED, SILENT} else BROKEN
    phase = DISRUPTED if job.phase == FAILING else phase
    past = remembering(state, job) if phase == BROKEN else state.past
    # The flags go with the end, that of a late POST too: it is asked of unfinished Jobs alone.
    return state._replace(jobs=put(state.jobs, job, job._replace(phase=phase, flags=0, container=container)), past=past)


def failed_by_disruption(state: State, job: Job) -> State:
    """Its Pod is gone at last, and with it the container, if that still lived."""
    end = NEVER_RAN if job.container == NEW else CRASHED
    ended = job._replace(phase=DISRUPTED, flags=0, container=job.container if job.container > REPORTED else end)
    return state._replace(jobs=put(state.jobs, job, ended))


def remembering(state: State, job: Job) -> CacheHistory:
    """A launch failed by itself: whether its run had started, as it was then."""
    past = state.past
    if is_over(state.row) or job.attempt != state.row.attempt:
        return past
    if job.container in {UNTOLD, HOLDS}:
        return past._replace(failed=min(past.failed + 1, MANY))
    return past if past.accepted >> job.launch & 1 else past._replace(unstarted=min(past.unstarted + 1, MANY))


def end_pod(state: State, job: Job) -> State:
    """Somebody deletes the Pod of a Job that is active: its container dies, the Job fails and stays."""
    if job.phase != ACTIVE or job.flags & DELETING:
        return state
    return finished(state, job, NEVER_RAN if job.container == NEW else CRASHED)


def lose_pod(state: State, job: Job) -> State:
    """The Pod object goes by force: its Job fails, its container may live on."""
    if job.phase == FAILING:
        after = failed_by_disruption(state, job)
    else:
        after = finished(state, job, NEVER_RAN if job.container == NEW else CRASHED)
    if job.container >= REPORTED:
        return after
    ghost = Ghost(job.attempt, job.launch, job.made, job.container)
    return after._replace(ghosts=put_ghost(state.ghosts, None, ghost))
