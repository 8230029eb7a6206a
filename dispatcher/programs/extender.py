"""`dispatcher extender`: answers kube-scheduler from a mirror of nodes, bound Pods and reservations.

    kube.capacity ─▶ NodeCapacities, ReservationBook ─▶ extender.server ◀─ kube-scheduler, on loopback or by mutual TLS
                                   └─▶ reporting.py

The program keeps no state: after a restart it lists everything again, which takes seconds. The scheduler that calls it
must not place its Pod. The chart runs both as containers of one Pod, which another scheduler places.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import structlog
from aiohttp import web

from dispatcher.extender.node_filter import ClusterFacts
from dispatcher.extender.server import Extender
from dispatcher.kube.capacity import BOUND_PODS, CapacityMirror
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import log_in
from dispatcher.kube.listing import Resource
from dispatcher.kube.reflectors import Reflectors
from dispatcher.model.capacity import BoundPod, NodeCapacities
from dispatcher.model.credential_ends import certificates_end
from dispatcher.model.errors import SettingsError
from dispatcher.programs.reporting import Reporting
from dispatcher.reservations.book import ReservationBook
from dispatcher.runtime import health
from dispatcher.runtime.clock import elapsed
from dispatcher.runtime.listening import listen
from dispatcher.runtime.metrics import CREDENTIAL_END, OF_KEEPER, OF_ROWS, OF_RUN
from dispatcher.runtime.rounds import Rounds, Wake, calm_collector
from dispatcher.runtime.signals import stop_on_signals
from dispatcher.settings.definition import ExtenderSettings, Settings

log = structlog.get_logger(component="extender")

KEEP_ALIVE_SECONDS: Final = 300
"""kube-scheduler keeps idle connections for 90 s, and does not repeat a POST that it sent on a closed one."""
DRAIN_SECONDS: Final = 10
UNREAD_BYTES: Final = 2**14
"""Bytes of each connection in memory while its body waits for its turn. The rest waits in the kernel."""
CERTIFICATE_SECONDS: Final = 10
NEVER: Final = float("inf")
COMPACT_SECONDS, SYNCING_SECONDS = 60, 1


async def run(settings: Settings) -> None:
    """Runs until SIGTERM or SIGINT. Calls that came before are answered."""
    client = KubeClient(await log_in(settings.kube))
    try:
        reflectors = Reflectors(client)
        answering = Answering(settings, reflectors)
        app = health.build_app(answering.checks, (*OF_RUN, *OF_ROWS, *OF_KEEPER))
        probes = await health.serve(app, settings.service.listen_address)
        try:
            async with asyncio.TaskGroup() as group:
                following = group.create_task(reflectors.run())
                await answering.run(stop_on_signals())
                following.cancel()
        except ExceptionGroup as faults:  # a group would hide the message about an address that is taken
            raise faults.exceptions[0] from faults
        finally:
            await probes.cleanup()
    finally:
        await client.close()


class Answering:
    """The program, alone or in the process of the dispatcher (`run --with-extender`)."""

    def __init__(self, settings: Settings, reflectors: Reflectors, bound_pods: Resource[BoundPod] = BOUND_PODS) -> None:
        """SettingsError: the certificates cannot be used."""
        client = reflectors.client
        self._settings = settings.extender
        self._capacities = NodeCapacities()
        self._book = ReservationBook(self._capacities)
        self._mirror = mirror = CapacityMirror(reflectors, self._book, bound_pods)
        facts = ClusterFacts(
            is_synced=mirror.is_synced,
            is_certain=self._is_certain,
            now=lambda: client.now().timestamp(),
            bound_pods=mirror.bound,
            fault=mirror.stale,
            hears_bindings=mirror.hears,
            knows_reservations=mirror.knows_reservations,
            elapsed=elapsed,
        )
        self._reporting = Reporting(client, facts, self._book)
        self._tls = Tls(settings.extender)
        self.checks: Mapping[str, health.Check] = {"extender": self._mirror.stale}

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop`. SettingsError: the address cannot be used."""
        extender = Extender(self._capacities.of, self._reporting.node_filter)
        server = web.AppRunner(
            extender.app(), access_log=None, keepalive_timeout=KEEP_ALIVE_SECONDS, shutdown_timeout=DRAIN_SECONDS,
            read_bufsize=UNREAD_BYTES,
        )  # fmt: skip
        work = {"certificates": self._tls.run_once, "rooms": self._compact, **self._reporting.rounds()}
        rounds = [Rounds(name, run_once, Wake()) for name, run_once in work.items()]
        try:
            await listen(server, "DISPATCHER_EXTENDER_ADDRESS", self._settings.address, self._tls.context)
            log.info("started", address=self._settings.address, tls=bool(self._settings.tls_dir))
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work) for work in (one.run(stop) for one in rounds)]
                calm_collector()
                await stop.wait()
                await drain(server, extender)
                for task in tasks:
                    task.cancel()
        finally:
            await server.cleanup()
            log.info("stopped")

    async def _compact(self) -> float:
        self._capacities.compact()
        return COMPACT_SECONDS if not self._mirror.stale() else SYNCING_SECONDS

    def _is_certain(self) -> bool:
        return self._book.knows_assumed_pods and not self._mirror.stale()


async def drain(server: web.AppRunner, extender: Extender) -> None:
    """Answers the calls that have come. To close a connection in the middle of a body would lose the call."""
    for site in list(server.sites):
        await site.stop()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            await extender.drained()


class Newest(ssl.SSLContext):
    """Gives each new connection the newest context. A context in use cannot drop certificates that it has loaded."""

    newest: ssl.SSLContext

    def wrap_bio(self, *args: Any, **named: Any) -> ssl.SSLObject:
        return self.newest.wrap_bio(*args, **named)


class Tls:
    """The server's side of mutual TLS. Callers need a certificate of the CA.

    New files count for new connections, without a restart, once all three files fit together.
    """

    def __init__(self, settings: ExtenderSettings) -> None:
        """SettingsError: the directory holds no usable certificates."""
        self._folder = Path(settings.tls_dir) if settings.tls_dir else None
        self._stamp: object = None
        self.context: Newest | None = None
        if self._folder:
            self.context = Newest(ssl.PROTOCOL_TLS_SERVER)
            try:
                self._load(self._folder, self.context)
            except (OSError, ssl.SSLError) as fault:
                raise SettingsError((f"DISPATCHER_EXTENDER_TLS_DIR is {settings.tls_dir!r}: {fault}",)) from fault

    async def run_once(self) -> float:
        if self._folder and self.context:
            try:
                self._load(self._folder, self.context)
            except (OSError, ssl.SSLError) as fault:  # half renewed: the loaded ones stay in use
                log.warning("certificates cannot be read", folder=str(self._folder), fault=str(fault))
        return CERTIFICATE_SECONDS

    def _load(self, folder: Path, context: Newest) -> None:
        files = [folder / name for name in ("tls.crt", "tls.key", "ca.crt")]
        stamp = [(file.stat().st_mtime_ns, file.stat().st_ino) for file in files]
        if stamp != self._stamp:
            context.newest = fresh_context(*files)
            report_ends(*files)
            self._stamp = stamp
            log.info("certificates read", folder=str(folder))


def report_ends(certificate: Path, _: Path, authority: Path) -> None:
    """Sets the metric of the ends. A chain is as good as its first end; of several authorities the last one counts."""
    for name, file, which in (("server-certificate", certificate, min), ("authority", authority, max)):
        CREDENTIAL_END.labels(name).set(which(certificates_end(file.read_text(encoding="utf-8")), default=NEVER))


def fresh_context(certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(authority)
    return context
