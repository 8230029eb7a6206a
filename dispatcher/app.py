"""The composition root: builds adapters and stages, joins them, and runs them in one TaskGroup.

pg.listen ─ wake ─┐                      ┌─ kube.mirror (Jobs, Pods, nodes) ─ wake ─┐
                  ▼                      ▼                                          ▼
pg.tasks ──▶ admission.dispatch ──▶ jobs.launcher ──▶ kube.job_api        sweep.collect ──▶ kube.job_api
  rows          one cycle           judge, launch       POST, GET          finished Jobs       DELETE
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import structlog
from msgspec.structs import replace

from dispatcher.admission.dispatch import Dispatch
from dispatcher.admission.ports import DispatchPorts
from dispatcher.dashboard.about import Condition, stale_after
from dispatcher.dashboard.asking import Place
from dispatcher.dashboard.asking_row import RowSite
from dispatcher.jobs.launcher import Launcher
from dispatcher.jobs.memory import Memory
from dispatcher.jobs.submit import Submitter
from dispatcher.kube.access import Access
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import log_in
from dispatcher.kube.job_api import JobApi
from dispatcher.kube.lease import Lease, lease_of
from dispatcher.kube.listing import Resource
from dispatcher.kube.pod_refusals import PodRefusals
from dispatcher.kube.reflectors import Reflectors
from dispatcher.model.capacity import BoundPod
from dispatcher.model.snapshot import ClusterView, StoreAge
from dispatcher.pg.connect import Session
from dispatcher.pg.listen import Listener
from dispatcher.pg.tasks import Look, look
from dispatcher.programs.render import previews_of
from dispatcher.programs.startup import catalog_of, database_of, planner_of, rules_of, site_of
from dispatcher.programs.telling import SelfTold, Telling
from dispatcher.programs.usage import Usage
from dispatcher.programs.watching import Watching
from dispatcher.runtime import health
from dispatcher.runtime.clock import elapsed
from dispatcher.runtime.metrics import OF_KEEPER
from dispatcher.runtime.precedence import Precedence
from dispatcher.runtime.rate import Bucket
from dispatcher.runtime.rounds import Rounds, Wake, calm_collector
from dispatcher.runtime.signals import stop_on_signals
from dispatcher.settings.definition import Settings
from dispatcher.settings.loading import Source
from dispatcher.sweep.collect import Sweep, SweepPorts
from dispatcher.sweep.remove import Remover

log = structlog.get_logger(component="app")

STOP_SECONDS = 20
ACCESS_SECONDS = 60
ACCESS_AGAIN_SECONDS = 2


class Companion(Protocol):
    """Another program that runs in this process."""

    checks: Mapping[str, health.Check]

    async def run(self, stop: asyncio.Event) -> None: ...


CompanionOf = Callable[[Settings, Reflectors, Resource[BoundPod]], Companion]
"""Builds the other program. It shares our reflectors, and takes its bound Pods from the given resource."""


async def run(settings: Settings, companion_of: CompanionOf | None = None, sources: Sequence[Source] = ()) -> None:
    """`dispatcher run`: runs until SIGTERM or SIGINT, then ends within 30 s. `sources`: where the settings are from."""
    client = KubeClient(await log_in(settings.kube))
    app = App(settings, client, companion_of, sources)
    try:
        await app.run(stop_on_signals())
    finally:
        await app.close()
        await client.close()


class App:
    """One running dispatcher."""

    def __init__(
        self, settings: Settings, client: KubeClient,
        companion_of: CompanionOf | None = None, sources: Sequence[Source] = (),
    ) -> None:  # fmt: skip
        self.settings, self.sources = settings, sources
        kube = settings.kube
        namespace, self.reflectors = kube.namespace or client.namespace, Reflectors(client)
        self.watching = Watching(self.reflectors, namespace, settings, with_all_pods=companion_of is not None)
        self.watching.on_gain(self.when_leading(self.room_gained))
        pods = self.watching.all_pods
        self.companion = companion_of(settings, self.reflectors, pods) if companion_of and pods else None
        self.site, database_url = site_of(settings, namespace), database_of(settings.database)
        bucket = Bucket(kube.writes_per_second, elapsed())
        named = lease_of(kube.installation, client.own_namespace or namespace)
        self.lease = Lease(client, named, kube.lease_seconds)
        self.lease.on_winning(self.begin_term)
        job_api = JobApi(client, namespace, kube.installation, self.lease.is_trusted)
        self.wake, ask_again, self.memory, self.deciding = Wake(), Wake(), Memory(), Precedence()
        remover = Remover(job_api, ask_again)
        self.session = Session(database_url)
        self.listener = Listener(database_url, self.when_leading(self.wake))
        self.mirror = self.watching.mirror
        self.mirror.on_change(self.when_leading(self.wake.soon))
        self.access = Access(client, namespace, named, with_nodes=kube.check_room)
        self.catalog = catalog_of(settings, self.site.passed)
        self.catalog.refresh()
        self.launcher = Launcher(
            Submitter(job_api, self.site, self.memory, ask_again), self.memory, self.catalog, rules_of(settings.jobs)
        )
        self.pod_refusals = PodRefusals(client, namespace, self.mirror.view)
        self.usage = Usage(settings.placement.prometheus_url, Session(database_url), namespace)
        sweep_ports = SweepPorts(
            self.mirror.view, self.rows, self.may_sweep, self.memory.creates.unanswered, remover.remove
        )
        self.telling = Telling(settings, client, namespace, (self.lease, named), partial(missing_in, self))
        self._dispatch = Dispatch(self._ports(remover, namespace), self.launcher, settings.admission, bucket)
        self.dispatching = Rounds("dispatch", self._dispatch.run_once, self.wake)
        self.sweeping = Rounds("sweep", Sweep(sweep_ports, settings.sweep, bucket).run_once, Wake())
        self.leading = Rounds("lease", self.lease.run_once, Wake())
        self.asking = Rounds("access", self.ask_access, ask_again)
        self.asking_events = Rounds("events", self.find_refusals, Wake())

    def _ports(self, remover: Remover, namespace: str) -> DispatchPorts:
        return DispatchPorts(
            view=self.view,
            rows=self.rows,
            not_allowed=lambda: self.access.fault,
            is_listening=lambda: self.listener.is_listening,
            lead=self.lease,
            remove=remover.remove,
            planner=planner_of(self.settings, self.usage.of, self.watching.warmth.nodes),
            room=self.watching.room,
            quotas=self.watching.quotas,
            tell=self.telling.overview.tell,
            claims=self.watching.claims(namespace, self.settings.kube.installation, self.lease.is_trusted),
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Runs the stages until `stop`, and the adapters until the stages have ended."""
        async with self._listening():
            try:
                async with asyncio.TaskGroup() as adapters:
                    running = [self.leading.run(asyncio.Event()), self.reflectors.run(), self.listener.run()]
                    running += [self.companion.run(stop)] if self.companion else []
                    tasks = [adapters.create_task(part) for part in running]
                    calm_collector()
                    is_drained = await self._run_stages(stop)
                    for task in tasks:
                        task.cancel()
                if is_drained:
                    await self.lease.release()  # after the last write
            except ExceptionGroup as faults:
                raise faults.exceptions[0] from faults
        log.info("stopped")

    @contextlib.asynccontextmanager
    async def _listening(self) -> AsyncIterator[None]:
        """Serves health, metrics and the API. Raises SettingsError if it cannot listen."""
        address = self.settings.service.listen_address
        async with contextlib.AsyncExitStack() as servers:
            server = await health.serve(health.build_app(checks_of(self), OF_KEEPER), address)
            servers.push_async_callback(server.cleanup)
            server = await self.telling.serve(
                self._dispatch, self.deciding, row_site_of(self), SelfTold(self.sources, partial(condition_of, self))
            )
            servers.push_async_callback(server.cleanup)
            log.info("started", installation=self.settings.kube.installation, address=address)
            yield

    async def _run_stages(self, stop: asyncio.Event) -> bool:
        """Runs the stages until `stop`. Returns True if every write has its answer."""
        is_drained = False
        rounds = (
            self.asking,
            self.asking_events,
            self.dispatching,
            self.sweeping,
            *self.usage.rounds,
            *self.telling.rounds(self._dispatch, self.catalog.offered),
        )
        stages = [asyncio.create_task(one.run(stop)) for one in rounds]
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait([stopped, *stages], return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        stopped.cancel()
        for one in rounds:
            one.nudge()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await asyncio.wait(stages)
                await self.launcher.drain()
                is_drained = True
        for stage in stages:
            stage.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await stage  # a bug in a stage ends the program
        return is_drained

    async def close(self) -> None:
        await self.session.close()
        await self.telling.close()
        await self.usage.close()

    @contextlib.asynccontextmanager
    async def rows(self, held_at_most: int = 0) -> AsyncIterator[Look]:
        """The rows in one snapshot, to decide by. Pages wait meanwhile."""
        with self.deciding.running():
            async with look(self.session, held_at_most) as rows:
                yield rows

    async def ask_access(self) -> float:
        before, known = self.access.fault, self.access.missing
        await self.access.check()
        if (missing := self.access.missing) != known:
            log.warning("access", fault=missing) if missing else log.info("access is complete")
        if self.access.fault != before:
            self.wake()
        return ACCESS_AGAIN_SECONDS if self.access.fault else ACCESS_SECONDS

    def view(self) -> ClusterView:
        """The cluster as a cycle sees it."""
        view = self.mirror.view()
        return replace(view, refusals=self.pod_refusals.known, stale=view.stale or self.watching.stale())

    async def find_refusals(self) -> float:
        """Finds the Jobs whose Pods are refused. Only the leader acts on it, so only the leader asks."""
        if self.lease.is_trusted():
            return await self.pod_refusals.run_once()
        self.pod_refusals.forget()
        return ACCESS_AGAIN_SECONDS

    def begin_term(self) -> None:
        """Lists Jobs and Pods again when a term begins: our view may lack the newest Jobs of the last leader."""
        self.mirror.relist()
        self.wake()

    def when_leading(self, wake: Callable[[], None]) -> Callable[[], None]:
        """A wake that works only on the leader. Other replicas plan only at their poll interval."""
        return lambda: wake() if self.lease.is_trusted() else None

    def room_gained(self) -> None:
        """A node may have more room. A row that waits for room need not wait for the next poll."""
        if self._dispatch.waits_for_room:
            self.wake.soon()

    def may_sweep(self) -> bool:
        return not self.access.fault and self.lease.is_trusted()


def missing_in(app: App) -> Mapping[str, str]:
    """What /readyz misses, and the rights without which launches go on."""
    missing = health.missing(checks_of(app))
    return {"rights": app.access.missing, **missing} if app.access.missing else missing


def checks_of(app: App) -> Mapping[str, health.Check]:
    """What /readyz asks. The dispatcher can do its work if no check names a fault."""
    checks: dict[str, health.Check] = {
        "database": lambda: app.dispatching.fault,
        "sweep": lambda: app.sweeping.fault,
        "cluster": app.watching.stale,
        "access": lambda: app.access.fault,
        "leader": app.lease.vacancy,
        "templates": lambda: app.catalog.fault or ("" if app.catalog.templates else NO_TEMPLATE),
        "api": lambda: hold.detail if (hold := app.memory.api.hold(elapsed())) else "",
    }
    return {**checks, **(app.companion.checks if app.companion else {})}


def row_site_of(app: App) -> RowSite:
    """What the pages of rows need to know."""
    preview = previews_of(app.settings, lambda: app.catalog.templates, app.site)
    return RowSite(Place(app.site.namespace, app.watching.warmth), app.settings.jobs.max_launches, preview)


def condition_of(app: App) -> Condition:
    """How this replica is, for the page About."""
    now, poll_seconds = elapsed(), app.settings.admission.poll_seconds
    most = stale_after(poll_seconds)
    checks = {name: check() for name, check in checks_of(app).items()}
    stores = [
        *app.telling.overview.ages(poll_seconds),
        StoreAge("database", now - app.session.answered_at, most, app.dispatching.fault),
        StoreAge("templates", now - app.catalog.looked_at, most, app.catalog.fault),
        *app.reflectors.ages(),
    ]
    return Condition(checks, app.access.missing, stores)


NO_TEMPLATE = "none: set DISPATCHER_IMAGE for the built-in one, or DISPATCHER_TEMPLATES_DIR"
