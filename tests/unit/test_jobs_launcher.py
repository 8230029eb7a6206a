"""What the Jobs stage tells a cycle, and what it keeps between two."""

from datetime import timedelta

from dispatcher.jobs.catalog import Catalog
from dispatcher.jobs.launcher import Launcher
from dispatcher.jobs.manifest import Site
from dispatcher.jobs.memory import Memory
from dispatcher.jobs.observed import Rules
from dispatcher.jobs.submit import Submitter
from dispatcher.model.jobs import ApiAnswer, End, Job, LaunchGroup, Manifest
from dispatcher.model.launches import Launch
from dispatcher.model.snapshot import ClusterView
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.settings.definition import PlacementSettings
from dispatcher.settings.loading import load
from tests.builders import DATABASE_ID, NOW, a_job, a_task

SITE = Site("dispatcher", "work", 3600, 1800, PlacementSettings(), {})


class Silence:
    """A cluster that answers nothing."""

    async def create(self, manifest: Manifest) -> ApiAnswer:
        return ApiAnswer(0)

    async def get(self, name: str) -> ApiAnswer:
        return ApiAnswer(0)

    async def list_task(self, task_id: int) -> list[Job]:
        return []


def a_launcher(memory: Memory) -> Launcher:
    catalog = Catalog(load({}, str).settings.jobs, frozenset())
    return Launcher(Submitter(Silence(), SITE, memory, lambda: None), memory, catalog, Rules())


def begin(launcher: Launcher, *jobs: Job, seconds: float = 0, database_id: str = DATABASE_ID) -> None:
    now = NOW + timedelta(seconds=seconds)
    launcher.begin(ClusterView(now, {job.name: job for job in jobs}, {}, {}), now, database_id)


async def test_a_cycle_that_judged_nothing_does_not_begin_the_graces_anew() -> None:
    launcher, older, task = a_launcher(Memory()), a_job(1, 1), a_task(attempt=2)
    begin(launcher, older)
    assert launcher.standing(task).ends == ()
    await launcher.launch([])
    begin(launcher, older, seconds=30)  # the database went away: no row was judged
    begin(launcher, older, seconds=61)
    assert [end.uid for end in launcher.standing(task).ends] == [older.uid]


async def test_what_was_not_seen_in_a_judged_cycle_begins_anew() -> None:
    launcher, older, task = a_launcher(Memory()), a_job(1, 1), a_task(attempt=2)
    begin(launcher, older)
    launcher.standing(task)
    await launcher.launch([])
    begin(launcher, seconds=30)
    await launcher.launch([])
    begin(launcher, older, seconds=61)
    ends: tuple[End, ...] = launcher.standing(task).ends
    assert ends == ()


def test_an_unanswered_create_is_repeated_and_an_answered_one_is_awaited() -> None:
    memory = Memory()
    launcher, task = a_launcher(memory), a_task()
    begin(launcher)
    assert launcher.standing(task).verdict == Launch(1)
    name = a_job(1, 1).name
    memory.begun(name, task, LaunchGroup("default", "default", "app:1"), 0)
    begin(launcher)
    assert launcher.standing(task).verdict == Hold(HoldReason.LAUNCHED, "its create is under way")
    memory.ended(name)
    begin(launcher)
    assert launcher.standing(task).verdict == Launch(1, is_repeat=True)
    assert launcher.in_flight() == [("default", task.submitted_by)]
    memory.answered(name, "12")
    begin(launcher)
    assert launcher.standing(task).verdict == Hold(HoldReason.LAUNCHED, "Created")


def test_another_database_is_not_held_by_what_was_parked_in_the_first() -> None:
    memory = Memory()
    launcher, task = a_launcher(memory), a_task()
    begin(launcher)
    memory.park(task, Hold(HoldReason.POISON))
    assert launcher.standing(task).verdict == Hold(HoldReason.POISON)
    begin(launcher, database_id="00000000-0000-0000-0000-000000000001")
    assert launcher.standing(task).verdict == Launch(1)


def test_a_row_whose_create_is_awaited_rests_and_one_that_nobody_answers_is_read() -> None:
    memory = Memory()
    launcher, task, name = a_launcher(memory), a_task(), a_job(1, 1).name
    memory.begun(name, task, LaunchGroup("default", "default", "app:1"), 0)
    begin(launcher)
    (resting,) = launcher.resting().values()
    assert (launcher.rows_to_read(), resting.attempt, resting.queue) == (set(), task.attempt, "default")
    memory.ended(name)
    begin(launcher)
    assert (launcher.rows_to_read(), launcher.resting()) == ({task.id}, {})
    memory.answered(name, "12")
    begin(launcher)
    assert (launcher.rows_to_read(), [*launcher.resting()]) == (set(), [task.id])
