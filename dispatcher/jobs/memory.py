"""The memory of this process about its own creates. It is a cache: its loss costs requests, never correctness.

`LargeJobs`: the bytes that rows put into their Jobs, and their rate. etcd keeps each version of a Job and of its Pod
for minutes, so a launch costs about twelve times what its row adds. When etcd is full, nobody in the cluster can write.
So a Job with much text waits its turn. Submitters with such Jobs share the rate, and a waiting row keeps its turn.

`UnseenCreates`: creates of this process that the watch has not shown yet. They count against the caps, so a cap holds
while the watch lags. A row has one unanswered create at a time (docs/protocol.md, section 4).

`Memory`: learns from the result of each create. Each cycle gets a copy that does not change while the cycle decides.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from dispatcher.jobs.env import escape
from dispatcher.jobs.refusals import (
    OF_THE_ROW,
    Attempt,
    Breaker,
    CreateOutcome,
    K,
    Origin,
    Refusals,
    RefusedRows,
    SlowCreates,
    SlowOrigins,
    may_be_of_one_job,
    origin_of,
    trimmed,
)
from dispatcher.model.cluster import ClusterView
from dispatcher.model.jobs import ApiAnswer, Job, LaunchGroup
from dispatcher.model.launches import CreatePauses, Launch, LaunchSpec, Offer, identity_of, is_same
from dispatcher.model.tasks import IndexedRow, Request, Task
from dispatcher.model.verdicts import BY_POLICY, MUCH_TEXT, Hold, HoldReason, NotReady, Stage

PLAIN_BYTES: Final = 4096
"""Bytes that a row may add without a turn: they cost no more than the Job itself."""
MORE_FOR_A_WRITE: Final = 2048
"""The byte rate: bytes beyond PLAIN_BYTES for each write of KUBE_WRITES_PER_SECOND."""
SHARES: Final = 4
"""Each submitter gets 1 / max(SHARES, submitters with large Jobs) of the byte rate."""
BURST_SECONDS: Final = 60
"""The bytes of this time may be sent at once after a quiet time."""
AHEAD_SECONDS: Final = 120
"""Turns are given for this time ahead. A row beyond it asks again."""
AGAIN_SECONDS: Final = 120
"""Seconds after which such a row asks again."""


def row_bytes(request: Request) -> int:
    """Bytes of variables, command and args of a row, as they stand in the Job: each `$` is doubled there."""
    words = [*request.env, *request.env.values(), *request.spec.get("command", ()), *request.spec.get("args", ())]
    return sum(len(escape(word).encode(errors="replace")) for word in words)


class LargeJobs:
    """Decides when the next Job with much text may be made. Times are seconds of this process's clock."""

    def __init__(self, writes_per_second: float) -> None:
        self._rate = writes_per_second * MORE_FOR_A_WRITE
        self._busy_until: dict[str, float] = {}
        self._turns: dict[Attempt, float] = {}

    def hold(self, order: LaunchSpec, now: float) -> tuple[Hold, float] | None:
        """The hold of the row and its end. None: the Job may be made now, and is counted."""
        more, key = row_bytes(order.request) - PLAIN_BYTES, (order.task.id, order.task.attempt)
        if more <= 0:
            return None
        turn = self._turns.get(key)
        if turn is None:
            turn = self._turn_of(order.task.submitted_by, key, more, now)
        if turn > now:
            return Hold(HoldReason.SUBMITTER_CAP, f"{MUCH_TEXT}: {more + PLAIN_BYTES} bytes"), turn
        self._turns.pop(key, None)
        return None

    def _turn_of(self, submitter: str, key: Attempt, more: int, now: float) -> float:
        """The time at which the Job may be made. The row keeps this turn, unless it is too far ahead."""
        self._busy_until = {name: until for name, until in self._busy_until.items() if until > now}
        busy = self._busy_until.get(submitter, now)
        turn = busy - BURST_SECONDS
        if turn > now + AHEAD_SECONDS:
            return now + AGAIN_SECONDS
        share = self._rate / max(SHARES, len(self._busy_until | {submitter: busy}))
        self._busy_until[submitter] = busy + more / share
        if turn > now:
            self._turns = {one: at for one, at in self._turns.items() if at > now - AHEAD_SECONDS} | {key: turn}
        return turn


class UnobservedCreate(Struct, frozen=True):
    """One create.

    sent_at: when the POST was sent, in seconds of this process's clock.
    offer: the offer that the Job was made by.
    resource_version: version of the Job in the answer; None: no answer has said that the Job exists.
    is_under_way: an answer may still come.
    """

    name: str
    task_id: int
    attempt: int
    queue: str
    submitted_by: str
    offer: Offer
    sent_at: float
    resource_version: str | None = None
    is_under_way: bool = False

    @property
    def group(self) -> LaunchGroup:
        return LaunchGroup(self.queue, self.offer.template, self.offer.image, self.submitted_by)

    @property
    def is_waiting(self) -> bool:
        """Whether the row is `waiting`, as far as this process knows. Its container starts after the answer."""
        return True

    @property
    def is_parked(self) -> bool:
        return False

    @property
    def priority(self) -> int | None:
        """None: not known. Only rows with a waiting Pod need it, and this Job is not seen."""
        return None

    @property
    def is_answered(self) -> bool:
        return self.resource_version is not None

    @property
    def is_awaited(self) -> bool:
        """Whether an answer may come, or the watch will show the Job. Until then the row is not judged."""
        return self.is_under_way or self.is_answered


def plan_create(launch: Launch, unseen: UnobservedCreate | None, name: str) -> Launch | Hold:
    """The launch that the table of outcomes asks for, or a hold if the row's last create is not resolved.

    An unanswered create is repeated under its own name, and only while the row, read again, asks for that name.
    """
    if unseen is None:
        return launch
    if unseen.is_under_way:
        return Hold(HoldReason.LAUNCHED, Stage.ASKED)
    if unseen.is_answered:
        return Hold(HoldReason.LAUNCHED, Stage.CREATED)
    if unseen.name != name:
        return Hold(HoldReason.FINISHING, f"what became of {unseen.name} is not known yet")
    return msgspec.structs.replace(launch, is_repeat=True)


class UnseenCreates:
    """All unseen creates, by name of the Job."""

    def __init__(self) -> None:
        self.by_name: dict[str, UnobservedCreate] = {}

    def begin(self, name: str, task: Task, offer: Offer, now: float) -> None:
        """Counts the create from now on. No second create of this name begins before `end`."""
        self.by_name[name] = UnobservedCreate(
            name, task.id, task.attempt, task.queue, task.submitted_by, offer, now, is_under_way=True
        )

    def sent(self, name: str, now: float) -> None:
        """Sets the time of the POST, or of the next one. The question to the API server may have come before it."""
        if (unseen := self.by_name.get(name)) is not None:
            self.by_name[name] = msgspec.structs.replace(unseen, sent_at=now)

    def end(self, name: str) -> None:
        """Notes that the answer came, or that no answer will come."""
        if (unseen := self.by_name.get(name)) is not None:
            self.by_name[name] = msgspec.structs.replace(unseen, is_under_way=False)

    def answered(self, name: str, resource_version: str) -> None:
        if (unseen := self.by_name.get(name)) is not None:
            self.by_name[name] = msgspec.structs.replace(unseen, resource_version=resource_version)

    def forget(self, name: str) -> None:
        """Forgets a create that made no Job."""
        self.by_name.pop(name, None)

    def under_way(self) -> list[UnobservedCreate]:
        return [unseen for unseen in self.by_name.values() if unseen.is_under_way]

    def unanswered(self) -> frozenset[str]:
        """Names of Jobs that may or may not exist."""
        return frozenset(unseen.name for unseen in self.by_name.values() if not unseen.is_answered)

    def observe(self, view: ClusterView) -> None:
        """Forgets creates that the view shows, and creates older than the view: their Jobs came and went."""
        for unseen in list(self.by_name.values()):
            version = unseen.resource_version
            if unseen.name in view.jobs or (version is not None and view.has_seen(version)):
                del self.by_name[unseen.name]


BLOCKED_SECONDS: Final = 10
"""The shortest pause of all creates after a missing right, a missing namespace or a used-up quota, in seconds."""
DEFER_SECONDS: Final = 2
"""Seconds for which a row is deferred whose Job a GET has found."""
WRITES_PER_SECOND: Final = 50
"""The default of KUBE_WRITES_PER_SECOND."""
REFUSED_SECONDS: Final = 300
"""Seconds of the pause of a row that the API server refused. A policy, or a Job of the same name, may be gone then."""
TOGETHER_SECONDS: Final = 60
"""Creates of two templates that time out within this time show that it is no webhook of one template, unless creates of
another template succeed meanwhile: one team may have several templates and one webhook."""
MOST_SILENT: Final = 4
"""Templates whose creates may time out while others go on. Each has one create under way, and 16 may be."""
CHANGED_SECONDS: Final = 30
"""Seconds between two dry runs of Jobs that came back other than they were sent."""
LONGEST_CHANGES: Final = 500
"""Characters of such changes that are kept, at most."""
NOT_READY: Final = {
    CreateOutcome.TERMINATING: NotReady.NAMESPACE_TERMINATING,
    CreateOutcome.NO_NAMESPACE: NotReady.NAMESPACE_MISSING,
    CreateOutcome.FORBIDDEN: NotReady.FORBIDDEN,
    CreateOutcome.UNAUTHORIZED: NotReady.UNAUTHORIZED,
}
SAYS_NOTHING_OF_THE_ROW: Final = frozenset(
    {CreateOutcome.NOT_SENT, CreateOutcome.UNKNOWN, CreateOutcome.QUOTA, *NOT_READY}
)


class CreateResult(Struct, frozen=True):
    """The result of one order.

    order: the launch that was asked for.
    name: the Job's name.
    meaning: meaning of the answer to the create; NOT_SENT: there was no create.
    answer: the answer to the create.
    job: the Job that has the name, if one is known.
    question: the answer to the question before the create, if it says that the create must wait.
    violation: the rule of the policy that the Job would break; empty: none.
    """

    order: LaunchSpec
    name: str
    meaning: CreateOutcome = CreateOutcome.NOT_SENT
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
        """The hold if no Job can be made of the row as it is; None: the result does not say so."""
        if self.violation:
            return Hold(HoldReason.POLICY_DENIED, self.violation)
        if self.is_made or self.meaning in SAYS_NOTHING_OF_THE_ROW:
            return None
        if self.meaning is CreateOutcome.EXISTS:
            return Hold(HoldReason.NAME_COLLISION, f"Job {self.name} exists and is not this task's")
        return refusal_of(self.meaning, self.answer)


class TemplatePause(Struct, frozen=True):
    """The pause that answers to creates of one template ask for.

    hold: why creates of the template pause now; None: they do not.
    is_probing: a create failed and none has succeeded since, so that one create at a time is sent.
    """

    hold: Hold | None = None
    is_probing: bool = False


OPEN: Final = TemplatePause()


class KnownCreates(Struct, frozen=True):
    """A copy of the memory at one moment.

    unseen: creates that the view does not show yet, by task.
    refused: rows that the API server refuses as they are.
    deferred: tasks whose Job exists although the view does not show it yet.
    templates: pauses of creates, by template and submitter.
    changed: pauses of Jobs that come back other than they were sent, by template and submitter.
    slow: templates and submitters whose creates take long.
    tried_at: time of the last failed create by task, in seconds of this process's clock.
    brakes: pauses that answers ask for all creates.
    """

    unseen: Mapping[int, UnobservedCreate] = {}
    refused: RefusedRows = RefusedRows()
    deferred: frozenset[int] = frozenset()
    templates: Mapping[Origin, TemplatePause] = {}
    changed: Mapping[Origin, TemplatePause] = {}
    slow: SlowOrigins = SlowOrigins()
    tried_at: Mapping[int, float] = {}
    brakes: CreatePauses = CreatePauses()

    def hold(self, row: Task | IndexedRow, template: str, now: float) -> Hold | None:
        """The hold that answers to the row, to similar rows, to its template, or to Jobs of its submitter ask for."""
        origin = template, row.submitted_by
        changed, brake = self.changed.get(origin, OPEN), self.templates.get(origin, OPEN)
        return self.refused.hold(row, now) or changed.hold or brake.hold or self.slow.hold(origin)

    def why_wait(self, task: Task, now: float) -> Hold | None:
        """The hold that answers of the API server ask for before a launch of this row; None: no hold."""
        if task.id in self.deferred:
            return Hold(HoldReason.LAUNCHED, Stage.UNSEEN)
        if (hold := self.hold(task, task.template, now)) is not None:
            return hold
        origin = origin_of(task)
        brake, changed = self.templates.get(origin, OPEN), self.changed.get(origin, OPEN)
        if (brake.is_probing or changed.is_probing) and origin in self.probed():
            words = "one create of its template and submitter at a time"
            return Hold(HoldReason.DISPATCHER_NOT_READY, f"{NotReady.API_THROTTLED}: {words}")
        return None

    def probed(self) -> set[Origin]:
        """Templates and submitters that have a create under way."""
        return {(one.offer.template, one.submitted_by) for one in self.unseen.values() if one.is_under_way}


class Memory:
    """Unseen creates, pauses that answers ask for, refused rows, and the bytes of large Jobs."""

    def __init__(self, writes_per_second: float = WRITES_PER_SECOND) -> None:
        self.large = LargeJobs(writes_per_second)
        self.creates = UnseenCreates()
        self.refusals = Refusals()
        self.api = Breaker()
        self.quota = Breaker()
        self.slow = SlowCreates()
        self._templates: dict[Origin, Breaker] = {}
        self._changed: dict[Origin, Breaker] = {}
        self._unchanged: set[Origin] = set()
        """Of templates with changed Jobs: submitters whose Jobs came back as they were sent."""
        self._timed_out: dict[str, float] = {}
        self._made: dict[str, float] = {}
        """When a Job of each template was made last."""
        self._failed: dict[int, float] = {}
        self._deferred: dict[int, float] = {}
        self.strays: dict[str, Job] = {}
        """Jobs of ours that a GET has found, and that the watch may never show, by name."""

    def of_template(self, origin: Origin) -> Breaker:
        """The breaker of a template and submitter. A 500 stops only those: a webhook may fail for one team alone."""
        return self._templates.setdefault(origin, Breaker())

    def is_changed(self, task: Task) -> bool:
        """Whether a dry run is asked before the next create: Jobs of the template came back changed.

        A policy may mean one team alone. So the rows of another submitter go on once a dry run of theirs is unchanged.
        """
        is_met = any(template == task.template for template, _ in self._changed)
        return is_met and origin_of(task) not in self._unchanged

    def learn_unchanged(self, task: Task) -> None:
        """Notes that a dry run has found no change."""
        self._learn_changes(origin_of(task), ApiAnswer(200, is_compared=True), 0)

    def known(self, now: float) -> KnownCreates:
        """A copy for one cycle."""
        under_way, is_probing = self.creates.under_way(), self.api.is_probing or self.quota.is_probing
        return KnownCreates(
            {unseen.task_id: unseen for unseen in self.creates.by_name.values()},
            self.refusals.rows(now),
            frozenset(id_ for id_, until in self._deferred.items() if now < until),
            brakes_of(self._templates, now),
            brakes_of(self._changed, now),
            self.slow_origins(now),
            dict(self._failed),
            CreatePauses(self.api.hold(now), self.quota.hold(now), is_probing, len(under_way)),
        )

    def slow_origins(self, now: float) -> SlowOrigins:
        """The templates and submitters whose creates take long now."""
        sent = [((one.offer.template, one.submitted_by), one.sent_at) for one in self.creates.under_way()]
        return self.slow.known(sent, now)

    def learn(self, result: CreateResult, now: float) -> None:
        """Updates the memory from the result of one order."""
        order, meaning, parked = result.order, result.meaning, result.parked
        self._learn_changes(origin_of(order.task), result.answer, now)
        if result.is_made and result.job is not None:
            self.creates.answered(result.name, result.job.resource_version)
            self._note_stray(result.job)
            self._accepted(order, now)
            return
        if meaning is not CreateOutcome.NOT_SENT:
            trimmed(self._failed)[order.task.id] = now  # while one create at a time is sent, this row comes last
        if meaning is not CreateOutcome.UNKNOWN and not order.launch.is_repeat:  # the first POST may still land
            self.creates.forget(result.name)
        if result.question is not None:
            self._learn_question(order.task.id, result.question, now)
        if meaning in OF_THE_ROW:
            self.refusals.refused(order, now)
        if parked is not None and not result.violation:
            self.refusals.rest(order.task, parked, now + REFUSED_SECONDS)
        elif parked is not None:
            self.refusals.park(order.task, parked)
        self._brake(result, now)

    def forget_rows(self) -> None:
        """Forgets refusals and pauses of templates. Called when templates or the database changed."""
        self.refusals.forget()
        for known in (self._templates, self._changed, self._unchanged, self._made, self._failed, self._deferred):
            known.clear()

    def _note_stray(self, job: Job | None) -> None:
        if job is not None and job.lacks:
            self.strays[job.name] = job

    def _learn_changes(self, origin: Origin, answer: ApiAnswer, now: float) -> None:
        """Notes the changes that a create or a dry run has found. A comparison without changes ends the hold."""
        if answer.changes:
            hold = Hold(HoldReason.JOB_CHANGED, "; ".join(answer.changes)[:LONGEST_CHANGES])
            self._changed.setdefault(origin, Breaker()).trip(hold, now, CHANGED_SECONDS)
            self._unchanged.discard(origin)
        elif answer.is_compared:
            self._changed.pop(origin, None)
            self._unchanged = {origin, *self._unchanged} if self._changed else set()

    def _learn_question(self, task_id: int, answer: ApiAnswer, now: float) -> None:
        """Learns the answer to a question. 200: the Job exists, so the row is deferred. Others pause all creates."""
        if answer.status == 200:
            self._note_stray(answer.job)
            self._deferred = {id_: until for id_, until in self._deferred.items() if until > now}
            self._deferred[task_id] = now + DEFER_SECONDS
        else:
            self.api.trip(not_ready(NotReady.API_THROTTLED, answer), now, answer.retry_after)

    def _brake(self, result: CreateResult, now: float) -> None:
        answer, meaning = result.answer, result.meaning
        if meaning is CreateOutcome.UNKNOWN:
            task = result.order.task
            is_of_it = self._is_of_the_template(task.template, answer, now)
            brake = self.of_template(origin_of(task)) if is_of_it else self.api
            brake.trip(not_ready(NotReady.API_THROTTLED, answer), now, answer.retry_after)
        elif meaning is CreateOutcome.QUOTA:
            self.quota.trip(Hold(HoldReason.QUOTA_EXCEEDED, for_all(answer.message)), now, BLOCKED_SECONDS)
        elif meaning in NOT_READY:
            self.api.trip(not_ready(NOT_READY[meaning], answer), now, BLOCKED_SECONDS)

    def _is_of_the_template(self, template: str, answer: ApiAnswer, now: float) -> bool:
        """Whether the fault may be that of a webhook for one template. Other templates and submitters go on then."""
        if not may_be_of_one_job(answer):
            return answer.status == 500
        self._timed_out = {name: at for name, at in self._timed_out.items() if now - at < TOGETHER_SECONDS}
        self._timed_out[template] = now
        others = (at for name, at in self._made.items() if name not in self._timed_out)
        goes_on = len(self._timed_out) <= MOST_SILENT and any(now - at < TOGETHER_SECONDS for at in others)
        return goes_on or len(self._timed_out) == 1

    def _accepted(self, order: LaunchSpec, now: float) -> None:
        """Ends every pause that applied to this create, because it succeeded."""
        self.refusals.accepted(order)
        self._failed.pop(order.task.id, None)
        self._timed_out.pop(order.task.template, None)
        self._made[order.task.template] = now
        self._templates.pop(origin_of(order.task), None)
        self.api.reset()
        self.quota.reset()


def brakes_of(breakers: Mapping[K, Breaker], now: float) -> dict[K, TemplatePause]:
    return {name: TemplatePause(one.hold(now), one.is_probing) for name, one in breakers.items()}


def is_ours(order: LaunchSpec, job: Job) -> bool:
    """Whether the Job is the order's, by its identity. Names may be equal by chance, and any client can set a label."""
    is_its = is_same(job.identity, identity_of(order))
    return is_its and (job.attempt, job.launch) == (order.task.attempt, order.launch.number)


def refusal_of(meaning: CreateOutcome, answer: ApiAnswer) -> Hold:
    """Why the API server makes no Job of the row. The detail names a policy's refusal, whatever its status is."""
    words = f"{answer.status} {answer.message}"
    return Hold(HoldReason.POISON, f"{BY_POLICY}: {words}" if meaning is CreateOutcome.DENIED else words)


def not_ready(why: NotReady, answer: ApiAnswer) -> Hold:
    return Hold(HoldReason.DISPATCHER_NOT_READY, f"{why}: {answer.status} {for_all(answer.message)}"[:300])


NAME_OF_A_JOB: Final = re.compile(r"[a-z0-9][-a-z0-9]*-\d{1,19}-[0-9a-f]{8}-\d{1,5}(?:r\d{1,5})?")


def for_all(message: str) -> str:
    """The words of an answer about one Job without its name: they hold the rows of all teams, and it has a row's id."""
    return NAME_OF_A_JOB.sub("...", message)
