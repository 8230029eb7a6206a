"""The composition root of `dispatcher run`: builds adapters and stages, joins them, and runs them in one TaskGroup.

pg.connect ─ wake ┐                      ┌─ kube.capacity (Jobs, Pods, nodes) ─ wake ─┐
                  ▼                      ▼                                          ▼
pg.tasks ──▶ admission.dispatch ──▶ jobs.submit ───▶ kube.job_api        sweep.sweep ────▶ kube.job_api
  rows          one cycle           judge, launch       POST, GET          finished Jobs       DELETE
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

import structlog
from msgspec import Struct
from msgspec.structs import replace

from dispatcher.admission.dispatch import Dispatch, DispatchPorts
from dispatcher.admission.room import ReservedRoom, RoomIndex
from dispatcher.admission.room_view import RoomView
from dispatcher.commands.render import previews_of
from dispatcher.container.contract import NewestServer
from dispatcher.extender.program import ExtenderProgram
from dispatcher.jobs.memory import Memory
from dispatcher.jobs.observed import OWN_RULES, Rules
from dispatcher.jobs.submit import Launcher, Submitter
from dispatcher.kube.capacity import Mirror, QuotaMirror, RoomMirror, pods_of_all
from dispatcher.kube.client import Access, KubeClient
from dispatcher.kube.config_maps import node_caches
from dispatcher.kube.credentials import log_in
from dispatcher.kube.events import PodRefusals, read_in_turn
from dispatcher.kube.job_api import JobApi, ScaleAnswers, Suspensions
from dispatcher.kube.lease import Lease, LeaseName
from dispatcher.kube.reflector import Reflectors
from dispatcher.kube.reservations import RESERVATIONS, ClaimObjects
from dispatcher.model.caches import CacheRun, Use
from dispatcher.model.cluster import ClusterView, StoreAge
from dispatcher.model.rights import RUN, verbs_of
from dispatcher.pg.connect import Listener, Session
from dispatcher.pg.tasks import TaskSnapshot, look
from dispatcher.placement.placing import Key, Warmth
from dispatcher.placement.uses import Uses
from dispatcher.prometheus import Prometheus
from dispatcher.runtime import health
from dispatcher.runtime.clock import Bucket, elapsed
from dispatcher.runtime.metrics import OF_JANITOR, OF_KEEPER
from dispatcher.runtime.rounds import SOON_SECONDS, Precedence, Rounds, Wake, calm_collector, stop_on_signals
from dispatcher.settings.definition import Settings
from dispatcher.settings.loading import SettingSource
from dispatcher.startup import catalog_of, database_of, installation_of, planner_of, rules_of, site_of
from dispatcher.sweep.plan import CONFIRM_EVERY
from dispatcher.sweep.sweep import Remover, Sweep, SweepPorts
from dispatcher.views.about import ReplicaCondition, stale_after
from dispatcher.views.counting import EVERY_HALF_MINUTE, SurfacePace
from dispatcher.views.page_reads import RowSite
from dispatcher.views.reads import CacheContext
from dispatcher.views.status import REMOVALS, RIGHTS
from dispatcher.views.surfaces import LeasedReplica, ReplicaFacts, ReplicaSurfaces

OF_OUR_CONFIGURATION: Final = 100
"""The percentageOfNodesToScore that the room estimate uses, as `extender --print-scheduler-config` sets it."""


class ClusterMirror:
    """What `dispatcher run` watches: Jobs, Pods, ResourceQuotas and, with CHECK_ROOM, nodes and their room.

    all_pods: the resource that follows Pods of all namespaces; None: only ours are followed.
    warmth: which nodes have the directory of a cache key.
    quotas: the ResourceQuotas of the namespace of Jobs; none if they are not known.
    """

    def __init__(self, reflectors: Reflectors, namespace: str, settings: Settings, *, with_all_pods: bool) -> None:
        kube, scheduler = settings.kube, settings.placement.scheduler_name
        with_all_pods = with_all_pods or kube.check_room
        self.all_pods = pods_of_all(namespace, kube.installation, scheduler) if with_all_pods else None
        self.mirror = Mirror(
            reflectors, namespace, kube.installation, with_nodes=kube.check_room, all_pods=self.all_pods
        )
        self.warmth = Warmth(kube.installation, self.mirror.has_shown, elapsed)
        if settings.placement.cache_root:
            told = node_caches(reflectors.client.own_namespace or namespace, kube.installation)
            reflectors.of(told).store.on_each(self.warmth.hear)
        self._reflectors = reflectors
        self._reserved = bool(scheduler)
        self._index = RoomIndex([])
        if scheduler:
            reserved = ReservedRoom(namespace, kube.installation)
            self._index = RoomIndex([scheduler], OF_OUR_CONFIGURATION, reserved)
        self._room: RoomMirror | None = None
        if kube.check_room and self.all_pods:
            self._room = RoomMirror(reflectors, self._index, self.all_pods, with_reservations=self._reserved)
        self._quotas = QuotaMirror(reflectors, namespace)
        self.quotas = self._quotas.quotas

    def room(self) -> RoomView | None:
        """The room at this moment; None: room is not judged."""
        return self._index.view(self._reflectors.client.now().timestamp()) if self._room else None

    def claims(self, namespace: str, installation: str, may_write: Callable[[], bool]) -> ClaimObjects | None:
        """Claims as NodeReservations; None: no extender enforces them."""
        if self._room is None or not self._reserved:
            return None
        reservations = self._reflectors.of(RESERVATIONS)
        return ClaimObjects(self._reflectors.client, reservations, namespace, installation, may_write)

    def on_gain(self, gained: Callable[[], None]) -> None:
        """Calls `gained` when any Pod, a reservation or a ResourceQuota goes or changes."""
        self._quotas.on_change(gained)
        if self._room and self.all_pods:
            pods = self._reflectors.of(self.all_pods)
            pods.store.on_each(lambda before, _: gained() if before is not None else None)
        if self._room and self._reserved:
            self._reflectors.of(RESERVATIONS).store.on_each(lambda before, _: gained() if before is not None else None)

    def stale(self) -> str:
        """Names the stores that are too old to decide by, with reasons; empty if all are fresh."""
        return self.mirror.stale() or (self._room.stale() if self._room else "")


class RealUseLookup:
    """Looks up the real use of earlier runs in Prometheus, in the background. Does nothing without PROMETHEUS_URL.

    session: a database session of its own, so that its queries delay no cycle.
    """

    def __init__(self, prometheus_url: str, session: Session, namespace: str) -> None:
        self._session = session
        self._namespace = namespace
        self._prometheus = Prometheus(prometheus_url) if prometheus_url else None
        wake = Wake()
        self._uses = Uses(self._runs, self._ask, wake.soon)
        self.rounds = (Rounds("usage", self._uses.run_once, wake, is_vital=False),) if self._prometheus else ()

    async def close(self) -> None:
        await self._session.close()
        if self._prometheus:
            await self._prometheus.close()

    def of(self, key: Key) -> tuple[Use, ...]:
        """The known uses of a key, from memory. Empty: none is known yet."""
        return self._uses.of(key) if self._prometheus else ()

    async def _runs(self, keys: Sequence[Key]) -> Mapping[Key, Sequence[CacheRun]]:
        async with look(self._session) as rows:
            return await rows.runs(keys)

    async def _ask(self, run: CacheRun) -> Use | None:
        assert self._prometheus is not None  # the rounds run only with a Prometheus
        return await self._prometheus.use_of(self._namespace, run.pod, run.began, run.ended)


log = structlog.get_logger(component="app")

NEWS_SECONDS = {False: SOON_SECONDS, True: 0.25}
"""Seconds from a watch event to the next cycle. True: each row that was found has its Job, so nothing is urgent."""
STOP_SECONDS = 20
"""Seconds that stages get to end after a stop."""
ACCESS_SECONDS = 60
"""Seconds between two questions for the rights of our account."""
ACCESS_AGAIN_SECONDS = 2
"""The same while a right is missing."""


class RunPace(Struct, frozen=True):
    """Pauses of `run` that no setting changes. Tests take shorter ones.

    rules: the pauses of the table of outcomes; its settings are not read.
    apart: time between two looks of the sweep that found no row, and count.
    """

    rules: Rules = OWN_RULES
    apart: timedelta = CONFIRM_EVERY
    surfaces: SurfacePace = EVERY_HALF_MINUTE


OWN_PACE: Final = RunPace()


async def run(
    settings: Settings, sources: Sequence[SettingSource] = (), pace: RunPace = OWN_PACE, *, with_extender: bool = False
) -> None:
    """`dispatcher run`: runs until SIGTERM or SIGINT, then ends within 30 s. `sources`: the origins of the settings."""
    client = KubeClient(await log_in(settings.kube))
    app = App(settings, client, sources, pace, with_extender=with_extender)
    try:
        await app.run(stop_on_signals())
    finally:
        await app.close()
        await client.close()


class App:
    """One running dispatcher. `extender`: it shares our reflectors; None: it does not run in this process."""

    def __init__(
        self, settings: Settings, client: KubeClient, sources: Sequence[SettingSource] = (), pace: RunPace = OWN_PACE,
        *, with_extender: bool = False,
    ) -> None:  # fmt: skip
        self.settings, self.sources, self._pace = settings, sources, pace
        kube = settings.kube
        namespace, self.reflectors = kube.namespace or client.namespace, Reflectors(client)
        self.watching = ClusterMirror(self.reflectors, namespace, settings, with_all_pods=with_extender)
        self.watching.on_gain(self.when_leading(self.room_gained))
        pods = self.watching.all_pods
        self.extender = ExtenderProgram(settings, self.reflectors, pods) if with_extender and pods else None
        self.site, database_url = site_of(settings, namespace), database_of(settings.database)
        bucket = Bucket(kube.writes_per_second, elapsed())
        named = LeaseName(client.own_namespace or namespace, kube.installation)
        self.lease = Lease(client, named, kube.lease_seconds, is_able=partial(can_lead, self))
        self.lease.on_winning(self.begin_term)
        job_api = JobApi(client, namespace, kube.installation, self.lease.is_trusted)
        self.wake, ask_again, self.memory, self.deciding = Wake(), Wake(), Memory(kube.writes_per_second), Precedence()
        self.remover = Remover(job_api, ask_again)
        newest = NewestServer()
        self.session = Session(database_url, newest=newest)
        self.listener = Listener(database_url, self.when_leading(self.wake), newest)
        self.mirror = self.watching.mirror
        self.mirror.on_change(self.when_leading(lambda: self.wake.soon(NEWS_SECONDS[self.dispatch.is_calm])))
        self.access = Access(client, verbs_of(RUN, installation_of(settings, named.namespace, namespace)))
        self.catalog = catalog_of(settings, self.site.passed)
        self.catalog.refresh()
        submitter, rules = Submitter(job_api, self.site, self.memory, ask_again), rules_of(settings.jobs, pace.rules)
        self.launcher = Launcher(submitter, self.memory, self.catalog, rules)
        self.pod_refusals = PodRefusals(client, namespace, self.mirror.view)
        self.suspensions = Suspensions(client, namespace, self.mirror.view)
        self.scale_answers = ScaleAnswers(client, namespace, lambda: self.dispatch.demands.asking)
        self.usage = RealUseLookup(settings.placement.prometheus_url, Session(database_url, newest=newest), namespace)
        replica = LeasedReplica(self.lease, named, partial(missing_in, self))
        self.telling = ReplicaSurfaces(settings, client, newest, replica, pace.surfaces)
        self.dispatch = Dispatch(self._ports(namespace), self.launcher, settings.admission, bucket)
        self.dispatching = Rounds("dispatch", self.dispatch.run_once, self.wake)
        self.sweeping = Rounds("sweep", Sweep(self._sweep_ports(), settings.sweep, bucket).run_once, Wake())
        self.leading = Rounds("lease", self.lease.run_once, Wake())
        self.asking = Rounds("access", self.ask_access, ask_again)
        self.asking_events = Rounds("events", self.read_events, Wake())

    def _sweep_ports(self) -> SweepPorts:
        return SweepPorts(
            self.mirror.view,
            self.rows,
            lambda: not self.access.fault and self.lease.is_trusted(),
            self.memory.creates.unanswered,
            self.remover.remove,
            quotas=self.watching.quotas,
            apart=self._pace.apart,
        )

    def _ports(self, namespace: str) -> DispatchPorts:
        return DispatchPorts(
            view=self.view,
            rows=self.rows,
            not_allowed=lambda: self.access.fault,
            is_listening=lambda: self.listener.is_listening,
            lead=self.lease,
            remove=self.remover.remove,
            planner=planner_of(self.settings, self.usage.of, self.watching.warmth.nodes),
            room=self.watching.room,
            quotas=self.watching.quotas,
            answers=lambda: self.scale_answers.known,
            tell=self.telling.overview.tell,
            claims=self.watching.claims(namespace, self.settings.kube.installation, self.lease.is_trusted),
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Runs the stages until `stop`, and the adapters until the stages have ended."""
        async with self._listening():
            try:
                async with asyncio.TaskGroup() as adapters:
                    running = [self.leading.run(asyncio.Event()), self.reflectors.run(), self.listener.run()]
                    running += [self.extender.run(stop)] if self.extender else []
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
            server = await health.serve(health.build_app(checks_of(self), (*OF_KEEPER, *OF_JANITOR)), address)
            servers.push_async_callback(server.cleanup)
            server = await self.telling.serve(
                self.dispatch, self.deciding, row_site_of(self), ReplicaFacts(self.sources, partial(condition_of, self))
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
            *self.telling.rounds(self.dispatch, self.catalog.offered),
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
                await self.remover.drain()
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
    async def rows(self, held_at_most: int = 0) -> AsyncIterator[TaskSnapshot]:
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
        jobs = {**self.memory.strays, **view.jobs} if self.memory.strays else view.jobs
        stale = view.stale or self.watching.stale()
        refusals, suspensions = self.pod_refusals.known, self.suspensions.known
        return replace(view, jobs=jobs, refusals=refusals, suspensions=suspensions, stale=stale)

    async def read_events(self) -> float:
        """Reads Events of Jobs with refused Pods, of suspended Jobs and of Pods that wait for a node.

        It also reads the Jobs again that lost our labels. Only the leader reads, because only the leader acts.
        """
        if self.lease.is_trusted():
            await self.launcher.follow()
            asked = (self.pod_refusals.run_once, self.scale_answers.run_once, self.suspensions.run_once)
            return await read_in_turn(asked)
        self.pod_refusals.forget()
        self.suspensions.forget()
        return ACCESS_AGAIN_SECONDS

    def begin_term(self) -> None:
        """Lists Jobs and Pods again when a term begins: our view may lack the newest Jobs of the last leader."""
        self.mirror.relist()
        self.wake()

    def when_leading(self, wake: Callable[[], None]) -> Callable[[], None]:
        """A wake that works only on the leader. Other replicas plan only at their poll interval."""
        return lambda: wake() if self.lease.is_trusted() else None

    def room_gained(self) -> None:
        """Starts a cycle if the last one held a row for room: a node may have more room now."""
        if self.dispatch.waits_for_room:
            self.wake.soon()


def can_lead(app: App) -> bool:
    """Whether this replica can do a leader's work: it reads the rows, and follows the cluster. Its node may be at fault
    if it does not.
    """
    return not (app.dispatching.fault or app.mirror.is_lost())


def missing_in(app: App) -> Mapping[str, str]:
    """What /readyz misses, and what is missing without which launches go on: rights, and removals that are refused."""
    beside = {RIGHTS: app.access.missing, REMOVALS: app.remover.fault}
    return health.missing(checks_of(app)) | {name: words for name, words in beside.items() if words}


def checks_of(app: App) -> Mapping[str, health.Check]:
    """The checks of /readyz. The dispatcher can do its work if no check names a fault."""
    checks: dict[str, health.Check] = {
        "database": lambda: app.dispatching.fault,
        "sweep": lambda: app.sweeping.fault,
        "cluster": app.watching.stale,
        "access": lambda: app.access.fault,
        "leader": app.lease.vacancy,
        "templates": lambda: app.catalog.fault or ("" if app.catalog.templates else NO_TEMPLATE),
        "api": lambda: hold.detail if (hold := app.memory.api.hold(elapsed())) else "",
        "tasks": lambda: last.tasks_refused if (last := app.dispatch.last) else "",
    }
    return {**checks, **(app.extender.checks if app.extender else {})}


def row_site_of(app: App) -> RowSite:
    """The values of this installation that the pages of rows need."""
    preview = previews_of(app.settings, lambda: app.catalog.templates, app.site)
    return RowSite(CacheContext(app.site.namespace, app.watching.warmth), app.settings.jobs.max_launches, preview)


def condition_of(app: App) -> ReplicaCondition:
    """The state of this replica, for the page About."""
    now, poll_seconds = elapsed(), app.settings.admission.poll_seconds
    most = stale_after(poll_seconds)
    checks = {name: check() for name, check in checks_of(app).items()}
    stores = [
        *app.telling.overview.ages(poll_seconds),
        StoreAge("database", now - app.session.answered_at, most, app.dispatching.fault),
        StoreAge("templates", now - app.catalog.looked_at, most, app.catalog.fault),
        *app.reflectors.ages(),
    ]
    return ReplicaCondition(checks, app.access.missing, stores)


NO_TEMPLATE = "none: set DISPATCHER_IMAGE for the built-in one, or DISPATCHER_TEMPLATES_DIR"
