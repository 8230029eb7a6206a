"""The memory of this process about its own creates. It is a cache: its loss costs requests, never correctness.

The memory learns from the result of each create, and gives each cycle a copy that does not change while the cycle
decides.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from dispatcher.jobs.answers import Meaning
from dispatcher.jobs.breaker import Breaker
from dispatcher.jobs.refusals import Refusals, RefusedRows, trimmed
from dispatcher.jobs.unseen import Unseen, UnseenCreates
from dispatcher.model.identity import identity_of
from dispatcher.model.jobs import ApiAnswer, Job
from dispatcher.model.launches import Order
from dispatcher.model.snapshot import Brakes
from dispatcher.model.tasks import Task
from dispatcher.model.verdicts import Hold, HoldReason, NotReady, Stage

BLOCKED_SECONDS: Final = 10
DEFER_SECONDS: Final = 2
NOT_READY: Final = {
    Meaning.TERMINATING: NotReady.NAMESPACE_TERMINATING,
    Meaning.NO_NAMESPACE: NotReady.NAMESPACE_MISSING,
    Meaning.FORBIDDEN: NotReady.FORBIDDEN,
    Meaning.UNAUTHORIZED: NotReady.UNAUTHORIZED,
}
SAYS_NOTHING_OF_THE_ROW: Final = frozenset({Meaning.NOT_SENT, Meaning.UNKNOWN, Meaning.QUOTA, *NOT_READY})


class CreateResult(Struct, frozen=True):
    """The result of one order.

    order: the launch that was asked for.
    name: the Job's name.
    meaning: meaning of the answer to the create; NOT_SENT: there was no create.
    answer: that answer.
    job: the Job that has the name, if one is known.
    question: the answer to the question before the create, if it says that the create must wait.
    violation: the rule of the policy that the Job would break; empty: none.
    """

    order: Order
    name: str
    meaning: Meaning = Meaning.NOT_SENT
    answer: ApiAnswer = ApiAnswer(0)
    job: Job | None = None
    question: ApiAnswer | None = None
    violation: str = ""

    @property
    def is_made(self) -> bool:
        """Whether the Job exists and is the Job of this launch."""
        return self.job is not None and is_ours(self.order, self.job)

    @property
    def parked(self) -> Hold | None:
        """Why no Job can be made of the row as it is; None if the result does not say so."""
        if self.violation:
            return Hold(HoldReason.POLICY_DENIED, self.violation)
        if self.is_made or self.meaning in SAYS_NOTHING_OF_THE_ROW:
            return None
        if self.meaning is Meaning.EXISTS:
            return Hold(HoldReason.NAME_COLLISION, f"Job {self.name} exists and is not this task's")
        return Hold(HoldReason.POISON, f"{self.answer.status} {self.answer.message}")


class TemplateBrake(Struct, frozen=True):
    """The pause that answers to creates of one template ask for.

    hold: why creates of the template pause now; None: they do not.
    is_probing: a create failed and none has succeeded since, so that one create at a time is sent.
    """

    hold: Hold | None = None
    is_probing: bool = False


OPEN: Final = TemplateBrake()


class KnownCreates(Struct, frozen=True):
    """A copy of the memory at one moment.

    unseen: creates that the view does not show yet, by task.
    refused: rows that the API server refuses as they are.
    deferred: tasks whose Job exists although the view does not show it yet.
    templates: brakes by template.
    tried_at: time of the last failed create by task, in seconds of this process's clock.
    brakes: pauses that answers ask for all creates.
    """

    unseen: Mapping[int, Unseen] = {}
    refused: RefusedRows = RefusedRows()
    deferred: frozenset[int] = frozenset()
    templates: Mapping[str, TemplateBrake] = {}
    tried_at: Mapping[int, float] = {}
    brakes: Brakes = Brakes()

    def why_wait(self, task: Task, now: float) -> Hold | None:
        """The hold that answers of the API server ask for before a launch of this row; None: no hold."""
        if task.id in self.deferred:
            return Hold(HoldReason.LAUNCHED, Stage.UNSEEN)
        brake = self.templates.get(task.template, OPEN)
        if (hold := self.refused.hold(task, now) or brake.hold) is not None:
            return hold
        if brake.is_probing and task.template in self.probed():
            return Hold(
                HoldReason.DISPATCHER_NOT_READY, f"{NotReady.API_THROTTLED}: one create of this template at a time"
            )
        return None

    def probed(self) -> set[str]:
        """Names of templates that have a create under way."""
        return {unseen.group.template for unseen in self.unseen.values() if unseen.is_under_way}


class Memory:
    """Unseen creates, pauses that answers ask for, and refused rows."""

    def __init__(self) -> None:
        self.creates = UnseenCreates()
        self.refusals = Refusals()
        self.api = Breaker()
        self.quota = Breaker()
        self._templates: dict[str, Breaker] = {}
        self._failed: dict[int, float] = {}
        self._deferred: dict[int, float] = {}

    def of_template(self, name: str) -> Breaker:
        """The breaker of a template. A 500 stops only its template: a webhook may fail for one template alone."""
        return self._templates.setdefault(name, Breaker())

    def known(self, now: float) -> KnownCreates:
        """A copy for one cycle."""
        under_way, is_probing = self.creates.under_way(), self.api.is_probing or self.quota.is_probing
        return KnownCreates(
            {unseen.task_id: unseen for unseen in self.creates.by_name.values()},
            self.refusals.rows(),
            frozenset(id_ for id_, until in self._deferred.items() if now < until),
            {name: TemplateBrake(one.hold(now), one.is_probing) for name, one in self._templates.items()},
            dict(self._failed),
            Brakes(self.api.hold(now), self.quota.hold(now), is_probing, len(under_way)),
        )

    def learn(self, result: CreateResult, now: float) -> None:
        """Updates the memory from the result of one order."""
        order, meaning, parked = result.order, result.meaning, result.parked
        if result.is_made and result.job is not None:
            self.creates.answered(result.name, result.job.resource_version)
            self._accepted(order)
            return
        if meaning is not Meaning.NOT_SENT:
            trimmed(self._failed)[order.task.id] = now  # while one create at a time is sent, this row comes last
        if meaning is not Meaning.UNKNOWN:
            self._forget(result)
        if result.question is not None:
            self._learn_question(order.task.id, result.question, now)
        if meaning is Meaning.POISON:
            self.refusals.refused(order, now)
        if parked is not None:
            self.refusals.park(order.task, parked)
        self._brake(result, now)

    def forget_rows(self) -> None:
        """Forgets refusals and pauses of templates. Called when templates or the database changed."""
        self.refusals.forget()
        for known in (self._templates, self._failed, self._deferred):
            known.clear()

    def _learn_question(self, task_id: int, answer: ApiAnswer, now: float) -> None:
        """200: the Job exists and the watch will show it, so the row is deferred. Other answers pause all creates."""
        if answer.status == 200:
            self._deferred = {id_: until for id_, until in self._deferred.items() if until > now}
            self._deferred[task_id] = now + DEFER_SECONDS
        else:
            self.api.trip(not_ready(NotReady.API_THROTTLED, answer), now, answer.retry_after)

    def _brake(self, result: CreateResult, now: float) -> None:
        answer, meaning = result.answer, result.meaning
        if meaning is Meaning.UNKNOWN:
            brake = self.of_template(result.order.task.template) if answer.status == 500 else self.api
            brake.trip(not_ready(NotReady.API_THROTTLED, answer), now, answer.retry_after)
        elif meaning is Meaning.QUOTA:
            self.quota.trip(Hold(HoldReason.QUOTA_EXCEEDED, answer.message), now, BLOCKED_SECONDS)
        elif meaning in NOT_READY:
            self.api.trip(not_ready(NOT_READY[meaning], answer), now, BLOCKED_SECONDS)

    def _accepted(self, order: Order) -> None:
        """A success ends every pause that applied to this create."""
        self.refusals.accepted(order)
        self._failed.pop(order.task.id, None)
        for brake in (self.api, self.quota, self.of_template(order.task.template)):
            brake.reset()

    def _forget(self, result: CreateResult) -> None:
        if not result.order.launch.is_repeat:  # the first POST of a repeated create may still land
            self.creates.forget(result.name)


def is_ours(order: Order, job: Job) -> bool:
    """Whether the Job is the order's, by its full identity. Names may collide, and any client can set a label."""
    return (job.identity, job.attempt, job.launch) == (identity_of(order), order.task.attempt, order.launch.number)


def not_ready(why: NotReady, answer: ApiAnswer) -> Hold:
    return Hold(HoldReason.DISPATCHER_NOT_READY, f"{why}: {answer.status} {answer.message}"[:300])
