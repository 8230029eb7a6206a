"""Makes Jobs: builds a Job, checks it, asks the API server if needed, sends the create, and remembers the result.

Only this launch of this row has the name in the create. A refusal is confirmed by a GET. An answer that does not say
for certain whether the Job was made counts as unknown.

`Launcher`: the Jobs stage of a cycle. It builds the picture by which rows are judged, and sends the launches.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol

import structlog

from dispatcher.jobs.catalog import Catalog
from dispatcher.jobs.manifest import JobSite, build_job
from dispatcher.jobs.memory import NOT_READY, CreateResult, Memory
from dispatcher.jobs.observed import Rules, due_at, observe
from dispatcher.jobs.picture import CarriedState, JobsPicture, JudgedRows, KnownJobs, know_jobs, still_carried
from dispatcher.jobs.policy import check_job
from dispatcher.jobs.refusals import CreateOutcome, Origin, are_over, is_absent, is_of_a_policy, origin_of, read_create
from dispatcher.jobs.templates import Template
from dispatcher.model.cluster import ClusterView
from dispatcher.model.errors import ClusterError
from dispatcher.model.jobs import ApiAnswer, Job, Manifest
from dispatcher.model.launches import EPOCH, Ask, LaunchSpec, identity_of, is_same, name_of
from dispatcher.model.verdicts import own_fault
from dispatcher.runtime.clock import Clock, elapsed
from dispatcher.runtime.metrics import INSERT_TO_JOB, JOB_CREATES, LAUNCHES


class CreateConcurrency:
    """Bounds the creates under way, between 1 and `most`. A pause halves the bound, and each success adds one."""

    def __init__(self, most: int) -> None:
        self._most = self._limit = most
        self._free = asyncio.Semaphore(most)
        self._owed = 0  # places that are taken away as soon as they are free

    @property
    def limit(self) -> int:
        return self._limit

    async def enter(self) -> None:
        await self._free.acquire()

    def leave(self) -> None:
        if self._owed:
            self._owed -= 1
        else:
            self._free.release()

    def shrink(self) -> None:
        taken = self._limit - max(1, self._limit // 2)
        self._limit -= taken
        self._owed += taken

    def grow(self) -> None:
        if self._limit == self._most:
            return
        self._limit += 1
        self.leave()


log = structlog.get_logger(component="jobs.submit")

AT_A_TIME: Final = 16
"""Creates under way at the same time, at most."""
PLACE_SECONDS: Final = 1
"""Seconds for which a cycle waits until it can send its creates, at most."""
RESOLVE_AFTER_SECONDS: Final = 20
"""Seconds after which no POST of ours can land (client and server limits together), so that a GET gives the result."""
TAKEN_AS_IT_IS: Final = frozenset(
    {CreateOutcome.CREATED, CreateOutcome.UNKNOWN, CreateOutcome.UNAUTHORIZED, CreateOutcome.NOT_SENT}
)
"""Outcomes that need no confirming GET."""
TOO_MANY: Final = 429
TRIES: Final = 12
"""Times that one create is sent while the server asks for pauses. Then all creates pause."""
LONGEST_WISH_SECONDS: Final = 3
"""The longest Retry-After that one create obeys by itself, in seconds."""
PAUSE_SECONDS: Final = 0.5
"""Seconds before such a create is sent again if the server gives no time."""
FIRST, AGAIN = "first", "again"
STILL_THERE: Final = ApiAnswer(200)


class JobCalls(Protocol):
    """The calls of the Jobs API that `Submitter` needs."""

    async def create(self, manifest: Manifest) -> ApiAnswer: ...
    async def try_create(self, manifest: Manifest) -> ApiAnswer: ...
    async def get(self, name: str) -> ApiAnswer: ...
    async def list_task(self, task_id: int) -> list[Job]: ...


def build(order: LaunchSpec, template: Template, site: JobSite) -> tuple[Manifest, str]:
    """The Job, and why it may not be sent. If it cannot be built, only this launch fails."""
    try:
        manifest = build_job(order, template, site)
        return manifest, check_job(manifest, order, template, site)
    except Exception as bug:  # noqa: BLE001  # whatever is wrong with one launch
        words = own_fault(bug).detail
        log.error("a Job cannot be built", task=order.task.id, fault=words)  # noqa: TRY400  # a traceback may quote a row
        return {}, words


class Submitter:
    """Sends orders, at most AT_A_TIME at once, and fewer while the API server asks for pauses."""

    def __init__(
        self, jobs: JobCalls, site: JobSite, memory: Memory, refused: Callable[[], None], clock: Clock = elapsed
    ) -> None:
        """`refused`: called when our account lacks a right, so that the rights are checked again."""
        self._jobs = jobs
        self._refused = refused
        self._site = site
        self._memory = memory
        self._clock = clock
        self._places = CreateConcurrency(AT_A_TIME)
        self.sleep: Callable[[float], Coroutine[None, None, None]] = asyncio.sleep
        self._under_way: set[asyncio.Task[None]] = set()
        self._bugs: list[BaseException] = []
        self._database_clock = EPOCH, 0.0
        for counter, values in ((JOB_CREATES, CreateOutcome), (LAUNCHES, (FIRST, AGAIN))):
            for value in values:
                counter.labels(value)  # from 0, because Prometheus sees no increase in a series that begins at 1

    @property
    def installation(self) -> str:
        return self._site.installation

    def tell_time(self, now: datetime) -> None:
        """Stores the database's time, for the metric of waiting times."""
        self._database_clock = now, self._clock()

    async def submit(
        self,
        orders: Iterable[LaunchSpec],
        templates: Mapping[str, Template | str],
        rests: Callable[[LaunchSpec], bool] = lambda _: False,
    ) -> int:
        """Starts the orders. Returns their number, before the last answers, so that the next cycle need not wait.

        If creates take long, the next cycle decides anew about the rest. A webhook may be slow for one team alone.
        rests: whether the row is held for a while. Asked when a create could begin.
        """
        if self._bugs:
            raise self._bugs.pop()
        begun = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PLACE_SECONDS):
                for order in orders:
                    template = templates[order.task.template]
                    assert isinstance(template, Template)
                    await self._places.enter()
                    if rests(order):
                        self._places.leave()
                        continue
                    name = name_of(order, self._site.installation)
                    self._memory.creates.begin(name, order.task, order.offer, self._clock())
                    task = asyncio.create_task(self._carry_out(order, name, template))
                    self._under_way.add(task)
                    task.add_done_callback(self._ended)
                    begun += 1
        return begun

    async def drain(self) -> None:
        """Waits until every create has its answer."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def resolve(self) -> None:
        """Asks for the result of unanswered creates that are older than RESOLVE_AFTER_SECONDS."""
        now, creates = self._clock(), self._memory.creates
        late = [one.name for one in creates.by_name.values()
                if not (one.is_answered or one.is_under_way) and now - one.sent_at > RESOLVE_AFTER_SECONDS]  # fmt: skip
        for name in late[:AT_A_TIME]:
            answer = await self._jobs.get(name)
            if is_absent(answer):
                creates.forget(name)
            elif answer.job is not None:
                creates.answered(name, answer.job.resource_version)

    async def follow(self) -> None:
        """Reads again the Jobs that the watch may never show, because somebody has changed their labels."""
        strays = self._memory.strays
        for name in list(strays)[:AT_A_TIME]:
            answer = await self._jobs.get(name)
            job = strays.pop(name)  # those that were read come last in the next round
            if answer.job is not None and answer.job.lacks:
                strays[name] = answer.job
            elif answer.job is None and not is_absent(answer):
                strays[name] = job

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._places.leave()
        self._under_way.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._bugs.append(bug)

    async def _carry_out(self, order: LaunchSpec, name: str, template: Template) -> None:
        try:
            result = await self._launch(order, name, template)
            self._memory.learn(result, self._clock())
            self._report(result)
        finally:
            self._memory.creates.end(name)

    async def _launch(self, order: LaunchSpec, name: str, template: Template) -> CreateResult:
        if self._memory.api.hold(self._clock()):
            return CreateResult(order, name)  # an earlier answer asked for a pause; the next cycle judges the row again
        manifest, violation = build(order, template, self._site)
        if violation:
            return CreateResult(order, name, violation=violation)
        if (question := await self._why_wait(order)) is not None:
            return CreateResult(order, name, question=question)
        if self._memory.is_changed(order.task):
            tried = await self._jobs.try_create(manifest)
            if tried.changes:
                return CreateResult(order, name, answer=tried)
            if tried.is_compared:
                self._memory.learn_unchanged(order.task)
        return await self._create(order, name, manifest)

    async def _why_wait(self, order: LaunchSpec) -> ApiAnswer | None:
        """Asks the launch's question, because the view may lag. Returns an answer that forbids the create, or None."""
        if order.launch.ask is Ask.NOTHING:
            return None
        if order.launch.ask is Ask.ALL_JOBS:
            try:
                jobs = await self._jobs.list_task(order.task.id)
            except ClusterError as fault:
                return ApiAnswer(0, message=str(fault))
            return None if are_over(jobs, identity_of(order), order.launch.left) else STILL_THERE
        answer = await self._jobs.get(name_of(order, self._site.installation, order.launch.number - 1))
        is_foreign = answer.job is not None and not is_same(answer.job.identity, identity_of(order))  # ours is gone
        return None if is_absent(answer) or is_foreign else answer

    async def _create(self, order: LaunchSpec, name: str, manifest: Manifest) -> CreateResult:
        answer = await self._answer_of(order, name, manifest)
        meaning, job = read_create(answer), answer.job
        if meaning is CreateOutcome.CREATED and job is None:
            meaning = CreateOutcome.UNKNOWN  # an answer of a proxy, or a Job without its identity
        elif meaning not in TAKEN_AS_IT_IS:
            meaning, job = await confirmed(self._jobs, name, meaning)
        JOB_CREATES.labels(meaning).inc()
        return CreateResult(order, name, meaning, answer, job)

    async def _answer_of(self, order: LaunchSpec, name: str, manifest: Manifest) -> ApiAnswer:
        """The answer to the POST. If the server asks for a pause, the POST is repeated after it. Other creates
        go on.
        """
        for _ in range(TRIES):
            sent_at = self._clock()
            self._memory.creates.sent(name, sent_at)
            answer = await self._jobs.create(manifest)
            self._memory.slow.learn(origin_of(order.task), sent_at, self._clock())
            is_busy = answer.status == TOO_MANY and not is_of_a_policy(answer.message)
            if not is_busy or answer.retry_after > LONGEST_WISH_SECONDS:
                break
            self._places.shrink()
            self._places.leave()
            try:
                wish = max(answer.retry_after, PAUSE_SECONDS)
                pause = wish * random.uniform(1, 1.3)  # noqa: S311  # spreads creates, keeps no secret
                self._memory.creates.sent(name, self._clock() + pause)
                await self.sleep(pause)
            finally:
                await self._places.enter()
        if answer.job is not None:
            self._places.grow()
        return answer

    def _report(self, result: CreateResult) -> None:
        order, answer, meaning = result.order, result.answer, result.meaning
        if result.is_made:
            self._report_launch(order)
            log.info("launched", task=order.task.id, job=result.name, meaning=meaning)
        elif meaning is not CreateOutcome.NOT_SENT:
            log.warning("not launched", task=order.task.id, job=result.name, meaning=meaning, status=answer.status,
                        reason=answer.reason, message=answer.message)  # fmt: skip
        if answer.changes:
            log.warning("somebody changes our Jobs", template=order.task.template, changes=answer.changes)
        if meaning in NOT_READY:
            self._refused()
        if (hold := result.parked) is not None:
            log.warning("parked", task=order.task.id, reason=hold.reason, detail=hold.detail)

    def _report_launch(self, order: LaunchSpec) -> None:
        """Counts the launch, and observes the time that a row waited for its first Job."""
        LAUNCHES.labels(FIRST if order.launch.number - order.launch.unplaced == 1 else AGAIN).inc()
        if order.launch.number == 1 and not (order.launch.is_repeat or order.task.is_retried):
            told, at = self._database_clock
            now = told + timedelta(seconds=self._clock() - at)
            INSERT_TO_JOB.observe(max(0.0, (now - due_at(order.task)).total_seconds()))


async def confirmed(jobs: JobCalls, name: str, meaning: CreateOutcome) -> tuple[CreateOutcome, Job | None]:
    """Confirms a refusal. It is believed only if a GET says that the Job does not exist."""
    found = await jobs.get(name)
    if found.status == 200:
        return CreateOutcome.EXISTS, found.job
    if is_absent(found) and meaning is not CreateOutcome.EXISTS:
        return meaning, None
    return CreateOutcome.UNKNOWN, None


class Launcher:
    """The Jobs stage: one object for the life of the process. Its state between cycles is a cache."""

    def __init__(
        self, submitter: Submitter, memory: Memory, catalog: Catalog, rules: Rules, clock: Clock = elapsed
    ) -> None:
        self._submitter = submitter
        self._memory = memory
        self._catalog = catalog
        self._rules = rules
        self._clock = clock
        self._carried = CarriedState()
        self._database_id = ""
        self._known: KnownJobs | None = None

    def picture(self, view: ClusterView, now: datetime, database_id: str) -> JobsPicture:
        """The picture of a new cycle, made from this view of the cluster. `now`: the database's clock."""
        if self._catalog.refresh() or self._database_id not in {"", database_id}:
            self._memory.forget_rows()
            self._carried = CarriedState(self._carried.first_seen, self._carried.settled)
        self._database_id = database_id
        self._memory.creates.observe(view)
        self._submitter.tell_time(now)
        at, known = self._clock(), self._know(view, now)
        carried = still_carried(self._carried, view, known.by_task, at)
        return JobsPicture(
            installation=self._submitter.installation,
            database_id=database_id,
            cluster=observe(view, known.pods, now, self._rules, carried.first_seen),
            all_jobs=known.jobs,
            jobs=known.by_task,
            counted=known.counted,
            offers=self._catalog,
            creates=self._memory.known(at),
            carried=carried,
            at=at,
        )

    def _know(self, view: ClusterView, now: datetime) -> KnownJobs:
        """The counts and indexes of the view. They are made anew only if a Job, a Pod or a refusal has changed."""
        if self._known is None or not self._known.is_of(view):
            self._known = know_jobs(view, now)
        return self._known

    async def launch(self, picture: JobsPicture, judged: JudgedRows, orders: Sequence[LaunchSpec]) -> int:
        """Ends the cycle of a picture: sends orders. Returns their number, without waiting for the answers."""
        self._carried = picture.carry(judged)
        await self._submitter.resolve()
        in_turn = sorted(orders, key=lambda order: picture.tried_at(order.task.id))
        sent = self._probes(in_turn, picture.creates.probed())
        return await self._submitter.submit(sent, self._catalog.templates, self._rests)

    def _rests(self, order: LaunchSpec) -> bool:
        """Whether the row is left to a later cycle: such creates take long and have no place, similar rows were
        refused, or its Job has much text.
        """
        now, origin = self._clock(), origin_of(order.task)
        if not self._memory.slow_origins(now).may_begin(origin) or self._memory.refusals.rests(order, now):
            return True
        waits = self._memory.large.hold(order, now)
        if waits is not None:
            self._memory.refusals.rest(order.task, *waits)
        return waits is not None

    def _probes(self, orders: Iterable[LaunchSpec], probed: set[Origin]) -> Iterator[LaunchSpec]:
        """Sends one create of a template and submitter at a time, after one of them failed or came back changed.

        It is chosen among admitted rows: a held row would block it. One whose create failed last comes last.
        """
        for order in orders:
            origin = origin_of(order.task)
            if not (self._memory.of_template(origin).is_probing or self._memory.is_changed(order.task)):
                yield order
            elif origin not in probed:
                probed.add(origin)
                yield order

    async def follow(self) -> None:
        """Reads Jobs of ours that the watch may never show."""
        await self._submitter.follow()

    async def drain(self) -> None:
        """Waits until every create has its answer."""
        await self._submitter.drain()
