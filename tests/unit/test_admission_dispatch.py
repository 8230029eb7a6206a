"""A cycle and the lease: a cycle acts only in the term in which it read Jobs and rows."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
import pytest

from dispatcher.admission.dispatch import WITHOUT_JOB, Dispatch, DispatchPorts
from dispatcher.admission.last_cycle import LastCycle, RowReason
from dispatcher.jobs.catalog import Catalog
from dispatcher.jobs.memory import Memory
from dispatcher.jobs.observed import Rules
from dispatcher.jobs.submit import Launcher, Submitter
from dispatcher.model.cluster import ClusterView
from dispatcher.model.jobs import ApiAnswer, EndedBy, Job, ObjectWrite
from dispatcher.model.tasks import Frame, IndexedRow, Kind, Queue, Request, Status, Task
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.runtime.clock import Bucket, elapsed
from dispatcher.settings.loading import load
from tests.rig.builders import (
    ANYWHERE,
    DATABASE_ID,
    IMAGE,
    NOT_PLACED,
    NOW,
    SITE,
    a_complete_job,
    a_job,
    a_kind,
    a_queue,
    a_request,
    a_running_task,
    a_task,
    ago,
    an_indexed_row,
    later,
)
from tests.unit.submitting import LOST, Cluster

LEFT_OVER = a_job(task_id=41, uid="left over")
"""An unfinished Job of a terminal row: it has to be deleted."""
MADE = a_job().name
OPEN = a_queue()


@dataclass
class Lead:
    """The lease, as far as a cycle uses it."""

    number: int

    def term(self) -> int:
        return self.number

    def vacancy(self) -> str:
        return ""


class Table:
    """Task 42 waits for its first launch; 41 is over."""

    now = NOW
    database_id = DATABASE_ID

    def __init__(
        self, row: Task, queue: Queue, index: Sequence[IndexedRow], read: list[int], held: Sequence[int]
    ) -> None:  # fmt: skip
        self._row, self._index, self._read, self._held = row, index, read, set(held)
        self.frame = Frame([queue], [row.id] if row.status is Status.PROCESSING else list(held), None)

    async def tasks(self, ids: Sequence[int]) -> dict[int, Task]:
        self._read += ids
        return await self._rows(ids)

    async def _rows(self, ids: Sequence[int]) -> dict[int, Task]:
        over = a_task(id=41, status=Status.SUCCEEDED, finished_at=ago(600))
        held = [a_running_task(id=id_) for id_ in ids if id_ in self._held]
        return {task.id: task for task in (self._row, over, *held) if task.id in ids}

    async def still_waiting(self, ids: Sequence[int]) -> dict[int, int]:
        return {id_: row.attempt for id_, row in (await self._rows(ids)).items() if row.status is Status.WAITING}

    async def requests(self, ids: Sequence[int]) -> dict[int, Request]:
        return {id_: a_request(task_id=id_) for id_ in ids}

    async def histories(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], dict[str, float]]:
        return {}

    async def waiting(self, ids: Sequence[int]) -> tuple[dict[int, Task], dict[int, Request]]:
        return await self._rows(ids), await self.requests(ids)

    async def indexed_rows(self, windows: Mapping[str, int]) -> list[IndexedRow]:
        return [*self._index]

    async def submitters(self, queues: Sequence[str]) -> list[tuple[str, str]]:
        return []

    async def indexed_rows_of(self, windows: Mapping[tuple[str, str], int]) -> list[IndexedRow]:
        return []

    async def start_secret(self) -> tuple[bytes, bytes]:
        return bytes(64), bytes(64)

    async def kinds(self, ids: Sequence[int]) -> list[Kind]:
        return [a_kind()]


class Place:
    """All ports of a cycle. While the cycle reads `moment` ("view" or "rows"), the term of the lease becomes `then`."""

    def __init__(
        self, term: int, moment: str = "", then: int = 0, stale: str = "", made: Job | None = None,
        jobs: Sequence[Job] = (LEFT_OVER,), row: Task | None = None, queue: Queue = OPEN, held: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self._queue, self.index, self.read = queue, [an_indexed_row(42)], list[int]()
        self._held = held
        answers = [ApiAnswer(201, job=made)] if made else [LOST]
        self.lead, self.cluster, self.removed = Lead(term), Cluster(answers), list[str]()
        self._moment, self._then, self._stale = moment, then, stale
        self._jobs, self.row = {job.name: job for job in jobs}, row or a_task()
        settings, memory = load({"DISPATCHER_IMAGE": IMAGE}, str).settings, Memory()
        catalog = Catalog(settings.jobs, frozenset(), NOT_PLACED)
        self._launcher = Launcher(Submitter(self.cluster, SITE, memory, lambda: None), memory, catalog, Rules())
        ports = DispatchPorts(self.view, self.rows, lambda: "", lambda: True, self.lead, self.remove, ANYWHERE)
        self._dispatch = Dispatch(ports, self._launcher, settings.admission, Bucket(100, elapsed()))

    def view(self) -> ClusterView:
        self._pass("view")
        return ClusterView(NOW, self._jobs, {}, {}, "1", self._stale)

    @asynccontextmanager
    async def rows(self, held_at_most: int) -> AsyncIterator[Table]:
        self._pass("rows")
        yield Table(self.row, self._queue, self.index, self.read, self._held)

    async def remove(self, ends: Sequence[ObjectWrite], most: int) -> int:
        self.removed.extend(end.uid for end in ends[:most])
        return len(ends[:most])

    @property
    def is_calm(self) -> bool:
        return self._dispatch.is_calm

    @property
    def cycle(self) -> LastCycle:
        """The last cycle, as it is kept for those who ask."""
        assert self._dispatch.last is not None
        return self._dispatch.last

    @cycle.setter
    def cycle(self, changed: LastCycle) -> None:
        self._dispatch.last = changed

    async def run_cycle(self) -> float:
        """Runs one cycle, and waits until every create has its answer."""
        pause = await self._dispatch.run_once()
        await self._launcher.drain()
        return pause

    def _pass(self, moment: str) -> None:
        if moment == self._moment:
            self.lead.number = self._then


async def test_cycle_of_one_term_launches_and_removes() -> None:
    place = Place(term=3)
    assert await place.run_cycle() < 1
    assert (place.cluster.created, place.removed) == ([MADE], ["left over"])


@pytest.mark.parametrize("moment", ["view", "rows"])
@pytest.mark.parametrize(("term", "then"), [(0, 1), (1, 2), (1, 0)], ids=["won", "lost and won", "lost"])
async def test_cycle_does_not_act_on_what_it_saw_in_another_term(moment: str, term: int, then: int) -> None:
    place = Place(term, moment, then)
    await place.run_cycle()
    assert (place.cluster.created, place.removed) == ([], [])
    await place.run_cycle()  # this whole cycle is in the new term, if there is one
    acted = ([MADE], ["left over"]) if then else ([], [])
    assert (place.cluster.created, place.removed) == acted


async def test_replica_that_does_not_lead_waits_the_poll_interval() -> None:
    place = Place(term=0)
    assert await place.run_cycle() == load({}, str).settings.admission.poll_seconds
    assert (place.cluster.created, place.removed) == ([], [])


async def test_cycle_does_not_act_on_a_stale_view() -> None:
    place = Place(term=1, stale="jobs: a new list is under way")
    await place.run_cycle()
    assert (place.cluster.created, place.removed) == ([], [])


async def test_row_whose_create_is_awaited_counts_as_launched_and_keeps_what_was_told() -> None:
    place = Place(term=1, made=a_job(resource_version="7"))
    await place.run_cycle()
    told = RowReason("default", 1, Hold(HoldReason.LAUNCHED, "Starting"), ago(9))
    place.cycle = msgspec.structs.replace(place.cycle, told={42: told, 99: told})
    await place.run_cycle()
    assert place.cycle.held == {("default", HoldReason.LAUNCHED): 1}
    assert place.cycle.told == {42: told}


@pytest.mark.parametrize(
    ("term", "reason"), [(1, HoldReason.LAUNCHED), (0, HoldReason.IN_LINE)], ids=["leads", "stands by"]
)
async def test_row_that_a_cycle_launches_waits_until_its_container_starts(term: int, reason: HoldReason) -> None:
    place = Place(term=term)
    await place.run_cycle()
    assert place.cycle.launched == {42}
    assert place.cycle.held == {("default", reason): 1}


async def test_row_that_has_started_and_is_launched_again_does_not_count_as_waiting() -> None:
    place = Place(term=1, row=a_running_task(), jobs=[])
    await place.run_cycle()
    assert place.cycle.launched == {42}
    assert place.cycle.held == {}


@pytest.mark.parametrize("status", [Status.SUCCEEDED, Status.CANCELLED])
async def test_row_that_ends_before_its_job_no_longer_counts_as_waiting(status: Status) -> None:
    place = Place(term=1, made=a_job(resource_version="7"))
    await place.run_cycle()
    await place.run_cycle()
    assert place.cycle.held == {("default", HoldReason.LAUNCHED): 1}
    told = RowReason("default", 1, Hold(HoldReason.LAUNCHED, "Starting"), ago(9))
    place.cycle = msgspec.structs.replace(place.cycle, told={42: told})
    place.row = a_task(status=status, launch=1, finished_at=NOW)
    await place.run_cycle()
    assert (place.cycle.held, place.cycle.told) == ({}, {})


async def test_row_that_is_tried_again_no_longer_counts_as_launched() -> None:
    """Its Job is still there, and its next attempt is not due yet."""
    place = Place(term=1, jobs=[a_job(resource_version="7")])
    await place.run_cycle()
    assert place.cycle.held == {("default", HoldReason.LAUNCHED): 1}
    place.row = a_task(attempt=2, run_at=later(60))
    place.index = []
    await place.run_cycle()
    assert (place.cycle.held, place.cycle.told) == ({}, {})


@pytest.mark.parametrize(("status", "told"), [(Status.WAITING, [42]), (Status.PROCESSING, [])])
async def test_row_whose_container_runs_is_told_no_reason(status: Status, told: list[int]) -> None:
    place = Place(term=1, jobs=[a_job()], row=a_task(status=status, heartbeat_at=NOW))
    await place.run_cycle()
    assert list(place.cycle.told) == told


async def test_row_whose_run_was_lost_is_told_a_reason() -> None:
    place = Place(term=1, jobs=[a_job()], row=a_running_task(heartbeat_at=ago(61)))
    await place.run_cycle()
    assert (list(place.cycle.told), place.cycle.told[42].has_started) == ([42], True)


@pytest.mark.parametrize("row", [a_task(), a_running_task()], ids=["waits", "has started"])
async def test_parked_row_is_told_and_counted_but_not_read_in_each_cycle(row: Task) -> None:
    """Ten thousand of them would make each cycle half a second longer, for an hour."""
    place = Place(term=1, jobs=[a_complete_job(ended_at=ago(300), ended_by=EndedBy.ITSELF)], row=row)
    await place.run_cycle()
    first = place.cycle
    assert (first.told[42].hold.reason, place.read) == (HoldReason.EXITED_WITHOUT_REPORT, [42])
    await place.run_cycle()
    assert (place.cycle.told, place.cycle.held, place.read) == (first.told, first.held, [42])
    place.row = msgspec.structs.replace(row, attempt=2, status=Status.WAITING, launch=0)
    place.index = [an_indexed_row(42, attempt=2)]
    await place.run_cycle()
    assert place.cycle.launched == {42}, "a person tries it again"


async def test_rows_that_a_container_holds_without_a_job_are_read_in_turns() -> None:
    """A team starts its rows by keys of earlier launches, as many as it likes."""
    held = range(100, 5100)
    place, reads = Place(term=0, jobs=[], held=held), list[set[int]]()
    for _ in range(3):
        place.read.clear()
        await place.run_cycle()
        reads.append(set(place.read))
    assert [len(read) for read in reads] == [WITHOUT_JOB] * 3
    assert set().union(*reads) == set(held)
    assert len(place.cycle.told) > 2 * WITHOUT_JOB, "what was said of the others last"


async def test_parked_row_of_a_queue_at_its_cap_keeps_its_reason() -> None:
    """A cycle does not read the queue, and the row has no Job."""
    place = Place(term=1, queue=a_queue(max_jobs=0))
    await place.run_cycle()
    poison = RowReason("default", 1, Hold(HoldReason.POISON, "bad image"), ago(9))
    other = RowReason("default", 1, Hold(HoldReason.NO_ROOM_NOW), ago(9))
    place.cycle = msgspec.structs.replace(place.cycle, told={7: poison, 8: other})
    await place.run_cycle()
    assert place.cycle.told[7] == poison
    assert 8 not in place.cycle.told


@pytest.mark.parametrize(
    ("place", "is_calm"),
    [
        (Place(term=1, jobs=[a_job()]), True),
        (Place(term=1, jobs=[a_job()], row=a_running_task(heartbeat_at=NOW)), True),
        (Place(term=1, jobs=[a_job(attempt=2)]), False),  # it waits until that Job has ended
        (Place(term=1, jobs=[], queue=a_queue(max_jobs=0)), False),  # its rows are not read
        (Place(term=1, stale="jobs: a new list is under way"), False),
    ],
    ids=["waits for its container", "runs", "waits for an end", "waits for a cap", "not ready"],
)
async def test_news_of_the_cluster_have_time_if_no_row_waits_for_its_job(place: Place, is_calm: bool) -> None:
    await place.run_cycle()
    assert place.is_calm is is_calm
