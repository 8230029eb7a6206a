"""Production's pure decisions for states of the model. The model explores the same functions that production calls.

All graces and backoffs are always over. A longer wait is one more interleaving, so no behaviour is lost. Answers are
cached by the part of the state that they depend on, because the decisions are slow and the states are many.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

import msgspec

from dispatcher.admission.cycle import plan_taken_back
from dispatcher.janitor.closing import Act, plan_closing
from dispatcher.jobs.memory import UnobservedCreate, plan_create
from dispatcher.jobs.observed import ObservedCluster, Rules, TaskWithJobs
from dispatcher.jobs.outcome import TABLE, judge_row
from dispatcher.jobs.picture import find_probes
from dispatcher.jobs.refusals import are_over
from dispatcher.model.cluster import PodEnd
from dispatcher.model.jobs import EndedBy, Phase
from dispatcher.model.jobs import Job as RealJob
from dispatcher.model.jobs import ObjectWrite as Removal
from dispatcher.model.launches import JobsVerdict, Launch, Offer, task_identity
from dispatcher.model.tasks import Status, Task
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.sweep.plan import Absences, why_swept, why_uncounted
from tests.model.row import CANCELLED, FAILED, PROCESSING, SUCCEEDED, WAITING, End, Return, Row
from tests.model.state import (
    ACTIVE,
    BROKEN,
    BY_NODE,
    COMPLETE,
    DELETING,
    DISRUPTED,
    FAILING,
    GONE,
    HIDDEN_PENDING,
    LOST,
    MADE,
    MARKED,
    NOTED,
    OURS,
    RAN,
    REJECTED,
    TOLD,
    UNPLACED,
    Create,
    Intent,
    Job,
    Seen,
    View,
    is_finished,
)
from tests.rig.builders import CREATED, DATABASE_ID, NOW, a_job, a_node, a_picture, a_pod, a_snapshot, a_task

LONG_AGO = NOW - timedelta(days=300)
LATER = NOW
PHASE = {
    ACTIVE: Phase.ACTIVE,
    FAILING: Phase.FAILING,
    COMPLETE: Phase.COMPLETE,
    BROKEN: Phase.FAILED,
    DISRUPTED: Phase.FAILED,
}
STATUS = {
    WAITING: Status.WAITING,
    PROCESSING: Status.PROCESSING,
    SUCCEEDED: Status.SUCCEEDED,
    FAILED: Status.FAILED,
    CANCELLED: Status.CANCELLED,
}
NOTE_OF = {"others": NOTED, "us": OURS, "node": BY_NODE}
STATUS_OF = {Act.SUCCEED: SUCCEEDED, Act.RETRY: WAITING, Act.FAIL: FAILED}
EXITED, BROKE = PodEnd(container="task", exit_code=0), PodEnd(container="task", exit_code=1)
REFUSED_BY_NODE = PodEnd(reason="UnexpectedAdmissionError")
NODES = {"node": a_node("node"), "lost": a_node("lost", ready=False, unreachable=True)}
REFUSAL = Hold(HoldReason.UNKNOWN_TEMPLATE, "no such template")

Line = Callable[[TaskWithJobs], JobsVerdict | None]


class LongSeen(dict[str, datetime]):
    """First sights of states: every state was first seen long ago."""

    def get(self, key: str, default: object = None) -> datetime:
        return LONG_AGO


@dataclass(frozen=True)
class Ruling:
    """A verdict and its deletes, as values of the model."""

    launch: tuple[int, int, int, str, int] | None
    hold: HoldReason | None
    removals: tuple[tuple[str, Seen, bool], ...]  # kind, the Job that was judged, whether with grace 0


def name_of(create: Create) -> str:
    return f"{create.attempt}/{create.launch}"


def unseen(create: Create | None) -> UnobservedCreate | None:
    """Our last create of the row, in production's type."""
    if create is None:
        return None
    version = "1" if create is MADE else None
    return UnobservedCreate(name_of(create), 1, 1, "q", "somebody", Offer("i", "small", "t"), 0, version)


@dataclass
class Decisions:
    """Production's decisions for rows of one kind. `table` and `case` may lack a rule."""

    max_failures: int
    max_launches: int
    report: str = "sql"
    refusal: bool = False
    table: Sequence[Line] = TABLE
    case: type[TaskWithJobs] = TaskWithJobs
    swept_without: frozenset[str] = frozenset()
    forgets: bool = False
    rulings: dict[tuple[Row, View], Ruling] = field(default_factory=dict)
    sweeps: dict[tuple[Row, View, Seen], bool] = field(default_factory=dict)
    closings: dict[tuple[Row, View], Intent] = field(default_factory=dict)
    plans: dict[object, bool] = field(default_factory=dict)
    overs: dict[View, bool] = field(default_factory=dict)
    taken: dict[View, tuple[tuple[str, Seen], ...]] = field(default_factory=dict)

    def ruling(self, row: Row, view: View) -> Ruling:
        key = (row, view)
        if (known := self.rulings.get(key)) is None:
            known = self.rulings[key] = self._rule(row, view)
        return known

    def creates(self, create: Create, known: Create | None) -> bool:
        """Whether our last create of the row allows this create."""
        key = (create.attempt, create.launch, known and (known.stage, known.attempt, known.launch))
        if key not in self.plans:
            self.plans[key] = isinstance(plan_create(Launch(create.launch), unseen(known), name_of(create)), Launch)
        return self.plans[key]

    def are_over(self, jobs: View) -> bool:
        """Whether a live list of these Jobs allows the first create of a later attempt."""
        if jobs not in self.overs:
            found = [self._job(job) for job in jobs]
            self.overs[jobs] = are_over(found, found[0].identity if found else "")
        return self.overs[jobs]

    def is_swept(self, row: Row, view: View, job: Seen) -> bool:
        key = (row, view, job)
        if (known := self.sweeps.get(key)) is None:
            known = self.sweeps[key] = self._sweep(row, job) or (self.forgets and self._forget(row, view, job))
        return known

    def closing(self, row: Row, view: View) -> Intent:
        """The janitor's call for a row that it read, with the Jobs that it then listed."""
        key = (row, view)
        if key not in self.closings:
            self.closings[key] = self._close(row, view)
        return self.closings[key]

    def taken_back(self, view: View) -> tuple[tuple[str, Seen], ...]:
        """The next write for each probe, if its queue is paused: its kind and the Job."""
        if view not in self.taken:
            by_uid = {str(job.uid): job for job in view}
            probes = find_probes([self._job(job) for job in view], self._cluster(view))
            ends = plan_taken_back(probes, a_snapshot(), {"default": LONG_AGO})
            self.taken[view] = tuple((end.kind, by_uid[end.uid]) for end in ends)
        return self.taken[view]

    def _rule(self, row: Row, view: View) -> Ruling:
        by_uid = {str(job.uid): job for job in view}
        found = self._judge(self._task(row), [self._job(job) for job in view], self._cluster(view))
        verdict = found.verdict
        launch = hold = None
        if isinstance(verdict, Launch):
            launch = (verdict.number, verdict.unstarted, verdict.disrupted, verdict.ask.value, verdict.unplaced)
        elif verdict is not None:
            hold = verdict.reason
        # No Pod of a Job that is Complete goes in the model, so that the note of its exit would change nothing.
        ends = (end for end in found.ends if end.kind != EndedBy.ITSELF)
        return Ruling(launch, hold, tuple(removal(end, by_uid) for end in ends))

    def _judge(self, task: Task, jobs: list[RealJob], cluster: ObservedCluster) -> JobsVerdict:
        row = self.case(task, jobs, cluster)
        if self.table is TABLE:
            return judge_row(row)
        return next(found for line in self.table if (found := line(row)) is not None)

    def _sweep(self, row: Row, job: Seen) -> bool:
        """The condition of `plan_due`: finished, and not being deleted. The tombstone time is 0."""
        without = self.swept_without
        is_due = (is_finished(job) or "sweep: finished" in without) and not job.flags & DELETING
        task = self._task(row)
        if "sweep: over" in without:
            task = msgspec.structs.replace(task, status=Status.SUCCEEDED)
        if "sweep: attempt" in without:
            task = msgspec.structs.replace(task, attempt=max(task.attempt, job.attempt))
        if "sweep: past" in without and task.attempt > job.attempt:
            return False
        return is_due and bool(why_swept(self._job(job), task, DATABASE_ID, LATER, Absences()))

    def _forget(self, row: Row, view: View, job: Seen) -> bool:
        """Whether nothing rests on a finished Job of the row's own attempt. It is old enough."""
        if not is_finished(job) or job.flags & DELETING:
            return False
        newest = max(one.launch for one in view if one.attempt == job.attempt)
        if "sweep: a later launch" in self.swept_without:
            newest += 1
        if "sweep: nothing before" in self.swept_without:
            job = job._replace(unstarted=0, disrupted=0, unplaced=job.launch - 1)
        if "sweep: taken back" in self.swept_without:
            job = job._replace(flags=job.flags | MARKED)
        return bool(why_uncounted(self._job(job), self._task(row), newest, DATABASE_ID))

    def _close(self, row: Row, view: View) -> Intent:
        cluster = self._cluster(view)
        jobs = [self._job(job) for job in view]
        found = plan_closing(a_picture(jobs, cluster), self._task(row), timedelta(0), REFUSAL if self.refusal else None)
        if found is None:
            return None
        if found.act is Act.CANCEL:
            return found.attempt, row.token
        if found.act is Act.RETURN:
            return Return(found.attempt, found.launch, row.token, found.failures)
        uid = int(found.job_uid) if found.job_uid else -1
        return End(found.attempt, found.launch, uid, STATUS_OF[found.act])

    def _task(self, row: Row) -> Task:
        has_started = row.launch > 0
        return a_task(
            status=STATUS[row.status],
            attempt=row.attempt,
            launch=row.launch,
            failures=row.failures,
            max_failures=self.max_failures,
            job_uid=str(row.uid) if row.uid else None,
            started_at=LONG_AGO if has_started else None,
            heartbeat_at=LONG_AGO if has_started else None,
            finished_at=LONG_AGO if row.status > PROCESSING else None,
            cancel_requested_at=LONG_AGO if row.cancel else None,
            second_process=bool(row.second),
        )

    def _job(self, job: Seen) -> RealJob:
        return a_job(
            job.attempt,
            job.launch,
            uid=str(job.uid),
            resource_version=str(version_of(job)),
            identity=self._identity,
            phase=PHASE[job.phase],
            reason="PodFailurePolicy" if job.phase == DISRUPTED else "BackoffLimitExceeded",
            created_at=LONG_AGO,
            ended_at=LONG_AGO if is_finished(job) else None,
            deleting_since=LONG_AGO if job.flags & DELETING else None,
            unstarted=job.unstarted,
            disrupted=job.disrupted,
            unplaced_before=job.unplaced,
            is_unplaced=bool(job.flags & MARKED),
            ended_by=noted_on(job),
            report=self.report,
        )

    @property
    def _broke(self) -> PodEnd:
        """The end of the task's container in a Job that failed. Another container may have failed it."""
        return BROKE if self.report == "exit-code" else EXITED

    def _cluster(self, view: View) -> ObservedCluster:
        pods = {}
        for job in view:
            if job.flags & GONE:
                continue
            running = "Succeeded" if job.phase == COMPLETE else "Failed" if job.flags & REJECTED else "Running"
            pods[str(job.uid)] = [
                a_pod(
                    uid=str(job.uid),
                    job_uid=str(job.uid),
                    created_at=LONG_AGO,
                    phase="Pending" if job.flags & HIDDEN_PENDING else running,
                    node_name="" if job.flags & UNPLACED else "lost" if job.flags & LOST else "node",
                    had_run=bool(job.flags & RAN),
                    end=REFUSED_BY_NODE if job.flags & REJECTED else None,
                    exit=EXITED if job.phase == COMPLETE else self._broke if has_broken(job) else None,
                    unschedulable_since=LONG_AGO if job.flags & UNPLACED else None,
                    deleting=job.phase == FAILING or bool(job.flags & (DELETING | TOLD)),
                    is_disrupted=job.phase == FAILING,
                )
            ]
        rules = Rules(max_launches=self.max_launches, start_deadline_seconds=1, node_lost_seconds=1)
        return ObservedCluster(LATER, LATER, pods, NODES, LongSeen(), rules)

    @cached_property
    def _identity(self) -> str:
        return task_identity(DATABASE_ID, 42, CREATED)


def noted_on(job: Seen) -> str:
    return next((who for who, flag in NOTE_OF.items() if job.flags & flag), "")


def has_broken(job: Seen) -> bool:
    return job.phase == BROKEN and bool(job.flags & RAN)


def removal(end: Removal, by_uid: dict[str, Seen]) -> tuple[str, Seen, bool]:
    job = by_uid[end.uid]
    is_of_any = end.kind in {"pods", EndedBy.OTHERS, EndedBy.NODE}
    assert is_of_any or end.resource_version == str(version_of(job))
    return end.kind, job, end.grace_seconds == 0


def version_of(job: Job | Seen) -> int:
    """A Job's resourceVersion. It is unique, and changes with conditions, marks and notes, and with a delete."""
    notes = sum(1 << place for place, flag in enumerate(NOTE_OF.values()) if job.flags & flag)
    return ((job.uid * 8 + job.phase) * 4 + (job.flags & DELETING) + 2 * bool(job.flags & MARKED)) * 8 + notes
