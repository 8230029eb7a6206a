"""What a rule of the HTTP proxy does in place of passing a request on."""

import asyncio
import itertools
import json
import time
from collections.abc import Mapping
from contextlib import aclosing

from aiohttp import web

from tests.controlplane.waiting import moment
from tests.faults.http_proxy import Answer, Exchange, Verb, pass_on
from tests.faults.rules import Gate

EXPIRED = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410,
           "message": "too old resource version"}  # fmt: skip


async def drop_before(exchange: Exchange) -> web.StreamResponse:
    """Never forwarded; the connection breaks."""
    exchange.hit()
    return exchange.cut()


async def drop_after(exchange: Exchange) -> web.StreamResponse:
    """The server did it; its answer is thrown away and the connection breaks."""
    answer = await exchange.forward()
    exchange.hit(answer.status)
    return exchange.cut()


def delay(seconds: float) -> Verb:
    """Forwarded late."""

    async def verb(exchange: Exchange) -> web.StreamResponse:
        await moment(seconds)
        exchange.hit()
        return await pass_on(exchange)

    return verb


def hold(gate: Gate) -> Verb:
    """Forwarded when the gate opens, and then for sure: also when the client has long given up."""

    async def verb(exchange: Exchange) -> web.StreamResponse:
        await gate.passed(exchange.client_gone)
        if exchange.asked.verb == "watch":
            exchange.hit()
            return await pass_on(exchange)
        answer = await exchange.forward()
        exchange.hit(answer.status)
        return answer.response()

    return verb


def status(code: int, body: object = None, headers: Mapping[str, str] | None = None) -> Verb:
    """Answered by the proxy in the server's place; `body` is JSON (a Status if left out), or bytes as they are."""
    said = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code} if body is None else body
    content = said if isinstance(said, bytes) else json.dumps(said).encode()

    async def verb(exchange: Exchange) -> web.StreamResponse:
        exchange.hit(code)
        return web.Response(
            status=code, body=content, headers={"Content-Type": "application/json"} | dict(headers or {})
        )

    return verb


async def truncate(exchange: Exchange) -> web.StreamResponse:
    """Half of the body, under the length of the whole, or half of a watch's first line; then the connection breaks."""
    if exchange.asked.verb == "watch":
        async with aclosing(exchange.events()) as lines:
            line = await anext(lines)
        await exchange.tell(line[: len(line) // 2])
        exchange.hit()
        return exchange.cut()
    answer = await exchange.forward()
    half = web.StreamResponse(status=answer.status, headers=answer.headers)
    half.content_length = len(answer.body)
    await half.prepare(exchange.request)
    await half.write(answer.body[: len(answer.body) // 2])
    exchange.hit(answer.status)
    exchange.cut()
    return half


def freeze(gate: Gate, after: int = 0) -> Verb:
    """A watch tells `after` events and then nothing, any other request is not answered; the gate breaks them."""

    async def verb(exchange: Exchange) -> web.StreamResponse:
        if exchange.asked.verb == "watch":
            await tell_some(exchange, after)
        exchange.hit()
        await gate.passed(exchange.client_gone)
        return exchange.cut()

    return verb


gone = status(410, EXPIRED)
"""The place to watch or to list from is too old, as the server says it before a stream begins."""


def gone_in_stream(after: int = 0) -> Verb:
    """The same, as it is said within a stream."""

    async def verb(exchange: Exchange) -> web.StreamResponse:
        await tell_some(exchange, after)
        await exchange.tell(json.dumps({"type": "ERROR", "object": EXPIRED}).encode() + b"\n")
        exchange.hit()
        return await exchange.told()

    return verb


async def tell_some(exchange: Exchange, count: int) -> None:
    """So many events of a watch; with 0 the server is not even asked."""
    if not count:
        await exchange.tell(b"")
        return
    told = 0
    async with aclosing(exchange.events()) as lines:
        async for line in lines:
            await exchange.tell(line)
            told += is_news(line)
            if told == count:
                return


def drop_event(k: int) -> Verb:
    """Swallows every k-th event of the watches it is given, counted over all of them; bookmarks come through."""
    numbers = itertools.count(1)

    async def verb(exchange: Exchange) -> web.StreamResponse:
        async for line in exchange.events():
            if is_news(line) and next(numbers) % k == 0:
                exchange.hit(line[:20])
            else:
                await exchange.tell(line)
        return await exchange.told()

    return verb


def lag(seconds: float) -> Verb:
    """Every line of a watch comes so much later, in its order; their number is not limited by it."""

    async def verb(exchange: Exchange) -> web.StreamResponse:
        lines: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def hear() -> None:
            try:
                async for line in exchange.events():
                    lines.put_nowait((time.monotonic() + seconds, line))
            finally:
                lines.put_nowait((time.monotonic() + seconds, b""))

        hearing = asyncio.create_task(hear())
        try:
            while line := await late(lines):
                exchange.hit(line[:20])
                await exchange.tell(line)
        finally:
            hearing.cancel()
        return await exchange.told()

    return verb


async def late(lines: "asyncio.Queue[tuple[float, bytes]]") -> bytes:
    due, line = await lines.get()
    await moment(max(0, due - time.monotonic()))
    return line


def is_news(line: bytes) -> bool:
    return not line.startswith((b'{"type":"BOOKMARK"', b'{"type":"ERROR"'))


class Tape:
    """Answers to reads, kept to be played again: the first one of each request."""

    def __init__(self) -> None:
        self._answers: dict[str, Answer] = {}

    async def record(self, exchange: Exchange) -> web.StreamResponse:
        """A verb: passes on, and keeps."""
        answer = await exchange.forward()
        self._answers.setdefault(exchange.request.raw_path, answer)
        exchange.hit(answer.status)
        return answer.response()

    async def replay(self, exchange: Exchange) -> web.StreamResponse:
        """A verb: time travel, to the world as it was recorded."""
        answer = self._answers[exchange.request.raw_path]
        exchange.hit(answer.status)
        return answer.response()
