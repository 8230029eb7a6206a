"""Steps of the cluster, of people who delete Jobs and Pods, of submitters, and of database backups."""

from tests.model import row as rows
from tests.model.containers import counted_failure, end_pod, failed_by_disruption, lose_pod, without_rejected_pod
from tests.model.properties import check_retry
from tests.model.row import PROCESSING, is_over
from tests.model.state import (
    ACTIVE,
    DELETING,
    FAILING,
    HOLDS,
    LOST,
    NEVER_RAN,
    NEW,
    REJECTED,
    REPORTED,
    SECOND,
    TOLD,
    UNPLACED,
    UNTOLD,
    Detached,
    Job,
    State,
    is_finished,
    put,
    put_detached,
)
from tests.model.world import (
    DELETION,
    DISRUPTION,
    FORCED,
    FOREIGN,
    PARTITION,
    REJECTION,
    SECOND_PROCESS,
    TOMBSTONES,
    TWIN,
    World,
    moved,
    spent,
)


def cluster_steps(world: World, state: State) -> None:
    for job in state.jobs:
        if state.left.faults:
            faults(world, state, job)
        if job.flags & DELETING:
            world.step("{} is gone", job, without_job(state, job), fair=True)
        elif is_finished(job):
            if world.lacks("no time to live"):
                world.step("{} is removed, because its time to live is over", job, without_job(state, job), fair=True)
            if job.flags & REJECTED:
                world.step("the rejected Pod of {} is gone", job, without_rejected_pod(state, job))
        else:
            pod_steps(world, state, job)


def pod_steps(world: World, state: State, job: Job) -> None:
    """What happens by itself to the Pod of an unfinished Job."""
    if job.phase == FAILING:
        if not (job.flags & LOST and world.config.never_back):
            world.step("{} is Failed by its disruption", job, failed_by_disruption(state, job), fair=True)
    elif job.flags & REJECTED:
        world.step("{} is Failed, because a kubelet rejected its Pod", job, end_pod(state, job), fair=True)
    elif job.flags & TOLD:
        world.step("the Pod of {} ends, as it was told to", job, end_pod(state, job), fair=True)
    elif job.flags & UNPLACED:
        placed = changed(state, job, job._replace(flags=job.flags & ~UNPLACED))
        world.step("the Pod of {} gets a node", job, placed, fair=True)


def faults(world: World, state: State, job: Job) -> None:
    left = spent(state.left)
    if job.phase == ACTIVE and not job.flags & (DELETING | REJECTED):
        pod_faults(world, state._replace(left=left), job)
    if is_finished(job) and TOMBSTONES in world.config.kinds:
        # The sweep may delete a Job of an earlier attempt or of a terminal row at any time: that is no fault.
        counts = not is_over(state.row) and job.attempt == state.row.attempt
        if counts:
            gone = without_job(state, job)._replace(left=left._replace(foreign=1))
            world.step("somebody deletes {}", job, gone)
    elif not is_finished(job) and FOREIGN in world.config.kinds:
        foreign_deletion(world, state._replace(left=left), job)


def pod_faults(world: World, state: State, job: Job) -> None:
    kinds = world.config.kinds
    if DISRUPTION in kinds:
        world.step("{} is disrupted", job, changed(state, job, job._replace(phase=FAILING)))
    if DELETION in kinds and not job.flags & (UNPLACED | TOLD) and job.container < REPORTED:
        world.step("somebody deletes the Pod of {}", job, changed(state, job, job._replace(flags=job.flags | TOLD)))
    if PARTITION in kinds and not job.flags & UNPLACED:
        lost = job._replace(phase=FAILING, flags=job.flags | LOST)
        world.step("the node of {} is unreachable", job, changed(state, job, lost))
    if FORCED in kinds and job.container < REPORTED:
        world.step("somebody deletes the Pod of {} by force, its container runs on", job, lose_pod(state, job))
    if SECOND_PROCESS in kinds and job.container in {UNTOLD, HOLDS} and not job.flags & SECOND:
        again = counted_failure(state, job)
        second = job._replace(container=NEW, flags=job.flags | SECOND)
        world.step("the container of {} is started again", job, changed(state._replace(history=again), job, second))
    if REJECTION in kinds and job.container == NEW and not job.flags & (UNPLACED | TOLD | SECOND):
        rejected = job._replace(container=NEVER_RAN, flags=job.flags | REJECTED)
        world.step("the kubelet of its node rejects the Pod of {}", job, changed(state, job, rejected))
    if TWIN in kinds:
        twin = Detached(job.attempt, job.launch, job.made, NEW, 1)
        world.step("{} gets a second Pod", job, state._replace(detached=put_detached(state.detached, None, twin)))


def foreign_deletion(world: World, state: State, job: Job) -> None:
    if not job.flags & DELETING:
        deleted = job._replace(flags=job.flags | DELETING)
        world.step("somebody deletes {}", job, changed(state, job, deleted))
    if job.container < REPORTED:
        detached_one = Detached(job.attempt, job.launch, job.made, job.container)
        orphaned = without_job(state, job)._replace(detached=put_detached(state.detached, None, detached_one))
        world.step("somebody deletes {} by force, its container runs on", job, orphaned)


def without_job(state: State, job: Job) -> State:
    return state._replace(jobs=put(state.jobs, job, None))


def changed(state: State, job: Job, new: Job) -> State:
    return state._replace(jobs=put(state.jobs, job, new))


def person_steps(world: World, state: State) -> None:
    """The submitter cancels the row, or retries it."""
    row, left = state.row, state.left
    if left.cancels and not is_over(row):
        fewer = left._replace(cancels=left.cancels - 1)
        asked = rows.cancel(row, is_stale=False, without=world.rules.without)
        world.step("a cancel is asked", "", moved(state, asked, left=fewer))
        if row.status == PROCESSING:
            over = rows.cancel(row, is_stale=True, without=world.rules.without)
            world.step("the row without a heartbeat is cancelled", "", moved(state, over, left=fewer))
    if left.retries:
        again = rows.retry(row, None, world.rules.without)
        check_retry(row, again)
        fewer = left._replace(retries=left.retries - 1)
        if again.attempt <= world.config.attempts:
            world.step("task_retry", "", moved(state, again, left=fewer))


def backup_steps(world: World, state: State) -> None:
    if not state.left.restores:
        return
    if state.backup is None:
        world.step("a backup is taken", "", state._replace(backup=(state.row, state.history)))
    elif state.backup[0] != state.row:
        row, history = state.backup
        fewer = state.left._replace(restores=state.left.restores - 1)
        world.step("the database is restored", "", state._replace(row=row, history=history, left=fewer, backup=None))
