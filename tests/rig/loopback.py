"""A server of a test, on a free port of loopback."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from dispatcher.runtime.health import Site


@asynccontextmanager
async def on_loopback(app: web.Application, **options: Any) -> AsyncIterator[str]:
    """Serves the application until the block ends. Yields `HOST:PORT`. `options`: of the AppRunner."""
    runner = web.AppRunner(app, access_log=None, **{"shutdown_timeout": 1, **options})
    await runner.setup()
    await Site(runner, "127.0.0.1", 0).start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
