"""Where an HTTP server of ours listens, and how it leaves off."""

import asyncio
import ssl
from typing import Final

from aiohttp import web

from dispatcher.errors import SettingsError

ALL_INTERFACES: Final = None


async def listen(runner: web.AppRunner, setting: str, address: str, tls: ssl.SSLContext | None = None) -> None:
    """At HOST:PORT, which that setting names; an empty host means every interface. SettingsError: it cannot."""
    host, _, port = address.rpartition(":")
    await runner.setup()
    try:
        await Site(runner, host.strip("[]") or ALL_INTERFACES, int(port), ssl_context=tls).start()
    except OSError as fault:
        raise SettingsError((f"{setting} is {address!r}: {fault}",)) from fault


class Site(web.TCPSite):  # noqa: TID251  # the one place that mends it
    """Whoever was taken before it stops is known to the server, which answers or lets go."""

    async def stop(self) -> None:
        if isinstance(self._server, asyncio.Server):
            await take_nobody_new(self._server)
        await super().stop()


async def take_nobody_new(server: asyncio.Server) -> None:
    """To be awaited before `close`: a connection that was accepted in the same turn of the loop would be lost there
    without being closed, and its client left waiting (https://github.com/python/cpython/issues/109564, open).
    """
    loop = asyncio.get_running_loop()
    for listener in server.sockets:
        loop.remove_reader(listener.fileno())
    await asyncio.sleep(0)  # the turn in which they are made known
