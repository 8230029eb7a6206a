"""A row that waits is told the reason that holds it: without this cause the row goes on, or the next reason is told.

A cause is taken away by one change alone: the pause ends, the cap is lifted, the node is there.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from dispatcher.admission.last_cycle import LastCycle
from dispatcher.admission.snapshot import Load, PendingPods
from dispatcher.jobs.memory import KnownCreates
from dispatcher.model.cluster import Quotas
from dispatcher.model.launches import Offer
from dispatcher.model.tasks import Kind, Task
from dispatcher.model.verdicts import Hold, HoldReason
from dispatcher.views.explanation import JUST_LAUNCHED, LATER, distinct, what_holds


class GoodOffers:
    """Templates that allow everything, and whose Pods say nothing of what they need."""

    def offer(self, kind: Kind) -> Offer | Hold:
        return Offer("app:1", "small", "default")

    def known_offer(self, digest: bytes) -> Offer | Hold | None:
        return Offer("app:1", "small", "default")


Change = Callable[[LastCycle, Task], tuple[LastCycle, Task]]


def of_snapshot(**changes: object) -> Change:
    return lambda cycle, task: (replace(cycle, snapshot=replace(cycle.snapshot, **changes)), task)


def of_queue(**changes: object) -> Change:
    """Changes the row's queue."""

    def change(cycle: LastCycle, task: Task) -> tuple[LastCycle, Task]:
        queue = replace(cycle.snapshot.queue(task.queue), name=task.queue, **changes)
        return of_snapshot(queues={**cycle.snapshot.queues, task.queue: queue})(cycle, task)

    return change


def of_picture(**changes: object) -> Change:
    def change(cycle: LastCycle, task: Task) -> tuple[LastCycle, Task]:
        picture: Any = cycle.picture  # the real one, or that of a test
        return replace(cycle, picture=replace(picture, **changes)), task

    return change


def due_now(cycle: LastCycle, task: Task) -> tuple[LastCycle, Task]:
    return cycle, replace(task, run_at=None)


def ready(cycle: LastCycle, task: Task) -> tuple[LastCycle, Task]:
    """Answers to creates can ask for a pause, too."""
    return of_picture(creates=KnownCreates())(*of_snapshot(not_ready=None, is_blind=False)(cycle, task))


def below_job_cap(cycle: LastCycle, task: Task) -> tuple[LastCycle, Task]:
    """Fewer Jobs. A higher cap would also allow more Jobs that others hold."""
    return of_snapshot(load=replace(cycle.snapshot.load, total=-1))(cycle, task)


WITHOUT_JOBS: Final = of_picture(jobs={}, all_jobs=(), creates=KnownCreates())
ALLOWED: Final = of_picture(offers=GoodOffers(), creates=KnownCreates())


def denied_no_more(cycle: LastCycle, task: Task) -> tuple[LastCycle, Task]:
    """The queue is declared. If it was, or if the template denies the row as well, the template allows it."""
    is_declared, offer = task.queue in cycle.snapshot.queues, cycle.picture.known_offer(task.kind)
    if not is_declared:
        cycle, task = of_queue()(cycle, task)
    is_denied = isinstance(offer, Hold) and offer.reason is HoldReason.POLICY_DENIED
    return ALLOWED(cycle, task) if is_declared or is_denied else (cycle, task)


OF_A_TEMPLATE: Final = frozenset({
    HoldReason.UNKNOWN_TEMPLATE, HoldReason.INVALID_TEMPLATE, HoldReason.POLICY_DENIED,
})  # fmt: skip
OF_A_POD: Final = frozenset({
    HoldReason.TEMPLATE_FAILING, HoldReason.NEVER_FITS, HoldReason.QUOTA_EXCEEDED, HoldReason.PENDING_PODS,
    HoldReason.NO_ROOM_NOW,
})  # fmt: skip
"""A row without a usable template has no Pod of which these could be told."""
REMOVED: Final[Mapping[HoldReason, Change]] = {
    HoldReason.UNKNOWN_TEMPLATE: ALLOWED,
    HoldReason.INVALID_TEMPLATE: ALLOWED,
    HoldReason.POLICY_DENIED: denied_no_more,
    HoldReason.NOT_DUE: due_now,
    HoldReason.PAUSED: of_queue(paused_until=None),
    HoldReason.NAME_COLLISION: WITHOUT_JOBS,
    HoldReason.POISON: WITHOUT_JOBS,
    HoldReason.EXITED_WITHOUT_REPORT: WITHOUT_JOBS,
    HoldReason.LAUNCHES_EXHAUSTED: WITHOUT_JOBS,
    HoldReason.DISRUPTED_TOO_OFTEN: WITHOUT_JOBS,
    HoldReason.FAILURES_EXHAUSTED: WITHOUT_JOBS,
    HoldReason.FINISHING: WITHOUT_JOBS,
    HoldReason.BACKOFF: WITHOUT_JOBS,
    HoldReason.LAUNCHED: WITHOUT_JOBS,
    HoldReason.NODE_LOST: WITHOUT_JOBS,
    HoldReason.TEMPLATE_FAILING: of_snapshot(failing_groups=frozenset()),
    HoldReason.DISPATCHER_NOT_READY: ready,
    HoldReason.NEVER_FITS: of_snapshot(room=None),
    HoldReason.NO_ROOM_NOW: of_snapshot(room=None),
    HoldReason.SUBMITTER_CAP: of_queue(max_jobs_per_submitter=None),
    HoldReason.QUEUE_CAP: of_queue(max_jobs=None),
    HoldReason.JOB_CAP: below_job_cap,
    HoldReason.QUOTA_EXCEEDED: of_snapshot(quota=None, quotas=Quotas()),
    HoldReason.PENDING_PODS: of_snapshot(pending=PendingPods(), is_strict=False, held=Load()),
}
"""The end of each wait, except those that the next cycle ends."""


def check_reason(cycle: LastCycle, task: Task, number: str = "") -> None:
    """Without its one cause the row is launched, or shows the reason that was named as the next one.

    number: which cycle it is, for the message.
    """
    holds = what_holds(task, cycle)
    assert holds is not None, f"{number}: task {task.id} waits, and nothing is told"
    assert holds or task.id not in cycle.told, f"{number}: task {task.id} was told to wait, and is in line"
    if not holds or holds[0] is JUST_LAUNCHED or holds[0].reason in LATER:
        return
    unnamed = LATER | OF_A_POD if holds[0].reason in OF_A_TEMPLATE else LATER
    named = [hold.reason for hold in holds[1:] if hold.reason not in unnamed]
    after, changed = REMOVED[holds[0].reason](cycle, task)
    left = [hold.reason for hold in distinct(after.holds(changed)) if hold.reason not in unnamed]
    assert left == named, f"{number}: {holds[0].reason} was told, then {named}; without it: {left}"
