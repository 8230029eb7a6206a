"""Writes down what ended launches: exit code, reason, and the end of the output, as their Pods and Jobs tell.

    Jobs and Pods ─▶ jobs.launch_ends (pure) ─▶ janitor_ended: task_launches, and the view task_history

A container that was killed says nothing itself. Its Pod says it, but Pods go.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec import Struct

from dispatcher.jobs.launch_ends import LaunchEnd, launch_end
from dispatcher.jobs.picture import JobsPicture
from dispatcher.model.jobs import Job
from dispatcher.model.tasks import Task
from dispatcher.pg.tasks import Look

LARGEST: Final = 2**15 - 1
"""The largest attempt and launch that a row can have. Labels of a Job can hold any number."""
Key = tuple[int, int, int]
"""(task, attempt, launch)."""


class EndedLaunch(Struct, frozen=True):
    """One launch in the argument of `janitor_ended`."""

    task: int
    attempt: int
    launch: int
    job_uid: str
    node: str
    pod: str
    ended_at: datetime | None
    exit_code: int | None
    reason: str
    output: str


class Ends:
    """The ends of launches, by UID of their Jobs. They are kept between rounds, because a Pod can go before its Job."""

    def __init__(self) -> None:
        self.known: Mapping[str, LaunchEnd] = {}

    def look(self, picture: JobsPicture) -> None:
        seen = {}
        for job in picture.all_jobs:
            pods = picture.cluster.pods.get(job.uid, ())
            is_going = all(pod.deleting for pod in pods)  # a Pod that never ran gets another status when it is deleted
            before = self.known.get(job.uid) if is_going else None
            if (end := before or launch_end(job, pods)) is not None:
                seen[job.uid] = end
        self.known = seen

    async def unwritten(self, rows: Look, picture: JobsPicture, tasks: Iterable[Task]) -> Sequence[EndedLaunch]:
        """The launches that the database does not know the cause of."""
        found = ended_launches(picture, tasks, self.known)
        written = set(await rows.with_cause(sorted({one.task for one in found.values()})))
        return [one for key, one in found.items() if key not in written]


def ended_launches(
    picture: JobsPicture, tasks: Iterable[Task], ends: Mapping[str, LaunchEnd]
) -> Mapping[Key, EndedLaunch]:
    """The launches of these rows that have ended, and whose cause is known."""
    found = {}
    for task in tasks:
        for job in picture.jobs_of(task):
            if job.is_finished and not job.is_unplaced and job.uid in ends and is_of(job, task):
                found[task.id, job.attempt, job.launch] = ended_launch(job, ends[job.uid])
    return found


def is_of(job: Job, task: Task) -> bool:
    return job.attempt <= task.attempt and 0 < job.launch <= LARGEST


def ended_launch(job: Job, end: LaunchEnd) -> EndedLaunch:
    return EndedLaunch(
        task=job.task_id, attempt=job.attempt, launch=job.launch, job_uid=job.uid, node=end.node_name, pod=end.pod_name,
        ended_at=job.ended_at, exit_code=end.exit_code, reason=end.reason, output=end.output,
    )  # fmt: skip
