"""What keys really use, in memory: never waited for, each run asked for once, everything bounded."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest

from dispatcher.model.cache_history import Run, Use
from dispatcher.model.errors import DispatcherError
from dispatcher.placement import uses
from dispatcher.placement.uses import Key, Uses
from tests.builders import NOW

MAIN: Key = ("builds", "main")


def a_run(number: int) -> Run:
    return Run(f"pod-{number}", NOW + timedelta(minutes=number), NOW + timedelta(minutes=number, seconds=9))


class CacheHistory:
    """Runs of keys, and a Prometheus that knows of all but those in `unknown`."""

    def __init__(self) -> None:
        self.of: dict[Key, list[Run]] = {MAIN: [a_run(2), a_run(1)]}
        self.asked: list[str] = []
        self.unknown: set[str] = set()
        self.fault: DispatcherError | None = None
        self.now = 0.0
        self.wakes = 0
        self.uses = Uses(self.runs, self.ask, self.wake, lambda: self.now)

    async def runs(self, keys: Sequence[Key]) -> Mapping[Key, Sequence[Run]]:
        return {key: self.of.get(key, []) for key in keys}

    async def ask(self, run: Run) -> Use | None:
        self.asked.append(run.pod)
        if self.fault:
            raise self.fault
        return None if run.pod in self.unknown else Use(1, 2)

    def wake(self) -> None:
        self.wakes += 1


async def test_a_key_is_launched_without_until_its_use_is_known() -> None:
    past = CacheHistory()
    assert past.uses.of(MAIN) == ()
    assert past.wakes == 1
    await past.uses.run_once()
    assert past.uses.of(MAIN) == (Use(1, 2), Use(1, 2))
    assert past.wakes == 1, "what is fresh is not looked up again"


async def test_a_run_is_asked_for_once_and_a_new_one_is_found() -> None:
    past = CacheHistory()
    past.uses.of(MAIN)
    await past.uses.run_once()
    past.of[MAIN].insert(0, a_run(3))
    past.now += uses.FRESH_SECONDS
    past.uses.of(MAIN)
    await past.uses.run_once()
    assert past.asked == ["pod-2", "pod-1", "pod-3"]
    assert len(past.uses.of(MAIN)) == 3


async def test_a_run_of_which_nothing_is_known_is_left_out() -> None:
    past = CacheHistory()
    past.unknown = {"pod-2"}
    past.uses.of(MAIN)
    await past.uses.run_once()
    assert past.uses.of(MAIN) == (Use(1, 2),)


async def test_a_fault_is_the_rounds_and_the_key_is_still_wanted() -> None:
    past = CacheHistory()
    past.fault = DispatcherError("away")
    past.uses.of(MAIN)
    with pytest.raises(DispatcherError):
        await past.uses.run_once()
    assert past.uses.of(MAIN) == ()
    past.fault = None
    await past.uses.run_once()
    assert past.uses.of(MAIN)


async def test_nobody_is_asked_while_nothing_is_wanted() -> None:
    past = CacheHistory()
    assert await past.uses.run_once() == uses.PAUSE_SECONDS
    assert past.asked == []


async def test_a_round_looks_up_a_few_keys_and_comes_again_at_once() -> None:
    past = CacheHistory()
    for number in range(uses.KEYS_A_ROUND + 1):
        past.of["q", str(number)] = [a_run(number)]
        past.uses.of(("q", str(number)))
    assert await past.uses.run_once() == 0
    assert len(past.asked) == uses.KEYS_A_ROUND
    assert await past.uses.run_once() == uses.PAUSE_SECONDS


async def test_as_many_keys_are_remembered_as_there_is_room_for() -> None:
    past = CacheHistory()
    for number in range(uses.MOST_KEYS + uses.KEYS_A_ROUND):
        past.uses.of(("q", str(number)))
    while await past.uses.run_once() == 0:
        pass
    past.of["q", "new"] = [a_run(1)]
    past.uses.of(("q", "new"))
    await past.uses.run_once()
    assert past.uses.of(("q", "new"))
    assert past.wakes == uses.MOST_KEYS + 1
