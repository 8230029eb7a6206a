"""The surfaces of `dispatcher run`: the dashboard, the gauges of waiting rows, the ConfigMaps and the Events.

`StatusPublisher`: the leader writes the status and the reasons into ConfigMaps, for everybody with kubectl, and for the
janitor. A fault here stops nothing else. The next round writes again, whatever the ConfigMaps then contain.

`JobEventWriter`: the leader writes an Event about a Job when its row was launched again, or is parked. etcd keeps
Events for an hour, so each is written once, and a limited number in a round.

`TemplateComparison`: compares the dispatcher's templates with those of the janitor, by which INSERT judges rows. Both
read files of their own. While the files differ, INSERT refuses rows that could run, or accepts rows that wait.

`ReplicaSurfaces`: reads the database over two connections: no question delays a cycle, and no count delays a page.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final, Protocol

import structlog
from aiohttp import web
from msgspec import Struct

from dispatcher import __version__
from dispatcher.admission.last_cycle import LastCycle
from dispatcher.container.contract import NewestServer
from dispatcher.jobs.offered import differences
from dispatcher.kube.client import KubeClient
from dispatcher.kube.config_maps import ConfigMaps
from dispatcher.kube.events import Events, write_due
from dispatcher.kube.lease import Lease, LeaseName
from dispatcher.model.jobs import Notice, Notices
from dispatcher.model.tasks import OfferedTemplate
from dispatcher.pg.connect import Session
from dispatcher.pg.questions import questions
from dispatcher.runtime.rounds import Precedence, Rounds, Wake
from dispatcher.settings.definition import Settings
from dispatcher.settings.loading import SettingSource
from dispatcher.startup import database_of
from dispatcher.views.about import AboutSources, Election, ReplicaCondition
from dispatcher.views.answers import Answers, Sources
from dispatcher.views.counting import Overview, SurfacePace
from dispatcher.views.page_reads import NodePageReader, QueuePageReader, RowPageReader, RowSite
from dispatcher.views.published import (
    notices_of,
    read_reasons,
    reasons_json,
    reasons_of,
    recalled,
    status_json,
    what_matters,
)
from dispatcher.views.reads import Estimates, ExplanationReader, NoCycleYet
from dispatcher.views.server import Dashboard, Pages, serve
from dispatcher.views.status import InstallationIdentity

LOOK_SECONDS: Final = 2
"""Seconds between two rounds."""
REPAIR_SECONDS: Final = 300
"""Seconds between two writes of the reasons, at most: somebody else may have overwritten them."""
STATUS, REASONS = "status", "reasons"
log = structlog.get_logger(component="views.surfaces")


class ConfigMapTexts(Protocol):
    async def read(self, name: str, key: str) -> str | None: ...
    async def write(self, name: str, key: str, text: str) -> bool: ...


class Cycles(Protocol):
    """The last cycle of this replica; None: there was none."""

    last: LastCycle | None


class StatusPublisher:
    """Writes the ConfigMaps. Between rounds it keeps what it wrote last, and when."""

    def __init__(
        self,
        maps: ConfigMapTexts,
        overview: Overview,
        cycles: Cycles,
        leads: Callable[[], bool],
        pace: SurfacePace,
    ) -> None:
        self._maps = maps
        self._overview = overview
        self._cycles = cycles
        self._leads = leads
        self._pace, self._clock = pace, pace.clock
        self._is_recalled = False
        self._written: dict[str, tuple[float, Any]] = {}

    async def run_once(self) -> float:
        """Runs one round. Returns the seconds until the next. Raises ClusterError and DatabaseError."""
        if self._cycles.last is None:
            return LOOK_SECONDS
        if not self._is_recalled:
            await self._recall()
        if not self._leads():
            self._written.clear()  # another leader writes by now
            return LOOK_SECONDS
        await self._write_reasons(self._cycles.last)  # first, because they need no count of the rows
        await self._write_status()
        return LOOK_SECONDS

    async def _recall(self) -> None:
        """Takes over the times that an earlier leader wrote, once."""
        text = await self._maps.read(REASONS, "reasons.json")
        self._is_recalled = True  # whatever the text is, it is read once
        earlier, cycle = read_reasons(text) if text else None, self._cycles.last
        if text and earlier is None:
            log.warning("the reasons of an earlier leader are unreadable", bytes=len(text))
        if earlier is not None and cycle is not None:
            self._cycles.last = recalled(cycle, earlier)

    async def _write_status(self) -> None:
        try:
            status = await self._overview.status()
        except NoCycleYet:
            return
        news, age = what_matters(status), self._age(STATUS)
        if age >= self._pace.alive_seconds or (age >= self._pace.status_seconds and news != self._written[STATUS][1]):
            await self._write(STATUS, status_json(status).decode(), news)

    async def _write_reasons(self, cycle: LastCycle) -> None:
        found, age = reasons_of(cycle), self._age(REASONS)
        news = found.rows, found.messages, found.since, found.left_out  # all but the time of the cycle
        if age >= REPAIR_SECONDS or (age >= self._pace.alive_seconds and news != self._written[REASONS][1]):
            await self._write(REASONS, reasons_json(cycle).decode(), news)

    def _age(self, name: str) -> float:
        return self._clock() - self._written[name][0] if name in self._written else float("inf")

    async def _write(self, name: str, text: str, news: Any) -> None:
        if await self._maps.write(name, f"{name}.json", text):
            self._written[name] = self._clock(), news


ROUND_SECONDS: Final = 2
"""Seconds between two rounds."""
WRITES_IN_A_ROUND: Final = 5
"""Events of one round, at most."""
MOST_TOLD: Final = 10_000
"""Written Events that are remembered, at most."""
Key = tuple[str, str]
"""(UID of the object, reason)."""


class Writer(Protocol):
    async def tell_once(self, notice: Notice) -> None: ...


class JobEventWriter:
    """Writes each notice once. Between rounds it keeps which notices were written, and which ones wait."""

    def __init__(self, events: Writer, cycles: Cycles, leads: Callable[[], bool], jobs_namespace: str) -> None:
        self._events = events
        self._cycles = cycles
        self._leads = leads
        self._namespace = jobs_namespace
        self._notices = Notices()
        self._told: set[Key] = set()

    async def run_once(self) -> float:
        """Runs one round. Returns the seconds until the next. Raises ClusterError."""
        if self._cycles.last is None or not self._leads():
            return ROUND_SECONDS
        self._collect(list(notices_of(self._cycles.last, self._namespace)))
        await write_due(self._notices, WRITES_IN_A_ROUND, self._events.tell_once)
        return ROUND_SECONDS

    def _collect(self, found: list[Notice]) -> None:
        keys = {(notice.uid, notice.reason) for notice in found}
        for notice in found:
            if (notice.uid, notice.reason) not in self._told:
                self._notices.say(notice)
        self._told = (self._told if len(self._told) < MOST_TOLD else set[Key]()) | keys


class TemplatesRead(Protocol):
    """The janitor's templates in one snapshot of the database."""

    async def templates(self) -> list[OfferedTemplate]: ...


class TemplateComparison:
    """Makes one comparison a round. A difference counts after two rounds: files reach Pods at different times.

    tables: opens a snapshot of the database.
    offered: the dispatcher's templates.
    tell: takes the differences.
    every_seconds: pause between two comparisons.
    """

    def __init__(
        self,
        tables: Callable[[], AbstractAsyncContextManager[TemplatesRead]],
        offered: Callable[[], Sequence[OfferedTemplate]],
        tell: Callable[[Sequence[str]], None],
        every_seconds: float,
    ) -> None:
        self._tables = tables
        self._offered = offered
        self._tell = tell
        self._every_seconds = every_seconds
        self._seen: Sequence[str] = ()
        self._told: Sequence[str] = ()

    async def run_once(self) -> float:
        """Returns the seconds until the next comparison. Raises DatabaseError."""
        async with self._tables() as table:
            found = differences(self._offered(), await table.templates())
        lasting = [one for one in found if one in self._seen]
        if lasting and lasting != self._told:
            log.warning("the janitor has other templates", differ=lasting)
        elif self._told and not lasting:
            log.info("the templates agree again")
        self._seen, self._told = found, lasting
        self._tell(lasting)
        return self._every_seconds


class LeasedReplica(Struct, frozen=True):
    """One replica, as it appears to others.

    place: the name of the lease; the ConfigMaps are in the same namespace.
    missing: what is missing, by the names of the checks in /readyz.
    """

    lease: Lease
    place: LeaseName
    missing: Callable[[], Mapping[str, str]]


class ReplicaFacts(Struct, frozen=True):
    """What the program says about itself. `settings`: with their origins; `condition`: its present state."""

    settings: Sequence[SettingSource]
    condition: Callable[[], ReplicaCondition]


class ReplicaSurfaces:
    """The surfaces of one replica.

    newest: the newest server that the sessions of this program saw.
    """

    def __init__(
        self, settings: Settings, client: KubeClient, newest: NewestServer, replica: LeasedReplica,
        pace: SurfacePace,
    ) -> None:  # fmt: skip
        self._service = settings.service
        self._jobs_namespace = settings.kube.namespace or client.namespace
        self._client = client
        self._lease, self._place, missing = replica.lease, replica.place, replica.missing
        self._pace = pace
        self._session, self._counting = (Session(database_of(settings.database), newest=newest) for _ in range(2))
        installation = settings.kube.installation
        self._named = InstallationIdentity(installation, __version__, self._jobs_namespace, self._lease.me)
        self.overview = Overview(self._named, lambda: questions(self._counting), missing, self._lease.is_trusted, pace)
        self._estimates = Estimates(lambda: questions(self._counting))
        self._maps = ConfigMaps(client, self._place.namespace, installation, self._lease.is_trusted)

    def rounds(self, cycles: Cycles, offered: Callable[[], Sequence[OfferedTemplate]]) -> tuple[Rounds, ...]:
        """The rounds of all surfaces. `offered`: the dispatcher's templates, as rows of the table."""
        publishing = StatusPublisher(self._maps, self.overview, cycles, self._lease.is_trusted, self._pace)
        events = Events(self._client, "dispatcher")
        announcing = JobEventWriter(events, cycles, self._lease.is_trusted, self._jobs_namespace)
        comparing = TemplateComparison(
            lambda: questions(self._counting), offered, self.overview.tell_templates, self._pace.compare_seconds
        )
        return (
            Rounds("announcing", announcing.run_once, Wake(), is_vital=False),
            Rounds("estimates", self._estimates.run_once, Wake(), is_vital=False),
            Rounds("templates", comparing.run_once, Wake(), is_vital=False),
            Rounds("counts", self.overview.run_once, self.overview.wanted, is_vital=False),
            Rounds("status", publishing.run_once, Wake(), is_vital=False),
        )

    async def serve(
        self, cycles: Cycles, first: Precedence, site: RowSite, self_told: ReplicaFacts
    ) -> web.AppRunner:  # fmt: skip
        """Serves the dashboard. `first`: the cycles, which go before its answers. Raises SettingsError if it cannot."""

        def last() -> LastCycle | None:
            return cycles.last

        rows = partial(questions, self._session)
        asking = ExplanationReader(rows, last, site.place, self._estimates)
        row = RowPageReader(rows, last, site, self._estimates)
        queues = QueuePageReader(rows, last, self.overview)
        nodes = NodePageReader(rows, last, site.place.caches.told_by)
        self.overview.follow_caches(site.place.caches.total)
        about = AboutSources(self._named, self_told.settings, self.election, self_told.condition)
        service = self._service
        pages = Pages(self._named, service.dashboard_prefix, self._lease.is_trusted)
        answers = Answers(Sources(asking, self.overview, row, queues, nodes, about))
        dashboard = Dashboard(answers, pages, first, service.dashboard_prefix)
        return await serve(dashboard, service.dashboard_address, service.dashboard_hosts)

    def election(self) -> Election:
        place, lease = self._place, self._lease
        return Election(place.namespace, place.name, lease.holder() or None, lease.is_trusted())

    async def close(self) -> None:
        await self._session.close()
        await self._counting.close()
