"""What the containers of the world do: they follow the contract, and write hostile text."""

import asyncio
from collections.abc import Mapping
from typing import Final

from tests.browser.texts import ERROR, NOTE, SECRET, UNBROKEN
from tests.controlplane.programs import TaskCalls, play_task

TELL: Final = "SELECT dispatch.task_heartbeat($1, $2, $3)"
ERRORS: Final = {"say-html": ERROR, "say-unbroken": UNBROKEN}


async def play(env: Mapping[str, str], calls: TaskCalls) -> int:
    """`SAY`: `say-note`, or one of ERRORS. Without it the container does what `PLAY` says."""
    says = env.get("SAY")
    if says is None:
        return await play_task(env, calls)
    started = await calls.start(env)
    if started is None:
        return 0
    if says == "say-note":
        await calls.database.fetchval(TELL, started.run_token, 0.42, NOTE)
        await asyncio.Event().wait()
    await calls.finish("failed", ERRORS[says], {"result": SECRET})
    return 1
