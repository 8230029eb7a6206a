"""An extender on loopback whose answers a test sets. It records its calls.

It serves as the protocol needs: idle connections live longer than kube-scheduler keeps them, and bodies may be large.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec
from aiohttp import web

from tests.controlplane.api import Json
from tests.rig.loopback import on_loopback

Answer: TypeAlias = "Json | list[Json] | bytes | web.Response | None"
KEEP_ALIVE_SECONDS = 300
LARGEST = 16 << 20
Reply: TypeAlias = "Callable[[Json], Answer | Awaitable[Answer]]"


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    peer: address of the client; calls of one connection have the same peer.
    size: bytes of the body.
    """

    verb: str
    body: Json
    headers: Mapping[str, str]
    peer: tuple[str, int]
    size: int

    @property
    def pod(self) -> str:
        return str(self.body["Pod"]["metadata"]["name"])

    @property
    def names(self) -> list[str]:
        """Names of the nodes in the request, with or without `nodeCacheCapable`."""
        return names_in(self.body)


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


def refuse(*, into: str) -> Reply:
    """A filter that refuses all nodes. `into`: the field of the answer that names them."""
    return lambda asked: {"NodeNames": [], into: dict.fromkeys(asked["NodeNames"], "held for another")}


class ScriptedExtender:
    """Passes all nodes with score 0 at first. A test sets `filter`, `prioritize`, `preempt`."""

    def __init__(self) -> None:
        self.url = ""
        self.calls: list[Call] = []
        self.is_over = asyncio.Event()
        self.forget()

    def forget(self) -> None:
        """Drops the recorded calls and the answers that a test set."""
        self.calls.clear()
        self.filter: Reply = pass_all
        self.prioritize: Reply = zero
        self.preempt: Reply = lambda asked: {"NodeNameToMetaVictims": asked["NodeNameToMetaVictims"]}

    async def hang(self, asked: Json) -> Answer:
        """A reply that comes only when the server stops."""
        await self.is_over.wait()
        return None

    async def hang_up(self, asked: Json) -> Answer:
        """Closes the connection; this call gets no answer."""
        self._connection.close()
        return None

    def of(self, verb: str, pod: str | None = None) -> list[Call]:
        return [call for call in self.calls if call.verb == verb and pod in {None, call.pod}]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        sent = await request.read()
        assert request.transport is not None
        self._connection = request.transport
        verb, peer = request.match_info["verb"], request.transport.get_extra_info("peername")
        body = msgspec.json.decode(sent, type=Json)
        self.calls.append(Call(verb, body, request.headers, peer[:2], len(sent)))
        reply: Reply = getattr(self, verb)
        said = reply(body)
        made = await said if inspect.isawaitable(said) else said
        if isinstance(made, web.Response):
            return made
        whole = made if isinstance(made, bytes) else msgspec.json.encode(made)
        return web.Response(body=whole, content_type="application/json")


@asynccontextmanager
async def scripted_extender() -> AsyncIterator[ScriptedExtender]:
    made = ScriptedExtender()
    app = web.Application(client_max_size=LARGEST)
    app.router.add_post("/v1/{verb}", made.answer)
    async with on_loopback(app, keepalive_timeout=KEEP_ALIVE_SECONDS) as address:
        made.url = f"http://{address}/v1"
        try:
            yield made
        finally:
            made.is_over.set()
