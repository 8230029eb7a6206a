"""An extender on loopback whose answers a test sets. It records its calls.

By default it serves as the protocol needs: idle connections live longer than kube-scheduler keeps them, and bodies may
be large. `Serving` changes that.
"""

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
from aiohttp import web

from dispatcher.runtime.listening import Site
from tests.controlplane.api import Json
from tests.controlplane.processes import free_ports

Answer: TypeAlias = "Json | list[Json] | bytes | web.Response | None"
Reply: TypeAlias = "Callable[[Json], Answer | Awaitable[Answer]]"


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    peer: address of the client; calls of one connection have the same peer.
    at: time of arrival, monotonic seconds.
    size: bytes of the body.
    """

    verb: str
    body: Json
    headers: Mapping[str, str]
    peer: tuple[str, int]
    at: float
    size: int

    @property
    def pod(self) -> str:
        return str(self.body["Pod"]["metadata"]["name"])

    @property
    def names(self) -> list[str]:
        """Names of the nodes in the request, with or without `nodeCacheCapable`."""
        return names_in(self.body)


@dataclass(frozen=True, slots=True)
class Serving:
    """Settings of the server."""

    keep_alive_seconds: float = 300
    most_bytes: int = 16 << 20


def names_in(asked: Json) -> list[str]:
    if asked["NodeNames"] is not None:
        return list(asked["NodeNames"])
    return [node["metadata"]["name"] for node in asked["Nodes"]["items"]]


def pass_all(asked: Json) -> Json:
    """A filter that passes all nodes, with or without `nodeCacheCapable`."""
    return {"NodeNames": asked["NodeNames"], "Nodes": asked["Nodes"]}


def zero(asked: Json) -> list[Json]:
    return [{"Host": name, "Score": 0} for name in names_in(asked)]


def points(**scores: Any) -> Reply:
    """`points(**{node: 3})`: scores of these nodes; other nodes are left out."""
    return lambda asked: [{"Host": name, "Score": score} for name, score in scores.items()]


def refuse(*, into: str, phrase: str = "held for another") -> Reply:
    """A filter that refuses all nodes. `into`: the field of the answer that names them."""
    return lambda asked: {"NodeNames": [], into: dict.fromkeys(asked["NodeNames"], phrase)}


class ScriptedExtender:
    """Passes all nodes with score 0 at first. A test sets `filter`, `prioritize`, `preempt`."""

    def __init__(self, serving: Serving) -> None:
        (self.port,) = free_ports(1)
        self.calls: list[Call] = []
        self.forget()
        self._serving = serving
        self._runner: web.AppRunner | None = None
        self._over = asyncio.Event()

    def forget(self) -> None:
        """Drops the recorded calls and the answers that a test set."""
        self.calls.clear()
        self.filter: Reply = pass_all
        self.prioritize: Reply = zero
        self.preempt: Reply = lambda asked: {"NodeNameToMetaVictims": asked["NodeNameToMetaVictims"]}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def start(self) -> None:
        app = web.Application(client_max_size=self._serving.most_bytes)
        app.router.add_post("/v1/{verb}", self._answer)
        self._over.clear()
        self._runner = web.AppRunner(app, keepalive_timeout=self._serving.keep_alive_seconds, shutdown_timeout=1)
        await self._runner.setup()
        await Site(self._runner, "127.0.0.1", self.port).start()

    async def stop(self) -> None:
        """Ends hanging calls and closes the server."""
        self._over.set()
        assert self._runner is not None
        await self._runner.cleanup()

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """Stops the server, and starts it again at the exit."""
        await self.stop()
        try:
            yield
        finally:
            await self.start()

    async def hang(self, asked: Json) -> Answer:
        """A reply that comes only when the server stops."""
        await self._over.wait()
        return None

    async def hang_up(self, asked: Json) -> Answer:
        """Closes every connection; this call gets no answer."""
        assert self._runner is not None
        assert self._runner.server is not None
        for connection in self._runner.server.connections:
            connection.force_close()
            if connection.transport is not None:
                connection.transport.close()
        return None

    def connections(self) -> int:
        assert self._runner is not None
        assert self._runner.server is not None
        return len(self._runner.server.connections)

    def of(self, verb: str, pod: str | None = None) -> list[Call]:
        return [call for call in self.calls if call.verb == verb and pod in {None, call.pod}]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        sent = await request.read()
        verb, peer = request.match_info["verb"], request.transport.get_extra_info("peername")  # type: ignore[union-attr]  # a request that was read has one
        body = msgspec.json.decode(sent, type=Json)
        self.calls.append(Call(verb, body, request.headers, peer[:2], time.monotonic(), len(sent)))
        reply: Reply = getattr(self, verb)
        said = reply(body)
        made = await said if inspect.isawaitable(said) else said
        if isinstance(made, web.Response):
            return made
        whole = made if isinstance(made, bytes) else msgspec.json.encode(made)
        return web.Response(body=whole, content_type="application/json")


@asynccontextmanager
async def scripted_extender(serving: Serving | None = None) -> AsyncIterator[ScriptedExtender]:
    made = ScriptedExtender(serving or Serving())
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
