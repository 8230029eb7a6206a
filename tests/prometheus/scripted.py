"""A server that answers in place of a Prometheus: as a broken one, or as something else."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from aiohttp import web

from tests.controlplane.waiting import moment
from tests.rig.loopback import on_loopback

Answer: TypeAlias = "Callable[[Scripted, web.Request], Awaitable[web.StreamResponse]]"
CHUNK = b" " * 65536
LARGEST_SENT = 64 * 2**20
GOOD = '{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1763769600.25,"%s"]}]}}'


@dataclass
class Scripted:
    """A server with one answer.

    asked: path and query of each request, in order.
    sent: bytes sent so far of a body that is too large.
    broken: an exception that the answer function raised.
    """

    url: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)
    sent: int = 0
    broken: Exception | None = None


def says(text: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    async def answer(script: Scripted, request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=text, headers=headers)

    return answer


def zipped(content: bytes) -> Answer:
    """An answer whose header says that the body is compressed."""

    async def answer(script: Scripted, request: web.Request) -> web.StreamResponse:
        return web.Response(body=content, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})

    return answer


def bomb() -> Answer:
    return zipped(gzip.compress(b" " * LARGEST_SENT, 1))


async def reset(script: Scripted, request: web.Request) -> web.StreamResponse:
    """Resets the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def cut(script: Scripted, request: web.Request) -> web.StreamResponse:
    """Resets the connection in the middle of an answer."""
    stream = web.StreamResponse(headers={"Content-Length": "1000"})
    await stream.prepare(request)
    await stream.write(b'{"status":"success",')
    return await reset(script, request)


async def silent(script: Scripted, request: web.Request) -> web.StreamResponse:
    """Accepts the request and never answers."""
    await asyncio.Event().wait()
    return web.Response()


async def endless(script: Scripted, request: web.Request) -> web.StreamResponse:
    """Begins an answer, sends one more byte at each moment, and never ends it."""
    stream = web.StreamResponse()
    await stream.prepare(request)
    while True:
        await stream.write(b" ")
        await moment()


async def enormous(script: Scripted, request: web.Request) -> web.StreamResponse:
    """Sends a body of LARGEST_SENT bytes, unless the client closes the connection before."""
    stream = web.StreamResponse()
    await stream.prepare(request)
    while script.sent < LARGEST_SENT:
        await stream.write(CHUNK)  # raises when the client has closed the connection
        script.sent += len(CHUNK)
    return stream


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[Scripted]:
    """Runs a server with this one answer."""
    script = Scripted()

    async def handle(request: web.Request) -> web.StreamResponse:
        script.asked.append((request.path, str((await request.post()).get("query", ""))))
        try:
            return await answer(script, request)
        except ConnectionError:
            raise  # the client has closed the connection
        except Exception as fault:  # aiohttp would answer with 500, as if the test wanted it
            script.broken = fault
            raise

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    async with on_loopback(app, shutdown_timeout=0.1, handler_cancellation=True) as address:
        script.url = f"http://{address}"
        yield script
    assert script.broken is None, script.broken
