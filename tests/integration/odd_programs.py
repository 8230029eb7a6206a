"""A dispatcher and a janitor in this process, with a real database and the embedded cluster. A test calls their rounds.

A part that ends in a fault is a complaint, and the other parts are called nevertheless.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import yaml

from dispatcher.app import App, condition_of, row_site_of
from dispatcher.commands import explain as explaining
from dispatcher.commands import explain as status
from dispatcher.commands.render import preview_row
from dispatcher.janitor.janitor import Janitor
from dispatcher.janitor.tables import ReasonTableSync, TemplateTableSync
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import log_in
from dispatcher.kube.reflector import Reflectors
from dispatcher.model.errors import DispatcherError
from dispatcher.model.launches import LABEL_TASK_ID
from dispatcher.pg.connect import Session
from dispatcher.pg.questions import questions
from dispatcher.pg.tasks import Closings
from dispatcher.settings.definition import Settings
from dispatcher.settings.loading import load
from dispatcher.startup import catalog_of, database_of
from dispatcher.views.about import AboutSources
from dispatcher.views.answers import ADDRESSES, Answers, ApiRequest, Refusal, Sources
from dispatcher.views.page_reads import NodePageReader, QueuePageReader, RowPageReader
from dispatcher.views.reads import Estimates, ExplanationReader
from dispatcher.views.server import Pages
from dispatcher.views.status import InstallationIdentity
from dispatcher_demo.cluster.cluster import EmbeddedCluster
from dispatcher_demo.cluster.kinds import JOB
from tests.controlplane.waiting import wait_for
from tests.rig.builders import a_manifest
from tests.rig.postgres import Database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OPENED: Final = {
    "row-may-set": "env,image,command,args,cpu,memory,private_machine,special_machine", "images": "*",
    "max-cpu": "1M", "max-memory": "1Ei", "max-seconds": "604800", "machines": "*",
}  # fmt: skip
"""What the template lets a row set: everything, so that an odd value gets as far as it can."""
SETTINGS: Final = {
    "NAMESPACE": "default", "CHECK_ROOM": "false", "PARK_SECONDS": "1", "MAX_PENDING": "1000", "MAX_JOBS": "1000",
    "KUBE_WRITES_PER_SECOND": "500",
}  # fmt: skip
FILTERS: Final[tuple[dict[str, str], ...]] = (
    {}, {"status": "waiting"}, {"status": "processing"}, {"status": "succeeded"}, {"status": "failed"},
    {"batch": "april"}, {"label": "a=b"}, {"submitted_by": "team_a"}, {"queue": "default"}, {"reason": "NotDue"},
    {"reason": "InLine"}, {"reason": "PolicyDenied"}, {"template": "default"},
)  # fmt: skip
LISTS: Final = (
    ("/status", ApiRequest()), ("/queues", ApiRequest()), ("/queues/{name}", ApiRequest("default")), ("/failures",
     ApiRequest()),
    ("/batches", ApiRequest("", {"batch": "april"})),
    ("/batches", ApiRequest("", {"batch": "april", "queue": "default", "submitted_by": "team_a"})),
    *(("/tasks", ApiRequest("", filters)) for filters in FILTERS),
)  # fmt: skip
"""Addresses of the API that tell of many rows, each with what is asked."""
OF_ROW: Final = ("/tasks/{id}", "/tasks/{id}/explain")
CYCLES: Final = 3
"""A row may have to wait for the next cycle, in which its kind is judged or its template is tried again."""


Rounds = Mapping[str, Callable[[], Awaitable[float]]]
"""The work of a janitor beside its rounds, by name."""


class Programs:
    """One dispatcher that leads, and one janitor. `complaints`: what broke the promise."""

    def __init__(self, app: App, janitor: Janitor, beside: Rounds, cluster: EmbeddedCluster) -> None:
        self.complaints: list[str] = []
        self.app, self._janitor, self._beside, self._cluster = app, janitor, beside, cluster
        self._session = Session(lambda: app.settings.database.url)
        named = InstallationIdentity("dispatcher", "test", "default", "test")
        self._pages, self._answers = Pages(named, ""), Answers(self._sources(named))

    def _sources(self, named: InstallationIdentity) -> Sources:
        app, estimates = self.app, Estimates(lambda: questions(self._session))
        rows, last, site = lambda: questions(self._session), lambda: app.dispatch.last, row_site_of(app)
        about = AboutSources(named, (), app.telling.election, partial(condition_of, app))
        asking, overview = ExplanationReader(rows, last, site.place, estimates), app.telling.overview
        queues, nodes = QueuePageReader(rows, last, overview), NodePageReader(rows, last, site.place.caches.told_by)
        return Sources(asking, overview, RowPageReader(rows, last, site, estimates), queues, nodes, about)

    async def close(self) -> None:
        await self._session.close()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """One part of a program. Its fault is a complaint, with the last place in the product."""
        try:
            yield
        except Exception as caught:  # noqa: BLE001  # whatever it is, the promise is broken
            fault = first_of(caught)
            self.complaints.append(f"{name}: {type(fault).__name__}: {str(fault)[:200]} ({place_of(fault)})")

    async def cycles(self) -> None:
        """Some cycles, each until its creates have their answers."""
        for _ in range(CYCLES):
            with self.part("cycle"):
                await self.app.dispatch.run_once()
                await self.app.launcher.drain()

    async def tell(self) -> None:
        """All that a dispatcher does beside its cycles: counts, ConfigMaps, Events, comparison of templates, sweep."""
        for one in (self.app.sweeping, *self.app.telling.rounds(self.app.dispatch, self.app.catalog.offered)):
            with self.part(one._name):
                await one._run_once()
        with self.part("runs"):
            async with questions(self._session) as rows:
                await rows.runs([("default", "warm")])

    async def janitor_round(self) -> None:
        with self.part("janitor"):
            await self._janitor.run_once()
        await self.beside_rounds()

    async def beside_rounds(self) -> None:
        """The janitor's work beside its rounds: it brings reasons and templates into the database."""
        for name, run_once in self._beside.items():
            with self.part(name):
                await run_once()

    async def ask(self, address: str, asked: ApiRequest) -> Any:
        """The answer as JSON and as a page."""
        with self.part(f"{address} {asked.path}{asked.query or ''}"):
            found = await self._answers.find(address, asked)
            if isinstance(found, Refusal):
                return found
            page = ADDRESSES[address]
            if page.template:
                self._pages.write(page.template, found, asked, address)
            return msgspec.json.decode(msgspec.json.encode(found), type=page.body)

    async def lists(self) -> dict[str, Any]:
        """The answers of all lists by address. A list that is refused is a complaint."""
        found: dict[str, Any] = {}
        for address, asked in LISTS:
            told = await self.ask(address, asked)
            if isinstance(told, Refusal):
                self.complaints.append(f"{address} {asked.query or ''}: {told.status} {told.error[:200]}")
            else:
                found[f"{address}{asked.query or ''}"] = told
        with self.part("dispatcher status"):
            status.status_in_words(found["/status"])
        return found

    async def row(self, id_: int) -> Any:
        """The explanation of a row, after all of its pages were asked for."""
        answers = [await self.ask(address, ApiRequest(str(id_))) for address in OF_ROW]
        for told in answers:
            if isinstance(told, Refusal) and told.status >= 500:
                self.complaints.append(f"page of the row: {told.status} {told.error[:200]}")
        with self.part("dispatcher render"), suppress(DispatcherError):
            await preview_row(id_, self.app.settings)
        if isinstance(answers[-1], Refusal) or answers[-1] is None:
            return None
        with self.part("dispatcher explain"):
            explaining.in_words(answers[-1])
        return answers[-1]

    def launched(self) -> set[int]:
        """Ids of the rows that have a Job."""
        jobs = (msgspec.json.decode(one.whole) for one in self._cluster.registry.storage.all(JOB).values())
        return {int(job["metadata"]["labels"][LABEL_TASK_ID]) for job in jobs}


def first_of(fault: Exception) -> Exception:
    """The fault itself, or the first one of a group."""
    return first_of(fault.exceptions[0]) if isinstance(fault, ExceptionGroup) else fault


def place_of(fault: Exception) -> str:
    """The last line of the product in the trace of a fault."""
    ours = [step for step in traceback.extract_tb(fault.__traceback__) if "/dispatcher/" in step.filename]
    return f"dispatcher/{ours[-1].filename.rpartition('/dispatcher/')[2]}:{ours[-1].lineno}" if ours else "no place"


@asynccontextmanager
async def running(work: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Runs something beside the block."""
    task = asyncio.ensure_future(work())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def settings_of(database: Database, login: str, cluster: EmbeddedCluster, folder: Path) -> Settings:
    templates = folder / "templates"
    templates.mkdir(exist_ok=True)
    (templates / "default.yaml").write_text(yaml.safe_dump(a_manifest(annotations=OPENED)))
    values = {
        "DATABASE_URL": database.url(login), "TEMPLATES_DIR": str(templates),
        "KUBECONFIG": str(cluster.write_kubeconfig(folder / "kubeconfig")), **SETTINGS,
    }  # fmt: skip
    return load({f"DISPATCHER_{name}": value for name, value in values.items()}, str).settings


@asynccontextmanager
async def programs(database: Database, folder: Path) -> AsyncIterator[Programs]:
    """New programs, with a cluster of their own, on the rows of the database."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(EmbeddedCluster())
        settings, of_janitor = (settings_of(database, login, cluster, folder) for login in ("reader", "janitor"))
        client = KubeClient(await log_in(settings.kube))
        stack.push_async_callback(client.close)
        app, janitor, calls = (
            App(settings, client),
            Janitor(of_janitor, client),
            Closings(database_of(of_janitor.database)),
        )
        found = Programs(app, janitor, await beside_of(of_janitor, client, calls, stack), cluster)
        for one in (app, janitor, calls, found):
            stack.push_async_callback(one.close)
        for work in (app.reflectors.run, partial(app.leading.run, asyncio.Event())):
            await stack.enter_async_context(running(work))
        await app.ask_access()
        await wait_for(lambda: app.lease.is_trusted() and not app.watching.stale(), "the dispatcher leads")
        yield found


async def beside_of(settings: Settings, client: KubeClient, calls: Closings, stack: AsyncExitStack) -> Rounds:
    """The janitor's work beside its rounds, after it has seen the ConfigMaps once."""
    reflectors = Reflectors(client)
    bringing = ReasonTableSync(reflectors, client.namespace, settings.kube.installation, calls)
    await stack.enter_async_context(running(reflectors.run))
    await wait_for(lambda: all(one.age <= one.most for one in reflectors.ages()), "the janitor sees the ConfigMaps")
    keeping = TemplateTableSync(catalog_of(settings, ()), 0, calls)
    return {"reasons": bringing.run_once, "templates of the janitor": keeping.run_once}
