"""`dispatcher extender`: answers kube-scheduler from a mirror of nodes, bound Pods and reservations.

    kube.capacity ─▶ NodeCapacities, ReservationBook ─▶ extender.server ◀─ kube-scheduler, on loopback or by mutual TLS
                                   └─▶ ExtenderWrites

The program keeps no state: after a restart it lists everything again, which takes seconds. The scheduler that calls it
must not place its Pod. The chart runs both as containers of one Pod, which another scheduler places.

`ExtenderWrites`: statuses of reservations, Events, and annotations of waiting Pods, which make kube-scheduler try a Pod
again. Each kind of write has its own rounds, so that a burst of one kind does not delay the others: a waiting Pod is
annotated within a second after a node may have room for it.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import structlog
from aiohttp import web

from dispatcher.extender.assumed_pods import TICK_SECONDS, PodRequest
from dispatcher.extender.book import UNCERTAIN, ReservationBook
from dispatcher.extender.hold_index import IS_RESERVED
from dispatcher.extender.lifecycle import PHASES, ReservationStatus, phase_notices
from dispatcher.extender.nodes import ClusterFacts, NodeFilter
from dispatcher.extender.server import Extender
from dispatcher.extender.waiting_pods import WaitingPod
from dispatcher.kube.capacity import BOUND_PODS, CapacityMirror
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import log_in
from dispatcher.kube.events import Events, write_due
from dispatcher.kube.reflector import Reflectors, Resource
from dispatcher.kube.reservations import Reports
from dispatcher.model.cluster import BoundPod, NodeCapacities
from dispatcher.model.errors import ClusterError, ClusterRefused, SettingsError, certificates_end
from dispatcher.model.jobs import Notices
from dispatcher.model.reservations import Reservation
from dispatcher.runtime import health
from dispatcher.runtime.clock import elapsed
from dispatcher.runtime.health import BoundedRunner, listen
from dispatcher.runtime.metrics import CREDENTIAL_END, FAULTS, OF_JANITOR, OF_KEEPER, OF_ROWS, OF_RUN, RESERVATIONS
from dispatcher.runtime.rounds import Rounds, Wake, calm_collector, stop_on_signals
from dispatcher.settings.definition import ExtenderSettings, Settings

ROUND_SECONDS, BETWEEN_SECONDS, REFUSED_SECONDS = 0.25, 0.1, 5
ONCE: Final = 365 * 86_400
WRITES_AT_ONCE, STEPS = 20, 10
log = structlog.get_logger(component="extender")


class ExtenderWrites:
    """All writes of the extender, in rounds. Before everything was listed nothing is written, and no tick counts."""

    def __init__(self, client: KubeClient, facts: ClusterFacts, book: ReservationBook) -> None:
        self._reports = Reports(client)
        self._events = Events(client, "dispatcher-extender")
        self._facts = facts
        self._book = book
        self._notices = Notices()
        self._not_written: list[Reservation] = []
        self.node_filter = NodeFilter(book, facts, self._notices)

    def rounds(self) -> Mapping[str, Callable[[], Coroutine[Any, Any, float]]]:
        return {
            "charges": self._tick, "waiting": self._find_earlier_refusals, "waking": self._wake,
            "statuses": self._write_statuses, "statuses again": self._retry_statuses, "events": self._write_events,
        }  # fmt: skip

    async def _tick(self) -> float:
        if self._facts.is_synced() and self._facts.hears_bindings():
            self._book.tick()
        return TICK_SECONDS

    async def _wake(self) -> float:
        """Annotates Pods that may have a node now."""
        if not self._facts.is_synced():
            return ROUND_SECONDS
        ready = self.node_filter.ready_to_retry()[:WRITES_AT_ONCE]
        self._check_faults("waking", await asyncio.gather(*map(self._wake_one, ready)))
        return BETWEEN_SECONDS if ready or self.node_filter.is_checking else ROUND_SECONDS

    async def _wake_one(self, pod: WaitingPod) -> ClusterError | None:
        """Annotates a Pod. Returns the fault if that fails. Then it is tried again later."""
        try:
            await self._reports.wake(pod.request.name)
        except ClusterError as fault:
            self.node_filter.retry_later(pod)
            return fault
        self.node_filter.forget(pod)
        return None

    async def _find_earlier_refusals(self) -> float:
        """Finds the Pods that an earlier process refused: once, as soon as nothing is uncertain."""
        if not self._facts.is_certain():
            return ROUND_SECONDS
        for one in await self._reports.waiting():
            if IS_RESERVED in one.why or UNCERTAIN in one.why:
                self.node_filter.note_earlier_refusal(PodRequest(one.name, (), {}, uid=one.uid))
        return ONCE

    async def _write_statuses(self) -> float:
        if self._facts.is_synced() and not self._facts.fault():
            for phase in PHASES:
                RESERVATIONS.labels(phase).set(self._book.reports.phases[phase])
            for _ in range(STEPS):
                due = [self._write_status(one, status) for one, status in self._book.reports.due(self._facts.now())]
                self._check_faults("statuses", await asyncio.gather(*due))
                await asyncio.sleep(0)  # lets the loop answer kube-scheduler in between
        return ROUND_SECONDS

    async def _retry_statuses(self) -> float:
        while self._not_written:
            self._book.reports.retry(self._not_written.pop())
        return REFUSED_SECONDS

    async def _write_status(self, one: Reservation, status: ReservationStatus) -> ClusterError | None:
        """Writes a status. Returns the fault if that fails. Then it is tried again, REFUSED_SECONDS later."""
        try:
            await self._reports.tell(one, status.phase, status.message)
        except ClusterError as fault:
            self._not_written.append(one)
            return fault
        for notice in phase_notices(one, status):
            self._notices.say(notice)
        return None

    def _check_faults(self, rounds: str, outcomes: Sequence[ClusterError | None]) -> None:
        """Logs faults of single writes. Raises ClusterError if all writes failed, and the first was not a refusal."""
        faults = [fault for fault in outcomes if fault is not None]
        if faults and len(faults) == len(outcomes) and not isinstance(faults[0], ClusterRefused):
            raise faults[0]
        if faults:
            FAULTS.labels(rounds).inc()
            log.warning("not written, tried again", rounds=rounds, number=len(faults), fault=str(faults[0]))

    async def _write_events(self) -> float:
        await write_due(self._notices, WRITES_AT_ONCE, self._events.tell)
        return ROUND_SECONDS


KEEP_ALIVE_SECONDS: Final = 300
"""Seconds for which an idle connection stays open. kube-scheduler keeps one for 90 s, and does not repeat a POST."""
DRAIN_SECONDS: Final = 10
"""Seconds that calls get to end after a stop."""
UNREAD_BYTES: Final = 2**14
"""Bytes of each connection in memory while its body waits for its turn. The rest waits in the kernel."""
CERTIFICATE_SECONDS: Final = 10
"""Seconds between two looks at the certificates."""
MOST_CONNECTIONS: Final = 256
"""Connections, at most. A client that opens more takes no descriptor from our own calls."""
NEVER: Final = float("inf")
COMPACT_SECONDS, SYNCING_SECONDS = 60, 1


async def run(settings: Settings) -> None:
    """Runs until SIGTERM or SIGINT. Calls that came before are answered."""
    await serve(settings, KubeClient(await log_in(settings.kube)))


async def serve(settings: Settings, client: KubeClient) -> None:
    """The same, by this client, which it closes at the end."""
    try:
        reflectors = Reflectors(client)
        answering = ExtenderProgram(settings, reflectors)
        app = health.build_app(answering.checks, (*OF_RUN, *OF_ROWS, *OF_KEEPER, *OF_JANITOR))
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


class ExtenderProgram:
    """The program, alone or in the process of the dispatcher (`run --with-extender`)."""

    def __init__(self, settings: Settings, reflectors: Reflectors, bound_pods: Resource[BoundPod] = BOUND_PODS) -> None:
        """Raises SettingsError if the certificates cannot be used."""
        client = reflectors.client
        self._settings = settings.extender
        self._capacities = NodeCapacities()
        self._book = ReservationBook(self._capacities)
        self._mirror = mirror = CapacityMirror(reflectors, self._book, bound_pods)
        facts = ClusterFacts(
            is_synced=mirror.is_synced,
            is_certain=lambda: self._book.knows_assumed_pods and not mirror.stale(),
            now=lambda: client.now().timestamp(),
            bound_pods=mirror.bound,
            fault=mirror.stale,
            hears_bindings=mirror.hears,
            knows_reservations=mirror.knows_reservations,
            elapsed=elapsed,
        )
        self._reporting = ExtenderWrites(client, facts, self._book)
        self._tls = Tls(settings.extender)
        self.checks: Mapping[str, health.Check] = {"extender": self._mirror.stale}

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop`. Raises SettingsError if the address cannot be used."""
        extender = Extender(self._capacities.of, self._reporting.node_filter)
        server = BoundedRunner(
            extender.app(), MOST_CONNECTIONS, access_log=None, keepalive_timeout=KEEP_ALIVE_SECONDS,
            shutdown_timeout=DRAIN_SECONDS, read_bufsize=UNREAD_BYTES,
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


async def drain(server: web.AppRunner, extender: Extender) -> None:
    """Answers the calls that have come. Closing a connection in the middle of a body would lose the call."""
    for site in list(server.sites):
        await site.stop()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            await extender.drained()


class NewestContext(ssl.SSLContext):
    """Gives each new connection the newest context. A context in use cannot drop certificates that it has loaded."""

    newest: ssl.SSLContext

    def wrap_bio(self, *args: Any, **named: Any) -> ssl.SSLObject:
        return self.newest.wrap_bio(*args, **named)


class Tls:
    """The server's side of mutual TLS. Callers need a certificate of the CA.

    New files count for new connections, without a restart, once all three files fit together.
    """

    def __init__(self, settings: ExtenderSettings) -> None:
        """Raises SettingsError if the directory has no usable certificates."""
        self._folder = Path(settings.tls_dir) if settings.tls_dir else None
        self._stamp: object = None
        self.context: NewestContext | None = None
        if self._folder:
            self.context = NewestContext(ssl.PROTOCOL_TLS_SERVER)
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

    def _load(self, folder: Path, context: NewestContext) -> None:
        files = [folder / name for name in ("tls.crt", "tls.key", "ca.crt")]
        stamp = [(file.stat().st_mtime_ns, file.stat().st_ino) for file in files]
        if stamp != self._stamp:
            context.newest = fresh_context(*files)
            report_ends(*files)
            self._stamp = stamp
            log.info("certificates read", folder=str(folder))


def report_ends(certificate: Path, _: Path, authority: Path) -> None:
    """Sets the metric of the ends. A chain ends with its first end; of several authorities the last end counts."""
    for name, file, which in (("server-certificate", certificate, min), ("authority", authority, max)):
        CREDENTIAL_END.labels(name).set(which(certificates_end(file.read_bytes()), default=NEVER))


def fresh_context(certificate: Path, key: Path, authority: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(authority)
    return context
