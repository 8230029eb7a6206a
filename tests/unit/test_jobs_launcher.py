"""The Jobs stage: its picture of a cycle, and its state between cycles."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from dispatcher.jobs.catalog import Catalog
from dispatcher.jobs.manifest import JobSite
from dispatcher.jobs.memory import Memory
from dispatcher.jobs.observed import Rules
from dispatcher.jobs.picture import JobsPicture
from dispatcher.jobs.submit import Launcher, Submitter
from dispatcher.model.cluster import Pod, PodRefusal
from dispatcher.model.jobs import ApiAnswer, Job, Manifest
from dispatcher.model.launches import InFlight, JobsVerdict, Launch, Offer, PodKind
from dispatcher.model.snapshot import ClusterView
from dispatcher.model.tasks import Status, Task
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.settings.definition import PlacementSettings
from dispatcher.settings.loading import load
from tests.rig.builders import DATABASE_ID, NOW, a_complete_job, a_job, a_pod, a_task

SITE = JobSite("dispatcher", "work", 3600, PlacementSettings(), {})


class Silence:
    """A cluster that never answers."""

    async def create(self, manifest: Manifest) -> ApiAnswer:
        return ApiAnswer(0)

    async def try_create(self, manifest: Manifest) -> ApiAnswer:
        return ApiAnswer(0)

    async def get(self, name: str) -> ApiAnswer:
        return ApiAnswer(0)

    async def list_task(self, task_id: int) -> list[Job]:
        return []


def a_launcher(memory: Memory) -> Launcher:
    catalog = Catalog(load({}, str).settings.jobs, frozenset())
    return Launcher(Submitter(Silence(), SITE, memory, lambda: None), memory, catalog, Rules())


def picture_of(
    launcher: Launcher, *jobs: Job, pods: Sequence[Pod] = (), seconds: float = 0, database_id: str = DATABASE_ID
) -> JobsPicture:
    now = NOW + timedelta(seconds=seconds)
    view = ClusterView(now, {job.name: job for job in jobs}, {pod.name: pod for pod in pods}, {})
    return launcher.picture(view, now, database_id)


async def judge(launcher: Launcher, picture: JobsPicture, *tasks: Task) -> list[JobsVerdict]:
    """Runs a cycle that judges these rows."""
    judged = [(task, picture.judge_row(task)) for task in tasks]
    await launcher.launch(picture, judged, [])
    return [verdict for _, verdict in judged]


async def test_graces_go_on_after_a_cycle_without_judgements() -> None:
    launcher, older, task = a_launcher(Memory()), a_job(1, 1), a_task(attempt=2)
    (first,) = await judge(launcher, picture_of(launcher, older), task)
    assert first.ends == ()
    picture_of(launcher, older, seconds=30)  # the database went away: no row was judged
    (second,) = await judge(launcher, picture_of(launcher, older, seconds=61), task)
    assert [end.uid for end in second.ends] == [older.uid]


async def test_grace_begins_again_after_a_cycle_without_the_state() -> None:
    launcher, older, task = a_launcher(Memory()), a_job(1, 1), a_task(attempt=2)
    await judge(launcher, picture_of(launcher, older), task)
    await judge(launcher, picture_of(launcher, seconds=30))
    (found,) = await judge(launcher, picture_of(launcher, older, seconds=61), task)
    assert found.ends == ()


def test_unanswered_create_is_repeated_and_an_answered_one_is_awaited() -> None:
    memory = Memory()
    launcher, task = a_launcher(memory), a_task()
    assert picture_of(launcher).judge_row(task).verdict == Launch(1)
    name = a_job(1, 1).name
    memory.creates.begin(name, task, Offer("app:1", "small", "default"), 0)
    assert picture_of(launcher).judge_row(task).verdict == Hold(HoldReason.LAUNCHED, "its create is under way")
    memory.creates.end(name)
    assert picture_of(launcher).judge_row(task).verdict == Launch(1, is_repeat=True)
    assert picture_of(launcher).in_flight().every == {PodKind("default", task.submitted_by, "small", None): 1}
    memory.creates.answered(name, "12")
    assert picture_of(launcher).judge_row(task).verdict == Hold(HoldReason.LAUNCHED, "Created")


def test_another_database_is_not_held_by_rows_parked_in_the_first() -> None:
    memory = Memory()
    launcher, task = a_launcher(memory), a_task()
    picture_of(launcher)
    memory.refusals.park(task, Hold(HoldReason.POISON))
    assert picture_of(launcher).judge_row(task).verdict == Hold(HoldReason.POISON)
    other = picture_of(launcher, database_id="00000000-0000-0000-0000-000000000001")
    assert other.judge_row(task).verdict == Launch(1)


def test_row_rests_while_its_create_is_awaited_and_is_read_after_a_lost_answer() -> None:
    memory = Memory()
    launcher, task, name = a_launcher(memory), a_task(), a_job(1, 1).name
    memory.creates.begin(name, task, Offer("app:1", "small", "default"), 0)
    picture = picture_of(launcher)
    (resting,) = picture.resting().values()
    assert (picture.rows_to_read(), resting.attempt, resting.queue) == (set(), task.attempt, "default")
    memory.creates.end(name)
    picture = picture_of(launcher)
    assert (picture.rows_to_read(), picture.resting()) == ({task.id}, {})
    memory.creates.answered(name, "12")
    picture = picture_of(launcher)
    assert (picture.rows_to_read(), [*picture.resting()]) == (set(), [task.id])


async def test_row_whose_job_is_under_way_rests_until_the_job_changes() -> None:
    launcher, job, task = a_launcher(Memory()), a_job(resource_version="7"), a_task()
    await judge(launcher, picture_of(launcher, job), task)
    assert picture_of(launcher, job).rows_to_read() == set()
    assert picture_of(launcher, a_job(resource_version="8")).rows_to_read() == {task.id}
    assert picture_of(launcher, job, pods=[a_pod(job, deleting=True)]).rows_to_read() == {task.id}
    assert picture_of(launcher).rows_to_read() == set()


async def test_finished_job_of_a_row_that_is_over_is_not_read_again() -> None:
    launcher, job = a_launcher(Memory()), a_complete_job()
    assert picture_of(launcher, job).rows_to_read() == {job.task_id}
    await judge(launcher, picture_of(launcher, job), a_task(status=Status.SUCCEEDED, finished_at=NOW))
    assert picture_of(launcher, job).rows_to_read() == set()


def test_picture_does_not_change_when_the_memory_does() -> None:
    memory = Memory()
    launcher, task = a_launcher(memory), a_task()
    picture = picture_of(launcher)
    memory.creates.begin(a_job(1, 1).name, task, Offer("app:1", "small", "default"), 0)
    memory.refusals.park(task, Hold(HoldReason.POISON))
    memory.of_template("default").trip(Hold(HoldReason.DISPATCHER_NOT_READY), 0)
    assert (picture.judge_row(task).verdict, picture.in_flight()) == (Launch(1), InFlight())


def test_jobs_are_counted_anew_only_if_something_changed() -> None:
    launcher, view = a_launcher(Memory()), ClusterView(NOW, {"job": a_job()}, {}, {})
    first = launcher.picture(view, NOW, DATABASE_ID)
    later = launcher.picture(replace(view, now=NOW + timedelta(seconds=1)), NOW, DATABASE_ID)
    assert later.counted is first.counted
    changes: list[dict[str, Any]] = [{"jobs": {}}, {"pods": {}}, {"refusals": {"u": PodRefusal(NOW, "no")}}]
    for change in changes:
        other = launcher.picture(replace(view, **change), NOW, DATABASE_ID)
        assert other.counted is not first.counted
