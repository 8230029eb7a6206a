"""What answers in place of a Prometheus, and is none, or a broken one."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from aiohttp import web

from dispatcher.runtime.listening import Site
from tests.controlplane.waiting import moment

Answer: TypeAlias = "Callable[[Scripted, web.Request], Awaitable[web.StreamResponse]]"
CHUNK = b" " * 65536
LARGEST_SENT = 64 * 2**20
GOOD = '{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1763769600.25,"%s"]}]}}'


@dataclass
class Scripted:
    """`asked`: path and query of each request, in order; `sent`: bytes of a body that is too large."""

    url: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)
    sent: int = 0
    broken: Exception | None = None


def says(text: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Answer:
    async def answer(script: Scripted, request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=text, headers=headers)

    return answer


def zipped(content: bytes) -> Answer:
    """A body that says of itself that it is compressed."""

    async def answer(script: Scripted, request: web.Request) -> web.StreamResponse:
        return web.Response(body=content, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})

    return answer


def bomb() -> Answer:
    return zipped(gzip.compress(b" " * LARGEST_SENT, 1))


async def reset(script: Scripted, request: web.Request) -> web.StreamResponse:
    """Breaks the connection off without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def cut(script: Scripted, request: web.Request) -> web.StreamResponse:
    """Breaks it off in the midst of one."""
    stream = web.StreamResponse(headers={"Content-Length": "1000"})
    await stream.prepare(request)
    await stream.write(b'{"status":"success",')
    return await reset(script, request)


async def silent(script: Scripted, request: web.Request) -> web.StreamResponse:
    """Takes the question and never says a word."""
    await asyncio.Event().wait()
    return web.Response()


async def endless(script: Scripted, request: web.Request) -> web.StreamResponse:
    """Begins an answer, says a little more every moment, and never comes to its end."""
    stream = web.StreamResponse()
    await stream.prepare(request)
    while True:
        await stream.write(b" ")
        await moment()


async def enormous(script: Scripted, request: web.Request) -> web.StreamResponse:
    """A body that goes on until nobody takes it any more."""
    stream = web.StreamResponse()
    await stream.prepare(request)
    while script.sent < LARGEST_SENT:
        await stream.write(CHUNK)  # raises when the client has hung up
        script.sent += len(CHUNK)
    return stream


@asynccontextmanager
async def answering(answer: Answer) -> AsyncIterator[Scripted]:
    """A server that has only this answer."""
    script = Scripted()

    async def handle(request: web.Request) -> web.StreamResponse:
        script.asked.append((request.path, str((await request.post()).get("query", ""))))
        try:
            return await answer(script, request)
        except ConnectionError:
            raise  # the client has gone
        except Exception as fault:  # it would be a 500, and look like an answer
            script.broken = fault
            raise

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None, handler_cancellation=True)
    await runner.setup()
    await Site(runner, "127.0.0.1", 0).start()
    script.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield script
    finally:
        await runner.cleanup()
    assert script.broken is None, script.broken
