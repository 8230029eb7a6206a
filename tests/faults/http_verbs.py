"""The faults of the HTTP proxy: what a rule does with a request."""

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
    """Does not forward the request, and breaks the connection."""
    exchange.hit()
    return exchange.cut()


async def drop_after(exchange: Exchange) -> web.StreamResponse:
    """Forwards the request, drops the answer, and breaks the connection."""
    answer = await exchange.forward()
    exchange.hit(answer.status)
    return exchange.cut()


def hold(gate: Gate) -> Verb:
    """Forwards the request when the gate opens, even if the client has given up."""

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
    """The proxy answers instead of the server. `body`: JSON, or bytes; without it a Status."""
    said = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code} if body is None else body
    content = said if isinstance(said, bytes) else json.dumps(said).encode()

    async def verb(exchange: Exchange) -> web.StreamResponse:
        exchange.hit(code)
        return web.Response(
            status=code, body=content, headers={"Content-Type": "application/json"} | dict(headers or {})
        )

    return verb


def freeze(gate: Gate, after: int = 0) -> Verb:
    """A watch passes `after` events and then nothing. Other requests are not answered. The open gate breaks them."""

    async def verb(exchange: Exchange) -> web.StreamResponse:
        if exchange.asked.verb == "watch":
            await tell_some(exchange, after)
        exchange.hit()
        await gate.passed(exchange.client_gone)
        return exchange.cut()

    return verb


gone = status(410, EXPIRED)
"""410 Expired in place of an answer: the resourceVersion is too old."""


def gone_in_stream(after: int = 0) -> Verb:
    """410 Expired as an ERROR event of a watch, after `after` events."""

    async def verb(exchange: Exchange) -> web.StreamResponse:
        await tell_some(exchange, after)
        await exchange.tell(json.dumps({"type": "ERROR", "object": EXPIRED}).encode() + b"\n")
        exchange.hit()
        return await exchange.told()

    return verb


async def tell_some(exchange: Exchange, count: int) -> None:
    """Passes `count` events of a watch. With 0 the server is not asked."""
    if not count:
        await exchange.tell(b"")
        return
    told = 0
    async with aclosing(exchange.events()) as lines:
        async for line in lines:
            await exchange.tell(line)
            told += is_object_event(line)
            if told == count:
                return


def drop_event(k: int) -> Verb:
    """Drops every k-th event, counted over all watches of the rule. Bookmarks are passed on."""
    numbers = itertools.count(1)

    async def verb(exchange: Exchange) -> web.StreamResponse:
        async for line in exchange.events():
            if is_object_event(line) and next(numbers) % k == 0:
                exchange.hit(line[:20])
            else:
                await exchange.tell(line)
        return await exchange.told()

    return verb


def lag(seconds: float) -> Verb:
    """Delays every line of a watch by `seconds`. The order is kept, and the queue of lines is unbounded."""

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


def is_object_event(line: bytes) -> bool:
    return not line.startswith((b'{"type":"BOOKMARK"', b'{"type":"ERROR"'))


class Tape:
    """Records the first answer of each read, and replays it."""

    def __init__(self) -> None:
        self._answers: dict[str, Answer] = {}

    async def record(self, exchange: Exchange) -> web.StreamResponse:
        """A verb: passes the request on and keeps the first answer."""
        answer = await exchange.forward()
        self._answers.setdefault(exchange.request.raw_path, answer)
        exchange.hit(answer.status)
        return answer.response()

    async def replay(self, exchange: Exchange) -> web.StreamResponse:
        """A verb: answers with the recorded answer, an earlier state of the cluster."""
        answer = self._answers[exchange.request.raw_path]
        exchange.hit(answer.status)
        return answer.response()
