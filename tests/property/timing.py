"""One clock for a whole world, and what it takes to make production objects follow it.

Rows, the API server and the processes read the same virtual seconds; their calendars differ on purpose, so that
whoever compares a row's time with a Job's is found out.

The stages read `time.monotonic` themselves. What they are given can be made to follow the virtual clock (`Memory`,
`Bucket`); three moments are compared with the real clock inside them, and `Ages` moves those.
"""

import time
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from dispatcher.clock import elapsed
from dispatcher.jobs.launcher import Launcher
from dispatcher.jobs.memory import Breaker, Memory
from dispatcher.model import Candidate, Hold, Task
from dispatcher.rate import Bucket
from dispatcher.sweep.remove import Remover

ROWS_EPOCH: Final = datetime(2026, 3, 14, 12, tzinfo=UTC)
CLUSTER_EPOCH: Final = ROWS_EPOCH + timedelta(minutes=37)


class Timeline:
    """Virtual seconds since the world began."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds

    @property
    def of_rows(self) -> datetime:
        return ROWS_EPOCH + timedelta(seconds=self.seconds)

    @property
    def of_cluster(self) -> datetime:
        return CLUSTER_EPOCH + timedelta(seconds=self.seconds)


class TimedBreaker(Breaker):
    """A breaker that reads the world's clock, whatever it is told."""

    def __init__(self, clock: Timeline) -> None:
        super().__init__()
        self._clock = clock

    def trip(self, hold: Hold, now: float, at_least: float = 0) -> None:
        super().trip(hold, self._clock(), at_least)

    def hold(self, now: float) -> Hold | None:
        return super().hold(self._clock())


class TimedMemory(Memory):
    """A memory that reads the world's clock, whatever it is told."""

    def __init__(self, clock: Timeline) -> None:
        super().__init__()
        self._clock = clock
        self.api, self.quota = TimedBreaker(clock), TimedBreaker(clock)

    def of_template(self, name: str) -> Breaker:
        return self._templates.setdefault(name, TimedBreaker(self._clock))

    def failed(self, task: Task, now: float) -> None:
        super().failed(task, self._clock())

    def defer(self, task_id: int, now: float) -> None:
        super().defer(task_id, self._clock())

    def is_deferred(self, task_id: int, now: float) -> bool:
        return super().is_deferred(task_id, self._clock())

    def poisoned(self, task: Task, now: float, *, is_kind: bool) -> None:
        super().poisoned(task, self._clock(), is_kind=is_kind)

    def parked(self, row: Task | Candidate, now: float) -> Hold | None:
        return super().parked(row, self._clock())


class TimedBucket(Bucket):
    """A bucket that reads the world's clock, whatever it is told."""

    def __init__(self, rate: float, clock: Timeline) -> None:
        super().__init__(rate, clock())
        self._clock = clock

    def left(self, now: float) -> int:
        return super().left(self._clock())


class Ages:
    """Moments that stages keep by the real clock, moved so that they are as far away as the world's clock says."""

    def __init__(self, clock: Timeline, memory: Memory, remover: Remover, launcher: Launcher) -> None:
        self._clock = clock
        self._memory = memory
        self._remover = remover
        self._launcher = launcher
        self._rests: dict[int, tuple[float, float]] = {}
        self._told: dict[str, tuple[float, float]] = {}  # what was written, and the world's second that it means

    def tell(self) -> None:
        """Before and after a process runs: what was sent meanwhile is of now, all else has the age that it should."""
        unseen, removed = self._memory.unseen, self._remover._sent
        sent = {name: create.sent_at for name, create in unseen.items()} | removed
        now, real = self._clock(), time.monotonic()
        at = {key: self._told[key][1] if self._told.get(key, (None,))[0] == was else now for key, was in sent.items()}
        self._told = {key: (real - (now - second), second) for key, second in at.items()}
        for name, create in unseen.items():
            unseen[name] = msgspec.structs.replace(create, sent_at=self._told[name][0])
        removed |= {uid: self._told[uid][0] for uid in removed}
        self._tell_rests()

    def _tell_rests(self) -> None:
        """Until when rows rest: a moment to come."""
        resting, now, real = self._launcher._resting, self._clock(), elapsed()
        ends = {id_: rest.until for id_, rest in resting.items()}
        at = {
            id_: self._rests[id_][1] if self._rests.get(id_, (None,))[0] == end else now + round(end - real, 1)
            for id_, end in ends.items()
        }
        self._rests = {id_: (real + moment - now, moment) for id_, moment in at.items()}
        for id_, rest in resting.items():
            resting[id_] = msgspec.structs.replace(rest, until=self._rests[id_][0])
