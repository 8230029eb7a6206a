"""A proxy between a client and the API server that injects faults of networks and servers into requests.

The client side is plain HTTP on loopback, so that a kubeconfig needs no certificate. The server side is HTTPS. The
proxy forwards requests unchanged, with their token. It forwards a request that it has read even when the client has
given up, as on a real network. A watch ends with its client.

`http_verbs` has the faults. A request that matches no rule is passed on.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Self, TypeAlias

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

from dispatcher.runtime.health import Site
from tests.faults.rules import Rule, Rules, Turns, always

Matches: TypeAlias = "Callable[[Asked], bool]"
Verb: TypeAlias = "Callable[[Exchange], Awaitable[web.StreamResponse]]"

LINE_BYTES = 4 << 20  # a line of a watch is a whole object
OF_ONE_HOP = frozenset({"connection", "content-encoding", "content-length", "host", "keep-alive", "transfer-encoding"})
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True)
class Asked:
    """A request, described by verb, resource and name of Kubernetes."""

    method: str
    path: str
    query: Mapping[str, str]
    body: bytes = b""

    @property
    def verb(self) -> str:
        if self.method != "GET":
            return VERBS.get(self.method, self.method.lower())
        if self.query.get("watch") in {"1", "true"}:
            return "watch"
        return "get" if self._place[1] else "list"

    @property
    def resource(self) -> str:
        """`jobs`, or `pods/status` for a subresource. Empty if the path names no resource."""
        named, _, sub = self._place
        return f"{named}/{sub}" if sub else named

    @property
    def name(self) -> str:
        return self._place[1]

    @cached_property
    def _place(self) -> tuple[str, str, str]:
        parts = self.path.strip("/").split("/")
        rest = parts[{"api": 2, "apis": 3}.get(parts[0], len(parts)) :]
        rest = rest[2:] if rest[:1] == ["namespaces"] and len(rest) > 2 else rest
        resource, name, sub = (*rest, "", "", "")[:3]
        return resource, name, sub

    def __str__(self) -> str:
        return f"{self.verb} {self.resource} {self.name}".strip()


def asks(verb: str, resource: str, **query: str) -> Matches:
    """A predicate for rules: `asks("create", "jobs")`, `asks("list", "pods", resourceVersion="0")`."""
    return lambda asked: (
        (asked.verb, asked.resource) == (verb, resource)
        and all(asked.query.get(key) == value for key, value in query.items())
    )


@dataclass(frozen=True)
class Answer:
    """The server's answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def response(self) -> web.Response:
        return web.Response(status=self.status, headers=self.headers, body=self.body)


@dataclass
class Exchange:
    """One request on its way. The argument of a verb."""

    asked: Asked
    rule: Rule[Asked, Verb] | None
    request: web.Request
    client_gone: asyncio.Event
    send: Callable[[web.Request, bytes], "contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]"]
    _stream: web.StreamResponse | None = field(default=None)

    def hit(self, words: object = "") -> None:
        """Counts the fault as done."""
        assert self.rule is not None, "only a rule's verb has a fault to count"
        self.rule.hit(f"{self.asked} {words}".strip())

    async def forward(self) -> Answer:
        """Forwards the request and returns the server's answer."""
        async with self.send(self.request, self.asked.body) as answer:
            return Answer(answer.status, kept(answer.headers), await answer.read())

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The lines of an accepted watch. A refusal is passed to the client, and there are no lines."""
        async with self.send(self.request, b"") as answer:
            await self._accept(answer.status, kept(answer.headers))
            async for line in answer.content:
                if answer.status == 200:
                    yield line
                else:
                    await self.tell(line)

    async def tell(self, line: bytes) -> None:
        """Sends one line of the stream, or a part of a line, to the client."""
        if self._stream is None:
            await self._accept(200, {"Content-Type": "application/json"})
        assert self._stream is not None
        await self._stream.write(line)

    async def told(self) -> web.StreamResponse:
        """Ends the stream as the server does when the watch's timeout is over."""
        assert self._stream is not None
        await self._stream.write_eof()
        return self._stream

    async def _accept(self, status: int, headers: Mapping[str, str]) -> None:
        self._stream = web.StreamResponse(status=status, headers=headers)
        await self._stream.prepare(self.request)

    def cut(self) -> web.StreamResponse:
        """Breaks the connection. The client gets no answer, or only the part sent so far."""
        if self.request.transport is not None:
            self.request.transport.abort()
        return self._stream or web.Response()


def kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in OF_ONE_HOP}


async def pass_on(exchange: Exchange) -> web.StreamResponse:
    """The verb without a fault: forwards the request and its answer."""
    if exchange.asked.verb != "watch":
        return (await exchange.forward()).response()
    async for line in exchange.events():
        await exchange.tell(line)
    return await exchange.told()


class KubeProxy:
    """Use with `async with`, add rules, and give a client the address `url`."""

    def __init__(self, server_url: str, ca_file: Path | None) -> None:
        self.url = ""
        self.rules: Rules[Asked, Verb] = Rules()
        self.faults: list[BaseException] = []
        self._server_url = server_url
        self._tls = ssl.create_default_context(cafile=ca_file) if ca_file else True
        self._work: set[asyncio.Task[web.StreamResponse]] = set()

    def add(self, verb: Verb, matches: Matches, turns: Turns = always, name: str = "") -> Rule[Asked, Verb]:
        """Adds a rule and returns it. A test asserts on its `hits`."""
        return self.rules.add(verb, matches, turns, name)

    def kubeconfig(self, original: Path) -> Path:
        """Path of a kubeconfig with the same login and this proxy's address, in the folder of the original."""
        config = yaml.safe_load(original.read_text())
        config["clusters"][0]["cluster"] = {"server": self.url}
        path = original.with_name(f"{original.name}-{self.url.rpartition(':')[2]}")
        path.write_text(yaml.safe_dump(config))
        path.chmod(0o600)
        return path

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls, keepalive_timeout=60)
        endless = aiohttp.ClientTimeout(total=None, connect=10)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=endless, read_bufsize=LINE_BYTES, auto_decompress=False
        )
        # aiohttp itself would repeat a DELETE on a broken connection. Each request here must be one of a client.
        self._session._retry_connection = False
        app = web.Application(client_max_size=LINE_BYTES)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await Site(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        for work in list(self._work):
            work.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        await self._runner.cleanup()
        await self._session.close()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = Asked(request.method, request.path, dict(request.query), await request.read())
        rule = self.rules.of(asked)
        exchange = Exchange(asked, rule, request, asyncio.Event(), self._send)
        work = asyncio.create_task(self._carry_out(exchange, rule.verb if rule else pass_on))
        self._work.add(work)
        work.add_done_callback(self._over)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:  # the client has disconnected
            exchange.client_gone.set()
            if asked.verb == "watch":
                work.cancel()
            raise

    async def _carry_out(self, exchange: Exchange, verb: Verb) -> web.StreamResponse:
        try:
            return await verb(exchange)
        except (aiohttp.ClientError, ConnectionError, TimeoutError):  # client or server is away
            return exchange.cut()

    def _over(self, work: "asyncio.Task[web.StreamResponse]") -> None:
        self._work.discard(work)
        if not work.cancelled() and (fault := work.exception()) is not None:
            self.faults.append(fault)

    @contextlib.asynccontextmanager
    async def _send(self, request: web.Request, body: bytes) -> AsyncIterator[aiohttp.ClientResponse]:
        url = URL(self._server_url + request.raw_path, encoded=True)
        headers = kept(request.headers)
        async with self._session.request(
            request.method, url, data=body or None, headers=headers, allow_redirects=False
        ) as answer:
            yield answer
