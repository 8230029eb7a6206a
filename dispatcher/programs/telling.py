"""The surfaces of `dispatcher run`: the API, the gauges of waiting rows, the ConfigMaps.

It reads the database over a connection of its own, so that no question delays a cycle.
"""

from collections.abc import Callable, Mapping

from aiohttp import web

from dispatcher import __version__
from dispatcher.dashboard import server
from dispatcher.dashboard.announcing import Announcing
from dispatcher.dashboard.asking import Asking
from dispatcher.dashboard.estimates import Estimates
from dispatcher.dashboard.overview import Overview
from dispatcher.dashboard.publishing import Cycles, Publishing
from dispatcher.explain.status import Installation
from dispatcher.kube.client import KubeClient
from dispatcher.kube.config_maps import ConfigMaps
from dispatcher.kube.events import Events
from dispatcher.kube.lease import Lease, LeaseName
from dispatcher.pg.connect import Session
from dispatcher.pg.questions import questions
from dispatcher.programs.startup import database_of
from dispatcher.runtime.rounds import Rounds, Wake
from dispatcher.settings.definition import Settings


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
        self._lease, place = lease
        self._session = Session(database_of(settings.database))
        installation = settings.kube.installation
        named = Installation(installation, __version__, jobs_namespace, self._lease.me)
        self.overview = Overview(named, lambda: questions(self._session), missing, self._lease.is_trusted)
        self._estimates = Estimates(lambda: questions(self._session))
        self._maps = ConfigMaps(client, place.namespace, installation, self._lease.is_trusted)

    def rounds(self, cycles: Cycles) -> tuple[Rounds, ...]:
        publishing = Publishing(self._maps, self.overview, cycles, self._lease.is_trusted)
        events = Events(self._client, "dispatcher")
        announcing = Announcing(events, cycles, self._lease.is_trusted, self._jobs_namespace)
        return (
            Rounds("announcing", announcing.run_once, Wake(), is_vital=False),
            Rounds("estimates", self._estimates.run_once, Wake(), is_vital=False),
            Rounds("counts", self.overview.run_once, Wake(), is_vital=False),
            Rounds("status", publishing.run_once, Wake(), is_vital=False),
        )

    async def serve(self, cycles: Cycles) -> web.AppRunner:
        """Serves the API. Raises SettingsError if it cannot listen."""
        asking = Asking(lambda: questions(self._session), lambda: cycles.last, self._jobs_namespace, self._estimates)
        return await server.serve(asking, self.overview, self._service.dashboard_address, self._service.dashboard_hosts)

    async def close(self) -> None:
        await self._session.close()
