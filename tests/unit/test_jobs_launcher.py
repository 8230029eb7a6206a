"""The Jobs stage: its picture and its state, Jobs with much text, and the number of creates at once."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dispatcher.jobs.catalog import Catalog
from dispatcher.jobs.memory import (
    AGAIN_SECONDS,
    AHEAD_SECONDS,
    BURST_SECONDS,
    MORE_FOR_A_WRITE,
    PLAIN_BYTES,
    SHARES,
    CreateResult,
    LargeJobs,
    Memory,
    row_bytes,
)
from dispatcher.jobs.observed import Rules
from dispatcher.jobs.picture import JobsPicture
from dispatcher.jobs.refusals import (
    REFUSED_ROWS_ALIKE,
    SLOW_AT_A_TIME,
    SLOW_SECONDS,
    UNKNOWN_AT_A_TIME,
    CreateOutcome,
    origin_of,
)
from dispatcher.jobs.submit import AT_A_TIME, CreateConcurrency, Launcher, Submitter
from dispatcher.model.cluster import ClusterView, Pod, PodRefusal
from dispatcher.model.jobs import ApiAnswer, Job, Manifest
from dispatcher.model.launches import InFlight, JobsVerdict, Launch, LaunchSpec, Offer, PodKind
from dispatcher.model.tasks import Status, Task
from dispatcher.model.verdicts import MUCH_TEXT, Hold, HoldReason
from dispatcher.settings.loading import load
from tests.rig.builders import DATABASE_ID, NOT_PLACED, NOW, a_complete_job, a_job, a_pod, a_request, a_task, an_order
from tests.unit.submitting import SITE


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


class Slow(Silence):
    """A cluster that answers creates when `answers` is set."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()

    async def create(self, manifest: Manifest) -> ApiAnswer:
        await self.answers.wait()
        return ApiAnswer(0)


def a_launcher(memory: Memory) -> Launcher:
    catalog = Catalog(load({}, str).settings.jobs, frozenset(), NOT_PLACED)
    return Launcher(Submitter(Silence(), SITE, memory, lambda: None), memory, catalog, Rules())


class SlowCycle:
    """A cycle whose creates get no answer before its end."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._cluster = memory, Slow()
        catalog = Catalog(load({"DISPATCHER_IMAGE": "app:1"}, str).settings.jobs, frozenset(), NOT_PLACED)
        submitter = Submitter(self._cluster, SITE, memory, lambda: None, lambda: SLOW_SECONDS)
        self._launcher = Launcher(submitter, memory, catalog, Rules(), lambda: SLOW_SECONDS)
        picture_of(self._launcher)  # it reads the templates, which forgets what earlier answers said

    async def begun(self, *orders: LaunchSpec) -> list[int]:
        """The rows whose creates begin."""
        await self._launcher.launch(picture_of(self._launcher), [], orders)
        found = [one.task_id for one in self._memory.creates.under_way()]
        self._cluster.answers.set()
        await self._launcher.drain()
        return found


def orders_of(submitter: str, ids: range, **asked: Any) -> list[LaunchSpec]:
    return [an_order(task=a_task(id=number, submitted_by=submitter), **asked) for number in ids]


async def test_row_that_rests_takes_no_place_of_creates_that_take_long() -> None:
    memory, bad, good = Memory(), range(100, 100 + SLOW_AT_A_TIME), range(1, 6)
    cycle, refused = SlowCycle(memory), orders_of("team_a", bad, cache_key="bad")
    memory.slow.learn(origin_of(refused[0].task), 0, SLOW_SECONDS)
    for order in refused[:REFUSED_ROWS_ALIKE]:
        memory.refusals.refused(order, SLOW_SECONDS)
    assert await cycle.begun(*refused, *orders_of("team_a", good)) == [*good]


async def test_row_whose_create_failed_leaves_the_next_probe_to_a_row_behind_it() -> None:
    """A webhook may fail for one row. It comes first in the order, and would be each probe."""
    memory = Memory()
    bad, good = orders_of("team_a", range(1, 3))
    cycle = SlowCycle(memory)
    failed = CreateResult(bad, "x", CreateOutcome.UNKNOWN, ApiAnswer(500))
    memory.learn(failed, 0)
    assert await cycle.begun(bad, good, *orders_of("team_b", range(3, 5))) == [2, 3, 4]


async def test_first_creates_of_many_logins_leave_places_to_those_that_are_quick() -> None:
    memory, quick = Memory(), range(100, 100 + AT_A_TIME - UNKNOWN_AT_A_TIME)
    logins = [orders_of(f"login-{number}", range(number, number + 1))[0] for number in range(AT_A_TIME)]
    known = orders_of("team_b", quick)
    memory.slow.learn(origin_of(known[0].task), 0, 0)
    assert await SlowCycle(memory).begun(*logins, *known) == [*range(UNKNOWN_AT_A_TIME), *quick]


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
    memory.of_template(("default", "team_a")).trip(Hold(HoldReason.DISPATCHER_NOT_READY), 0)
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


WRITES = 50
LARGEST = 256 * 2**10
SHARE = WRITES * MORE_FOR_A_WRITE / SHARES


def a_large(submitter: str, task: int, size: int) -> LaunchSpec:
    return an_order(task=a_task(id=task, submitted_by=submitter), env={"A": "x" * (size - 1)})


def launched(large: LargeJobs, size: int, seconds: int, *submitters: str, many: int = 200) -> dict[str, int]:
    """How many Jobs go out within the time, if each submitter has very many rows that ask when their hold is over."""
    rests, sent, asked = dict[int, float](), dict.fromkeys(submitters, 0), 0
    for now in range(seconds):
        for at, submitter in enumerate(submitters):
            waiting = [one for one in range(at * 10_000, at * 10_000 + many) if rests.get(one, 0) <= now]
            for task in waiting:
                asked += 1
                held = large.hold(a_large(submitter, task, size), now)
                rests[task] = float("inf") if held is None else held[1]
                sent[submitter] += held is None
    assert asked <= sum(sent.values()) + len(submitters) * many * (2 + seconds / AGAIN_SECONDS), "rows ask too often"
    return sent


@pytest.mark.parametrize(
    ("env", "spec", "size"),
    [
        ({}, {}, 0),
        ({"A": "x"}, {}, 2),
        ({"A": "$5"}, {"args": ["$x", "y"], "command": ["z"], "image": "long"}, 9),
        ({"A": "\u20ac"}, {"cpu": "2"}, 4),
        ({"A": "\ud800"}, {}, 2),
    ],
)
def test_bytes_of_a_row_are_those_of_its_text_in_the_job(
    env: dict[str, str], spec: dict[str, object], size: int
) -> None:
    assert row_bytes(a_request(env=env, spec=spec)) == size


def test_plain_rows_never_wait() -> None:
    assert launched(LargeJobs(1), PLAIN_BYTES, 3, "a", many=1000) == {"a": 1000}


@pytest.mark.parametrize("size", [16 * 2**10, LARGEST])
def test_text_of_one_submitter_keeps_to_its_share_after_a_burst(size: int) -> None:
    expected = SHARE * (BURST_SECONDS + 200) / (size - PLAIN_BYTES)
    assert launched(LargeJobs(WRITES), size, 200, "a", many=1000)["a"] == pytest.approx(expected, abs=2)


def test_submitter_gets_its_share_beside_many_that_come_first() -> None:
    sent = launched(LargeJobs(WRITES), LARGEST, 300, *(f"hostile-{n}" for n in range(8)), "honest", many=60)
    assert sent["honest"] >= max(sent.values()) / 3, "the others were given turns before it came"
    most = WRITES * MORE_FOR_A_WRITE * (2 * BURST_SECONDS + AHEAD_SECONDS + 300)  # turns were given before others came
    assert sum(sent.values()) * (LARGEST - PLAIN_BYTES) <= most


def test_row_that_waits_is_told_why_and_keeps_its_turn() -> None:
    large = Memory(WRITES).large
    task = 0
    while (found := large.hold(a_large("a", task, LARGEST), 0)) is None:
        task += 1
    hold, until = found
    assert hold == Hold(HoldReason.SUBMITTER_CAP, f"{MUCH_TEXT}: {LARGEST} bytes")
    assert 0 < until < 20
    assert large.hold(a_large("a", task + 1, LARGEST), until) is not None, "it comes later"
    assert large.hold(a_large("a", task, LARGEST), until) is None


def test_names_and_turns_of_long_ago_are_forgotten() -> None:
    large = LargeJobs(1)
    for number in range(300):
        large.hold(a_large(f"login-{number}", number, LARGEST), number * 10_000)
        large.hold(a_large(f"login-{number}", number + 1_000_000, LARGEST), number * 10_000)
    assert len(large._busy_until) + len(large._turns) < 10


async def entered(places: CreateConcurrency, most: int = 20) -> int:
    """How many can enter now."""
    waiting = [asyncio.ensure_future(places.enter()) for _ in range(most)]
    for _ in range(most):
        await asyncio.sleep(0)
    found = [one for one in waiting if one.done()]
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    return len(found)


async def test_creates_at_a_time_halve_down_to_one_and_grow_by_one_up_to_most() -> None:
    places = CreateConcurrency(16)
    limits = []
    for _ in range(6):
        places.shrink()
        limits.append(places.limit)
    assert limits == [8, 4, 2, 1, 1, 1]
    for _ in range(20):
        places.grow()
    assert places.limit == 16
    assert await entered(places) == 16


async def test_places_that_are_in_use_are_taken_away_when_they_are_free() -> None:
    places = CreateConcurrency(4)
    assert await entered(places) == 4
    places.shrink()
    places.leave()
    places.leave()
    assert await entered(places) == 0
    places.leave()
    assert await entered(places) == 1
    places.grow()
    assert await entered(places) == 1
