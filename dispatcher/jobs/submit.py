"""Makes Jobs: builds a Job, checks it, asks the API server if needed, sends the create, and stores the result.

Only this launch of this row has the name in the create. A refusal is confirmed by a GET. An answer that does not say
for certain whether the Job was made counts as unknown.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import structlog

from dispatcher.jobs.answers import Meaning, are_over, is_absent, read_create
from dispatcher.jobs.manifest import Site, build_job
from dispatcher.jobs.memory import NOT_READY, CreateResult, Memory
from dispatcher.jobs.observed import due_at
from dispatcher.jobs.policy import check_job
from dispatcher.jobs.templates import Template
from dispatcher.model.errors import ClusterError
from dispatcher.model.identity import identity_of, name_of
from dispatcher.model.jobs import ApiAnswer, Job, Manifest
from dispatcher.model.launches import Ask, Order
from dispatcher.runtime.clock import Clock, elapsed
from dispatcher.runtime.metrics import INSERT_TO_JOB, JOB_CREATES, LAUNCHES

log = structlog.get_logger(component="jobs.submit")

BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
AT_A_TIME: Final = 16
RESOLVE_AFTER_SECONDS: Final = 20
"""No POST of ours can land after this time (client and server limits together), so a GET tells the result."""
TAKEN_AS_IT_IS: Final = frozenset({Meaning.CREATED, Meaning.UNKNOWN, Meaning.UNAUTHORIZED, Meaning.NOT_SENT})
FIRST, AGAIN = "first", "again"
STILL_THERE: Final = ApiAnswer(200)


class Jobs(Protocol):
    """The calls of the Jobs API that `Submitter` needs."""

    async def create(self, manifest: Manifest) -> ApiAnswer: ...
    async def get(self, name: str) -> ApiAnswer: ...
    async def list_task(self, task_id: int) -> list[Job]: ...


class Submitter:
    """Sends orders, at most AT_A_TIME at once."""

    def __init__(
        self, jobs: Jobs, site: Site, memory: Memory, refused: Callable[[], None], clock: Clock = elapsed
    ) -> None:
        """`refused`: called when our account lacks a right, so that the rights are checked again."""
        self._jobs = jobs
        self._refused = refused
        self._site = site
        self._memory = memory
        self._clock = clock
        self._places = asyncio.Semaphore(AT_A_TIME)
        self._under_way: set[asyncio.Task[None]] = set()
        self._bugs: list[BaseException] = []
        self._database_clock = BEGINNING, 0.0
        for counter, values in ((JOB_CREATES, Meaning), (LAUNCHES, (FIRST, AGAIN))):
            for value in values:
                counter.labels(value)  # from 0, because Prometheus sees no increase in a series that begins at 1

    @property
    def installation(self) -> str:
        return self._site.installation

    def tell_time(self, now: datetime) -> None:
        """Stores the database's time, for the metric of waiting times."""
        self._database_clock = now, self._clock()

    async def submit(self, orders: Sequence[Order], templates: Mapping[str, Template | str]) -> None:
        """Starts every order. Returns before the last answers, so that the next cycle need not wait."""
        if self._bugs:
            raise self._bugs.pop()
        for order in orders:
            template = templates[order.task.template]
            assert isinstance(template, Template)
            await self._places.acquire()
            name = name_of(order, self._site.installation)
            self._memory.creates.begin(name, order.task, order.offer, self._clock())
            task = asyncio.create_task(self._carry_out(order, name, template))
            self._under_way.add(task)
            task.add_done_callback(self._ended)

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

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._places.release()
        self._under_way.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._bugs.append(bug)

    async def _carry_out(self, order: Order, name: str, template: Template) -> None:
        try:
            result = await self._launch(order, name, template)
            self._memory.learn(result, self._clock())
            self._report(result)
        finally:
            self._memory.creates.end(name)

    async def _launch(self, order: Order, name: str, template: Template) -> CreateResult:
        if self._memory.api.hold(self._clock()):
            return CreateResult(order, name)  # an earlier answer asked for a pause; the next cycle judges the row again
        manifest = build_job(order, template, self._site)
        if violation := check_job(manifest, order, template, self._site):
            return CreateResult(order, name, violation=violation)
        if (question := await self._why_wait(order)) is not None:
            return CreateResult(order, name, question=question)
        return await self._create(order, name, manifest)

    async def _why_wait(self, order: Order) -> ApiAnswer | None:
        """Asks the launch's question, because the view may lag. Returns an answer that forbids the create, or None."""
        if order.launch.ask is Ask.NOTHING:
            return None
        if order.launch.ask is Ask.ALL_JOBS:
            try:
                jobs = await self._jobs.list_task(order.task.id)
            except ClusterError as fault:
                return ApiAnswer(0, message=str(fault))
            return None if are_over(jobs, identity_of(order)) else STILL_THERE
        answer = await self._jobs.get(name_of(order, self._site.installation, order.launch.number - 1))
        is_foreign = answer.job is not None and answer.job.identity != identity_of(order)  # so our Job is gone
        return None if is_absent(answer) or is_foreign else answer

    async def _create(self, order: Order, name: str, manifest: Manifest) -> CreateResult:
        self._memory.creates.sent(name, self._clock())
        answer = await self._jobs.create(manifest)
        meaning, job = read_create(answer), answer.job
        if meaning is Meaning.CREATED and job is None:
            meaning = Meaning.UNKNOWN  # an answer of a proxy, or a Job without its identity
        elif meaning not in TAKEN_AS_IT_IS:
            meaning, job = await self._confirm(name, meaning)
        JOB_CREATES.labels(meaning).inc()
        return CreateResult(order, name, meaning, answer, job)

    async def _confirm(self, name: str, meaning: Meaning) -> tuple[Meaning, Job | None]:
        """Confirms a refusal. It is believed only if a GET says that the Job does not exist."""
        found = await self._jobs.get(name)
        if found.status == 200:
            return Meaning.EXISTS, found.job
        if is_absent(found) and meaning is not Meaning.EXISTS:
            return meaning, None
        return Meaning.UNKNOWN, None

    def _report(self, result: CreateResult) -> None:
        order, answer, meaning = result.order, result.answer, result.meaning
        if result.is_made:
            self._report_launch(order)
            log.info("launched", task=order.task.id, job=result.name, meaning=meaning)
            return
        if meaning is not Meaning.NOT_SENT:
            log.warning("not launched", task=order.task.id, job=result.name, meaning=meaning, status=answer.status,
                        reason=answer.reason, message=answer.message)  # fmt: skip
        if meaning in NOT_READY:
            self._refused()
        if (hold := result.parked) is not None:
            log.warning("parked", task=order.task.id, reason=hold.reason, detail=hold.detail)

    def _report_launch(self, order: Order) -> None:
        """Counts the launch, and observes the time that a row waited for its first Job."""
        LAUNCHES.labels(FIRST if order.launch.number - order.launch.unplaced == 1 else AGAIN).inc()
        if order.launch.number == 1 and not order.launch.is_repeat:
            told, at = self._database_clock
            now = told + timedelta(seconds=self._clock() - at)
            INSERT_TO_JOB.observe(max(0.0, (now - due_at(order.task)).total_seconds()))
