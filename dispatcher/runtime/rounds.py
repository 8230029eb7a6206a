"""Rounds: a component's `run_once`, again and again, woken early, supervised, stopped gracefully.

A fault of ours (no database, no API server) ends a round, never the program: it is logged, counted, told by readiness,
and the next round tries again. Anything else is a bug: it is logged with its trace, and after too many in a row the
program ends, because a restart is then the better hope.
"""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any, Final

import structlog

from dispatcher.model.errors import DispatcherError
from dispatcher.runtime.metrics import FAULTS

log = structlog.get_logger(component="service")

BUGS_IN_A_ROW: Final = 20
SOON_SECONDS: Final = 0.03
PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 15


def calm_collector() -> None:
    """What start-up made lives for ever, and a cycle makes thousands of short-lived rows: neither needs a walk."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


class Wake:
    """Something happened: the next round starts now. Many wake-ups before it make one."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._later: asyncio.TimerHandle | None = None

    def __call__(self) -> None:
        self._event.set()

    def soon(self) -> None:
        """In a moment: a burst of watch events makes one round, not one each."""
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(SOON_SECONDS, self._now)

    def _now(self) -> None:
        self._later = None
        self._event.set()

    async def wait(self, seconds: float) -> bool:
        """True: woken; False: the time is over."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


class Rounds:
    """One component's rounds. `run_once` says in how many seconds to come again, at the latest."""

    def __init__(self, name: str, run_once: Callable[[], Coroutine[Any, Any, float]], wake: Wake) -> None:
        self.fault = "no round has ended yet"
        self._name = name
        self._run_once = run_once
        self._wake = wake
        self._faults = 0
        self._bugs = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`; a round that has begun is ended first."""
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
        except Exception as bug:
            self._bugs += 1
            log.exception("a round ended in a bug", rounds=self._name)
            if self._bugs >= BUGS_IN_A_ROW:
                raise
            return self._note(bug)
        self.fault, self._faults, self._bugs = "", 0, 0
        return pause

    def _note(self, fault: Exception) -> float:
        if str(fault) != self.fault:
            log.warning("a round failed", rounds=self._name, fault=str(fault) or type(fault).__name__)
        self.fault = str(fault) or type(fault).__name__
        FAULTS.labels(self._name).inc()
        self._faults = min(self._faults + 1, 10)
        return min(PAUSE_SECONDS * 2.0 ** (self._faults - 1), LONGEST_PAUSE_SECONDS)
