"""`dispatcher janitor`: ends, returns or cancels rows that no container can move, and deletes old rows.

    Jobs and Pods ─▶ rows ─▶ jobs.closing (pure, by the dispatcher's own table) ─▶ the task's Jobs, live ─▶ one CAS

Of our programs outside a task's container, only the janitor writes to the database, by functions of its own
(docs/protocol.md, section 8). The janitor needs no leader. Each call matches only the values that were read, so a
second janitor or a dispatcher may act in between.

Not guaranteed: speed. A row waits for the next round, and for PARK_SECONDS if a person may still help it. Templates
count only after they have not changed for a while: a janitor with wrong templates must not fail rows at its start.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec
import structlog

from dispatcher.jobs.closing import Act, Closing, plan_closing
from dispatcher.jobs.picture import JobsPicture, by_task, observe, with_jobs
from dispatcher.jobs.trial import Trial
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import log_in
from dispatcher.kube.job_api import JobApi, jobs_path, pods_path
from dispatcher.kube.listing import Resource, list_all
from dispatcher.kube.objects import read_job, read_pod
from dispatcher.kube.reflectors import Reflectors
from dispatcher.model.errors import DispatcherError
from dispatcher.model.identity import job_selector
from dispatcher.model.snapshot import ClusterView
from dispatcher.model.tasks import Task
from dispatcher.pg.closings import LOCKED, Closings
from dispatcher.pg.connect import Session
from dispatcher.pg.tasks import Look, look
from dispatcher.programs.janitor_ends import EndedLaunch, Ends
from dispatcher.programs.janitor_reasons import BringingReasons
from dispatcher.programs.janitor_rows import CLOSED_AT_ONCE, Read, RowReader
from dispatcher.programs.janitor_templates import KeepingTemplates
from dispatcher.programs.janitor_trials import Trials
from dispatcher.programs.startup import catalog_of, database_of, placing_of, rules_of, site_of
from dispatcher.runtime import health
from dispatcher.runtime.clock import elapsed
from dispatcher.runtime.metrics import JANITOR_ROWS, OF_KEEPER, OF_RUN
from dispatcher.runtime.rounds import Rounds, Wake
from dispatcher.runtime.signals import stop_on_signals
from dispatcher.settings.definition import Settings

log = structlog.get_logger(component="janitor")

EVERY_SECONDS, SELDOM_SECONDS = 10, 300
SHARE: Final = 20
"""Lists take at most one part in SHARE of the time. Lists of many thousand Jobs load the API server."""
ACTS_AT_ONCE: Final = 8
WRITTEN_AT_ONCE: Final = 200
HELD_AT_MOST: Final = 10_000
STEADY: Final = timedelta(minutes=10)


async def run(settings: Settings, *, dry_run: bool = False) -> None:
    """`dispatcher janitor`: runs until SIGTERM or SIGINT. With `dry_run`: one round that only logs its calls."""
    client = KubeClient(await log_in(settings.kube))
    janitor = Janitor(settings, client, dry_run=dry_run)
    try:
        if dry_run:
            await janitor.run_once()
        else:
            await serve(janitor, client, settings, stop_on_signals())
    finally:
        await janitor.close()
        await client.close()


async def serve(janitor: "Janitor", client: KubeClient, settings: Settings, stop: asyncio.Event) -> None:
    """Runs the rounds until `stop`. Rows are read in one session; reasons and templates are written in another."""
    reflectors, calls = Reflectors(client), Closings(database_of(settings.database))
    place = client.own_namespace or settings.kube.namespace or client.namespace
    bringing = BringingReasons(reflectors, place, settings.kube.installation, calls)
    passed = site_of(settings, client.namespace).passed
    keeping = KeepingTemplates(catalog_of(settings, passed), steady_seconds(settings), calls)
    rounds = Rounds("janitor", janitor.run_once, Wake())
    beside = [Rounds(name, run_once, Wake(), is_vital=False) for name, run_once in
              (("reasons", bringing.run_once), ("templates", keeping.run_once))]  # fmt: skip
    checks = {"janitor": lambda: rounds.fault, "templates": lambda: janitor.catalog.fault}
    server = await health.serve(health.build_app(checks, (*OF_RUN, *OF_KEEPER)), settings.service.listen_address)
    following = asyncio.create_task(reflectors.run())
    try:
        running = [asyncio.create_task(one.run(stop)) for one in (rounds, *beside)]
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait([stopped, following, *running], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        stop.set()
        for one in (rounds, *beside):
            one.nudge()
        await asyncio.gather(*running)
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
        await calls.close()
        await server.cleanup()


def steady_seconds(settings: Settings) -> float:
    """For how long the templates must have been the same before rows are failed, or refused, for lack of one."""
    return min(STEADY, timedelta(seconds=settings.janitor.park_seconds) / 6).total_seconds()


def pause_after(listing: float) -> float:
    """The pause before the next round, in seconds. `listing`: seconds that the lists of this round took."""
    return min(max(EVERY_SECONDS, SHARE * listing), SELDOM_SECONDS)


class Janitor:
    """Runs rounds. Between rounds it keeps only answers to dry runs, and which rows were locked."""

    def __init__(self, settings: Settings, client: KubeClient, *, dry_run: bool = False) -> None:
        kube, jobs = settings.kube, settings.jobs
        namespace = kube.namespace or client.namespace
        site, url = site_of(settings, namespace), database_of(settings.database)
        ours = job_selector(kube.installation)
        self._jobs = Resource("jobs", jobs_path(namespace), read_job, ours)
        self._pods = Resource("pods", pods_path(namespace), read_pod, ours)
        self._client = client
        self._api = JobApi(client, namespace, kube.installation)
        self._installation = kube.installation
        self._session, self._closings = Session(url), Closings(url)
        self.catalog = catalog_of(settings, site.passed)
        self._rules = rules_of(jobs)
        self._patience = timedelta(seconds=settings.janitor.park_seconds)
        self._steady_seconds = 0 if dry_run else steady_seconds(settings)
        self._retention_days = settings.janitor.retention_days
        self._dry_run = dry_run
        self._templates_since = elapsed()
        self._trials = Trials(Trial(self._api, site), self._steady_seconds)
        self._ends = Ends()
        self._reader = RowReader(self.catalog, self._trials, placing_of(settings), self._patience)

    async def close(self) -> None:
        await self._session.close()
        await self._closings.close()

    async def run_once(self) -> float:
        """One round. Returns the pause before the next round, in seconds."""
        began = elapsed()
        self._refresh()
        view = await self._view()  # 1 Jobs first, so that no Job is newer than its row
        pause = pause_after(elapsed() - began)
        async with look(self._session, HELD_AT_MOST) as rows:  # 2 rows second, in one snapshot
            read = await self._reader.read(rows, self._picture(view, rows), are_steady=self._are_templates_steady())
            self._ends.look(read.picture)
            ended = await self._ends.unwritten(rows, read.picture, read.tasks.values())
        await self._trials.ask(read.untried, self.catalog.templates)  # 3 dry runs of untried rows
        read = msgspec.structs.replace(read, refusals={**read.refusals, **self._trials.confirmed(read.untried, began)})
        closings = [closing for task in read.tasks.values() if (closing := self._plan(read.picture, task, read))]
        closings = self._reader.in_turn(closings, lambda one: (one.task_id, read.tasks[one.task_id].submitted_by))
        await self._carry_out(closings[:CLOSED_AT_ONCE], read)  # 4 for each row a live list, then one CAS
        ended = self._reader.in_turn(ended, lambda one: (one.task, read.tasks[one.task].submitted_by))
        await self._write_ends(ended[:WRITTEN_AT_ONCE])  # 5 what ended launches
        await self._delete_old()  # 6 old rows
        return pause

    def _refresh(self) -> None:
        if is_new := self.catalog.refresh():
            self._templates_since = elapsed()
        self._trials.forget(everything=is_new)

    def _are_templates_steady(self) -> bool:
        """Whether the templates have been the same for long enough to fail rows by them."""
        return not self.catalog.fault and elapsed() - self._templates_since >= self._steady_seconds

    async def _view(self) -> ClusterView:
        pods = {pod.name: pod for pod in (await list_all(self._client, self._pods)).items}
        jobs = {job.name: job for job in (await list_all(self._client, self._jobs)).items}
        return ClusterView(self._client.now(), jobs, pods, {})

    def _picture(self, view: ClusterView, rows: Look) -> JobsPicture:
        """The picture by which rows are judged. The janitor makes no Jobs, so the picture has no creates."""
        jobs = list(view.jobs.values())
        return JobsPicture(
            installation=self._installation,
            database_id=rows.database_id,
            cluster=observe(view, rows.now, self._rules, {}),
            all_jobs=jobs,
            jobs=by_task(jobs),
            offers=self.catalog,
        )

    def _plan(self, picture: JobsPicture, task: Task, read: Read) -> Closing | None:
        return plan_closing(picture, task, self._patience, read.refusals.get(task.id), self._ends.known)

    async def _carry_out(self, closings: Sequence[Closing], read: Read) -> None:
        """Carries out all closings, even if some fail. Then raises the first fault."""
        places = asyncio.Semaphore(ACTS_AT_ONCE)

        async def carry_out(closing: Closing) -> DispatcherError | None:
            async with places:
                try:
                    live = with_jobs(read.picture, closing.task_id, await self._api.list_task(closing.task_id))
                    if self._plan(live, read.tasks[closing.task_id], read) == closing:
                        await self._close(closing, read.run_digests.get(closing.task_id, b""))
                except DispatcherError as fault:
                    log.warning("not closed", task=closing.task_id, act=closing.act, fault=str(fault))
                    return fault
            return None

        for fault in await asyncio.gather(*map(carry_out, closings)):
            if fault is not None:
                raise fault

    async def _close(self, closing: Closing, run_digest: bytes) -> None:
        status = "dry run" if self._dry_run else await self._call(closing, run_digest)
        self._reader.note_lock(closing.task_id, is_locked=status == LOCKED)
        outcome = status if status == LOCKED else closing.act if status else "overtaken"
        if not self._dry_run:
            JANITOR_ROWS.labels(outcome).inc()
        log.info("closed" if outcome == closing.act else outcome, task=closing.task_id, act=closing.act, status=status,
                 attempt=closing.attempt, launch=closing.launch, error=closing.error.partition("\n")[0])  # fmt: skip

    async def _call(self, closing: Closing, run_digest: bytes) -> str | None:
        id_, attempt, launch = closing.task_id, closing.attempt, closing.launch
        if closing.act is Act.CANCEL:
            return await self._closings.cancel(id_, attempt, run_digest)
        if closing.act is Act.RETURN:
            return await self._closings.give_back(id_, (attempt, launch, run_digest), closing.failures, closing.error)
        return await self._closings.end(id_, (attempt, launch, closing.job_uid), closing.act, closing.error)

    async def _write_ends(self, ended: Sequence[EndedLaunch]) -> None:
        """Writes down the ends of launches. The output of a container never reaches a log."""
        if not ended:
            return
        if self._dry_run:
            log.info("would write down what ended launches", launches=len(ended))
        else:
            changed = await self._closings.ended(msgspec.json.encode(ended).decode())
            JANITOR_ROWS.labels("explained").inc(changed)

    async def _delete_old(self) -> None:
        if not self._retention_days:
            return
        if self._dry_run:
            log.info("would delete", rows=await self._closings.count_old(self._retention_days))
        elif deleted := await self._closings.delete_old(self._retention_days):
            JANITOR_ROWS.labels("deleted").inc(deleted)
            log.info("deleted", rows=deleted, older_than_days=self._retention_days)
