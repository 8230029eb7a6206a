"""Programs of task authors under test: real processes with `dispatcher.task`, by each of its drivers."""

from __future__ import annotations

import sys
from contextlib import AbstractAsyncContextManager
from textwrap import dedent
from typing import NamedTuple

import pytest

from tests.controlplane.waiting import wait_for
from tests.rig.execing import Ended, Wrapper, wrapped
from tests.rig.rows import Row

BEAT_SECONDS = 0.1
BEGINNING = """
import os, sys
for hidden in {hidden!r}:
    sys.modules[hidden] = None
from dispatcher.task import Failed, Task, task
from dispatcher.container.contract import read_contract
assert {driver!r} in sys.modules

def quick():
    return Task(read_contract(os.environ), {beat})

def say(*words):
    print(*words, flush=True)

def waits(is_true):
    import time
    while not is_true():
        time.sleep(0.01)
"""
UNTIL_TOLD = "say('begun'); sys.stdin.readline()"


class Library(NamedTuple):
    """The library with one of its drivers. The other is not there."""

    driver: str

    def program(self, body: str) -> tuple[str, ...]:
        hidden = sorted({"asyncpg", "psycopg"} - {self.driver})
        beginning = BEGINNING.format(hidden=hidden, driver=self.driver, beat=BEAT_SECONDS)
        return (sys.executable, "-W", "error", "-c", beginning + dedent(body))

    def runs(self, row: Row, body: str, **how: object) -> AbstractAsyncContextManager[Wrapper]:
        """`quick()` in the body is `task()` with ten heartbeats a second."""
        return wrapped(row, program=self.program(body), **how)  # type: ignore[arg-type]  # handed through as it came

    async def run(self, row: Row, body: str, **how: object) -> Ended:
        async with self.runs(row, body, **how) as wrapper:
            return await wrapper.has_ended(is_traced=True)


@pytest.fixture(params=["asyncpg", "psycopg"])
def either_library(request: pytest.FixtureRequest) -> Library:
    return Library(request.param)


async def is_beating(row: Row) -> None:
    """Waits for a heartbeat after this moment."""
    before = (await row.now())["heartbeat_at"]

    async def has_beaten() -> bool:
        return bool((await row.now())["heartbeat_at"] > before)

    await wait_for(has_beaten, "a heartbeat")
