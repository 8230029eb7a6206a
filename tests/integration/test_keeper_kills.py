"""A cache keeper that is killed at any step of a round: each directory is whole or goes, and the next start ends it."""

import asyncio
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dispatcher.keeper import folder as folders
from dispatcher.keeper.folder import ASIDE, CacheFolder
from tests.integration.cache_places import of_ours
from tests.integration.kept import KEEPS_ALL, NOW, Kept, Pod, name

KILLED = 9
CALLS = ("mkdir", "rename", "replace", "unlink", "rmdir", "fsync", "open")
ORDERED, USED, COMES_BACK = range(5), 3, 4
"""Directories that somebody has ordered away: a Pod uses one, and begins to use another while it is set aside."""
STAYS = [3, 4, 5, 6, 7, 8, 9]


class Steps:
    """Ends the process before this step. A step is a call that changes the disk, or opens something on it."""

    def __init__(self, left: int) -> None:
        self._left = left

    def counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **named: Any) -> Any:
            if self._left == 0:
                os._exit(KILLED)
            self._left -= 1
            return call(*given, **named)

        return step


async def a_round(kept: Kept, *first: Pod) -> None:
    """`first`: what the first live list finds besides the Pods that are watched."""
    kept.cluster.time = NOW + 1000
    kept.cluster.orders = {name(at): NOW + 500 for at in ORDERED}
    kept.cluster.bound = [kept.cluster.pod(name(USED))]
    kept.cluster.live = [first, [kept.cluster.pod(name(COMES_BACK))]]
    with closing(CacheFolder(str(kept.root))) as folder:
        await kept.keeping(folder, KEEPS_ALL).run_once()


def killed_round(kept: Kept, number: int) -> bool:
    """Runs a round in a process that is killed before this step. False: it had fewer steps."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            steps = Steps(number)
            for call in CALLS:
                setattr(os, call, steps.counted(getattr(os, call)))
            folders.rename_to_new = steps.counted(folders.rename_to_new)
            asyncio.run(a_round(kept))
            status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in {0, KILLED}
    return status == KILLED


def check_state(kept: Kept) -> None:
    """No directory that a Pod could get has lost a file, and none that stays is condemned."""
    for at in range(kept.number):
        places = [kept.root / name(at), kept.root / f"{ASIDE}{name(at)}"]
        assert all((place / "data").stat().st_size == 65536 for place in places if place.exists()), at
        assert any(place.exists() for place in places) or at not in STAYS, f"{at} is gone"


@pytest.mark.slow
def test_round_that_is_killed_at_any_step_is_ended_by_the_next_start(tmp_path: Path) -> None:
    kills = 0
    for number in range(1000):
        folder = tmp_path / str(number)
        folder.mkdir()
        kept = Kept(folder)
        was_killed = killed_round(kept, number)
        check_state(kept)
        for _ in range(2):
            asyncio.run(a_round(kept, kept.cluster.pod(name(COMES_BACK))))
        assert (kept.left(), of_ours(kept.root)) == (STAYS, []), number
        kept.check()
        if not was_killed:
            break
        kills += 1
    assert kills > 40
