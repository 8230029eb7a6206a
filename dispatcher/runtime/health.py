"""Health of a program over HTTP (`/healthz`, `/readyz`, `/metrics`), and start and end of every HTTP server of ours.

Ready means that the program can do its work. Each request asks every check, and the body names what is missing. Alive
means only that the event loop runs, which any answer proves. A missing database must not cause a restart: a restart
would not bring it back, and would lose the caches.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from ipaddress import ip_address
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dispatcher.model.errors import SettingsError
from dispatcher.runtime.clock import Clock, elapsed
from dispatcher.runtime.metrics import READY

ALL_INTERFACES: Final = None
OWN_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")
HOST: Final = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]+)(?::\d*)?")
"""A name or an address, with or without a port."""


async def listen(
    runner: web.AppRunner,
    setting: str,
    address: str,
    tls: ssl.SSLContext | None = None,
    names: Sequence[str] | None = None,
) -> None:
    """Listens at `address` (HOST:PORT), the value of `setting`. An empty host means every interface.

    On loopback the server answers only requests to a name of this machine. `names`: further names; if they are given,
    the rule holds at every address. Raises SettingsError if it cannot listen.
    """
    host, _, port = address.rpartition(":")
    try:
        if await is_loopback(host.strip("[]")) or names is not None:
            runner.app.middlewares.append(answering_to(host, *(names or ())))
        await runner.setup()
        await Site(runner, host.strip("[]") or ALL_INTERFACES, int(port), ssl_context=tls).start()
    except OSError as fault:
        raise SettingsError((f"{setting} is {address!r}: {fault}",)) from fault


async def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the host. Raises OSError if there is no such host."""
    if not host:
        return False
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return all(ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)


def answering_to(*hosts: str) -> Middleware:
    """Middleware that refuses requests to other hosts than `hosts` and loopback names. It stops DNS rebinding.

    A web page can let its own name point to loopback. A browser on this machine then sends us the page's requests, with
    that name as Host.
    """
    names = dict.fromkeys((*OWN_NAMES, *(host.lower() for host in hosts if host)))

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        asked = request.headers.getall("Host", [])
        if len(asked) != 1 or name_of(asked[0]) not in names:
            told = f"Host is {', '.join(asked)[:100]!r}: this server answers to"
            raise web.HTTPForbidden(text=f"{told} {', '.join(names)} only\n")
        return await handler(request)

    return answer


def name_of(host: str) -> str:
    """The name in a Host header, without its port; empty if the header is invalid."""
    found = HOST.fullmatch(host)
    return found[1].lower() if found else ""


class BoundedRunner(web.AppRunner):
    """A runner whose server keeps at most `most` connections, 2 or more. A further connection closes the oldest one.

    Nothing else ends a connection that sends half a request. Without a bound, a client that opens very many of them
    would leave no file descriptor for the database and the API server.
    """

    def __init__(self, app: web.Application, most: int, **more: Any) -> None:
        super().__init__(app, **more)
        self._most = most

    @property
    def server(self) -> Any:
        """Returns the factory that makes the protocol of a new connection."""
        server = super().server
        return None if server is None else partial(self._connect, server)

    def _connect(self, server: web.Server) -> asyncio.Protocol:
        for oldest in server.connections[: 1 - self._most]:
            if oldest.transport is not None:
                oldest.transport.abort()  # a close would wait until the client has read everything
        return server()


class Site(web.TCPSite):  # noqa: TID251  # the one place that works around its fault
    """A TCP site that knows every accepted connection when it stops, so that it answers or closes each of them."""

    async def stop(self) -> None:
        if isinstance(self._server, asyncio.Server):
            await take_nobody_new(self._server)
        await super().stop()


async def take_nobody_new(server: asyncio.Server) -> None:
    """Stops accepting connections. Await this before `close`.

    Otherwise `close` loses a connection that was accepted in the same turn of the event loop: the connection is never
    closed, and its client waits (https://github.com/python/cpython/issues/109564, open).
    """
    loop = asyncio.get_running_loop()
    for listener in server.sockets:
        loop.remove_reader(listener.fileno())
    for _ in range(2):  # in the first turn of the loop the connection is made, in the second its handler is called
        await asyncio.sleep(0)


MOST_CONNECTIONS: Final = 64
"""Connections of probes and Prometheus, at most. A client that opens more takes no descriptor from our own calls."""
Check = Callable[[], str]
"""A check of /readyz. Returns a text that names what is missing; empty if nothing is."""


def missing(checks: Mapping[str, Check]) -> dict[str, str]:
    """What is missing, by the name of the check."""
    return {name: fault for name, check in checks.items() if (fault := check())}


async def healthz(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


class ExportedMetrics(Collector):
    """The metrics of this program. `never_set`: metrics that it does not set; their 0 would be no measurement."""

    def __init__(self, never_set: Iterable[MetricWrapperBase]) -> None:
        self._left_out = {family.name for metric in never_set for family in metric.describe()}

    def collect(self) -> Iterable[Metric]:
        return (family for family in REGISTRY.collect() if family.name not in self._left_out)


WRITING_PART: Final = 0.25
"""Part of the time for which metrics are written, at most."""
BURST_SECONDS: Final = 1
"""Seconds of writing that may be ahead of it, so that a scrape now and then has the values of its moment."""


class CollectedMetrics(Collector):
    """Metrics of one moment, with their values."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


class MetricsText:
    """The metrics as text. Thousands of queues take seconds to write, and whoever reaches the port may ask.

    So the event loop reads one metric at a time, each with all its series, and a thread writes them. All who ask
    meanwhile share the next text. Beyond WRITING_PART of the time, the last text is answered again.
    """

    def __init__(self, exported: Collector, clock: Clock = elapsed) -> None:
        self._exported = exported
        self._clock = clock
        self._thread = ThreadPoolExecutor(1)  # of its own: a DNS outage keeps the threads of the loop busy
        self._turn = asyncio.Lock()
        self._text = b""
        self._read_at = self._paid_at = float("-inf")
        self._owed = 0.0

    async def read(self) -> bytes:
        asked = self._clock()
        async with self._turn:
            if self._read_at < asked and self._may_write():
                await self._write()
            return self._text

    def _may_write(self) -> bool:
        """Whether the time that was spent on earlier texts allows another one."""
        now = self._clock()
        self._owed = max(0.0, self._owed - (now - self._paid_at) * WRITING_PART)
        self._paid_at = now
        return self._owed < BURST_SECONDS

    async def _write(self) -> None:
        self._read_at = self._clock()
        families = list[Metric]()
        for family in self._exported.collect():
            families.append(family)
            await asyncio.sleep(0)
        write = partial(generate_latest, CollectedMetrics(families))
        self._text = await asyncio.get_running_loop().run_in_executor(self._thread, write)
        self._owed += self._clock() - self._read_at


def build_app(checks: Mapping[str, Check], never_set: Sequence[MetricWrapperBase] = ()) -> web.Application:
    """The three paths of a program. `never_set`: metrics that it does not set."""
    written = MetricsText(ExportedMetrics(never_set))
    READY.set_function(lambda: float(not missing(checks)))

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=await written.read(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def readyz(_: web.Request) -> web.Response:
        faults = missing(checks)
        if not faults:
            return web.Response(text="ok\n")
        return web.Response(status=503, text="".join(f"{name}: {fault}\n" for name, fault in faults.items()))

    app = web.Application(client_max_size=65536)
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    return app


async def serve(app: web.Application, address: str) -> web.AppRunner:
    """Serves at DISPATCHER_LISTEN_ADDRESS. Raises SettingsError if it cannot listen there."""
    runner = BoundedRunner(app, MOST_CONNECTIONS, access_log=None, shutdown_timeout=2)
    await listen(runner, "DISPATCHER_LISTEN_ADDRESS", address)
    return runner
