"""The real use of cache keys in memory: no launch waits for it, each run is looked up once, everything is bounded."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest

from dispatcher.model.caches import CacheRun, Use
from dispatcher.model.errors import DispatcherError
from dispatcher.placement import uses
from dispatcher.placement.uses import Key, Uses
from tests.rig.builders import NOW

MAIN: Key = ("builds", "main")


def a_run(number: int) -> CacheRun:
    return CacheRun(f"pod-{number}", NOW + timedelta(minutes=number), NOW + timedelta(minutes=number, seconds=9))


class Lookups:
    """Runs of keys, and a Prometheus that knows all runs but those in `unknown`."""

    def __init__(self) -> None:
        self.of: dict[Key, list[CacheRun]] = {MAIN: [a_run(2), a_run(1)]}
        self.asked: list[str] = []
        self.unknown: set[str] = set()
        self.fault: DispatcherError | None = None
        self.now = 0.0
        self.wakes = 0
        self.uses = Uses(self.runs, self.ask, self.wake, lambda: self.now)

    async def runs(self, keys: Sequence[Key]) -> Mapping[Key, Sequence[CacheRun]]:
        return {key: self.of.get(key, []) for key in keys}

    async def ask(self, run: CacheRun) -> Use | None:
        self.asked.append(run.pod)
        if self.fault:
            raise self.fault
        return None if run.pod in self.unknown else Use(1, 2)

    def wake(self) -> None:
        self.wakes += 1


async def test_key_has_no_uses_until_they_are_looked_up() -> None:
    lookups = Lookups()
    assert lookups.uses.of(MAIN) == ()
    assert lookups.wakes == 1
    await lookups.uses.run_once()
    assert lookups.uses.of(MAIN) == (Use(1, 2), Use(1, 2))
    assert lookups.wakes == 1, "fresh uses are not looked up again"


async def test_run_is_looked_up_once_and_a_new_run_is_found() -> None:
    lookups = Lookups()
    lookups.uses.of(MAIN)
    await lookups.uses.run_once()
    lookups.of[MAIN].insert(0, a_run(3))
    lookups.now += uses.FRESH_SECONDS
    lookups.uses.of(MAIN)
    await lookups.uses.run_once()
    assert lookups.asked == ["pod-2", "pod-1", "pod-3"]
    assert len(lookups.uses.of(MAIN)) == 3


async def test_run_of_unknown_use_is_left_out() -> None:
    lookups = Lookups()
    lookups.unknown = {"pod-2"}
    lookups.uses.of(MAIN)
    await lookups.uses.run_once()
    assert lookups.uses.of(MAIN) == (Use(1, 2),)


async def test_fault_ends_the_round_and_the_key_is_looked_up_again() -> None:
    lookups = Lookups()
    lookups.fault = DispatcherError("away")
    lookups.uses.of(MAIN)
    with pytest.raises(DispatcherError):
        await lookups.uses.run_once()
    assert lookups.uses.of(MAIN) == ()
    lookups.fault = None
    await lookups.uses.run_once()
    assert lookups.uses.of(MAIN)


async def test_round_without_keys_looks_up_nothing() -> None:
    lookups = Lookups()
    assert await lookups.uses.run_once() == uses.PAUSE_SECONDS
    assert lookups.asked == []


async def test_a_round_looks_up_a_few_keys_and_comes_again_at_once() -> None:
    lookups = Lookups()
    for number in range(uses.KEYS_A_ROUND + 1):
        lookups.of["q", str(number)] = [a_run(number)]
        lookups.uses.of(("q", str(number)))
    assert await lookups.uses.run_once() == 0
    assert len(lookups.asked) == uses.KEYS_A_ROUND
    assert await lookups.uses.run_once() == uses.PAUSE_SECONDS


async def test_wanted_keys_are_bounded() -> None:
    lookups = Lookups()
    for number in range(uses.MOST_KEYS + uses.KEYS_A_ROUND):
        lookups.uses.of(("q", str(number)))
    while await lookups.uses.run_once() == 0:
        pass
    lookups.of["q", "new"] = [a_run(1)]
    lookups.uses.of(("q", "new"))
    await lookups.uses.run_once()
    assert lookups.uses.of(("q", "new"))
    assert lookups.wakes == uses.MOST_KEYS + 1
