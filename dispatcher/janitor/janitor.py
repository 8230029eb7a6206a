"""`dispatcher janitor`: ends, returns or cancels rows that no container can move, and deletes old rows.

    Jobs and Pods ─▶ rows ─▶ janitor.closing (pure, by the dispatcher's own table) ─▶ the task's Jobs, live ─▶ one CAS
                  └▶ jobs.observed.launch_end (pure) ─▶ janitor_ended: task_launches, and the view task_history

Of our programs outside a task's container, only the janitor writes to the database, by functions of its own
(docs/protocol.md, section 8). The janitor needs no leader. Each call matches only the values that were read, so a
second janitor or a dispatcher may act in between.

Not guaranteed: speed. A row waits for the next round, and for PARK_SECONDS if a person may still help it. Templates
count only after they have not changed for a while: a janitor with wrong templates must not fail rows at its start.

`LaunchEnds`: a container that was killed reports nothing. Its Pod shows exit code, reason and the end of the output,
but Pods go. So the janitor writes them down.

`Retention`: deletes old rows. A row that a foreign key or a trigger of somebody else holds stays, and stops no other
row.

`Snapshots`: names the session that keeps a snapshot for long. While it does, VACUUM removes no row that died since. Any
login can hold a snapshot, and each look of the dispatcher then passes by the dead rows of everybody. Every login may
see which sessions have a snapshot, but not since when. So the time counts from when the janitor saw it first.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol

import msgspec
import structlog
from msgspec import Struct

from dispatcher.container.contract import NewestServer
from dispatcher.janitor.closing import Act, Closing, plan_closing
from dispatcher.janitor.rows import CLOSED_AT_ONCE, JanitorRows, RowReader, Trial, Trials
from dispatcher.janitor.tables import ReasonTableSync, TemplateTableSync
from dispatcher.jobs.observed import LaunchEnd, by_job, launch_end, observe
from dispatcher.jobs.picture import JobsPicture, by_task, with_jobs
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import log_in
from dispatcher.kube.job_api import JobApi, jobs_path, pods_path
from dispatcher.kube.objects import own_pod_reader, read_job
from dispatcher.kube.reflector import Reflectors, Resource, list_all
from dispatcher.model.cluster import ClusterView, Pod
from dispatcher.model.errors import DatabaseUnfit, DispatcherError
from dispatcher.model.jobs import Job
from dispatcher.model.launches import job_selector
from dispatcher.model.tasks import Task
from dispatcher.pg.connect import Session
from dispatcher.pg.tasks import LOCKED, Closings, DeletionResult, TaskSnapshot, look
from dispatcher.runtime import health
from dispatcher.runtime.clock import Clock, elapsed
from dispatcher.runtime.metrics import JANITOR_ROWS, OF_KEEPER, OF_RUN, OLDEST_SNAPSHOT
from dispatcher.runtime.rounds import Rounds, Wake, stop_on_signals
from dispatcher.settings.definition import Settings
from dispatcher.startup import catalog_of, database_of, placing_of, rules_of, site_of

LARGEST: Final = 2**15 - 1
"""The largest attempt and launch that a row can have. Labels of a Job can hold any number."""
Key = tuple[int, int, int]
"""(task, attempt, launch)."""


class EndedLaunch(Struct, frozen=True):
    """One launch in the argument of `janitor_ended`.

    started_at: only for `report: exit-code`; others report their own start.
    """

    task: int
    attempt: int
    launch: int
    job_uid: str
    node: str
    pod: str
    started_at: datetime | None
    ended_at: datetime | None
    exit_code: int | None
    reason: str
    output: str


class LaunchEnds:
    """The ends of launches, by UID of their Jobs. They are kept between rounds, because a Pod can go before its Job."""

    def __init__(self) -> None:
        self.known: Mapping[str, LaunchEnd] = {}

    def look(self, picture: JobsPicture) -> None:
        seen = {}
        for job in picture.all_jobs:
            pods = picture.cluster.pods.get(job.uid, ())
            is_going = all(pod.deleting for pod in pods)  # a Pod that never ran gets another status when it is deleted
            before = self.known.get(job.uid) if is_going else None
            if (end := before or launch_end(job, pods)) is not None:
                seen[job.uid] = end
        self.known = seen

    async def unwritten(self, rows: TaskSnapshot, picture: JobsPicture, tasks: Iterable[Task]) -> Sequence[EndedLaunch]:
        """The launches whose cause the database does not know."""
        found = ended_launches(picture, tasks, self.known)
        written = set(await rows.with_cause(found))
        return [one for key, one in found.items() if key not in written]


def ended_launches(
    picture: JobsPicture, tasks: Iterable[Task], ends: Mapping[str, LaunchEnd]
) -> Mapping[Key, EndedLaunch]:
    """The launches of these rows that have ended, and whose cause is known."""
    found = {}
    for task in tasks:
        for job in picture.jobs_of(task):
            end = ends.get(job.uid)
            is_over = job.is_finished or (job.report == "exit-code" and end is not None and end.exit_code is not None)
            if end is not None and is_over and not job.is_unplaced and is_of(job, task):
                found[task.id, job.attempt, job.launch] = ended_launch(job, end)
    return found


def is_of(job: Job, task: Task) -> bool:
    return job.attempt <= task.attempt and 0 < job.launch <= LARGEST


def ended_launch(job: Job, end: LaunchEnd) -> EndedLaunch:
    return EndedLaunch(
        task=job.task_id, attempt=job.attempt, launch=job.launch, job_uid=job.uid, node=end.node_name, pod=end.pod_name,
        started_at=end.started_at if job.report == "exit-code" else None, ended_at=job.ended_at or end.ended_at,
        exit_code=end.exit_code, reason=end.reason, output=end.output,
    )  # fmt: skip


AGAIN_SECONDS: Final = 3600
"""Seconds after which rows that could not be deleted are tried again."""
MOST_KEPT: Final = 10_000
"""Rows that are passed over, at most. More of them would make each call slow."""
TOLD: Final = 5
"""Ids of such rows that a log line names, at most."""
log = structlog.get_logger(component="janitor")


class RetentionTable(Protocol):
    """The janitor's call."""

    async def delete_old(self, days: int, kept: Sequence[int]) -> DeletionResult: ...


class Retention:
    """Deletes old rows. Between rounds it remembers rows that could not be deleted, and tries them each hour."""

    def __init__(self, table: RetentionTable, clock: Clock = elapsed) -> None:
        self._table = table
        self._clock = clock
        self._kept: list[int] = []
        self._kept_since = clock()

    async def delete(self, days: int) -> None:
        """Deletes one batch of rows that ended `days` ago, and forgets roles that are gone. 0: no row is deleted."""
        if self._clock() - self._kept_since >= AGAIN_SECONDS:
            self._kept, self._kept_since = [], self._clock()
        done = await self._table.delete_old(days, self._kept)
        if done.deleted:
            JANITOR_ROWS.labels("deleted").inc(done.deleted)
            log.info("deleted", rows=done.deleted, older_than_days=days)
        if done.kept:
            self._kept = [*self._kept, *done.kept][:MOST_KEPT]
            JANITOR_ROWS.labels("refused").inc(len(done.kept))
            log.warning("not deleted", rows=len(done.kept), tasks=list(done.kept)[:TOLD], fault=done.why)


SNAPSHOT_SECONDS: Final = 30
"""Seconds between two looks."""
TOLD_AFTER_SECONDS: Final = 600
"""Seconds after which a snapshot is logged."""


class SnapshotTable(Protocol):
    async def oldest_snapshot(self) -> tuple[int, str, str, str] | None: ...


class Snapshots:
    """Looks for old snapshots. It remembers since when the oldest one exists. Sessions may hand it on to each other."""

    def __init__(self, table: SnapshotTable, clock: Clock = elapsed) -> None:
        self._table = table
        self._clock = clock
        self._since: tuple[str, float] = ("", 0.0)
        self._told = ("", 0)

    async def run_once(self) -> float:
        now = self._clock()
        pid, login, oldest, next_step = await self._table.oldest_snapshot() or (0, "", "", "")
        if oldest != self._since[0] or not oldest:
            self._since = oldest, now
        seconds = now - self._since[1]
        OLDEST_SNAPSHOT.set(seconds)
        if seconds >= TOLD_AFTER_SECONDS and self._told != (oldest, pid):
            self._told = oldest, pid
            log.warning(
                "a session keeps a snapshot: no dead row is removed", login=login, pid=pid, seconds=round(seconds),
                next_step=next_step,
            )  # fmt: skip
        return SNAPSHOT_SECONDS


SELDOM_SECONDS: Final = 300
"""Seconds between two rounds, at most."""
ACTS_AT_ONCE: Final = 8
"""Calls at the same time, at most."""
WRITTEN_AT_ONCE: Final = 200
"""Ends of launches in one call, at most."""
HELD_AT_MOST: Final = 10_000
"""Rows that a container holds, beside those with a Job, that one round reads, at most."""
STRAYS_AT_ONCE: Final = 16
"""Jobs that a round reads by their names, at most, because their labels do not show them."""
STEADY: Final = timedelta(minutes=10)
"""Time for which templates must have been the same, at most, before rows are failed by them."""


class JanitorPace(Struct, frozen=True):
    """The pauses between rounds. Lists of many thousand Jobs load the API server.

    every_seconds: seconds between two rounds, at least.
    share: lists take at most one part in `share` of the time.
    """

    every_seconds: float = 10
    share: float = 20

    def pause_after(self, listing: float, before: float) -> float:
        """The pause before the next round, in seconds. One slow list proves little, so a pause at most doubles.

        listing: seconds that the lists of this round took.
        before: the last pause.
        """
        wanted = max(self.every_seconds, self.share * listing)
        return min(wanted, max(self.every_seconds, 2 * before), SELDOM_SECONDS)


OWN_PACE: Final = JanitorPace()


async def run(settings: Settings, *, dry_run: bool = False, pace: JanitorPace = OWN_PACE) -> None:
    """`dispatcher janitor`: runs until SIGTERM or SIGINT. With `dry_run`: one round that only logs its calls."""
    client = KubeClient(await log_in(settings.kube))
    janitor = Janitor(settings, client, dry_run=dry_run, pace=pace)
    try:
        if dry_run:
            await janitor.run_once()
            log.info("the dry run has ended: nothing was changed")
        else:
            await serve(janitor, client, settings, stop_on_signals())
    finally:
        await janitor.close()
        await client.close()


async def serve(janitor: "Janitor", client: KubeClient, settings: Settings, stop: asyncio.Event) -> None:
    """Runs the rounds until `stop`. Rows are read in one session; reasons and templates are written in another."""
    reflectors, calls = Reflectors(client), Closings(database_of(settings.database))
    place = client.own_namespace or settings.kube.namespace or client.namespace
    bringing = ReasonTableSync(reflectors, place, settings.kube.installation, calls)
    passed = site_of(settings, client.namespace).passed
    keeping = TemplateTableSync(catalog_of(settings, passed), steady_seconds(settings), calls)
    rounds = Rounds("janitor", janitor.run_once, Wake())
    beside = [Rounds(name, run_once, Wake(), is_vital=False) for name, run_once in
              (("reasons", bringing.run_once), ("templates", keeping.run_once),
               ("snapshots", Snapshots(calls).run_once))]  # fmt: skip
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
    """Seconds for which the templates must have been the same before rows are failed or refused for lack of one."""
    return min(STEADY, timedelta(seconds=settings.janitor.park_seconds) / 6).total_seconds()


def most_held(view: ClusterView) -> int:
    """How many rows that a container holds a round reads. Those with a Job must not hide one whose Job is gone."""
    return len(view.jobs) + HELD_AT_MOST


def strays_of(pods: Iterable[Pod], jobs: Iterable[Job]) -> Sequence[str]:
    """Names of Jobs that have Pods of ours and are not in the list: somebody has changed their labels."""
    listed = {job.uid for job in jobs}
    names = {pod.name.rpartition("-")[0] for pod in pods if pod.job_uid and pod.job_uid not in listed}
    return sorted(names)[:STRAYS_AT_ONCE]


async def fault_of(step: Awaitable[None]) -> Sequence[DispatcherError]:
    """Runs a step of a round, and returns its fault. The fault stops no later step."""
    try:
        await step
    except DispatcherError as fault:
        return [fault]
    return []


class Janitor:
    """Runs rounds. Between rounds it keeps only answers to dry runs, and which rows were locked."""

    def __init__(
        self, settings: Settings, client: KubeClient, *, dry_run: bool = False, pace: JanitorPace = OWN_PACE
    ) -> None:
        kube, jobs = settings.kube, settings.jobs
        namespace = kube.namespace or client.namespace
        site, url = site_of(settings, namespace), database_of(settings.database)
        ours = job_selector(kube.installation)
        self._jobs = Resource("jobs", jobs_path(namespace), read_job, ours)
        self._pods = Resource("pods", pods_path(namespace), own_pod_reader(kube.installation))
        self._client = client
        self._api = JobApi(client, namespace, kube.installation)
        self._installation = kube.installation
        newest = NewestServer()
        self._session, self._closings = Session(url, newest=newest), Closings(url, newest)
        self.catalog = catalog_of(settings, site.passed)
        self._rules = rules_of(jobs)
        self._patience = timedelta(seconds=settings.janitor.park_seconds)
        self._steady_seconds = 0 if dry_run else steady_seconds(settings)
        self._retention_days = settings.janitor.retention_days
        self._dry_run = dry_run
        self._pace, self._pause = pace, 0.0
        self._templates_since = elapsed()
        self._trials = Trials(Trial(self._api, site), self._steady_seconds)
        self._ends = LaunchEnds()
        self._retention = Retention(self._closings)
        self._reader = RowReader(self.catalog, self._trials, placing_of(settings), self._patience)

    async def close(self) -> None:
        await self._session.close()
        await self._closings.close()

    async def run_once(self) -> float:
        """Runs one round. Returns the pause before the next round, in seconds."""
        began = elapsed()
        self._refresh()
        view = await self._view()  # 1 Jobs first, so that no Job is newer than its row
        self._pause = self._pace.pause_after(elapsed() - began, self._pause)
        async with look(self._session, most_held(view)) as rows:  # 2 rows second, in one snapshot
            read = await self._reader.read(rows, self._picture(view, rows), are_steady=self._are_templates_steady())
            self._ends.look(read.picture)
            ended = await self._ends.unwritten(rows, read.picture, read.tasks.values())
        await self._trials.ask(read.untried, self.catalog.templates)  # 3 dry runs of untried rows
        read = msgspec.structs.replace(read, refusals={**read.refusals, **self._trials.confirmed(read.untried, began)})
        closings = [closing for task in read.tasks.values() if (closing := self._plan(read.picture, task, read))]
        closings = self._reader.in_turn(closings, lambda one: (one.task_id, read.tasks[one.task_id].submitted_by))
        faults = await self._carry_out(closings[:CLOSED_AT_ONCE], read)  # 4 for each row a live list, then one CAS
        ended = self._reader.in_turn(ended, lambda one: (one.task, read.tasks[one.task].submitted_by))
        faults = [
            *faults,
            *await fault_of(self._write_ends(ended[:WRITTEN_AT_ONCE])),  # 5 what ended launches
            *await fault_of(self._delete_old()),  # 6 old rows
        ]
        if faults:
            raise faults[0]
        return self._pause

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
        for name in strays_of(pods.values(), jobs.values()):
            if (job := (await self._api.get(name)).job) is not None and job.lacks:
                jobs[name] = job
        return ClusterView(self._client.now(), jobs, pods, {})

    async def _jobs_of(self, picture: JobsPicture, task_id: int) -> Sequence[Job]:
        """The Jobs of a task, as they are now."""
        strays = [job.name for job in picture.jobs.get(task_id, ()) if job.lacks]
        found = {job.name: job for job in await self._api.list_task(task_id)}
        read = [(await self._api.get(name)).job for name in strays if name not in found]
        return [*found.values(), *filter(None, read)]

    def _picture(self, view: ClusterView, rows: TaskSnapshot) -> JobsPicture:
        """The picture by which rows are judged. The janitor makes no Jobs, so the picture has no creates."""
        jobs = list(view.jobs.values())
        return JobsPicture(
            installation=self._installation,
            database_id=rows.database_id,
            cluster=observe(view, by_job(view.pods.values()), rows.now, self._rules, {}),
            all_jobs=jobs,
            jobs=by_task(jobs),
            offers=self.catalog,
        )

    def _plan(self, picture: JobsPicture, task: Task, read: JanitorRows) -> Closing | None:
        return plan_closing(picture, task, self._patience, read.refusals.get(task.id), self._ends.known)

    async def _carry_out(self, closings: Sequence[Closing], read: JanitorRows) -> Sequence[DispatcherError]:
        """Carries out all closings, even if some fail. Returns the faults that are not of single rows."""
        places = asyncio.Semaphore(ACTS_AT_ONCE)

        async def carry_out(closing: Closing) -> DispatcherError | None:
            async with places:
                try:
                    jobs = await self._jobs_of(read.picture, closing.task_id)
                    live = with_jobs(read.picture, closing.task_id, jobs)
                    if self._plan(live, read.tasks[closing.task_id], read) == closing:
                        await self._close(closing, read.run_digests.get(closing.task_id, b""))
                except DispatcherError as fault:
                    log.warning("not closed", task=closing.task_id, act=closing.act, fault=str(fault))
                    return fault
            return None

        found = await asyncio.gather(*map(carry_out, closings))
        faults = [fault for fault in found if fault is not None]
        of_rows = [fault for fault in faults if isinstance(fault, DatabaseUnfit)]
        JANITOR_ROWS.labels("refused").inc(len(of_rows))
        return [] if len(of_rows) == len(faults) < len(found) else faults

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
        outcome = "retry" if closing.act is Act.RETRY else closing.act
        return await self._closings.end(id_, (attempt, launch, closing.job_uid), outcome, closing.error)

    async def _write_ends(self, ended: Sequence[EndedLaunch]) -> None:
        """Writes down the ends of launches. The output of a container never reaches a log."""
        if not ended:
            return
        if self._dry_run:
            log.info("would write down what ended launches", launches=len(ended))
        else:
            changed, refused = await self._closings.ended(ended)
            JANITOR_ROWS.labels("explained").inc(changed)
            JANITOR_ROWS.labels("refused").inc(len(refused))
            for one in refused:
                log.warning("the end of a launch was refused", task=one.task, attempt=one.attempt, launch=one.launch)

    async def _delete_old(self) -> None:
        if not self._dry_run:
            await self._retention.delete(self._retention_days)
        elif self._retention_days:
            log.info("would delete", rows=await self._closings.count_old(self._retention_days))
