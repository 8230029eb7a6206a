"""What a row and its Jobs mean together: the table of docs/protocol.md, section 6, line by line.

Each function below is one line of that table and answers only where its line applies; the first answer counts. It is
pure, so that a model checker and a janitor can ask the very function that production asks.

Invariant: nothing here starts a second Job while one of the same row is unfinished, and launch numbers come from the
Jobs *and* the row together, because either alone forgets (a deleted Job, a launch that never started).

Not guaranteed: that the view is current. A verdict that rests on a Job being absent carries an `Ask`, which is put to
the API server before anything is written.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from dispatcher.jobs.observed import CANNOT_START, ObservedCluster, TaskWithJobs, stage
from dispatcher.model.cluster import Node, Pod
from dispatcher.model.jobs import End, Job, Phase
from dispatcher.model.launches import Ask, JobsVerdict, Launch
from dispatcher.model.tasks import TERMINAL, Status, Task
from dispatcher.model.verdicts import Hold, HoldReason

GRACE: Final = timedelta(seconds=60)
"""Cancel, report, superseded Jobs, image errors: long enough for a clean stop and for a registry's hiccup."""
MAX_DISRUPTED: Final = 20
FIRST_BACKOFF_SECONDS: Final = 10
LONGEST_BACKOFF_SECONDS: Final = 300


def judge(task: Task, jobs: Sequence[Job], cluster: ObservedCluster) -> JobsVerdict:
    """The first line of the table that applies."""
    case = TaskWithJobs(task, jobs, cluster)
    return next(standing for line in TABLE if (standing := line(case)) is not None)  # the last line is for all


def unknown(case: TaskWithJobs) -> JobsVerdict | None:
    return JobsVerdict(None) if case.task.status is Status.UNKNOWN else None


def terminal(case: TaskWithJobs) -> JobsVerdict | None:
    if case.task.status not in TERMINAL:
        return None
    over = case.task.finished_at is not None and case.cluster.now - case.task.finished_at >= GRACE
    return JobsVerdict(None, tuple(delete(job, "its row is over") for job in case.jobs if over and is_left(job)))


def older_attempt(case: TaskWithJobs) -> JobsVerdict | None:
    older = [job for job in case.jobs if job.attempt < case.task.attempt and not job.is_finished]
    if not older:
        return None
    keys = {f"older/{job.uid}": job for job in older}
    late = [job for key, job in keys.items() if case.cluster.has_lasted(key, GRACE) and is_left(job)]
    held = finishing(f"attempt {older[0].attempt} is not over yet", [delete(job, "an older attempt") for job in late])
    return replace(held, seen=tuple(keys))


def higher_attempt(case: TaskWithJobs) -> JobsVerdict | None:
    higher = [job for job in case.jobs if job.attempt > case.task.attempt and not job.is_finished]
    if not higher:
        return None
    return finishing(f"a Job of the higher attempt {higher[0].attempt} runs: was the database restored?")


def cancel_asked(case: TaskWithJobs) -> JobsVerdict | None:
    asked = case.task.cancel_requested_at
    if asked is None:
        return None
    late = case.cluster.now - asked >= GRACE
    unfinished = [job for job in case.of_attempt if is_left(job)]
    return finishing("a cancel was asked", [delete(job, "cancelled") for job in unfinished if late])


def superseded(case: TaskWithJobs) -> JobsVerdict | None:
    left = [job for job in case.of_attempt if job.launch < case.last and not job.is_finished]
    if not left:
        return None
    return finishing(
        f"launch {left[0].launch} is not over yet", [delete(job, "superseded") for job in left if is_left(job)]
    )


def first_launch(case: TaskWithJobs) -> JobsVerdict | None:
    if case.last > 0:
        return None
    return JobsVerdict(Launch(1, ask=Ask.ALL_JOBS if case.task.attempt > 1 else Ask.NOTHING))


def node_lost(case: TaskWithJobs) -> JobsVerdict | None:
    """Kubernetes wants the Pod gone, and nobody is there to end its container.

    With a podFailurePolicy the Job says nothing of it before its own deadline: a terminating Pod has not failed yet.
    """
    job = case.job
    if job is None or job.is_finished:
        return None
    lost = [pod for pod in case.pods if pod.deleting and is_unreachable(case.cluster.nodes.get(pod.node_name))]
    if not lost:
        return None
    hold = Hold(HoldReason.NODE_LOST, f"node {lost[0].node_name} is unreachable")
    return JobsVerdict(hold, forced(case, job, lost), tuple(map(lost_key, lost)))


def lost_key(pod: Pod) -> str:
    return f"lost/{pod.uid}"


def forced(case: TaskWithJobs, job: Job, lost: Sequence[Pod]) -> tuple[End, ...]:
    """Deletes by force, once NODE_LOST_SECONDS are over (0: never).

    A Job past its deadline lets go of a Pod that was deleted by force, and turns Failed. Before that its finalizer
    keeps the Pod, so the Job is deleted too: the row remembers the launch, if it had started. A launch that had not
    started is left to its deadline, because nothing else would remember it.
    """
    patience = timedelta(seconds=case.cluster.rules.node_lost_seconds)
    late = [pod for pod in lost if patience and case.cluster.has_lasted(lost_key(pod), patience)]
    pods = tuple(End("pods", pod.name, pod.uid, "its node is lost", grace_seconds=0) for pod in late)
    if not pods or job.phase is Phase.FAILING or job.deleting:
        return pods
    return (*pods, delete(job, "its node is lost")) if case.task.launch == job.launch else ()


def launched(case: TaskWithJobs) -> JobsVerdict | None:
    job = case.job
    if job is None or (job.is_finished and not job.deleting):
        return None
    ends = [End("pods", pod.name, pod.uid, cause) for pod in case.pods if (cause := why_ended(case, job, pod))]
    stuck = tuple(stuck_key(pod) for pod in case.pods if pod.waiting_reason in CANNOT_START)
    return JobsVerdict(Hold(HoldReason.LAUNCHED, stage(job, case.pods, case.cluster.cluster_now)), tuple(ends), stuck)


def started_once_only(case: TaskWithJobs) -> JobsVerdict | None:
    task = case.task
    if task.status is Status.PROCESSING and task.max_failures == 1 and task.launch > 0:
        return park(HoldReason.FAILURES_EXHAUSTED, "it had started, and max_failures is 1")
    return None


def exit_code(case: TaskWithJobs) -> JobsVerdict | None:
    job = case.job
    if job is None or job.report != "exit-code" or case.task.status is not Status.WAITING:
        return None
    if job.phase is Phase.FAILED and not job.was_disrupted and any(pod.had_run for pod in case.pods):
        return park(HoldReason.EXITED_WITHOUT_REPORT, "its container failed; report is exit-code")
    return None


def gone(case: TaskWithJobs) -> JobsVerdict | None:
    if case.job is not None:
        return None
    unstarted, disrupted = remembered(case)
    since = case.task.started_at or case.task.created_at
    return relaunch(case, unstarted, disrupted, case.cluster.now - since)


def failed(case: TaskWithJobs) -> JobsVerdict | None:
    if case.job is None or case.job.phase is not Phase.FAILED:
        return None
    return relaunch(case, *remembered(case), case.cluster.cluster_now - (case.job.ended_at or case.job.created_at))


def exited_before_start(case: TaskWithJobs) -> JobsVerdict | None:
    if case.task.launch == case.last:
        return None
    return park(HoldReason.EXITED_WITHOUT_REPORT, "its container ended with 0 and never called task_start")


def exited_without_report(case: TaskWithJobs) -> JobsVerdict | None:
    job = case.job
    if job is None or case.task.job_uid != job.uid:
        return None
    if case.cluster.cluster_now - (job.ended_at or job.created_at) < GRACE:
        return JobsVerdict(Hold(HoldReason.LAUNCHED, "ended with 0; its report may be on the way"))
    return park(HoldReason.EXITED_WITHOUT_REPORT, "its container ended with 0 and never called task_finish")


def refused_twin(case: TaskWithJobs) -> JobsVerdict | None:
    job = case.job
    ended = (job.ended_at or job.created_at) if job else case.cluster.cluster_now
    return relaunch(case, *remembered(case), case.cluster.cluster_now - ended)


TABLE: Final[tuple[Callable[[TaskWithJobs], JobsVerdict | None], ...]] = (
    unknown,
    terminal,
    older_attempt,
    higher_attempt,
    cancel_asked,
    superseded,
    first_launch,
    node_lost,
    launched,
    started_once_only,
    exit_code,
    gone,
    failed,
    exited_before_start,
    exited_without_report,
    refused_twin,
)


def remembered(case: TaskWithJobs) -> tuple[int, int]:
    """Launches of this attempt up to N that never started, and that were disrupted; missing Jobs count as disrupted."""
    seen = max(case.of_attempt, key=lambda job: job.launch, default=None)
    if seen is None:
        return 0, case.last
    missing = case.last - seen.launch
    unstarted, disrupted = seen.unstarted, seen.disrupted + missing
    is_twin = case.task.launch == seen.launch and case.task.job_uid != seen.uid
    if seen.was_disrupted or missing or is_twin:
        # With a newer Job missing nothing tells whether this one had started; a refused twin's own Job is missing.
        disrupted += 1
    elif case.task.launch != seen.launch:
        unstarted += 1
    return unstarted, disrupted


def relaunch(case: TaskWithJobs, unstarted: int, disrupted: int, waited: timedelta) -> JobsVerdict:
    """Launch N + 1 while every budget lasts, after a pause that doubles."""
    task, rules = case.task, case.cluster.rules
    unreported = case.last - unstarted - disrupted
    if task.failures + unreported >= task.max_failures:
        return park(HoldReason.FAILURES_EXHAUSTED, f"{task.failures + unreported} failed runs of {task.max_failures}")
    if unstarted >= rules.max_launches:
        return park(HoldReason.LAUNCHES_EXHAUSTED, f"{unstarted} launches never started")
    if disrupted > MAX_DISRUPTED or case.last >= rules.max_launches + task.max_failures + MAX_DISRUPTED:
        return park(HoldReason.LAUNCHES_EXHAUSTED, f"{case.last} launches, {disrupted} of them disrupted")
    left = backoff(case.last) - waited
    if left > timedelta(0):
        return JobsVerdict(Hold(HoldReason.BACKOFF, f"launch {case.last + 1} in {left.total_seconds():.0f} s"))
    ask = Ask.THAT_JOB if case.job is None else Ask.NOTHING
    return JobsVerdict(Launch(case.last + 1, unstarted, disrupted, ask))


def backoff(launches: int) -> timedelta:
    """The pause after so many launches: 10 s, doubling, at most 5 min."""
    return timedelta(seconds=min(FIRST_BACKOFF_SECONDS * 2 ** min(launches - 1, 10), LONGEST_BACKOFF_SECONDS))


def stuck_key(pod: Pod) -> str:
    return f"stuck/{pod.uid}"


def why_ended(case: TaskWithJobs, job: Job, pod: Pod) -> str:
    """Why a launch that has not started is given up; empty: it is not. Its Pod is deleted, its Job stays as memory."""
    if pod.phase != "Pending" or pod.deleting or pod.had_run or case.task.launch >= job.launch:
        return ""
    cluster = case.cluster
    if pod.waiting_reason in CANNOT_START and cluster.has_lasted(stuck_key(pod), GRACE):
        return pod.waiting_reason
    # By the Pod's age: a suspended Job has no Pod, so the deadline stands still meanwhile.
    late = cluster.cluster_now - pod.created_at >= timedelta(seconds=cluster.rules.start_deadline_seconds)
    return "the start deadline passed" if late and not job.suspended else ""


def is_unreachable(node: Node | None) -> bool:
    return node is not None and node.unreachable


def is_left(job: Job) -> bool:
    """Unfinished, and nobody has deleted it yet."""
    return not job.is_finished and not job.deleting


def delete(job: Job, cause: str) -> End:
    return End("jobs", job.name, job.uid, cause, resource_version=job.resource_version)


def finishing(detail: str, ends: Iterable[End] = ()) -> JobsVerdict:
    return JobsVerdict(Hold(HoldReason.FINISHING, detail), tuple(ends))


def park(reason: HoldReason, detail: str) -> JobsVerdict:
    return JobsVerdict(Hold(reason, detail))
