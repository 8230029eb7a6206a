"""The surfaces of `dispatcher run`: the dashboard, the gauges of waiting rows, the ConfigMaps.

It reads the database over two connections of its own: no question delays a cycle, and no count delays a page.
"""

from collections.abc import Callable, Mapping, Sequence

from aiohttp import web
from msgspec import Struct

from dispatcher import __version__
from dispatcher.dashboard.about import AboutSources, Condition, Election
from dispatcher.dashboard.announcing import Announcing
from dispatcher.dashboard.answers import Answers, Sources
from dispatcher.dashboard.asking import Asking
from dispatcher.dashboard.asking_nodes import AskingNodes
from dispatcher.dashboard.asking_queues import AskingQueues
from dispatcher.dashboard.asking_row import AskingRow, RowSite
from dispatcher.dashboard.comparing import Comparing
from dispatcher.dashboard.estimates import Estimates
from dispatcher.dashboard.overview import Overview
from dispatcher.dashboard.pages import Pages
from dispatcher.dashboard.publishing import Cycles, Publishing
from dispatcher.dashboard.server import Dashboard, serve
from dispatcher.explain.status import Installation
from dispatcher.kube.client import KubeClient
from dispatcher.kube.config_maps import ConfigMaps
from dispatcher.kube.events import Events
from dispatcher.kube.lease import Lease, LeaseName
from dispatcher.model.templates import OfferedTemplate
from dispatcher.pg.connect import Session
from dispatcher.pg.questions import questions
from dispatcher.programs.startup import database_of
from dispatcher.runtime.precedence import Precedence
from dispatcher.runtime.rounds import Rounds, Wake
from dispatcher.settings.definition import Settings
from dispatcher.settings.loading import Source


class SelfTold(Struct, frozen=True):
    """What the program tells of itself. `settings`: with their origins; `condition`: how it is now."""

    settings: Sequence[Source]
    condition: Callable[[], Condition]


class Telling:
    """The surfaces of one replica.

    jobs_namespace: the namespace of Jobs.
    lease: the lease, and where it stands: the ConfigMaps stand beside it.
    missing: what is missing, by the names of the checks in /readyz.
    """

    def __init__(
        self, settings: Settings, client: KubeClient, jobs_namespace: str, lease: tuple[Lease, LeaseName],
        missing: Callable[[], Mapping[str, str]],
    ) -> None:  # fmt: skip
        self._service = settings.service
        self._jobs_namespace = jobs_namespace
        self._client = client
        self._lease, self._place = lease
        self._session, self._counting = (Session(database_of(settings.database)) for _ in range(2))
        installation = settings.kube.installation
        self._named = Installation(installation, __version__, jobs_namespace, self._lease.me)
        self.overview = Overview(self._named, lambda: questions(self._counting), missing, self._lease.is_trusted)
        self._estimates = Estimates(lambda: questions(self._counting))
        self._maps = ConfigMaps(client, self._place.namespace, installation, self._lease.is_trusted)

    def rounds(self, cycles: Cycles, offered: Callable[[], Sequence[OfferedTemplate]]) -> tuple[Rounds, ...]:
        """The rounds of all surfaces. `offered`: what the dispatcher's templates let rows set."""
        publishing = Publishing(self._maps, self.overview, cycles, self._lease.is_trusted)
        events = Events(self._client, "dispatcher")
        announcing = Announcing(events, cycles, self._lease.is_trusted, self._jobs_namespace)
        comparing = Comparing(lambda: questions(self._counting), offered, self.overview.tell_templates)
        return (
            Rounds("announcing", announcing.run_once, Wake(), is_vital=False),
            Rounds("estimates", self._estimates.run_once, Wake(), is_vital=False),
            Rounds("templates", comparing.run_once, Wake(), is_vital=False),
            Rounds("counts", self.overview.run_once, self.overview.wanted, is_vital=False),
            Rounds("status", publishing.run_once, Wake(), is_vital=False),
        )

    async def serve(
        self, cycles: Cycles, first: Precedence, site: RowSite, self_told: SelfTold
    ) -> web.AppRunner:  # fmt: skip
        """Serves the dashboard. `first`: what goes before its answers. Raises SettingsError if it cannot listen."""
        asking = Asking(lambda: questions(self._session), lambda: cycles.last, site.place, self._estimates)
        row = AskingRow(lambda: questions(self._session), lambda: cycles.last, site, self._estimates)
        queues = AskingQueues(lambda: questions(self._session), lambda: cycles.last, self.overview)
        self.overview.follow_caches(site.place.caches.total)
        nodes = AskingNodes(lambda: questions(self._session), lambda: cycles.last, site.place.caches.told_by)
        about = AboutSources(self._named, self_told.settings, self.election, self_told.condition)
        service = self._service
        pages = Pages(self._named, service.dashboard_prefix)
        answers = Answers(Sources(asking, self.overview, row, queues, nodes, about))
        dashboard = Dashboard(answers, pages, first, service.dashboard_prefix)
        return await serve(dashboard, service.dashboard_address, service.dashboard_hosts)

    def election(self) -> Election:
        place, lease = self._place, self._lease
        return Election(place.namespace, place.name, lease.holder() or None, lease.is_trusted())

    async def close(self) -> None:
        await self._session.close()
        await self._counting.close()
