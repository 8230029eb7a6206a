"""`dispatcher try -- CMD…` under test: the real program, without a database."""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from tests.controlplane.waiting import wait_for
from tests.rig.execing import Ended, Wrapper, started

TRY = (sys.executable, "-m", "dispatcher", "try")


class Tried(NamedTuple):
    """The end of `try --json`."""

    ended: Ended
    told: dict[str, Any]


@asynccontextmanager
async def tried(*words: str, **environ: object) -> AsyncIterator[Wrapper]:
    """Runs `dispatcher try WORDS…`."""
    async with started((*TRY, *words), {"PATH": os.environ["PATH"], **environ}) as wrapper:
        yield wrapper


async def run_try(*words: str, **environ: object) -> Ended:
    async with tried(*words, **environ) as wrapper:
        return await wrapper.has_ended()


async def try_json(*words: str) -> Tried:
    return read_told(await run_try("--json", *words))


def read_told(ended: Ended) -> Tried:
    return Tried(ended, json.loads(ended.out))


async def says(wrapper: Wrapper, words: str) -> None:
    """Waits until the program or its command has written the words, to stdout or stderr."""
    said = words.encode()
    await wait_for(lambda: said in wrapper.out + wrapper.err, f"{words!r} is said", 30, check=wrapper.check)
