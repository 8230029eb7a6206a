"""Lets a decision go before other work of the same event loop. Work that began before the decision goes on.

Not guaranteed: that other work never runs during a decision. It waits for a limited time, so that it goes on while a
decision waits for a slow database.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LONGEST_WAIT: Final = 0.1
"""Seconds. A usual cycle decides within 0.03 s."""


class Precedence:
    """Several decisions may run at the same time."""

    def __init__(self) -> None:
        self._running = 0
        self._nothing_runs = asyncio.Event()
        self._nothing_runs.set()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Work that can wait does not begin in this block."""
        self._running += 1
        self._nothing_runs.clear()
        try:
            yield
        finally:
            self._running -= 1
            if not self._running:
                self._nothing_runs.set()

    async def wait(self, seconds: float = LONGEST_WAIT) -> None:
        """Waits until no decision runs, at most so many seconds."""
        if self._nothing_runs.is_set():
            return
        try:
            async with asyncio.timeout(seconds):
                await self._nothing_runs.wait()
        except TimeoutError:
            return
