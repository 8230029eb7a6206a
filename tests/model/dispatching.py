"""Steps of the dispatchers: the leader, whose view may lag, and an earlier leader, which acts on an old view.

The decisions are those of production. The only exception: `jobs/submit.py` asks the live questions in production, and
a few lines of this file ask them in the model.
"""

from dispatcher.model.launches import Ask
from tests.model.containers import end_pod, lose_pod, without_rejected_pod
from tests.model.decisions import NOTE_OF, version_of
from tests.model.properties import check_launch, check_park, check_removal, check_sent, check_sweep, check_taken_back
from tests.model.row import Row
from tests.model.state import (
    ASKED_AGAIN,
    DELETING,
    FAILING,
    LATE,
    MADE,
    MARKED,
    NOTES,
    QUESTION,
    REJECTED,
    SENT,
    UNANSWERED,
    UNPLACED,
    Create,
    Job,
    Seen,
    State,
    View,
    find,
    find_uid,
    is_finished,
    put,
    seen,
    unused,
)
from tests.model.world import LATE_POST, LOST_ANSWER, LOST_POST, World, spent


def leader_steps(world: World, state: State) -> None:
    now = seen(state.jobs)
    view = state.view if world.config.lags else now
    is_fresh = view == now
    create = state.create
    if not is_fresh or create is MADE:
        known = None if create is MADE else create
        world.step("the leader's view catches up", "", state._replace(view=now, create=known), fair=True)
    if create is None or create is MADE or create.stage == UNANSWERED:
        cycle_steps(world, state, view, is_fresh=is_fresh)
        removal_steps(world, state, view)
        probe_steps(world, state, view)
    elif create.stage == SENT and state.late is None and world.lacks("one unanswered create"):
        cycle_steps(world, state._replace(create=None, late=create), view, is_fresh=is_fresh)
    if world.config.sweeps:
        sweep_steps(world, state, now)
    if create is not None and create is not MADE:
        create_steps(world, state, create)


def cycle_steps(world: World, state: State, view: View, *, is_fresh: bool) -> None:
    """One cycle of the leader. The view is fixed before the row is read: Jobs first."""
    ruling = world.decisions.ruling(state.row, view)
    if is_fresh:
        check_park(world, state, ruling.hold)
    if ruling.launch is None:
        return
    check_launch(world, state, ruling.launch[0], view)
    create = planned_create(world, state.row, ruling.launch)
    if create is None:
        return
    if not world.decisions.creates(create, state.create):
        return  # the view will show its Job soon, or another create has no known result yet
    fair = is_fresh and is_clear(world, state, create)
    world.step("the leader decides to launch {}", create, state._replace(create=first_stage(state, create)), fair=fair)


def planned_create(world: World, row: Row, launch: tuple[int, int, int, str, int]) -> Create | None:
    """The create that a decision asks for; None if its launch is beyond the bounds of the run."""
    number, unstarted, disrupted, ask, unplaced = launch
    if number > world.config.launches:
        world.is_cut = True
        return None
    return Create(QUESTION, row.attempt, number, unstarted, disrupted, without_question(world, ask), unplaced)


def without_question(world: World, ask: str) -> str:
    return Ask.NOTHING.value if world.lacks(f"ask {ask}") else ask


def first_stage(state: State, create: Create) -> Create:
    """The create in its first stage: sent at once, or with a live question to ask before."""
    if create.ask == Ask.NOTHING.value:
        check_sent(state, create)
        return create._replace(stage=SENT)
    return create._replace(stage=QUESTION if state.create is None else ASKED_AGAIN)


def is_clear(world: World, state: State, create: Create) -> bool:
    """Whether the answer to the live question lets this create be sent."""
    if create.ask == Ask.THAT_JOB.value:
        return find(state.jobs, create.attempt, create.launch - 1) is None
    return create.ask == Ask.NOTHING.value or world.decisions.are_over(seen(state.jobs))


def create_steps(world: World, state: State, create: Create) -> None:
    if create.stage in {QUESTION, ASKED_AGAIN}:
        if is_clear(world, state, create):
            check_sent(state, create)
            sent = state._replace(create=create._replace(stage=SENT))
            world.step("the live question finds no Job: {} is sent", create, sent, fair=True)
        else:
            back = create._replace(stage=UNANSWERED) if create.stage == ASKED_AGAIN else None
            held = state._replace(create=back)
            world.step("the live question finds a Job: {} is held", create, held, fair=True)
    elif create.stage == UNANSWERED:
        there = find(state.jobs, create.attempt, create.launch) is not None and world.config.lags
        known = state._replace(create=MADE if there else None)
        world.step("a GET shows whether {} was made", create, known, fair=True)
    else:
        post_steps(world, state, create)


def post_steps(world: World, state: State, create: Create) -> None:
    made = state._replace(create=MADE if world.config.lags else None)
    world.step("{} is created", create, landed(world, made, create), fair=True)
    unanswered = state._replace(create=create._replace(stage=UNANSWERED), left=spent(state.left))
    if world.may(LOST_ANSWER, state):
        world.step("{} is created, and the answer is lost", create, landed(world, unanswered, create))
    if world.may(LOST_POST, state):
        world.step("the POST of {} is lost", create, unanswered)
    if world.may(LATE_POST, state) and state.late is None:
        late = unanswered._replace(late=create._replace(stage=UNANSWERED))
        world.step("the POST of {} times out, and is still on its way", create, late)


def landed(world: World, state: State, create: Create, flags: int = 0) -> State:
    """The POST arrives. A name that exists is our own Job: the answer is 409, and a GET shows the Job."""
    if find(state.jobs, create.attempt, create.launch) is not None and not world.lacks("a name is a lock"):
        return state
    made = unused(state, create.attempt, create.launch)
    flags |= UNPLACED if world.config.is_full else 0
    job = Job(
        create.attempt, create.launch, made, 0, create.unstarted, create.disrupted, flags, unplaced=create.unplaced
    )
    left = state.left._replace(creates=state.left.creates + 1) if world.config.most_creates else state.left
    return state._replace(jobs=put(state.jobs, None, job), left=left)


def removal_steps(world: World, state: State, view: View, sender: str = "the leader") -> None:
    for kind, judged, is_forced in world.decisions.ruling(state.row, view).removals:
        after = removed(world, state, kind, judged, is_forced=is_forced)
        if after is not state:
            check_removal(state, kind, judged)
            what = "deletes the Pod of {}" if kind == "pods" else "deletes {}"
            what = f"notes on {{}} who ends its Pod: {kind}" if kind in NOTE_OF else what
            world.step(f"{sender} {what}", judged, after, fair=True)


def probe_steps(world: World, state: State, view: View, sender: str = "the leader") -> None:
    """A probe that is not wanted now is marked. Then its Pod is deleted, if it has no node yet."""
    for kind, judged in world.decisions.taken_back(view):
        job = find_uid(state.jobs, judged.uid)
        if job is None or is_finished(job) or job.flags & DELETING:
            continue
        if kind == "mark" and state.left.pauses and version_of(job) == version_of(judged):
            begun = state._replace(left=state.left._replace(pauses=state.left.pauses - 1))
            if not world.lacks("unplaced: marked first"):
                marked = begun._replace(jobs=put(state.jobs, job, job._replace(flags=job.flags | MARKED)))
                world.step(f"{sender} marks {{}} as unplaced", judged, marked)
            elif job.flags & UNPLACED:
                world.step(f"{sender} deletes the Pod of {{}} unmarked", judged, taken_back(begun, job))
        elif kind == "unplaced-pods" and (job.flags & UNPLACED or world.lacks("unplaced: no node")):
            after = taken_back(state, job)
            world.step(f"{sender} deletes the Pod of {{}}, which has no node", judged, after, fair=True)


def taken_back(state: State, job: Job) -> State:
    """The Job fails and stays. For the row, this launch is no failure of any kind."""
    check_taken_back(job)
    return end_pod(state, job)._replace(history=state.history)


def removed(world: World, state: State, kind: str, judged: Seen, *, is_forced: bool) -> State:
    """The state after a delete arrives. It hits the object that was judged, in the judged version, or nothing."""
    job = find_uid(state.jobs, judged.uid)
    if job is None and world.lacks("uid on deletes"):
        job = find(state.jobs, judged.attempt, judged.launch)
    if job is None:
        return state
    is_changed = version_of(job) != version_of(judged)
    if kind in NOTE_OF:
        is_late = kind == "us" and is_changed and not world.lacks("resourceVersion on our note")
        return state if is_late else noted(state, job, kind)
    if kind == "pods" and job.flags & REJECTED:
        after = end_pod(state, job)
        ended = find_uid(after.jobs, job.uid)
        return without_rejected_pod(after, ended) if ended else after
    if kind == "pods" and not world.lacks("deadline deletes the Pod"):
        return force(state, job) if is_forced else end_pod(state, job)
    if is_changed and not world.lacks("resourceVersion on deletes"):
        return state
    return deleted(state, job)


def noted(state: State, job: Job, kind: str) -> State:
    """The Job with this note, in place of any other."""
    after = job._replace(flags=job.flags & ~NOTES | NOTE_OF[kind])
    return state if after == job else state._replace(jobs=put(state.jobs, job, after))


def force(state: State, job: Job) -> State:
    return lose_pod(state, job) if job.phase == FAILING else state


def deleted(state: State, job: Job) -> State:
    """A finished Job is gone at once, an unfinished one when its container has ended."""
    if is_finished(job):
        return state._replace(jobs=put(state.jobs, job, None))
    if job.flags & DELETING:
        return state
    return state._replace(jobs=put(state.jobs, job, job._replace(flags=job.flags | DELETING)))


def sweep_steps(world: World, state: State, now: View) -> None:
    """The sweep with a fresh view. A finished Job never changes, so an older view would only hit fewer Jobs."""
    for judged in now:
        if not world.decisions.is_swept(state.row, now, judged):
            continue
        if state.create is not None and state.create[1:3] == (judged.attempt, judged.launch):
            continue  # this dispatcher has an unanswered create of that name
        after = removed(world, state, "jobs", judged, is_forced=False)
        if after is not state:
            check_sweep(world, state, judged)
            world.step("{} is swept", judged, after, fair=True)


def deposed_steps(world: World, state: State) -> None:
    """Steps of an earlier leader: its view is old, and its POST may arrive at any time."""
    stale = state.stale
    if state.late is not None:
        flags = 0 if state.late.stage == SENT else LATE
        late = landed(world, state._replace(late=None), state.late, flags)
        world.step("the late POST of {} lands", state.late, late)
    if stale is None:
        if state.left.deposed:
            fewer = state.left._replace(deposed=state.left.deposed - 1)
            held = state.row if world.lacks("Jobs first") else seen(state.jobs)
            world.step("another dispatcher looks", "", state._replace(stale=held, left=fewer))
    elif isinstance(stale, Create):
        if is_clear(world, state, stale) and state.late is None:
            check_sent(state, stale)
            sent = state._replace(stale=None, late=stale)
            world.step("the live question of the other dispatcher finds no Job: {} is sent", stale, sent)
    elif isinstance(stale, Row):
        stale_cycle(world, state, stale, seen(state.jobs))
    else:
        removal_steps(world, state, stale, "the other dispatcher")
        probe_steps(world, state, stale, "the other dispatcher")
        stale_cycle(world, state, state.row, stale)


def stale_cycle(world: World, state: State, row: Row, view: View) -> None:
    ruling = world.decisions.ruling(row, view)
    create = planned_create(world, row, ruling.launch) if ruling.launch else None
    if create is None:
        return
    check_launch(world, state, create.launch, view)
    if create.ask != Ask.NOTHING.value:
        world.step("the other dispatcher decides to launch {}", create, state._replace(stale=create))
    elif state.late is None:
        check_sent(state, create)
        world.step("the other dispatcher sends {}", create, state._replace(stale=None, late=create))
