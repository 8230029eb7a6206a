"""The program as a shell starts it, and its exit codes."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import NamedTuple

DONE, COULD_NOT, WRONG = 0, 1, 2
NOWHERE = "postgresql://somebody:hush@127.0.0.1:1/rows"


class Answer(NamedTuple):
    """Exit status, output and errors of a command."""

    status: int
    out: str
    err: str


async def dispatcher(*arguments: str, **settings: str) -> Answer:
    """Runs `dispatcher ARGUMENTS` with only these settings; `IMAGE="x"` stands for DISPATCHER_IMAGE=x."""
    environ = {"PATH": os.environ["PATH"], **{f"DISPATCHER_{name}": setting for name, setting in settings.items()}}
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "dispatcher", *arguments),
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await child.communicate()
    assert child.returncode is not None
    assert b"Traceback" not in err
    return Answer(child.returncode, out.decode(), err.decode())
