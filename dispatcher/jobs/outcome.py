"""The table of outcomes of docs/protocol.md, section 6: one function for each line of the table.

A function answers only if its line applies. The first answer counts. All functions are pure, so the dispatcher, the
janitor and the model checker call the same code.

Invariant: no Job is started while another Job of the same row is unfinished. Launch numbers come from the Jobs and the
row together, because each alone loses some: a deleted Job is gone, and the row does not know launches that never
started.

Not guaranteed: that the view is current. A launch that rests on an absent Job carries an `Ask`. The API server has to
answer it before the create is sent.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dispatcher.container.contract import PUT_OFF
from dispatcher.jobs.observed import (
    GRACE,
    ObservedCluster,
    Rules,
    TaskWithJobs,
    bound_at,
    detail_of,
    is_outlived,
    is_stopped,
    is_unreachable,
    overruns,
)
from dispatcher.model.cluster import DEADLINE, FORGOTTEN, Pod
from dispatcher.model.errors import doubled
from dispatcher.model.jobs import EndedBy, Job, ObjectWrite, Phase
from dispatcher.model.launches import Ask, JobsVerdict, Launch
from dispatcher.model.tasks import TERMINAL, Status, Task
from dispatcher.model.verdicts import LATE_START, NO_CALL, NO_START, OVER_LIMIT, Hold, HoldReason, Stage


def stuck_key(pod: Pod) -> str:
    return f"stuck/{pod.uid}"


def end_cause(row: TaskWithJobs, job: Job, pod: Pod) -> str:
    """Why a Pod is deleted: its run limit, or a launch that cannot start, or starts too late. Empty: it stays.

    The Job always stays as the memory of its launch. A Pod without a node is not deleted, however long it waits: a full
    cluster must not cost the row a launch.
    """
    cluster = row.cluster
    if pod.deleting or pod.has_ended or not pod.node_name:
        return ""
    if overruns(job, pod, cluster):
        return "its run limit is over, and its kubelet has not ended it"
    if row.task.launch >= job.launch or not (pod.cannot_start or (pod.phase == "Pending" and not pod.had_run)):
        return ""
    if pod.cannot_start and cluster.has_lasted(stuck_key(pod), GRACE):
        return pod.waiting_reason
    late = cluster.cluster_now - bound_at(pod) >= timedelta(seconds=cluster.rules.start_deadline_seconds)
    # An init container that works is a start. Its time counts in the run limit alone.
    return LATE_START if late and not (job.suspended or pod.had_prepared) else ""


def is_refused_for_long(row: TaskWithJobs, job: Job) -> bool:
    """Whether the API server has refused an unstarted launch's Pod for too long. Quotas and outages do not count."""
    refusal = row.refusal
    if refusal is None or refusal.is_quota or refusal.is_outage:
        return False
    if not may_be_deleted(job) or job.suspended or row.task.launch >= job.launch:
        return False
    return row.cluster.cluster_now - refusal.since >= row.cluster.rules.refused_for


def may_be_deleted(job: Job) -> bool:
    """Whether the Job is unfinished and its deletion has not begun."""
    return not job.is_finished and not job.deleting


MAX_DISRUPTED: Final = 20
"""The most disruptions within DISRUPTED_WITHIN. Earlier ones do not count."""
DISRUPTED_WITHIN: Final = timedelta(days=1)
LONGEST_BACKOFF_SECONDS: Final = 300
"""The longest pause between two launches."""


def judge(task: Task, jobs: Sequence[Job], cluster: ObservedCluster) -> JobsVerdict:
    return judge_row(TaskWithJobs(task, jobs, cluster))


def judge_row(row: TaskWithJobs) -> JobsVerdict:
    """The answer of the first line that applies, with the ends for lost nodes and the notes on deleted Pods."""
    found = next(found for line in TABLE if (found := line(row)) is not None)  # the last line always answers
    found = with_lost_nodes(row, found)
    return replace(found, ends=(*what_only_pods_tell(row), *found.ends))


def what_only_pods_tell(row: TaskWithJobs) -> tuple[ObjectWrite, ...]:
    """Notes on J what its conditions will not show once its Pod is gone:

    * no node took the Pod: a kubelet has rejected it, or somebody deletes it while it has none;
    * somebody deletes the Pod;
    * the container ended with 0 by itself, without a report.

    No note is needed for a Pod with the condition DisruptionTarget, because its Job shows it, nor for a Job that is
    suspended, or that we end before its start: the end of such a Pod costs the row nothing.
    """
    job = row.job
    if job is None or job.deleting or row.task.status in TERMINAL or lost_pods(row, job):
        return ()
    has_run, is_ours = any(pod.had_run for pod in row.pods), job.is_unplaced or job.ended_by == EndedBy.US
    if job.suspended or job.ended_by not in {"", EndedBy.US} or (is_ours and not has_run):
        return ()  # a Pod that starts in the same moment goes on
    if any(pod.is_rejected or (pod.deleting and not pod.node_name) for pod in row.pods):
        return (ObjectWrite(EndedBy.NODE, job.name, job.uid, "no node has taken its Pod"),)
    if any(is_cut_short(pod) and not pod.is_disrupted for pod in row.pods):
        return (ObjectWrite(EndedBy.OTHERS, job.name, job.uid, "somebody deletes its Pod"),)
    if row.has_exited and row.task.cancel_requested_at is None and is_unreported(row, job):
        return (ObjectWrite(EndedBy.ITSELF, job.name, job.uid, "its container has ended with 0"),)
    return ()


def is_unreported(row: TaskWithJobs, job: Job) -> bool:
    """Whether there is no report of an exit with 0. One by exit code waits for the janitor, while its Pod stays."""
    if job.report != "exit-code":
        return job.phase is Phase.COMPLETE and not row.unfinished
    is_late = row.cluster.cluster_now - (job.ended_at or job.created_at) >= row.cluster.rules.report_grace
    return any(pod.deleting for pod in row.pods) or (is_late and not row.unfinished)


def is_cut_short(pod: Pod) -> bool:
    """Whether the Pod is being deleted before its container had ended, or its node has forgotten the container."""
    if pod.exit is not None:
        return is_stopped(pod) and (pod.deleting or pod.exit.cause in FORGOTTEN)
    return pod.deleting and not (pod.has_ended or pod.is_rejected)


def unknown(row: TaskWithJobs) -> JobsVerdict | None:
    return JobsVerdict(None) if row.task.status is Status.UNKNOWN else None


def terminal(row: TaskWithJobs) -> JobsVerdict | None:
    if row.task.status not in TERMINAL:
        return None
    over = row.task.finished_at is not None and row.cluster.now - row.task.finished_at >= GRACE
    return JobsVerdict(None, tuple(delete(job, "its row is over") for job in row.jobs if over and may_be_deleted(job)))


def older_attempt(row: TaskWithJobs) -> JobsVerdict | None:
    older = [job for job in row.unfinished if job.attempt < row.task.attempt]
    if not older:
        return None
    keys = {f"older/{job.uid}": job for job in older}
    late = [job for key, job in keys.items() if row.cluster.has_lasted(key, GRACE) and may_be_deleted(job)]
    held = finishing(f"attempt {older[0].attempt} is not over yet", [delete(job, "an older attempt") for job in late])
    return replace(held, seen=tuple(keys))


def higher_attempt(row: TaskWithJobs) -> JobsVerdict | None:
    higher = [job for job in row.unfinished if job.attempt > row.task.attempt]
    if not higher:
        return None
    return finishing(f"a Job of the higher attempt {higher[0].attempt} runs: was the database restored?")


def cancel_asked(row: TaskWithJobs) -> JobsVerdict | None:
    asked = row.task.cancel_requested_at
    if asked is None:
        return None
    late = row.cluster.now - asked >= GRACE
    unfinished = [job for job in row.of_attempt if may_be_deleted(job)]
    return finishing("a cancel was asked", [delete(job, "cancelled") for job in unfinished if late])


def superseded(row: TaskWithJobs) -> JobsVerdict | None:
    left = [job for job in row.unfinished if job.launch < row.last]  # other attempts have held the row already
    if not left:
        return None
    return finishing(
        f"launch {left[0].launch} is not over yet", [delete(job, "superseded") for job in left if may_be_deleted(job)]
    )


def first_launch(row: TaskWithJobs) -> JobsVerdict | None:
    if row.last > 0:
        return None
    left = tuple(job.uid for job in row.jobs if not job.is_finished)  # or they would have held the row
    return JobsVerdict(Launch(1, ask=Ask.ALL_JOBS if row.task.attempt > 1 else Ask.NOTHING, left=left))


def node_lost(row: TaskWithJobs) -> JobsVerdict | None:
    """The Pod of an unfinished Job is being deleted, and its node is unreachable: no kubelet ends the container.

    The Job has a podFailurePolicy, so it shows no failure before its own deadline: a terminating Pod has not failed.
    """
    lost = lost_pods(row, row.job) if row.job is not None else []
    return JobsVerdict(Hold(HoldReason.NODE_LOST, f"node {lost[0].node_name} is not ready")) if lost else None


def with_lost_nodes(row: TaskWithJobs, found: JobsVerdict) -> JobsVerdict:
    """The verdict, and the release of every Job of the row from a lost node: a delete alone waits for the kubelet."""
    ends, seen, verdict = [*found.ends], [*found.seen], found.verdict
    for job in row.unfinished:
        if lost := lost_pods(row, job):
            ends += force_deletes(row, job, lost)
            seen += map(lost_key, lost)
            if isinstance(verdict, Hold) and verdict.reason is HoldReason.FINISHING:
                verdict = Hold(HoldReason.NODE_LOST, f"node {lost[0].node_name} is not ready; {verdict.detail}")
    return JobsVerdict(verdict, tuple(ends), tuple(seen))


def lost_pods(row: TaskWithJobs, job: Job) -> list[Pod]:
    if row.cluster.is_over(job):
        return []
    pods = row.cluster.pods.get(job.uid, ())
    return [pod for pod in pods if pod.deleting and is_unreachable(row.cluster.nodes.get(pod.node_name))]


def lost_key(pod: Pod) -> str:
    return f"lost/{pod.uid}"


def force_deletes(row: TaskWithJobs, job: Job, lost: Sequence[Pod]) -> tuple[ObjectWrite, ...]:
    """Deletes with grace 0, after NODE_LOST_SECONDS (0: never).

    A Job past its deadline releases the Pod and turns Failed, so deleting the Pod is enough. Before its deadline the
    Job's finalizer keeps the Pod. Then the Job is deleted too, if the launch had started: the row remembers its number.
    If the launch had not started, only its Job remembers it. Such a Job fails by a deadline and stays.
    """
    patience = timedelta(seconds=row.cluster.rules.node_lost_seconds)
    late = [pod for pod in lost if patience and row.cluster.has_lasted(lost_key(pod), patience)]
    pods = tuple(ObjectWrite("pods", pod.name, pod.uid, "its node is lost", grace_seconds=0) for pod in late)
    if not pods or job.phase is Phase.FAILING or job.deleting:
        return pods
    end = delete if row.task.launch == job.launch else fail
    return (*pods, end(job, "its node is lost"))


def launched(row: TaskWithJobs) -> JobsVerdict | None:
    job = row.job
    if job is None or (row.cluster.is_over(job) and not (job.is_finished and row.cluster.may_go(job))):
        return None
    ends = [ending(job, pod, cause) for pod in row.pods if (cause := end_cause(row, job, pod))]
    ends += [fail(job, "its Pod is refused")] if is_refused_for_long(row, job) else end_beside_others(row, job)
    stuck = tuple(stuck_key(pod) for pod in row.pods if pod.cannot_start)
    return JobsVerdict(Hold(HoldReason.LAUNCHED, detail_of(row, job)), tuple(ends), stuck)


def ending(job: Job, pod: Pod, cause: str) -> ObjectWrite:
    """First write: the note on the Job, in the version that was judged. Next cycle: the delete of the Pod.

    The version guards a note that others end the Pod: ours must not replace it.
    """
    note = EndedBy.LIMIT if pod.had_run else EndedBy.US
    if job.ended_by and (job.ended_by, note) != (EndedBy.US, EndedBy.LIMIT):
        return ObjectWrite("pods", pod.name, pod.uid, cause)
    return ObjectWrite(note, job.name, job.uid, cause, resource_version=job.resource_version)


def end_beside_others(row: TaskWithJobs, job: Job) -> list[ObjectWrite]:
    """The end of a launch whose container has ended, while another one keeps its Pod. Its exit is noted first."""
    if job.phase is not Phase.ACTIVE or job.deleting or not any(is_outlived(pod, row) for pod in row.pods):
        return []
    note = EndedBy.ITSELF if row.has_exited else EndedBy.OTHERS if is_put_off(row) else EndedBy.SIDECAR
    cause = "its container has ended, and another one keeps its Pod"
    return [ObjectWrite(note, job.name, job.uid, cause) if job.ended_by in {"", EndedBy.US} else fail(job, cause)]


def started_once_only(row: TaskWithJobs) -> JobsVerdict | None:
    task = row.task
    if task.status is Status.PROCESSING and task.max_failures == 1 and task.launch > 0:
        return park(HoldReason.FAILURES_EXHAUSTED, "the task had started, and max_failures is 1")
    return None


def exit_code(row: TaskWithJobs) -> JobsVerdict | None:
    """The exit code of the task's container is the report, whatever else runs in its Pod. The janitor brings it."""
    return None if row.has_succeeded is None else JobsVerdict(Hold(HoldReason.LAUNCHED, Stage.EXIT_CODE))


def gone(row: TaskWithJobs) -> JobsVerdict | None:
    if row.job is not None and (row.job.is_finished or not row.cluster.is_over(row.job)):
        return None
    return relaunch(row, row.cluster.now - (row.task.started_at or row.task.created_at))


def failed(row: TaskWithJobs) -> JobsVerdict | None:
    if row.job is None or row.job.phase is not Phase.FAILED or row.is_noted_as_exited:
        return None
    return relaunch(row, row.cluster.cluster_now - (row.job.ended_at or row.job.created_at))


def exited_before_start(row: TaskWithJobs) -> JobsVerdict | None:
    if row.task.launch == row.last or not row.has_exited:
        return None
    return park(HoldReason.EXITED_WITHOUT_REPORT, "its container ended with 0 and never called task_start")


def exited_without_report(row: TaskWithJobs) -> JobsVerdict | None:
    job = row.job
    if job is None or row.task.job_uid != job.uid:
        return None
    if row.cluster.cluster_now - (job.ended_at or job.created_at) < row.cluster.rules.report_grace:
        return JobsVerdict(Hold(HoldReason.LAUNCHED, Stage.EXITED))
    if row.task.second_process or not row.has_exited:
        return None
    return park(HoldReason.EXITED_WITHOUT_REPORT, "its container ended with 0 and never called task_finish")


def unproven_exit(row: TaskWithJobs) -> JobsVerdict | None:
    """J is Complete, but the end of its container says nothing about the run.

    The container was refused, because it was started again in its Pod. Or it was told to stop. Or nobody knows, because
    the Pod of a container that was told to stop is deleted.
    """
    job = row.job
    ended = (job.ended_at or job.created_at) if job else row.cluster.cluster_now
    return relaunch(row, row.cluster.cluster_now - ended)


TABLE: Final[tuple[Callable[[TaskWithJobs], JobsVerdict | None], ...]] = (
    unknown,
    terminal,
    older_attempt,
    higher_attempt,
    cancel_asked,
    superseded,
    first_launch,
    node_lost,
    exit_code,
    launched,
    started_once_only,
    gone,
    failed,
    exited_before_start,
    exited_without_report,
    unproven_exit,
)


class EarlierLaunches(Struct, frozen=True):
    """The launches of an attempt up to N that did not start, or of which nothing is known. All others have started.

    unstarted: they failed before their start.
    disrupted: they were disrupted, their Jobs are missing, or the database took no start.
    unplaced: they cost the row nothing: they were taken back, no node took their Pod, or they were disrupted more than
    a day ago.
    disrupted_at: times of the newest launches that count as disrupted, in their order.
    """

    unstarted: int = 0
    disrupted: int = 0
    unplaced: int = 0
    disrupted_at: tuple[datetime, ...] = ()


def count_earlier_launches(row: TaskWithJobs) -> EarlierLaunches:
    """The counts of this attempt's launches up to N. Missing Jobs count as disrupted."""
    seen = max(row.of_attempt, key=lambda job: job.launch, default=None)
    now = row.cluster.cluster_now
    if seen is None:
        return EarlierLaunches(disrupted=row.last, disrupted_at=(now,) * min(row.last, MAX_DISRUPTED))
    missing = row.last - seen.launch
    some = min(missing, MAX_DISRUPTED)  # a container may say that it is launch 32,767
    times = newest([*seen.disrupted_at, *[now] * some])
    before = forgetting(EarlierLaunches(seen.unstarted, seen.disrupted + missing, seen.unplaced_before, times), now)
    was_refused = row.task.launch == seen.launch and row.task.job_uid != seen.uid
    was_rejected = seen.ended_by == EndedBy.NODE or any(pod.is_rejected for pod in row.pods)
    if row.task.launch != seen.launch and (seen.is_unplaced or was_rejected):
        return replace(before, unplaced=before.unplaced + 1)
    is_cut = seen.was_disrupted or seen.ended_by == EndedBy.OTHERS or was_rejected
    if is_cut or missing or was_refused or is_put_off(row) or is_stopped_early(row, seen):
        # If a newer Job is missing, it is not known whether this launch had started. If this Job's container was
        # refused, the Job that holds the row is missing.
        times = newest([*before.disrupted_at, seen.ended_at or now])
        return replace(before, disrupted=before.disrupted + 1, disrupted_at=times)
    return replace(before, unstarted=before.unstarted + 1) if row.task.launch != seen.launch else before


def forgetting(earlier: EarlierLaunches, now: datetime) -> EarlierLaunches:
    """The counts without disruptions of more than a day ago: a spot node that goes each hour must not end long work."""
    recent = tuple(at for at in earlier.disrupted_at if now - at < DISRUPTED_WITHIN)
    gone = len(earlier.disrupted_at) - len(recent)
    return EarlierLaunches(earlier.unstarted, earlier.disrupted - gone, earlier.unplaced + gone, recent)


def newest(times: Iterable[datetime]) -> tuple[datetime, ...]:
    """The newest of these times, as many as a Job keeps."""
    return tuple(sorted(times)[-MAX_DISRUPTED:])


def is_stopped_early(row: TaskWithJobs, seen: Job) -> bool:
    """Whether something other than its run limit stopped the newest Job, or its Pod."""
    if seen.ended_by in {EndedBy.LIMIT, EndedBy.SIDECAR}:
        return False
    is_unproven = seen.phase is Phase.COMPLETE and not (row.has_exited or row.has_failed)
    is_ended = any(is_stopped(pod) for pod in row.pods)
    return is_unproven or (seen.deleting and not seen.is_finished) or is_ended


def is_put_off(row: TaskWithJobs) -> bool:
    """Whether J ended before its start because the database took no start. That says nothing about the image."""
    exits = (pod.exit for pod in row.pods if pod.exit is not None)
    return row.task.launch != row.last and any(end.exit_code == PUT_OFF for end in exits)


def cause_of_no_start(row: TaskWithJobs) -> str:
    """The beginning of the detail: why launch N did not start. Empty: its image or its template may be wrong.

    At its run limit the image may be right, and slow to pull. At its start deadline nothing shows whether it is bad.
    """
    job, deadline = row.job, timedelta(seconds=row.cluster.rules.start_deadline_seconds)
    if job is None or row.task.launch == row.last:
        return ""
    if any(pod.end is not None and pod.end.reason == DEADLINE for pod in row.pods):
        return f"{OVER_LIMIT}: "
    if job.ended_by == EndedBy.SIDECAR or any(pod.had_run for pod in row.pods):
        return f"{NO_CALL}: "
    is_late = not row.pods and (job.ended_at or job.created_at) - job.created_at >= deadline
    return f"{LATE_START}: " if is_late else ""


def relaunch(row: TaskWithJobs, waited: timedelta) -> JobsVerdict:
    """Launch N + 1 after the backoff, or a park if a budget is used up. `waited`: time since the end of launch N."""
    task, rules, earlier = row.task, row.cluster.rules, count_earlier_launches(row)
    launches = row.last - earlier.unplaced
    unreported = launches - earlier.unstarted - earlier.disrupted
    if task.failures + unreported >= task.max_failures:
        return park(HoldReason.FAILURES_EXHAUSTED, f"{task.failures + unreported} failed runs of {task.max_failures}")
    if earlier.unstarted >= rules.max_launches:
        words = f"{cause_of_no_start(row)}{earlier.unstarted} launches never started"
        return park(HoldReason.LAUNCHES_EXHAUSTED, words)
    refused = f"{NO_START}: " if is_put_off(row) else ""
    if earlier.disrupted > MAX_DISRUPTED or launches >= rules.max_launches + task.max_failures + MAX_DISRUPTED:
        what = f"{refused}{launches} launches, {earlier.disrupted} of them disrupted within a day"
        return park(HoldReason.DISRUPTED_TOO_OFTEN, what)
    left = max(pause_after(row, launches), backoff(max(0, row.rejections - 1), rules)) - waited
    if left > timedelta(0):
        why = f", because {of_rejections(row.rejected)}" if row.rejections else ""
        words = f"{refused}launch {row.last + 1} in {left.total_seconds():.0f} s{why}"
        return JobsVerdict(Hold(HoldReason.BACKOFF, words))
    return JobsVerdict(Launch(
        row.last + 1, earlier.unstarted, earlier.disrupted, Ask.THAT_JOB if row.job is None else Ask.NOTHING,
        unplaced=earlier.unplaced, disrupted_at=earlier.disrupted_at, avoid=row.rejecting,
    ))  # fmt: skip


def of_rejections(pods: Sequence[Pod]) -> str:
    """Why launches end without a start: some Pods are rejected by every kubelet, and cost no budget."""
    if not pods:
        return "no node took its Pods, which are gone"
    newest = max(pods, key=lambda pod: pod.created_at)
    nodes = len({pod.node_name for pod in pods})
    said = newest.end.reason if newest.end is not None else ""
    return (
        f"kubelets of {nodes} nodes rejected its Pods: {said}" if nodes > 1 else f"a kubelet rejected its Pod: {said}"
    )


def pause_after(row: TaskWithJobs, launches: int) -> timedelta:
    """The pause before the next launch. It begins anew after a run that was longer than the pause."""
    pause, ran = backoff(launches, row.cluster.rules), run_of(row)
    return pause if ran is None or ran < pause else min(pause, backoff(1, row.cluster.rules))


def run_of(row: TaskWithJobs) -> timedelta | None:
    """Length of the newest run: by its heartbeats; or the lifetime of its Job, if somebody else ended it."""
    task, job = row.task, row.job
    if task.launch == row.last and task.started_at is not None and task.heartbeat_at is not None:
        return task.heartbeat_at - task.started_at
    is_cut = job is not None and (job.was_disrupted or job.ended_by == EndedBy.OTHERS)
    return job.ended_at - job.created_at if job is not None and is_cut and job.ended_at is not None else None


def backoff(launches: int, rules: Rules) -> timedelta:
    """The pause after this number of launches: none, then 10 s, doubled for each further launch, at most 5 min."""
    if not launches:
        return timedelta(0)
    return timedelta(seconds=doubled(rules.first_backoff_seconds, launches - 1, LONGEST_BACKOFF_SECONDS))


def delete(job: Job, cause: str) -> ObjectWrite:
    return ObjectWrite("jobs", job.name, job.uid, cause, resource_version=job.resource_version)


def fail(job: Job, cause: str) -> ObjectWrite:
    """Lets an unfinished Job fail. The Job stays, with its number and its counts."""
    return ObjectWrite("deadline", job.name, job.uid, cause, resource_version=job.resource_version)


def finishing(detail: str, ends: Iterable[ObjectWrite] = ()) -> JobsVerdict:
    return JobsVerdict(Hold(HoldReason.FINISHING, detail), tuple(ends))


def park(reason: HoldReason, detail: str) -> JobsVerdict:
    return JobsVerdict(Hold(reason, detail))
