"""`dispatcher doctor`: asks whether this installation is right. It writes nothing.

`exit_status`, `in_words`: the findings as an exit status, and as text.

`Doctor`: reads each part apart from the others, with its own time limit: a part that cannot be read hides no other.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from dispatcher import __version__
from dispatcher.doctor.checks import CHECKS, Part
from dispatcher.doctor.cluster import judge_caches, judge_cluster, judge_prometheus, judge_running, judge_scheduling
from dispatcher.doctor.database import Clocks, judge_clocks
from dispatcher.doctor.finding import Finding, FindingState, Installation, fault, good, unchecked
from dispatcher.doctor.look_at_cluster import (
    ClusterReader,
    look_at_caches,
    look_at_cluster,
    look_at_installation,
    look_at_programs,
    look_at_prometheus,
    look_at_scheduling,
)
from dispatcher.doctor.look_at_database import look_at_database
from dispatcher.doctor.look_at_templates import look_at_templates, rendered
from dispatcher.doctor.templates import judge_templates
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import Login, in_cluster, log_in
from dispatcher.model.errors import DispatcherError
from dispatcher.model.rights import InstallationSite
from dispatcher.model.verdicts import named_bug
from dispatcher.settings.loading import LoadedSettings
from dispatcher.startup import database_of, installation_of

SHOUTED = {FindingState.FAULT: "FAULT", FindingState.WARNING: "warning"}


class DoctorReport(Struct, frozen=True):
    """All findings, by part. `faults`: the number of faults."""

    installation: str
    version: str
    faults: int
    findings: tuple[Finding, ...]


def exit_status(findings: Sequence[Finding]) -> int:
    return 1 if any(one.state is FindingState.FAULT for one in findings) else 0


def in_words(findings: Sequence[Finding]) -> str:
    """The findings, part by part: faults first, then warnings, what was not checked, and what is good."""
    return "\n".join(line for part in Part for line in of_part(part, findings))


def of_part(part: Part, findings: Sequence[Finding]) -> Iterator[str]:
    own = [one for one in findings if one.part is part]
    if not own:
        return
    counts = ", ".join(f"{n} {state}" for state in FindingState if (n := sum(one.state is state for one in own)))
    yield f"{part}: {counts}"
    for state, word in SHOUTED.items():
        for one in own:
            if one.state is state:
                yield f"  {word} {one.what}: {one.where}: {one.message}"
                yield f"    why: {one.why}"
                yield f"    mend: {one.mend}"
    for one in own:
        if one.state is FindingState.NOT_CHECKED:
            yield f"  not checked {one.what}: {one.where}: {one.message}"
    for name in dict.fromkeys(one.what for one in own if one.state is FindingState.GOOD):
        places = [one.where for one in own if one.state is FindingState.GOOD and one.what == name]
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        yield f"  good: {CHECKS[name].asks} ({places[0]}{more})"


PART_SECONDS: Final = 60
"""Limit of each part, in seconds. A single question has 10 s at most."""
KNOWN_SECONDS: Final = 25
"""Seconds after which the database is judged without the API server's answers: two questions, and a login."""
FIRST: Final = {Part.DATABASE: "DatabaseAway", Part.CLUSTER: "ApiServerAway"}
"""The check that fails if a part gives no answer. The checks of another part are then `not checked`."""


def this_machine() -> datetime:
    return datetime.now(UTC)


class DoctorEnvironment(Struct, frozen=True):
    """The surroundings of the command.

    namespace: of our programs; None: that of the account or of the kubeconfig.
    log_in: gives the credentials at the API server; None: by the settings.
    now: this machine's clock.
    """

    namespace: str | None = None
    log_in: Callable[[], Awaitable[Login | None]] | None = None
    now: Callable[[], datetime] = this_machine


class Doctor:
    """Examines one installation."""

    def __init__(self, loaded: LoadedSettings, around: DoctorEnvironment) -> None:
        self._loaded = loaded
        self._settings = loaded.settings
        self._around = around
        self._ahead: dict[Part, float | None] = {}
        self._installation: asyncio.Future[Installation] = asyncio.get_running_loop().create_future()

    async def examine(self) -> DoctorReport:
        parts = await asyncio.gather(
            self._apart(Part.DATABASE, self._database()),
            self._of_api_server(),
            self._apart(Part.PROMETHEUS, self._prometheus()),
        )
        clocks = Clocks(self._ahead.get(Part.DATABASE), self._ahead.get(Part.CLUSTER))
        own = [*judge_settings(self._loaded.warnings), *judge_clocks(clocks)]
        # Two templates may come to the same finding, about their namespace.
        found = tuple(dict.fromkeys([*own, *(finding for part in parts for finding in part)]))
        faults = sum(one.state == "fault" for one in found)
        return DoctorReport(self._settings.kube.installation, __version__, faults, found)

    async def _apart(self, part: Part, findings: Awaitable[list[Finding]]) -> list[Finding]:
        """The findings of one part, or that it gave no answer."""
        try:
            async with asyncio.timeout(PART_SECONDS):
                return await findings
        except TimeoutError:
            return no_answer(part, f"no answer within {PART_SECONDS} s")
        except DispatcherError as wrong:
            return no_answer(part, str(wrong))
        except Exception as bug:  # noqa: BLE001  # a bug in one part must not hide what the others found
            return no_answer(part, f"a bug of the doctor, please report it: {named_bug(bug)}")

    async def _database(self) -> list[Finding]:
        url = database_of(self._settings.database)
        found, self._ahead[Part.DATABASE] = await look_at_database(url, self._known, self._around.now)
        return found

    async def _known(self) -> Installation:
        """The installation by the API server, if it answers in time."""
        try:
            async with asyncio.timeout(KNOWN_SECONDS):
                return await asyncio.shield(self._installation)
        except TimeoutError:
            return self._unknown()

    def _unknown(self) -> Installation:
        return Installation(self._around.namespace or "NAMESPACE")

    async def _prometheus(self) -> list[Finding]:
        url, in_pod = self._settings.placement.prometheus_url, in_cluster() is not None
        return list(judge_prometheus(url, await look_at_prometheus(url), is_asked_in_pod=in_pod)) if url else []

    async def _of_api_server(self) -> list[Finding]:
        """The cluster, the templates and the scheduler."""
        try:
            client = KubeClient(await self._login())
        except DispatcherError as wrong:
            self._installation.set_result(self._unknown())
            return no_answer(Part.CLUSTER, str(wrong))
        try:
            reading, site = ClusterReader(client), self._site(client)
            parts = await asyncio.gather(
                self._apart(Part.CLUSTER, self._cluster(reading, site)),
                self._apart(Part.TEMPLATES, self._templates(reading, site)),
                self._apart(Part.SCHEDULING, self._scheduling(reading, site)),
                self._apart(Part.CACHES, self._caches(reading, site)),
            )
        finally:
            await client.close()
        return [finding for part in parts for finding in part]

    async def _login(self) -> Login:
        found = await self._around.log_in() if self._around.log_in else None
        return found or await log_in(self._settings.kube)

    def _site(self, client: KubeClient) -> InstallationSite:
        ours = self._around.namespace or client.own_namespace or client.namespace
        return installation_of(self._settings, ours, self._settings.kube.namespace or client.namespace)

    async def _cluster(self, reading: ClusterReader, site: InstallationSite) -> list[Finding]:
        known = Installation(site.ours)
        try:
            known = await look_at_installation(reading, site)
        finally:
            self._installation.set_result(known)
        facts = await look_at_cluster(reading, site, known, has_extender=bool(self._settings.placement.scheduler_name))
        self._ahead[Part.CLUSTER] = (reading.client.now() - self._around.now()).total_seconds()
        names = {"namespace": site.ours, "installation": site.installation}
        running = await look_at_programs(reading, site)
        return [*judge_cluster(facts), *judge_running(running, names, wants_janitor=known.wants_janitor)]

    async def _templates(self, reading: ClusterReader, site: InstallationSite) -> list[Finding]:
        jobs = rendered(self._settings, site.jobs)
        names = {**(await self._known()).words, "namespace": site.ours}
        return list(judge_templates(*await look_at_templates(reading, self._settings, site, jobs), names))

    async def _scheduling(self, reading: ClusterReader, site: InstallationSite) -> list[Finding]:
        name = self._settings.placement.scheduler_name
        return list(judge_scheduling(await look_at_scheduling(reading, name, site))) if name else []

    async def _caches(self, reading: ClusterReader, site: InstallationSite) -> list[Finding]:
        names = {"namespace": site.ours, "installation": site.installation}
        return list(judge_caches(await look_at_caches(reading, site), names)) if site.has_caches else []


def no_answer(part: Part, why: str) -> list[Finding]:
    if part in FIRST:
        return [fault(FIRST[part], part, why, namespace="NAMESPACE")]
    return [unchecked(name, part, why) for name, check in CHECKS.items() if check.part is part]


def judge_settings(unknown: Sequence[str]) -> Iterator[Finding]:
    """Judges the settings. A value that cannot be read ends every program, so only unknown names are left to find.

    unknown: the warnings of `load`, each of which begins with the name of a variable.
    """
    for said in unknown:
        name, _, rest = said.partition(" ")
        yield fault("UnknownSetting", name, rest, name=name)
    if not unknown:
        yield good("UnknownSetting", "environment")


async def examine(loaded: LoadedSettings, around: DoctorEnvironment) -> DoctorReport:
    return await Doctor(loaded, around).examine()
