"""One dispatcher process: the production objects, wired as in `dispatcher/app.py`, in a simulated world."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from dispatcher.admission.dispatch import Decision, Dispatch, DispatchPorts
from dispatcher.admission.room_view import RoomView
from dispatcher.jobs.catalog import Catalog
from dispatcher.jobs.manifest import JobSite
from dispatcher.jobs.memory import Memory
from dispatcher.jobs.observed import Rules
from dispatcher.jobs.picture import JobsPicture
from dispatcher.jobs.submit import Launcher, Submitter
from dispatcher.model.cluster import ClusterView
from dispatcher.model.errors import DispatcherError
from dispatcher.model.jobs import ObjectWrite
from dispatcher.runtime.clock import Bucket
from dispatcher.settings.definition import AdmissionSettings, JobSettings, PlacementSettings, SweepSettings
from dispatcher.sweep.sweep import Remover, Sweep, SweepPorts
from tests.property.api import Api, Network
from tests.property.rows import Look, Table
from tests.property.timing import Timeline
from tests.property.views import View
from tests.rig.builders import ANYWHERE, NOT_PLACED

TEMPLATES: Final = str(Path(__file__).parent / "templates")
PASSED: Final = {"S3_URL": "s3://bucket?price=$5"}
SITE: Final = JobSite("dispatcher", "jobs", 600, PlacementSettings(), PASSED)
RULES: Final = Rules(max_launches=3, start_deadline_seconds=120, node_lost_seconds=90)
ADMISSION: Final = AdmissionSettings(max_jobs=4, pending_grace_seconds=30)
SWEEPING: Final = SweepSettings(tombstone_seconds=60)


class Installation(Struct, frozen=True):
    """What all replicas share.

    templates: the folder of templates.
    room: the room of nodes in a view; None: it is not judged.
    """

    templates: str = TEMPLATES
    admission: AdmissionSettings = ADMISSION
    room: Callable[[ClusterView], RoomView | None] = lambda _: None


class Watching(Dispatch[JobsPicture]):
    """A `Dispatch` that keeps its last picture and decision."""

    decision: Decision
    picture: JobsPicture
    decided: Callable[[Look, Decision], None]

    async def _decide(  # type: ignore[override]  # only rows of the simulated table
        self, view: ClusterView, room: RoomView | None, rows: Look, picture: JobsPicture
    ) -> Decision:
        self.picture = picture
        self.decision = await super()._decide(view, room, rows, picture)
        self.decided(rows, self.decision)
        return self.decision


class Database:
    """The table as one process reaches it. The next read may fail, or be slow after its snapshot."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.fault: DispatcherError | None = None
        self.is_slow = False
        self.waiting: list[asyncio.Future[None]] = []
        self.sweeps: list[Look] = []

    @contextlib.asynccontextmanager
    async def rows(self, held_at_most: int = 0) -> AsyncIterator[Look]:
        """Takes a snapshot at once. Its first answer may come much later."""
        if (fault := self.fault) is not None:
            self.fault = None
            raise fault
        look = self._table.look(held_at_most)
        if self.is_slow:
            self.is_slow = False
            self.waiting.append(asyncio.get_running_loop().create_future())
            await self.waiting[-1]
        yield look

    def answer(self) -> None:
        """Answers the slow reads with the rows of their snapshots."""
        for future in self.waiting:
            if not future.done():
                future.set_result(None)
        self.waiting.clear()

    @contextlib.asynccontextmanager
    async def rows_to_sweep(self) -> AsyncIterator[Look]:
        async with self.rows() as look:
            self.sweeps.append(look)
            yield look


class Replica:
    """One replica. `term`: returns the number of its term, or 0 if it may not write."""

    def __init__(
        self, name: str, network: Network, table: Table, term: Callable[["Replica"], int], installed: Installation
    ) -> None:
        self.name = name
        self.installed = installed
        self.clock: Timeline = network.clock
        self.view = View(network.cluster, self.clock)
        self.api = Api(network, self.is_trusted)
        self.database = Database(table)
        self.memory = Memory()
        self.seen: ClusterView | None = None
        self._term = term
        self._network = network
        self._tasks: dict[str, asyncio.Task[float]] = {}
        self._remover = remover = Remover(self.api, self._note_refusal, self.clock)
        self.catalog = Catalog(JobSettings(templates_dir=installed.templates), frozenset(PASSED), NOT_PLACED)
        submitter = Submitter(self.api, SITE, self.memory, self._note_refusal, self.clock)
        submitter.sleep = self._no_time
        self.launcher = Launcher(submitter, self.memory, self.catalog, RULES, self.clock)
        ports = DispatchPorts(
            self._cycle_view, self.database.rows, str, lambda: True, self, self._remove, ANYWHERE,
            room=self._room, clock=self.clock,
        )  # fmt: skip
        sweeping = SweepPorts(
            self._sweep_view, self.database.rows_to_sweep, self.is_trusted, self.unanswered, remover.remove, self.clock
        )
        bucket = Bucket(50, self.clock())
        self.dispatch = Watching(ports, self.launcher, installed.admission, bucket)
        self.sweep = Sweep(sweeping, SWEEPING, bucket)
        self.refusals = 0
        self.pauses: dict[str, float] = {}

    async def _no_time(self, _: float) -> None:
        """A pause between two POSTs of one create. The steps of a run move the clock, not this."""

    def is_trusted(self) -> bool:
        return self.term() != 0

    def term(self) -> int:
        return self._term(self)

    def vacancy(self) -> str:
        return ""

    def unanswered(self) -> frozenset[str]:
        return self.memory.creates.unanswered()

    def is_busy(self, stage: str) -> bool:
        return stage in self._tasks

    def begin(self, loop: asyncio.AbstractEventLoop, stage: str) -> None:
        """Starts one round of a stage, and runs it until it waits for the world."""
        if not self.is_busy(stage):
            run_once = self.dispatch.run_once if stage == "dispatch" else self.sweep.run_once
            self._tasks[stage] = loop.create_task(run_once())
        self.go_on(loop)

    def go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Runs all rounds until they wait for the world. A DispatcherError ends a round; any other error is a bug."""
        if self.is_idle():
            return
        loop.run_until_complete(self._calm())
        for stage, task in list(self._tasks.items()):
            if task.done():
                del self._tasks[stage]
                with contextlib.suppress(DispatcherError):
                    self.pauses[stage] = task.result()

    def kill(self, loop: asyncio.AbstractEventLoop, *, lands_later: bool) -> None:
        """Ends the process at once. Requests that were sent may still land; its memory is lost."""
        self._network.cut(self.api, lands_later=lands_later)
        for task in (*self._tasks.values(), *self._remover.under_way.values()):
            task.cancel()
        loop.run_until_complete(self._calm())
        self._tasks = {}

    def is_idle(self) -> bool:
        """Whether no round runs and no create or delete waits for its answer."""
        tasks = (*self._tasks.values(), *self._remover.under_way.values())
        return all(task.done() for task in tasks) and not self.memory.creates.under_way()

    async def _calm(self) -> None:
        """Gives every coroutine the time to end, or to reach its next question to the world."""
        for _ in range(40):
            await asyncio.sleep(0)
            if self.is_idle():
                break

    async def _remove(self, ends: Sequence[ObjectWrite], most: int) -> int:
        """Deletes that a cycle decided. A sweep uses its own view."""
        assert not (ends and self.seen and self.seen.stale), "I6: removed by a view that is too old"
        return await self._remover.remove(ends, most)

    def _cycle_view(self) -> ClusterView:
        self.seen = self.view.picture()
        return self.seen

    def _room(self) -> RoomView | None:
        return self.installed.room(self.seen) if self.seen is not None else None

    def _sweep_view(self) -> ClusterView:
        return self.view.picture()

    def _note_refusal(self) -> None:
        self.refusals += 1
