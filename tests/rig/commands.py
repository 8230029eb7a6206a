"""Commands of ours, as people run them in the dispatcher's Pod."""

import asyncio
import sys

from tests.rig.dispatching import Dispatcher


async def command(dispatcher: Dispatcher, *arguments: object) -> tuple[int, str]:
    """Runs `dispatcher ARGUMENTS…`. Returns exit status and output."""
    child = await started(dispatcher, *arguments)
    said = (await child.communicate())[0].decode()
    assert child.returncode is not None
    return child.returncode, said


async def says(child: asyncio.subprocess.Process, words: str, seconds: float = 60) -> str:
    """What a command prints, up to the line with these words."""
    assert child.stdout is not None
    said = ""
    async with asyncio.timeout(seconds):
        while words not in said:
            line = await child.stdout.readline()
            assert line, f"it ended without {words!r}: {said}"
            said += line.decode()
    return said


async def started(dispatcher: Dispatcher, *arguments: object) -> asyncio.subprocess.Process:
    """Starts `dispatcher ARGUMENTS…`, with its output in a pipe."""
    address = {"DISPATCHER_DASHBOARD_ADDRESS": f"127.0.0.1:{dispatcher.api_port}", "DISPATCHER_LOG_LEVEL": "error"}
    address["HOME"] = "/nonexistent"  # a kubeconfig of this machine would lead elsewhere
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dispatcher", *map(str, arguments), env=address,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
