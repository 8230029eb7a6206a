"""The real use of cache keys, kept in memory: read by every launch, looked up in the background.

    launch ─▶ of(key): the known use; notes the key ─▶ run_once: its newest runs (rows), their use (Prometheus)

A launch never waits for a lookup, and a lookup never fails a launch: until its use is known, a key is launched without
it. The use of a finished run does not change, so each run is looked up once. The remembered keys, the keys of a round
and the lookups at once are bounded.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from dispatcher.model.caches import CacheRun, Use
from dispatcher.runtime.clock import Clock, elapsed

Key = tuple[str, str]

MOST_KEYS: Final = 10_000
"""Keys that are remembered, at most."""
KEYS_A_ROUND: Final = 20
"""Keys that one round looks up, at most."""
LOOKUPS_AT_ONCE: Final = 4
"""Queries to Prometheus at the same time, at most."""
FRESH_SECONDS: Final = 60
"""Seconds for which the runs of a key are not read again."""
PAUSE_SECONDS: Final = 5
"""Seconds until the next round if no key is noted."""


class Uses:
    """The real use of cache keys.

    `runs`: reads the newest runs of keys, the newest first.
    `ask`: looks up the use of one run; None if it is unknown.
    `wake`: makes `run_once` run soon.
    """

    def __init__(
        self,
        runs: Callable[[Sequence[Key]], Awaitable[Mapping[Key, Sequence[CacheRun]]]],
        ask: Callable[[CacheRun], Awaitable[Use | None]],
        wake: Callable[[], None],
        clock: Clock = elapsed,
    ) -> None:
        self._runs = runs
        self._ask = ask
        self._wake = wake
        self._clock = clock
        self._known: dict[Key, dict[CacheRun, Use | None]] = {}
        self._fresh_until: dict[Key, float] = {}
        self._wanted: dict[Key, None] = {}

    def of(self, key: Key) -> tuple[Use, ...]:
        """The known use of the key's newest runs, the newest first."""
        if self._clock() >= self._fresh_until.get(key, 0) and len(self._wanted) < MOST_KEYS:
            self._wanted[key] = None
            self._wake()
        return tuple(use for use in self._known.get(key, {}).values() if use is not None)

    async def run_once(self) -> float:
        """Looks up KEYS_A_ROUND of the noted keys. Returns the seconds until the next round at the latest."""
        keys = list(self._wanted)[:KEYS_A_ROUND]
        runs = await self._runs(keys) if keys else {}
        places = asyncio.Semaphore(LOOKUPS_AT_ONCE)

        async def look_up(key: Key, run: CacheRun) -> Use | None:
            if run in (known := self._known.get(key, {})):
                return known[run]
            async with places:
                return await self._ask(run)

        for key in keys:
            found = await asyncio.gather(*(look_up(key, run) for run in runs.get(key, ())), return_exceptions=True)
            uses = dict(zip(runs.get(key, ()), found, strict=True))
            self._remember(key, {run: use for run, use in uses.items() if not isinstance(use, BaseException)})
            for fault in found:  # all lookups have ended by now
                if isinstance(fault, BaseException):
                    self._wanted[key] = None
                    raise fault
        return 0 if self._wanted else PAUSE_SECONDS

    def _remember(self, key: Key, uses: dict[CacheRun, Use | None]) -> None:
        self._wanted.pop(key, None)
        self._known.pop(key, None)
        self._known[key] = uses
        self._fresh_until[key] = self._clock() + FRESH_SECONDS
        while len(self._known) > MOST_KEYS:
            oldest = next(iter(self._known))
            del self._known[oldest], self._fresh_until[oldest]
