"""Where an HTTP server of ours listens, whom it answers there, and how it leaves off."""

import asyncio
import re
import socket
import ssl
from ipaddress import ip_address
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from dispatcher.model.errors import SettingsError

ALL_INTERFACES: Final = None
OWN_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
HOST: Final = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]+)(?::\d*)?")
"""A name or an address, and a port that may be missing."""


async def listen(runner: web.AppRunner, setting: str, address: str, tls: ssl.SSLContext | None = None) -> None:
    """At HOST:PORT, which that setting names; an empty host means every interface. On loopback it answers only requests
    to a name of this machine. SettingsError: it cannot.
    """
    host, _, port = address.rpartition(":")
    try:
        if await is_loopback(host.strip("[]")):
            runner.app.middlewares.append(answering_to(host))
        await runner.setup()
        await Site(runner, host.strip("[]") or ALL_INTERFACES, int(port), ssl_context=tls).start()
    except OSError as fault:
        raise SettingsError((f"{setting} is {address!r}: {fault}",)) from fault


async def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it. OSError: there is no such host."""
    if not host:
        return False
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return all(ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)


def answering_to(host: str) -> Middleware:
    """A web page can let a name of its own point to loopback (DNS rebinding), and a browser on this
    machine would ask us for it; that name is then the Host of the request.
    """
    names = dict.fromkeys((*OWN_NAMES, host.lower()))

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        asked = request.headers.getall("Host", [])
        if len(asked) != 1 or name_of(asked[0]) not in names:
            told = f"Host is {', '.join(asked)[:100]!r}: this server listens on loopback and answers to"
            raise web.HTTPForbidden(text=f"{told} {', '.join(names)} only\n")
        return await handler(request)

    return answer


def name_of(host: str) -> str:
    """Of a Host header, without its port; empty: it is none."""
    found = HOST.fullmatch(host)
    return found[1].lower() if found else ""


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
