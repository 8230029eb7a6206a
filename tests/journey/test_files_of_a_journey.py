"""How many files somebody reads who follows one row, or one question: those whose lines run for it alone."""

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest

from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.steps import all_done

MOST_FILES_OF_A_ROW = 47
MOST_FILES_OF_A_QUEUE = 9
QUIET_SECONDS = 2


class Traced(Dispatcher):
    """A dispatcher that tells which lines it has executed."""

    def __init__(self, place: Place, **settings: object) -> None:
        super().__init__(place, **settings)
        self.lines = place.folder / "lines.json"
        self.program = (sys.executable, "-m", "tests.rig.traced_dispatcher")
        self._environment["TRACED_LINES"] = str(self.lines)

    async def executed(self) -> set[tuple[str, int]]:
        """(file, line) of all lines that have run so far."""
        self.process.send_signal(signal.SIGUSR1)
        await wait_for(self.lines.exists, "the lines are written", 30, check=self.check)
        lines = json.loads(self.lines.read_text())
        self.lines.unlink()
        return {(Path(file).relative_to(self.folder).as_posix(), line) for file in lines for line in lines[file]}

    async def executed_at_rest(self) -> set[tuple[str, int]]:
        """The same, once QUIET_SECONDS have passed in which no line ran for the first time.

        What an earlier step set off has run by then: its events, the rounds of the sweep, a view that is renewed.
        """
        clock = asyncio.get_running_loop().time
        lines, since = set[tuple[str, int]](), clock()

        async def rests() -> bool:
            nonlocal lines, since
            now = await self.executed()
            if now != lines:
                lines, since = now, clock()
            return clock() - since >= QUIET_SECONDS

        await wait_for(rests, "no line runs for the first time", 60, check=self.check)
        return lines


@pytest.fixture
def traced(place: Place) -> Traced:
    return Traced(place, TOMBSTONE_SECONDS=0)


@pytest.mark.slow
async def test_few_files_run_for_one_row_and_for_one_question(place: Place, traced: Traced) -> None:
    async with place.playing(), traced:
        await traced.ready()
        for path in ("status", "about"):
            assert (await traced.api(path))[0] == 200
        await asyncio.gather(*(traced.api(path) for path in ("status", "nodes")))
        before = await traced.executed_at_rest()
        await place.database.insert_task(cache_key="k")
        await all_done(place, 60, traced.check)
        after = await traced.executed_at_rest()
        status, _ = await traced.api("queues/default")
        asked = await traced.executed()
    row, question = [sorted({file for file, _ in new}) for new in (after - before, asked - after)]
    print(  # noqa: T201  # the figures are the purpose
        f"{len(row)} files of a row: {row}\n{len(question)} files of GET /queues/default: {question}"
    )
    assert status == 200
    assert len(row) <= MOST_FILES_OF_A_ROW, row
    assert len(question) <= MOST_FILES_OF_A_QUEUE, question
