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
from datetime import timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dispatcher.jobs.observed import CANNOT_START, GRACE, ObservedCluster, TaskWithJobs, stage
from dispatcher.jobs.unstarted import end_cause, is_refused_for_long, may_be_deleted, stuck_key
from dispatcher.model.backoff import doubled
from dispatcher.model.cluster import Node, Pod
from dispatcher.model.jobs import End, Job, Phase
from dispatcher.model.launches import Ask, JobsVerdict, Launch
from dispatcher.model.tasks import TERMINAL, Status, Task
from dispatcher.model.verdicts import Hold, HoldReason, Stage

MAX_DISRUPTED: Final = 20
FIRST_BACKOFF_SECONDS: Final = 10
LONGEST_BACKOFF_SECONDS: Final = 300
REPORT_GRACE: Final = GRACE
"""A report may be on the way for so long after the end of its container."""


def judge(task: Task, jobs: Sequence[Job], cluster: ObservedCluster) -> JobsVerdict:
    """The answer of the first line of the table that applies."""
    row = TaskWithJobs(task, jobs, cluster)
    return next(found for line in TABLE if (found := line(row)) is not None)  # the last line always answers


def unknown(row: TaskWithJobs) -> JobsVerdict | None:
    return JobsVerdict(None) if row.task.status is Status.UNKNOWN else None


def terminal(row: TaskWithJobs) -> JobsVerdict | None:
    if row.task.status not in TERMINAL:
        return None
    over = row.task.finished_at is not None and row.cluster.now - row.task.finished_at >= GRACE
    return JobsVerdict(None, tuple(delete(job, "its row is over") for job in row.jobs if over and may_be_deleted(job)))


def older_attempt(row: TaskWithJobs) -> JobsVerdict | None:
    older = [job for job in row.jobs if job.attempt < row.task.attempt and not job.is_finished]
    if not older:
        return None
    keys = {f"older/{job.uid}": job for job in older}
    late = [job for key, job in keys.items() if row.cluster.has_lasted(key, GRACE) and may_be_deleted(job)]
    held = finishing(f"attempt {older[0].attempt} is not over yet", [delete(job, "an older attempt") for job in late])
    return replace(held, seen=tuple(keys))


def higher_attempt(row: TaskWithJobs) -> JobsVerdict | None:
    higher = [job for job in row.jobs if job.attempt > row.task.attempt and not job.is_finished]
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
    left = [job for job in row.of_attempt if job.launch < row.last and not job.is_finished]
    if not left:
        return None
    return finishing(
        f"launch {left[0].launch} is not over yet", [delete(job, "superseded") for job in left if may_be_deleted(job)]
    )


def first_launch(row: TaskWithJobs) -> JobsVerdict | None:
    if row.last > 0:
        return None
    return JobsVerdict(Launch(1, ask=Ask.ALL_JOBS if row.task.attempt > 1 else Ask.NOTHING))


def node_lost(row: TaskWithJobs) -> JobsVerdict | None:
    """The Pod of an unfinished Job is being deleted, and its node is unreachable: no kubelet ends the container.

    The Job has a podFailurePolicy, so it shows no failure before its own deadline: a terminating Pod has not failed.
    """
    job = row.job
    if job is None or job.is_finished:
        return None
    lost = [pod for pod in row.pods if pod.deleting and is_unreachable(row.cluster.nodes.get(pod.node_name))]
    if not lost:
        return None
    hold = Hold(HoldReason.NODE_LOST, f"node {lost[0].node_name} is unreachable")
    return JobsVerdict(hold, force_deletes(row, job, lost), tuple(map(lost_key, lost)))


def lost_key(pod: Pod) -> str:
    return f"lost/{pod.uid}"


def force_deletes(row: TaskWithJobs, job: Job, lost: Sequence[Pod]) -> tuple[End, ...]:
    """Deletes with grace 0, after NODE_LOST_SECONDS (0: never).

    A Job past its deadline releases the Pod and turns Failed, so deleting the Pod is enough. Before its deadline the
    Job's finalizer keeps the Pod. Then the Job is deleted too, if the launch had started: the row remembers its number.
    If the launch had not started, only its Job remembers it. Such a Job fails by a deadline and stays.
    """
    patience = timedelta(seconds=row.cluster.rules.node_lost_seconds)
    late = [pod for pod in lost if patience and row.cluster.has_lasted(lost_key(pod), patience)]
    pods = tuple(End("pods", pod.name, pod.uid, "its node is lost", grace_seconds=0) for pod in late)
    if not pods or job.phase is Phase.FAILING or job.deleting:
        return pods
    end = delete if row.task.launch == job.launch else fail
    return (*pods, end(job, "its node is lost"))


def launched(row: TaskWithJobs) -> JobsVerdict | None:
    job = row.job
    if job is None or (job.is_finished and not job.deleting):
        return None
    ends = [End("pods", pod.name, pod.uid, cause) for pod in row.pods if (cause := end_cause(row, job, pod))]
    ends += [fail(job, "its Pod is refused")] if is_refused_for_long(row, job) else []
    stuck = tuple(stuck_key(pod) for pod in row.pods if pod.waiting_reason in CANNOT_START)
    detail = stage(job, row.pods, row.cluster.cluster_now, row.refusal)
    return JobsVerdict(Hold(HoldReason.LAUNCHED, detail), tuple(ends), stuck)


def started_once_only(row: TaskWithJobs) -> JobsVerdict | None:
    task = row.task
    if task.status is Status.PROCESSING and task.max_failures == 1 and task.launch > 0:
        return park(HoldReason.FAILURES_EXHAUSTED, "the task had started, and max_failures is 1")
    return None


def exit_code(row: TaskWithJobs) -> JobsVerdict | None:
    job = row.job
    if job is None or job.report != "exit-code" or row.task.status is not Status.WAITING:
        return None
    if job.phase is Phase.FAILED and not job.was_disrupted and any(pod.had_run for pod in row.pods):
        return park(HoldReason.EXITED_WITHOUT_REPORT, "its container failed; report is exit-code")
    return None


def gone(row: TaskWithJobs) -> JobsVerdict | None:
    if row.job is not None:
        return None
    return relaunch(row, row.cluster.now - (row.task.started_at or row.task.created_at))


def failed(row: TaskWithJobs) -> JobsVerdict | None:
    if row.job is None or row.job.phase is not Phase.FAILED:
        return None
    return relaunch(row, row.cluster.cluster_now - (row.job.ended_at or row.job.created_at))


def exited_before_start(row: TaskWithJobs) -> JobsVerdict | None:
    if row.task.launch == row.last:
        return None
    return park(HoldReason.EXITED_WITHOUT_REPORT, "its container ended with 0 and never called task_start")


def exited_without_report(row: TaskWithJobs) -> JobsVerdict | None:
    job = row.job
    if job is None or row.task.job_uid != job.uid:
        return None
    if row.cluster.cluster_now - (job.ended_at or job.created_at) < REPORT_GRACE:
        return JobsVerdict(Hold(HoldReason.LAUNCHED, Stage.EXITED))
    return park(HoldReason.EXITED_WITHOUT_REPORT, "its container ended with 0 and never called task_finish")


def refused_twin(row: TaskWithJobs) -> JobsVerdict | None:
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
    launched,
    started_once_only,
    exit_code,
    gone,
    failed,
    exited_before_start,
    exited_without_report,
    refused_twin,
)


class Earlier(Struct, frozen=True):
    """The launches of an attempt up to N that did not start, or of which nothing is known. The others have started.

    unstarted: they failed before their start.
    disrupted: they were disrupted, or their Jobs are missing.
    unplaced: they got no node and were taken back. They cost the row nothing.
    """

    unstarted: int = 0
    disrupted: int = 0
    unplaced: int = 0


def count_earlier_launches(row: TaskWithJobs) -> Earlier:
    """The counts of this attempt's launches up to N. Missing Jobs count as disrupted."""
    seen = max(row.of_attempt, key=lambda job: job.launch, default=None)
    if seen is None:
        return Earlier(disrupted=row.last)
    missing = row.last - seen.launch
    before = Earlier(seen.unstarted, seen.disrupted + missing, seen.unplaced_before)
    was_refused = row.task.launch == seen.launch and row.task.job_uid != seen.uid
    if seen.is_unplaced and row.task.launch != seen.launch:
        return replace(before, unplaced=before.unplaced + 1)
    if seen.was_disrupted or missing or was_refused:
        # If a newer Job is missing, it is not known whether this launch had started. If this Job's container was
        # refused, the Job that holds the row is missing.
        return replace(before, disrupted=before.disrupted + 1)
    is_unstarted = row.task.launch != seen.launch
    return replace(before, unstarted=before.unstarted + 1) if is_unstarted else before


def relaunch(row: TaskWithJobs, waited: timedelta) -> JobsVerdict:
    """Launch N + 1 after the backoff, or a park if a budget is used up. `waited`: time since the end of launch N."""
    task, rules, earlier = row.task, row.cluster.rules, count_earlier_launches(row)
    launches = row.last - earlier.unplaced
    unreported = launches - earlier.unstarted - earlier.disrupted
    if task.failures + unreported >= task.max_failures:
        return park(HoldReason.FAILURES_EXHAUSTED, f"{task.failures + unreported} failed runs of {task.max_failures}")
    if earlier.unstarted >= rules.max_launches:
        return park(HoldReason.LAUNCHES_EXHAUSTED, f"{earlier.unstarted} launches never started")
    if earlier.disrupted > MAX_DISRUPTED or launches >= rules.max_launches + task.max_failures + MAX_DISRUPTED:
        return park(HoldReason.LAUNCHES_EXHAUSTED, f"{launches} launches, {earlier.disrupted} of them disrupted")
    left = backoff(launches) - waited
    if left > timedelta(0):
        return JobsVerdict(Hold(HoldReason.BACKOFF, f"launch {row.last + 1} in {left.total_seconds():.0f} s"))
    ask = Ask.THAT_JOB if row.job is None else Ask.NOTHING
    launch = Launch(row.last + 1, earlier.unstarted, earlier.disrupted, ask, unplaced=earlier.unplaced)
    return JobsVerdict(launch)


def backoff(launches: int) -> timedelta:
    """The pause after so many launches: none, then 10 s, doubled for each further launch, at most 5 min."""
    if not launches:
        return timedelta(0)
    return timedelta(seconds=doubled(FIRST_BACKOFF_SECONDS, launches - 1, LONGEST_BACKOFF_SECONDS))


def is_unreachable(node: Node | None) -> bool:
    return node is not None and node.unreachable


def delete(job: Job, cause: str) -> End:
    return End("jobs", job.name, job.uid, cause, resource_version=job.resource_version)


def fail(job: Job, cause: str) -> End:
    """Lets an unfinished Job fail. It stays, with its number and its counts."""
    return End("deadline", job.name, job.uid, cause, resource_version=job.resource_version)


def finishing(detail: str, ends: Iterable[End] = ()) -> JobsVerdict:
    return JobsVerdict(Hold(HoldReason.FINISHING, detail), tuple(ends))


def park(reason: HoldReason, detail: str) -> JobsVerdict:
    return JobsVerdict(Hold(reason, detail))
