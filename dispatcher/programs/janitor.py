"""`dispatcher janitor`: moves on the rows that nobody else will, and deletes old ones.

    Jobs and Pods ─▶ rows ─▶ jobs.closing (pure, by the dispatcher's own table) ─▶ the task's Jobs, live ─▶ one CAS

It is the only program of ours that writes to the database, by functions of its own (docs/protocol.md, section 8). It
needs no leader: each call is only valid for what was read, so a second janitor or a dispatcher may act in between.

Not guaranteed: promptness. A row that a container would have moved on in a second may wait here for a round and, where
a person might still help it, for PARK_SECONDS. Templates count only once they have stood for a while: a janitor that
was started with the wrong ones must not fail everybody's rows.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Final, TypeVar

import msgspec
import structlog
from msgspec import Struct

from dispatcher.jobs.catalog import Catalog
from dispatcher.jobs.closing import Act, Closing, plan_closing
from dispatcher.jobs.observed import FirstSeen, ObservedCluster, Rules, due_at
from dispatcher.jobs.trial import Trial
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import log_in
from dispatcher.kube.job_api import JobApi, jobs_path, pods_path
from dispatcher.kube.listing import Resource, list_all
from dispatcher.kube.objects import read_job, read_pod
from dispatcher.model.cache_history import CacheHistory
from dispatcher.model.cluster import Pod
from dispatcher.model.errors import DispatcherError
from dispatcher.model.identity import NO_KEY, job_selector, task_identity
from dispatcher.model.jobs import Job
from dispatcher.model.launches import Launch, Offer, Order
from dispatcher.model.tasks import IndexedRow, Request, Task
from dispatcher.model.verdicts import Hold
from dispatcher.pg.closings import LOCKED, Closings
from dispatcher.pg.connect import Session
from dispatcher.pg.tasks import Look, look
from dispatcher.placement.placing import plan_placement
from dispatcher.programs.janitor_trials import Trials
from dispatcher.programs.startup import database_of, site_of
from dispatcher.runtime import health
from dispatcher.runtime.clock import elapsed
from dispatcher.runtime.metrics import JANITOR_ROWS
from dispatcher.runtime.rounds import Rounds, Wake
from dispatcher.runtime.signals import stop_on_signals
from dispatcher.settings.definition import Settings

log = structlog.get_logger(component="janitor")

T = TypeVar("T")
EVERY_SECONDS, SELDOM_SECONDS = 10, 300
SHARE: Final = 20
"""Lists may take one part in so many of the time: those of many thousand Jobs are work for the API server."""
CLOSED_AT_ONCE: Final = 200
ACTS_AT_ONCE: Final = 8
TRIED_AT_ONCE: Final = 10
LOOKED_AT: Final = 50_000
"""Waiting rows whose template is judged, in equal parts of each submitter and queue; those behind come up later."""
OLDEST: Final = 200
"""Waiting rows without a Job that may be tried, beginning with the oldest; each at most once an hour."""
HELD_AT_MOST: Final = 10_000
STEADY: Final = timedelta(minutes=10)


class Seen(Struct, frozen=True):
    """The cluster as one round saw it."""

    now: datetime
    jobs: Mapping[int, Sequence[Job]]
    pods: Mapping[str, Sequence[Pod]]


class Read(Struct, frozen=True):
    """The rows as one round read them, after the cluster was seen."""

    now: datetime
    database_id: str
    tasks: Mapping[int, Task]
    run_digests: Mapping[int, bytes]
    refusals: Mapping[int, Hold]
    untried: Sequence[Order]


async def run(settings: Settings, *, dry_run: bool = False) -> None:
    """`dispatcher janitor`: until SIGTERM or SIGINT; with `dry_run` one round that only says what it would do."""
    client = KubeClient(await log_in(settings.kube))
    janitor = Janitor(settings, client, dry_run=dry_run)
    try:
        if dry_run:
            await janitor.run_once()
        else:
            await serve(janitor, settings.service.listen_address, stop_on_signals())
    finally:
        await janitor.close()
        await client.close()


async def serve(janitor: "Janitor", address: str, stop: asyncio.Event) -> None:
    rounds = Rounds("janitor", janitor.run_once, Wake())
    checks = {"janitor": lambda: rounds.fault, "templates": lambda: janitor.catalog.fault}
    server = await health.serve(health.build_app(checks), address)
    try:
        turning = asyncio.create_task(rounds.run(stop))
        await asyncio.wait([turning, stopped := asyncio.create_task(stop.wait())], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        rounds.nudge()
        await turning
    finally:
        await server.cleanup()


def pause_after(listing: float) -> float:
    """Until the next round, by how long the lists of this one took; both in seconds."""
    return min(max(EVERY_SECONDS, SHARE * listing), SELDOM_SECONDS)


def id_and_submitter(row: IndexedRow) -> tuple[int, str]:
    return row.id, row.submitted_by


class Janitor:
    """Runs rounds; what it keeps between them is what the API server said of rows that it would not take."""

    def __init__(self, settings: Settings, client: KubeClient, *, dry_run: bool = False) -> None:
        kube, jobs = settings.kube, settings.jobs
        namespace = kube.namespace or client.namespace
        site, url = site_of(settings, namespace), database_of(settings.database)
        ours = job_selector(kube.installation)
        self._jobs = Resource("jobs", jobs_path(namespace), read_job, ours)
        self._pods = Resource("pods", pods_path(namespace), read_pod, ours)
        self._client = client
        self._api = JobApi(client, namespace, kube.installation)
        self._placement = settings.placement
        self._session, self._closings = Session(url), Closings(url)
        self.catalog = Catalog(jobs, frozenset(site.passed))
        self._rules = Rules(jobs.max_launches, jobs.start_deadline_seconds, jobs.node_lost_seconds)
        self._patience = timedelta(seconds=settings.janitor.park_seconds)
        self._steady_seconds = 0 if dry_run else min(STEADY, self._patience / 6).total_seconds()
        self._retention_days = settings.janitor.retention_days
        self._dry_run = dry_run
        self._templates_since = elapsed()
        self._trials = Trials(Trial(self._api, site), self._steady_seconds)
        self._locked: frozenset[int] = frozenset()

    async def close(self) -> None:
        await self._session.close()
        await self._closings.close()

    async def run_once(self) -> float:
        """One round; returns in how many seconds the next one may begin."""
        began = elapsed()
        self._refresh()
        seen = await self._look_at_cluster()  # 1 Jobs first: none is newer than the row it is judged with
        pause = pause_after(elapsed() - began)
        async with look(self._session, HELD_AT_MOST) as rows:  # 2 rows second, in one snapshot
            read = await self._read(rows, seen)
        await self._trials.ask(
            read.untried, self.catalog.templates
        )  # 3 would the API server take those that nobody has launched?
        read = msgspec.structs.replace(read, refusals={**read.refusals, **self._trials.confirmed(read.untried, began)})
        closings = [closing for task in read.tasks.values() if (closing := self._plan(task, seen, read)) is not None]
        closings = self._in_turn(closings, lambda one: (one.task_id, read.tasks[one.task_id].submitted_by))
        await self._carry_out(closings[:CLOSED_AT_ONCE], seen, read)  # 4 the live question, then one CAS each
        await self._delete_old()  # 5
        return pause

    def _refresh(self) -> None:
        if is_new := self.catalog.refresh():
            self._templates_since = elapsed()
        self._trials.forget(everything=is_new)

    async def _look_at_cluster(self) -> Seen:
        jobs, pods = defaultdict(list), defaultdict(list)
        for pod in (await list_all(self._client, self._pods)).items:
            pods[pod.job_uid].append(pod)
        for job in (await list_all(self._client, self._jobs)).items:
            jobs[job.task_id].append(job)
        return Seen(self._client.now(), jobs, pods)

    async def _read(self, rows: Look, seen: Seen) -> Read:
        queues = [queue.name for queue in rows.frame.queues if queue.name != "*"]
        lines = await rows.submitters(queues)
        waiting = await rows.indexed_rows_of(dict.fromkeys(lines, max(CLOSED_AT_ONCE, LOOKED_AT // max(1, len(lines)))))
        refused = await self._refused(rows, waiting)
        able = [row for row in waiting if self._trials.is_due(row) and self._is_offered(row)]
        oldest = [row.id for row in self._in_turn(able, id_and_submitter)[:OLDEST]]
        tasks = await rows.tasks(sorted({*rows.frame.held, *seen.jobs, *refused, *oldest}))
        jobs = {id_: self._own(task, seen.jobs.get(id_, ()), rows.database_id) for id_, task in tasks.items()}
        untried = [
            task for task in map(tasks.get, oldest) if task and not jobs[task.id] and self._is_old(task, rows.now)
        ]
        requests = await rows.requests([task.id for task in untried[:TRIED_AT_ONCE]])
        orders = [order for task in untried if (order := self._order(task, requests, rows.database_id))]
        digests = await rows.run_digests(list(tasks))
        return Read(rows.now, rows.database_id, tasks, digests, refused, orders)

    def _turn(self, task_id: int) -> tuple[bool, int]:
        """The oldest first; rows that somebody held in a transaction come last, so that they hide no others."""
        return task_id in self._locked, task_id

    def _in_turn(self, rows: Sequence[T], whose: Callable[[T], tuple[int, str]]) -> list[T]:
        """Submitters take turns, each with its oldest row first. `whose`: the row's id and submitter."""
        own = defaultdict(list)
        for row in sorted(rows, key=lambda row: self._turn(whose(row)[0])):
            own[whose(row)[1]].append(row)
        return [row for rank in zip_longest(*own.values()) for row in rank if row is not None]

    def _is_offered(self, row: IndexedRow) -> bool:
        return isinstance(self.catalog.known_offer(row.kind), Offer)

    async def _refused(self, rows: Look, found: Sequence[IndexedRow]) -> dict[int, Hold]:
        """Rows that their template refuses, once the templates have stood for a while; the oldest first."""
        if self.catalog.fault or elapsed() - self._templates_since < self._steady_seconds:
            return {}
        unknown = {row.kind: row.id for row in found if self.catalog.known_offer(row.kind) is None}
        for kind in await rows.kinds(list(unknown.values())):
            self.catalog.offer(kind)
        offers = {row.kind: self.catalog.known_offer(row.kind) for row in found}
        refused = self._in_turn([row for row in found if isinstance(offers[row.kind], Hold)], id_and_submitter)
        return {row.id: offer for row in refused[:CLOSED_AT_ONCE] if isinstance(offer := offers[row.kind], Hold)}

    def _is_old(self, task: Task, now: datetime) -> bool:
        return now - due_at(task) >= self._patience

    def _own(self, task: Task, jobs: Sequence[Job], database_id: str) -> list[Job]:
        """Without those that only carry our labels."""
        identity = task_identity(database_id, task.id, task.created_at)
        return [job for job in jobs if job.identity == identity]

    def _order(self, task: Task, requests: Mapping[int, Request], database_id: str) -> Order | None:
        request, offer = requests.get(task.id), self.catalog.known_offer(task.kind)
        if request is None or not isinstance(offer, Offer):
            return None
        placement = plan_placement(task.queue, request, CacheHistory(), self._placement)
        return Order(task, request, Launch(1), offer, database_id, placement, NO_KEY)

    def _plan(self, task: Task, seen: Seen, read: Read, live: Sequence[Job] | None = None) -> Closing | None:
        jobs = self._own(task, seen.jobs.get(task.id, ()) if live is None else live, read.database_id)
        cluster = ObservedCluster(read.now, seen.now, seen.pods, {}, FirstSeen(), self._rules)
        return plan_closing(task, jobs, cluster, self._patience, read.refusals.get(task.id))

    async def _carry_out(self, closings: Sequence[Closing], seen: Seen, read: Read) -> None:
        """All of them, whatever becomes of one; then the round ends with the first fault."""
        places = asyncio.Semaphore(ACTS_AT_ONCE)

        async def carry_out(closing: Closing) -> DispatcherError | None:
            async with places:
                try:
                    live = await self._api.list_task(closing.task_id)
                    if self._plan(read.tasks[closing.task_id], seen, read, live) == closing:
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
        self._locked = self._locked - {closing.task_id} | ({closing.task_id} if status == LOCKED else set())
        outcome = status if status == LOCKED else closing.act if status else "overtaken"
        if not self._dry_run:
            JANITOR_ROWS.labels(outcome).inc()
        log.info("closed" if outcome == closing.act else outcome, task=closing.task_id, act=closing.act, status=status,
                 attempt=closing.attempt, launch=closing.launch, error=closing.error)  # fmt: skip

    async def _call(self, closing: Closing, run_digest: bytes) -> str | None:
        id_, attempt, launch = closing.task_id, closing.attempt, closing.launch
        if closing.act is Act.CANCEL:
            return await self._closings.cancel(id_, attempt, run_digest)
        if closing.act is Act.RETURN:
            return await self._closings.give_back(id_, (attempt, launch, run_digest), closing.failures, closing.error)
        return await self._closings.end(id_, (attempt, launch, closing.job_uid), closing.act, closing.error)

    async def _delete_old(self) -> None:
        if not self._retention_days:
            return
        if self._dry_run:
            log.info("would delete", rows=await self._closings.count_old(self._retention_days))
        elif deleted := await self._closings.delete_old(self._retention_days):
            JANITOR_ROWS.labels("deleted").inc(deleted)
            log.info("deleted", rows=deleted, older_than_days=self._retention_days)
