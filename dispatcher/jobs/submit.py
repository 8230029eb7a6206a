"""Makes the Job of a launch, exactly once, whatever becomes of the answer.

The name is the lock: the same POST is sent again under the same name until its answer is known, and "AlreadyExists and
it is ours" is success. A create that ends in anything else is followed by a GET of the name before it is believed: a
full quota, for one, hides the 409 behind a 403 (kubernetes #106842).

Not guaranteed: that a POST of ours lands at once. Its `timeout` bounds how late it can; until that is known it counts.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import structlog

from dispatcher.jobs.answers import Meaning, are_over, is_absent, read_create
from dispatcher.jobs.launch_groups import group_of
from dispatcher.jobs.manifest import Site, build_job
from dispatcher.jobs.memory import Memory
from dispatcher.jobs.observed import due_at
from dispatcher.jobs.policy import check_job
from dispatcher.jobs.templates import Template
from dispatcher.model.errors import ClusterError
from dispatcher.model.identity import identity_of, name_of
from dispatcher.model.jobs import ApiAnswer, Job, Manifest
from dispatcher.model.launches import Ask, Order
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.runtime.clock import Clock, elapsed
from dispatcher.runtime.metrics import INSERT_TO_JOB, JOB_CREATES

log = structlog.get_logger(component="jobs.submit")

BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
AT_A_TIME: Final = 16
RESOLVE_AFTER_SECONDS: Final = 20
"""After this no POST of ours can land any more (client and server limits together), so a GET tells."""
BLOCKED_SECONDS: Final = 10
TAKEN_AS_IT_IS: Final = frozenset({Meaning.CREATED, Meaning.UNKNOWN, Meaning.UNAUTHORIZED, Meaning.NOT_SENT})
NOT_READY: Final = {
    Meaning.TERMINATING: "NamespaceTerminating",
    Meaning.NO_NAMESPACE: "NamespaceMissing",
    Meaning.FORBIDDEN: "Forbidden",
    Meaning.UNAUTHORIZED: "Unauthorized",
}


class Jobs(Protocol):
    """What it needs of the cluster."""

    async def create(self, manifest: Manifest) -> ApiAnswer: ...
    async def get(self, name: str) -> ApiAnswer: ...
    async def list_task(self, task_id: int) -> list[Job]: ...


class Submitter:
    """Carries launches out, 16 at a time."""

    def __init__(
        self, jobs: Jobs, site: Site, memory: Memory, refused: Callable[[], None], clock: Clock = elapsed
    ) -> None:
        """`refused`: our identity may not do this any more; somebody should ask what else it may not."""
        self._jobs = jobs
        self._refused = refused
        self._site = site
        self._memory = memory
        self._clock = clock
        self._places = asyncio.Semaphore(AT_A_TIME)
        self._under_way: set[asyncio.Task[None]] = set()
        self._bugs: list[BaseException] = []
        self._database_clock = BEGINNING, 0.0

    @property
    def installation(self) -> str:
        return self._site.installation

    def tell_time(self, now: datetime) -> None:
        """The database's clock, which set the rows' times."""
        self._database_clock = now, self._clock()

    async def submit(self, orders: Sequence[Order], templates: Mapping[str, Template | str]) -> None:
        """Returns when every order is on its way: answers come in behind, so that the next look need not wait."""
        if self._bugs:
            raise self._bugs.pop()
        for order in orders:
            template = templates[order.task.template]
            assert isinstance(template, Template)
            await self._places.acquire()
            self._memory.begun(name_of(order, self._site.installation), order.task, group_of(order), self._clock())
            task = asyncio.create_task(self._place(order, template))
            self._under_way.add(task)
            task.add_done_callback(self._ended)

    async def drain(self) -> None:
        """Until no answer is awaited any more."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._places.release()
        self._under_way.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._bugs.append(bug)

    async def resolve(self) -> None:
        """Asks what became of creates whose row no longer wants them."""
        now = self._clock()
        late = [u.name for u in self._memory.unseen.values()
                if not (u.is_answered or u.is_under_way) and now - u.sent_at > RESOLVE_AFTER_SECONDS]  # fmt: skip
        for name in late[:AT_A_TIME]:
            answer = await self._jobs.get(name)
            if is_absent(answer):
                self._memory.not_made(name)
            elif answer.job is not None:
                self._memory.answered(name, answer.job.resource_version)

    async def _place(self, order: Order, template: Template) -> None:
        name = name_of(order, self._site.installation)
        try:
            if not await self._launch(order, template, name):
                self._forget(order, name)
        finally:
            self._memory.ended(name)

    async def _launch(self, order: Order, template: Template, name: str) -> bool:
        """Whether the create was sent."""
        if self._memory.api.hold(self._clock()):
            return False  # an answer before this one asked for a pause; the row is judged anew
        manifest = build_job(order, template, self._site)
        if violation := check_job(manifest, order, template, self._site):
            self._park(order, HoldReason.POLICY_DENIED, violation)
            return False
        if not await self._is_clear(order):
            return False
        await self._create(order, name, manifest)
        return True

    async def _is_clear(self, order: Order) -> bool:
        """Puts the launch's question to the API server: a lagging view must not be believed that a Job is gone."""
        try:
            if order.launch.ask is Ask.ALL_JOBS:
                jobs = await self._jobs.list_task(order.task.id)
                is_clear = are_over(jobs, identity_of(order))
                if not is_clear:
                    self._memory.defer(order.task.id, self._clock())
                return is_clear
        except ClusterError as fault:
            self._memory.api.trip(not_ready("ApiThrottled", ApiAnswer(0, message=str(fault))), self._clock())
            return False
        if order.launch.ask is Ask.NOTHING:
            return True
        answer = await self._jobs.get(name_of(order, self._site.installation, order.launch.number - 1))
        if answer.status != 200 and not is_absent(answer):
            self._memory.api.trip(not_ready("ApiThrottled", answer), self._clock(), answer.retry_after)
        if answer.job is not None and answer.job.identity != identity_of(order):
            return True  # somebody else has the name by now: ours is gone
        if answer.status == 200:
            self._memory.defer(order.task.id, self._clock())
        return is_absent(answer)

    async def _create(self, order: Order, name: str, manifest: Manifest) -> None:
        self._memory.sent(name, self._clock())
        answer = await self._jobs.create(manifest)
        meaning, job = read_create(answer), answer.job
        if meaning is Meaning.CREATED and job is None:
            meaning = Meaning.UNKNOWN  # a proxy's 200, or a Job that came back without its identity
        elif meaning not in TAKEN_AS_IT_IS:
            meaning, job = await self._confirm(name, meaning)
        JOB_CREATES.labels(meaning).inc()
        self._settle(order, meaning, answer, job)

    async def _confirm(self, name: str, meaning: Meaning) -> tuple[Meaning, Job | None]:
        """A refusal is believed only once a GET has said that there is no such Job."""
        found = await self._jobs.get(name)
        if found.status == 200:
            return Meaning.EXISTS, found.job
        if is_absent(found) and meaning is not Meaning.EXISTS:
            return meaning, None
        return Meaning.UNKNOWN, None

    def _settle(self, order: Order, meaning: Meaning, answer: ApiAnswer, job: Job | None) -> None:
        memory, now, name = self._memory, self._clock(), name_of(order, self._site.installation)
        if job is not None and is_ours(order, job):
            memory.answered(name, job.resource_version)
            memory.accepted(order)
            self._tell(order)
            log.info("launched", task=order.task.id, job=name, meaning=meaning)
            return
        if meaning is Meaning.NOT_SENT:
            self._forget(order, name)
            return
        log.warning("not launched", task=order.task.id, job=name, meaning=meaning, status=answer.status,
                    reason=answer.reason, message=answer.message)  # fmt: skip
        memory.failed(order.task, now)
        if meaning is Meaning.UNKNOWN:
            brake = memory.of_template(order.task.template) if answer.status == 500 else memory.api
            brake.trip(not_ready("ApiThrottled", answer), now, answer.retry_after)
            return
        self._forget(order, name)
        if meaning is Meaning.QUOTA:
            memory.quota.trip(Hold(HoldReason.QUOTA_EXCEEDED, answer.message), now, BLOCKED_SECONDS)
        elif meaning in NOT_READY:
            self._refused()
            memory.api.trip(not_ready(NOT_READY[meaning], answer), now, BLOCKED_SECONDS)
        elif meaning is Meaning.EXISTS:
            self._park(order, HoldReason.NAME_COLLISION, f"Job {name} exists and is not this task's")
        else:
            if meaning is Meaning.POISON:
                memory.refused(order, now)
            self._park(order, HoldReason.POISON, f"{answer.status} {answer.message}")

    def _tell(self, order: Order) -> None:
        """How long a row waited for its first Job."""
        if order.launch.number == 1 and not order.launch.is_repeat:
            told, at = self._database_clock
            now = told + timedelta(seconds=self._clock() - at)
            INSERT_TO_JOB.observe(max(0.0, (now - due_at(order.task)).total_seconds()))

    def _forget(self, order: Order, name: str) -> None:
        if not order.launch.is_repeat:  # of a repeat, the first may still be on its way
            self._memory.not_made(name)

    def _park(self, order: Order, reason: HoldReason, detail: str) -> None:
        log.warning("parked", task=order.task.id, reason=reason, detail=detail)
        self._memory.park(order.task, Hold(reason, detail))


def is_ours(order: Order, job: Job) -> bool:
    """By its full identity: a name can be met by chance, a label can be set by anybody."""
    return (job.identity, job.attempt, job.launch) == (identity_of(order), order.task.attempt, order.launch.number)


def not_ready(code: str, answer: ApiAnswer) -> Hold:
    return Hold(HoldReason.DISPATCHER_NOT_READY, f"{code}: {answer.status} {answer.message}"[:300])
