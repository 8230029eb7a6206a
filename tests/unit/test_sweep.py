"""An end that the API server refuses is told for a minute, as the object keeps its place. It hides no other object.
Creates leave deletes their half of the writes where finished Jobs pile up.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from prometheus_client import REGISTRY

from dispatcher.model.cluster import ClusterView
from dispatcher.model.jobs import ApiAnswer, ObjectWrite
from dispatcher.model.tasks import Status, Task
from dispatcher.runtime.clock import Bucket
from dispatcher.settings.definition import SweepSettings
from dispatcher.sweep.plan import MANY_FINISHED
from dispatcher.sweep.sweep import (
    AGAIN_AT_A_TIME,
    AGAIN_SECONDS,
    AT_A_TIME,
    REFUSED_SECONDS,
    Remover,
    Sweep,
    SweepPorts,
)
from tests.rig.builders import DATABASE_ID, NOW, a_complete_job, a_task, later


class Answering:
    """A cluster that gives one answer to each end."""

    def __init__(self, answer: ApiAnswer) -> None:
        self.answer = answer

    async def end(self, _: ObjectWrite) -> ApiAnswer:
        return self.answer


@pytest.mark.parametrize(
    ("answer", "is_told"),
    [
        (ApiAnswer(403, "Forbidden", "nobody deletes Jobs"), True),
        (ApiAnswer(422, "Invalid", "nobody deletes Jobs"), True),
        (ApiAnswer(500, "InternalError", "nobody deletes Jobs"), True),
        (ApiAnswer(200), False),
        (ApiAnswer(404, "NotFound"), False),
        (ApiAnswer(409, "Conflict"), False),
        (ApiAnswer(0, message="no answer"), False),
    ],
    ids=lambda value: str(value.status) if isinstance(value, ApiAnswer) else "",
)
async def test_refused_end_is_told_for_a_minute(answer: ApiAnswer, is_told: bool) -> None:
    now = 100.0
    remover = Remover(Answering(answer), lambda: None, lambda: now)
    await remover.remove([ObjectWrite("jobs", "dispatcher-42-acb5fbef-1", "uid", "its row is over")], 1)
    words = f"jobs dispatcher-42-acb5fbef-1 (its row is over): {answer.status} nobody deletes Jobs"
    assert remover.fault == (words if is_told else "")
    now += REFUSED_SECONDS
    assert remover.fault == ""


async def test_objects_that_a_policy_keeps_hide_no_other_one() -> None:
    """A policy that refuses the deletes of one template would keep all finished Jobs behind its own."""
    now, tried = [100.0], list[str]()

    class Refusing:
        async def end(self, end: ObjectWrite) -> ApiAnswer:
            tried.append(end.uid)
            return ApiAnswer(403, "Forbidden", "nobody deletes Jobs")

    remover = Remover(Refusing(), lambda: None, lambda: now[0])
    ends = [ObjectWrite("jobs", f"job-{uid}", uid, "its row is over") for uid in "abcde"]
    for _ in range(3):
        await remover.remove(ends, 2)
        now[0] += 1
    assert tried == ["a", "b", "c", "d", "e"]
    now[0] += 10
    await remover.remove([*ends, ObjectWrite("jobs", "job-f", "f", "its row is over")], 2)
    assert tried[5:] == ["f", "a"]


async def test_webhook_that_is_silent_for_some_objects_holds_up_neither_a_round_nor_the_ends_of_others() -> None:
    """A cycle ends objects and creates Jobs. A hundred silent deletes made it two minutes long, for all teams."""
    now, tried, answers = [100.0], list[str](), asyncio.Event()

    class Silent:
        async def end(self, end: ObjectWrite) -> ApiAnswer:
            tried.append(end.uid)
            if end.uid == "other":
                return ApiAnswer(200)
            await answers.wait()
            now[0] += AGAIN_SECONDS
            return ApiAnswer(504, "Timeout", "no answer")

    remover = Remover(Silent(), lambda: None, lambda: now[0])
    silent = [ObjectWrite("jobs", f"job-{number}", f"{number}", "its row is over") for number in range(2 * AT_A_TIME)]
    assert await asyncio.wait_for(remover.remove(silent, 100), 5) == len(silent)
    assert (await remover.remove(silent, 100), len(tried)) == (0, AT_A_TIME), "they are under way"
    answers.set()
    await remover.drain()
    assert len(tried) == len(silent)
    answers.clear()
    now[0] += AGAIN_SECONDS
    other = ObjectWrite("jobs", "job-other", "other", "its row is over")
    assert await remover.remove([*silent, other], 100) == 1 + AGAIN_AT_A_TIME
    assert tried[len(silent) :] == ["other", *(end.uid for end in silent[:AGAIN_AT_A_TIME])]
    answers.set()
    await remover.drain()


async def test_old_view_tells_of_no_kept_object() -> None:
    """While the API server was away for a while, each Job that was being deleted seemed to be kept by a finalizer."""
    job = a_complete_job(deleting=True)
    view = ClusterView(NOW, {job.name: job}, {}, {})
    ports = SweepPorts(lambda: view, rows, lambda: False, frozenset, lambda *_: asyncio.sleep(0, 0))
    sweep = Sweep(ports, SweepSettings(), Bucket(1, 0))
    for now, stale, kept in ((NOW, "", None), (later(900), "jobs: no sign of life", None), (later(900), "", 1)):
        view = replace(view, now=now, stale=stale)
        await sweep.run_once()
        found = REGISTRY.get_sample_value("dispatcher_kept_objects", {"finalizer": "foregroundDeletion"})
        assert found == kept, (now, stale)


RATE, SECONDS = 20, 12


class Over:
    """A database in which each row has succeeded."""

    now, database_id = NOW, DATABASE_ID

    async def tasks(self, ids: Sequence[int]) -> dict[int, Task]:
        return {id_: a_task(id=id_, status=Status.SUCCEEDED, launch=1) for id_ in ids}


@asynccontextmanager
async def rows() -> AsyncIterator[Over]:
    yield Over()


async def writes_beside_a_backlog(finished: int) -> tuple[float, float]:
    """Creates and deletes a second, while rows wait for every token that is left."""
    now, deleted = 0.0, list[ObjectWrite]()
    jobs = [a_complete_job(task_id=number, uid=f"{number}") for number in range(1, finished + 1)]

    async def remove(ends: Sequence[ObjectWrite], most: int) -> int:
        ends = ends[:most]
        gone = {end.uid for end in ends}
        deleted.extend(ends)
        jobs[:] = [job for job in jobs if job.uid not in gone]
        return len(ends)

    bucket, created = Bucket(RATE, now), 0
    ports = SweepPorts(
        lambda: ClusterView(NOW, {job.name: job for job in jobs}, {}, {}), rows, lambda: True, frozenset, remove,
        lambda: now,
    )  # fmt: skip
    sweep = Sweep(ports, SweepSettings(), bucket)
    bucket.take(bucket.left(now))
    for step in range(1, SECONDS * 10 + 1):
        now = step / 10
        created += (wanted := bucket.left(now))
        bucket.take(wanted)
        if step % 12 == 0:  # a sweep takes some time itself
            await sweep.run_once()
    return created / SECONDS, len(deleted) / SECONDS


async def test_backlog_that_uses_every_write_leaves_deletes_their_half_where_jobs_pile_up() -> None:
    creates, deletes = await writes_beside_a_backlog(MANY_FINISHED + RATE * SECONDS)
    assert deletes >= 0.45 * RATE
    assert creates >= 0.45 * RATE
    assert creates + deletes <= RATE + 1


async def test_few_finished_jobs_take_no_write_from_a_backlog() -> None:
    creates, deletes = await writes_beside_a_backlog(100)
    assert (round(creates), deletes) == (RATE, 0)
