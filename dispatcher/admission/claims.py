"""Claims: nodes that are kept for rows which would starve.

A large row beside a stream of small ones never finds a node with enough room, because each small one takes what becomes
free. So a row that has waited for room for ten minutes claims the node that will fit it soonest. Nothing else of ours
gets that node until the row has it (Slurm's backfill makes such reservations). Small rows go on elsewhere.

A queue has at most one claim, and there are at most five in all: a claim leaves room unused for a while.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Protocol

from msgspec import Struct

from dispatcher.admission.room_view import RoomView, fits
from dispatcher.model.amounts import Amounts, added
from dispatcher.model.launches import PodKind, Probe, Run
from dispatcher.model.needs import PodNeeds, is_selected, untolerated

GUARD: Final = timedelta(minutes=10)
MOST_CLAIMS: Final = 5


class Pods(Protocol):
    """Our Pods: those that wait for a node, and those on nodes."""

    def probes(self) -> Iterable[Probe]: ...
    def runs(self) -> Iterable[Run]: ...


class Waiter(Struct, frozen=True):
    """A row that waits for room, in line or with a Job whose Pod has no node.

    since: since when it is known to wait.
    """

    task_id: int
    queue: str
    needs: PodNeeds
    since: datetime


class Claim(Struct, frozen=True):
    """A node that is kept for a row."""

    task_id: int
    queue: str
    needs: PodNeeds
    node: str


class Claims:
    """The claims, from cycle to cycle. A restart begins the wait of a row in line anew; Jobs tell theirs themselves.

    current: the claims of the next cycle.
    """

    def __init__(self) -> None:
        self.current: tuple[Claim, ...] = ()
        self._since: dict[int, datetime] = {}

    def nodes(self) -> dict[str, int]:
        """The claimed nodes, with the task of each."""
        return {claim.node: claim.task_id for claim in self.current}

    def update(
        self, held: Mapping[int, PodKind], picture: Pods, view: RoomView, now: datetime, known: Mapping[int, str]
    ) -> None:
        """Plans the claims of the next cycle.

        held: the first rows of the queues that wait for room in line, with their Pods.
        now: the API server's clock.
        known: claims that exist in the cluster: node by task.
        """
        self._since = {task_id: self._since.get(task_id, now) for task_id in held}
        waiters = [
            Waiter(task_id, pod.queue, pod.needs, self._since[task_id])
            for task_id, pod in held.items()
            if pod.needs is not None
        ]
        waiters += [
            Waiter(one.job.task_id, one.job.queue, one.job.needs, one.pod.unschedulable_since or now)
            for one in picture.probes()
            if one.job.needs is not None
        ]
        current = {claim.task_id: claim.node for claim in self.current}
        self.current = plan_claims({**known, **current}, waiters, picture.runs, view, now)


def plan_claims(
    known: Mapping[int, str],
    waiters: Iterable[Waiter],
    runs: Callable[[], Iterable[Run]],
    view: RoomView,
    now: datetime,
) -> tuple[Claim, ...]:
    """The claims after this cycle.

    known: nodes of the claims before it, by task. A claim lasts while its row waits and may still have the node.
    waiters: the rows that wait for room. Of each queue, the one that has waited longest may claim.
    runs: our Pods on nodes.
    """
    longest = longest_of_each_queue(waiters)
    kept = [
        Claim(one.task_id, one.queue, one.needs, known[one.task_id])
        for one in longest
        if one.task_id in known and may_have(one.needs, known[one.task_id], view)
    ]
    claims = kept[:MOST_CLAIMS]
    settled = {claim.task_id for claim in claims}
    starving = [one for one in longest if one.task_id not in settled and now - one.since >= GUARD]
    by_node = runs_by_node(runs()) if starving and len(claims) < MOST_CLAIMS else {}
    for one in starving[: MOST_CLAIMS - len(claims)]:
        node = soonest(one.needs, by_node, view, {claim.node for claim in claims})
        claims += [Claim(one.task_id, one.queue, one.needs, node)] if node else []
    return tuple(claims)


def longest_of_each_queue(waiters: Iterable[Waiter]) -> list[Waiter]:
    """The row of each queue that has waited longest, the longest first."""
    found: dict[str, Waiter] = {}
    for one in sorted(waiters, key=lambda one: (one.since, one.task_id)):
        found.setdefault(one.queue, one)
    return list(found.values())


def runs_by_node(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Our Pods on each node, those first that end first."""
    found: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.ends_at):
        found.setdefault(run.node, []).append(run)
    return found


def soonest(needs: PodNeeds, runs: Mapping[str, Sequence[Run]], view: RoomView, taken: set[str]) -> str:
    """The node that fits the Pod soonest, as our own Pods end by their run limits. Empty: no node does.

    Other people's Pods have no known end, so they are expected to stay.
    """
    times = [
        (at, node)
        for node, own in runs.items()
        if node not in taken and may_have(needs, node, view) and (at := fits_at(needs, node, own, view)) is not None
    ]
    return min(times)[1] if times else ""


def fits_at(needs: PodNeeds, node: str, runs: Sequence[Run], view: RoomView) -> datetime | None:
    """When the node fits the Pod. None: never, even when all these Pods have ended."""
    threshold = view.threshold(needs)
    if threshold is None:
        return None
    free: Amounts = view.level(threshold).free[node]
    for run in runs:
        free = added(free, run.asks)
        if fits(needs.asks, free):
            return run.ends_at
    return None


def may_have(needs: PodNeeds, name: str, view: RoomView) -> bool:
    """Whether the Pod may have the node now, and the node is large enough."""
    node = view.nodes.get(name)
    if node is None or untolerated(node.taints, needs.tolerations) is not None:
        return False
    return is_selected(needs, name, node.labels) and fits(needs.asks, node.size)


def is_free(claim: Claim, view: RoomView) -> bool:
    """Whether the claimed node fits the row now."""
    threshold = view.threshold(claim.needs)
    return threshold is None or fits(claim.needs.asks, view.level(threshold).free.get(claim.node, {}))
