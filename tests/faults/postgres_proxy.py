"""A proxy between a client and Postgres that injects network faults into statements.

The proxy reads the wire protocol, so a fault can hit the call of one function, before its execution or after its
commit. There is no TLS: the proxy declines it, and a client that requires it fails. A statement that was read is
forwarded even when its client has disconnected.

`postgres_verbs` has the faults. A statement that matches no rule is passed on.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self, TypeAlias
from urllib.parse import urlsplit

from dispatcher.runtime.health import take_nobody_new
from tests.faults import postgres_frames as wire
from tests.faults.postgres_frames import Asked, Frame
from tests.faults.rules import Rule, Rules, Turns, always
from tests.rig.postgres import url_with

Matches: TypeAlias = "Callable[[Asked], bool]"
Verb: TypeAlias = "Callable[[Link], Awaitable[None]]"
BUFFER_BYTES = 1 << 20


def runs(*names: str) -> Matches:
    """A predicate for rules: an executed statement whose SQL contains one of the names."""
    return lambda asked: asked.kind in {"query", "execute"} and any(name in asked.sql for name in names)


def syncs(name: str) -> Matches:
    """A predicate for rules: the Sync after a statement that contains the name. Before it nothing is committed."""
    return lambda asked: asked.kind == "sync" and name in asked.sql


def connects(asked: Asked) -> bool:
    return asked.kind == "connect"


class Link:
    """A client's connection and its connection to the server. The argument of a verb."""

    def __init__(self, proxy: "PostgresProxy", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.client_gone = asyncio.Event()
        self.rule: Rule[Asked, Verb] | None = None
        self.asked = Asked("connect")
        self._proxy = proxy
        self._reader, self._writer = reader, writer
        self._server: asyncio.StreamWriter | None = None
        self._frames: asyncio.Queue[Frame | None] = asyncio.Queue()
        self._statements = wire.Statements()
        self._answering: Callable[[Frame], None] = self.pass_back
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._has_run = self._has_failed = self._is_cut = False

    # Called by verbs

    def hit(self, words: str = "") -> None:
        """Counts the fault as done."""
        assert self.rule is not None, "only a rule's verb has a fault to count"
        self.rule.hit(f"{self.asked} {words}".strip())

    def cut(self, last_words: bytes = b"") -> None:
        """Breaks both connections. The client still gets `last_words`."""
        self._is_cut = True
        if self._server is not None:
            self._server.transport.abort()
        if last_words:
            self._writer.write(last_words)
            self._writer.close()
        else:
            self._writer.transport.abort()
        self.thaw()

    def on_answers(self, answering: Callable[[Frame], None]) -> None:
        """From now on the server's frames go to `answering`, not to the client."""
        self._answering = answering

    def pass_back(self, frame: Frame) -> None:
        """Sends the frame to the client, unless the client has disconnected."""
        if not self._writer.is_closing():
            self._writer.write(frame.encoded())

    def freeze(self) -> None:
        """Stops both directions. The sockets stay open."""
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    # Forwarding

    async def run(self) -> None:
        try:
            if (startup := await self._negotiate()) is None:
                return
            reader, self._server = await asyncio.open_connection(*self._proxy.server, limit=BUFFER_BYTES)
            self._server.write(startup.encoded())
            async with asyncio.TaskGroup() as group:
                group.create_task(self._read_client())
                answers = group.create_task(self._pass_answers(reader))
                await self._pass_questions()
                await answers
        except (asyncio.IncompleteReadError, ConnectionError, OSError):
            pass  # client or server has disconnected
        finally:
            self.cut()

    async def _negotiate(self) -> Frame | None:
        """The client's startup frame; encryption is declined. None if the client only cancels, or was cut."""
        while True:
            code, frame = await wire.read_startup(self._reader)
            if code in {wire.SSL_REQUEST, wire.GSS_REQUEST}:
                self._writer.write(b"N")
                continue
            if code == wire.CANCEL_REQUEST:
                await self._cancel(frame)
                return None
            await self._apply_rule(Asked("connect"))
            return None if self._is_cut else frame

    async def _cancel(self, frame: Frame) -> None:
        _, writer = await asyncio.open_connection(*self._proxy.server)
        writer.write(frame.encoded())
        await writer.drain()
        writer.close()

    async def _read_client(self) -> None:
        """A task of its own, so that the client's disconnect is seen while its statement is held."""
        async for frame in wire.read_frames(self._reader):
            self._frames.put_nowait(frame)
        self.client_gone.set()
        self._frames.put_nowait(None)

    async def _pass_questions(self) -> None:
        assert self._server is not None
        unsent = b""
        while (frame := await self._frames.get()) is not None:
            await self._thawed.wait()
            unsent += frame.encoded()
            asked = self._statements.read(frame)
            if frame.type == wire.BIND:  # sent together with its Execute, or not at all
                continue
            if asked is not None:
                await self._apply_rule(asked)
            if self._is_cut:
                return
            self._server.write(unsent)
            unsent = b""
            await self._server.drain()
        await self._thawed.wait()
        self._server.write_eof()

    async def _apply_rule(self, asked: Asked) -> None:
        """Runs the verb of the first matching rule. The caller passes the frame on unless the link was cut."""
        if (rule := self._proxy.rules.of(asked)) is not None:
            self.rule, self.asked = rule, asked
            await rule.verb(self)
        if asked.kind in {"query", "execute"} and not self._is_cut:
            self._proxy.statements += 1
            self._has_run = True

    async def _pass_answers(self, reader: asyncio.StreamReader) -> None:
        async for frame in wire.read_frames(reader):
            self._count(frame)
            await self._thawed.wait()
            self._answering(frame)
        self._writer.close()

    def _count(self, frame: Frame) -> None:
        self._has_failed |= frame.type == wire.ERROR
        if frame.type == wire.READY:
            self._proxy.commits += self._has_run and not self._has_failed and frame.body == wire.IDLE
            self._has_run = self._has_failed = False


class PostgresProxy:
    """Use with `async with`, add rules, and give a client the address `url(…)`."""

    def __init__(self, server_url: str) -> None:
        self.rules: Rules[Asked, Verb] = Rules()
        self.faults: list[BaseException] = []
        self.statements = 0
        self.commits = 0
        parts = urlsplit(server_url)
        self.server = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._links: dict[asyncio.Task[None], Link] = {}

    def add(self, verb: Verb, matches: Matches, turns: Turns = always, name: str = "") -> Rule[Asked, Verb]:
        """Adds a rule and returns it. A test asserts on its `hits`."""
        return self.rules.add(verb, matches, turns, name)

    def url(self, original: str) -> str:
        """The URL of the same database and login through this proxy."""
        host, port = self._listener.sockets[0].getsockname()[:2]
        return url_with(original, host=f"{host}:{port}")

    def sever(self) -> int:
        """Breaks every connection and returns their number."""
        for link in self._links.values():
            link.cut()
        return len(self._links)

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=BUFFER_BYTES)
        return self

    async def __aexit__(self, *_: object) -> None:
        await take_nobody_new(self._listener)
        self._listener.close()
        self.sever()
        for work in list(self._links):
            work.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(self, reader, writer)
        work = asyncio.create_task(link.run())
        self._links[work] = link
        work.add_done_callback(self._over)

    def _over(self, work: asyncio.Task[None]) -> None:
        del self._links[work]
        if not work.cancelled() and (fault := work.exception()) is not None:
            self.faults.append(fault)
