"""Rounds of components, the precedence of cycles over pages, and the stop by a signal.

`Rounds`: a fault of ours (no database, no API server) ends a round, never the program. The fault is logged, counted and
shown by readiness, and the next round tries again. Any other exception is a bug, and is logged with its trace. After
BUGS_IN_A_ROW bugs the program ends, because a restart is then more likely to help. Rounds that only tell people
something never end it.
"""

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

import structlog

from dispatcher.model.errors import DispatcherError, doubled
from dispatcher.runtime.clock import Clock, elapsed
from dispatcher.runtime.logs import LastingFault
from dispatcher.runtime.metrics import FAULTS, LAST_ROUND

log = structlog.get_logger(component="service")

BUGS_IN_A_ROW: Final = 20
"""Bugs of one component without a good round between them, after which the program ends."""
SOON_SECONDS: Final = 0.03
"""Seconds from a watch event to the next round, so that a burst of events makes only one round."""
PAUSE_SECONDS: Final = 0.5
"""Seconds of the pause after a fault. The pause doubles with each further fault."""
LONGEST_PAUSE_SECONDS: Final = 15
"""The longest pause after faults."""


def calm_collector() -> None:
    """Makes the garbage collector run less often, because it would find nothing.

    Objects of the start-up live for ever. The thousands of rows of a cycle are freed without the collector.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


class Wake:
    """Starts the next round at once. Several calls before a round count as one."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None

    def __call__(self) -> None:
        self._event.set()

    def soon(self, seconds: float = SOON_SECONDS) -> None:
        """Starts the next round within `seconds`, so that a burst of watch events makes only one round."""
        loop = asyncio.get_running_loop()
        if self._later is None or loop.time() + seconds < self._later.when():
            self._forget()
            self._later = loop.call_later(seconds, self._now)

    def _now(self) -> None:
        self._later = None
        self._event.set()

    def _forget(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None

    async def wait(self, seconds: float) -> bool:
        """Waits for a call, at most `seconds`. Returns True if there was one. The next round sees all news so far."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        finally:
            self._forget()
        self._event.clear()
        return True


class Rounds:
    """Calls `run_once` of one component again and again. It returns the most seconds until the next round."""

    def __init__(
        self, name: str, run_once: Callable[[], Coroutine[Any, Any, float]], wake: Wake, *, is_vital: bool = True,
        clock: Clock = elapsed,
    ) -> None:  # fmt: skip
        """`is_vital`: whether too many bugs in a row end the program."""
        self.fault = "no round has ended yet"
        self._name = name
        self._run_once = run_once
        self._is_vital = is_vital
        self._wake = wake
        self._faults = 0
        self._bugs = 0
        self._lasting = LastingFault(clock)

    async def run(self, stop: asyncio.Event) -> None:
        """Runs rounds until `stop` is set. A round that has begun is completed first."""
        FAULTS.labels(self._name)  # from 0, because Prometheus sees no increase in a series that begins at 1
        LAST_ROUND.labels(self._name).set(0)
        while not stop.is_set():
            await self._wake.wait(await self._round())

    def nudge(self) -> None:
        """Ends the pause between two rounds."""
        self._wake()

    async def _round(self) -> float:
        try:
            pause = await self._run_once()
        except DispatcherError as fault:
            return self._note(fault)
        except Exception as bug:  # the program goes on until BUGS_IN_A_ROW
            self._bugs += 1
            log.exception("a round ended in a bug", rounds=self._name)
            if self._bugs >= BUGS_IN_A_ROW and self._is_vital:
                raise
            return self._note(bug)
        self.fault, self._faults, self._bugs = "", 0, 0
        self._lasting.end()
        LAST_ROUND.labels(self._name).set_to_current_time()
        return pause

    def _note(self, fault: Exception) -> float:
        self.fault = str(fault) or type(fault).__name__
        if self._lasting.is_due(self.fault):
            log.warning("a round failed", rounds=self._name, fault=self.fault)
        FAULTS.labels(self._name).inc()
        self._faults += 1
        return doubled(PAUSE_SECONDS, self._faults - 1, LONGEST_PAUSE_SECONDS)


LONGEST_WAIT: Final = 0.1
"""Seconds for which other work waits for a cycle, at most. A usual cycle decides within 0.03 s."""


class Precedence:
    """Lets cycles run before other work of the same event loop, such as pages. Several cycles may run at the same time.

    `running()` marks a cycle. `wait()` returns when none runs, at the latest after LONGEST_WAIT. Work that began before
    a cycle goes on.

    Not guaranteed: that no other work runs during a cycle. The wait is bounded, so that pages work while a cycle waits
    for a slow database.
    """

    def __init__(self) -> None:
        self._running = 0
        self._nothing_runs = asyncio.Event()
        self._nothing_runs.set()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Marks a cycle: work that waits does not begin in this block."""
        self._running += 1
        self._nothing_runs.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._nothing_runs.set()

    async def wait(self, seconds: float = LONGEST_WAIT) -> None:
        """Waits until no cycle runs, at most `seconds`."""
        if self._nothing_runs.is_set():
            return
        try:
            async with asyncio.timeout(seconds):
                await self._nothing_runs.wait()
        except TimeoutError:
            return


LAST_SECONDS: Final = 27
"""Seconds from a stop to the end of the process, even if a call hangs."""


def stop_on_signals() -> asyncio.Event:
    """Returns an event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end_soon, stop)
    return stop


def end_soon(stop: asyncio.Event) -> None:
    """Begins a graceful stop. After LAST_SECONDS the process ends even if a call hangs, such as a DNS lookup."""
    stop.set()
    last = threading.Timer(LAST_SECONDS, os._exit, (0,))
    last.daemon = True
    last.start()
