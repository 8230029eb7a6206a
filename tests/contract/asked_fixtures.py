"""The fixture `attacked` is our extender in the process of the tests, on a port of its own.

It is started as the program starts it, but its clock stands: no answer is late, however busy the machine is.
A module gets it by `pytest_plugins = ["tests.contract.asked_fixtures"]`.
"""

from collections.abc import AsyncIterator

import aiohttp
import pytest_asyncio
from aiohttp import web

from dispatcher.extender.program import KEEP_ALIVE_SECONDS, Tls
from dispatcher.extender.server import Extender
from dispatcher.runtime.health import listen
from dispatcher.settings.loading import load
from tests.contract.asked import Asked
from tests.contract.bodies import ROOMS
from tests.rig.unreserved import unreserved_filter


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server() -> AsyncIterator[Asked]:
    settings = load({"DISPATCHER_EXTENDER_ADDRESS": "127.0.0.1:0"}, str).settings.extender
    runner = web.AppRunner(
        Extender(ROOMS, unreserved_filter(), lambda: 0.0).app(),
        access_log=None,
        keepalive_timeout=KEEP_ALIVE_SECONDS,
        shutdown_timeout=1,
    )
    await listen(runner, "DISPATCHER_EXTENDER_ADDRESS", settings.address, Tls(settings).context)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
        yield Asked(runner.addresses[0][1], session)
    await runner.cleanup()


@pytest_asyncio.fixture(loop_scope="session")
async def attacked(server: Asked) -> AsyncIterator[Asked]:
    """The extender; it answers well before and after each test."""
    await server.answers_well()
    yield server
    await server.answers_well()
