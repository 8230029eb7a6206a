"""Nodes that our Pods keep away from: claims for rows which would starve, and nodes whose kubelet rejects Pods. Pure.

`Claims`: a large row beside a stream of small ones never finds a node with enough room, because each small one takes
what becomes free. So a row that has waited for room for ten minutes claims the node that will fit it soonest. No other
row of ours gets that node until the row has it (Slurm's backfill makes such reservations). Small rows go on elsewhere.
A queue has at most one claim, and there are at most five in all: a claim leaves room unused for a while.

Where no extender enforces claims, a waiting Pod could take the claimed node. So none waits, unless nodes come for its
shape. From time to time one Pod of each shape may wait: an autoscaler must see the demand. Each pause is twice as long
as the one before, so in the end one is long enough for the claim.

`Rejections`: a kubelet rejects Pods if a device plugin failed, the runtime is broken, or it counts too little of a
resource. Such a node is always empty, so kube-scheduler sends it every Pod. But the Pods may be the cause: they ask for
a sysctl that is not allowed, or for more cores than one socket has. Then each kubelet rejects them, and a node takes
others. So only Pods of the same submitter and shape avoid it, and all Pods of a submitter of which it rejects several
shapes. Our knowledge rests on our own Pods, as long as they exist. So a node is forgotten by itself, and tried again.
"""

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from dispatcher.admission.room_view import RoomView, fits
from dispatcher.model.cluster import LONG_AGO, Pod
from dispatcher.model.jobs import Job
from dispatcher.model.launches import PodKind, PodOrigin, PodRun, Probe
from dispatcher.model.needs import PodNeeds, is_selected, untolerated
from dispatcher.model.resources import Amounts, added

GUARD: Final = timedelta(minutes=10)
"""A row claims a node after it has waited for room for this time."""
MOST_CLAIMS: Final = 5
"""Claims of all queues together, at most."""
ROUND: Final = timedelta(seconds=5)
"""Time between two plans. A claim ends at once when its row waits no more."""
BETWEEN: Final = timedelta(minutes=1)
"""A row missing from a plan keeps its waiting time during this time: its Job may just be created or taken back."""
TURN: Final = timedelta(minutes=2)
"""Length of one period in which demand may wait although nodes are claimed."""
MOST_TURNS: Final = 64
"""Longest pause between two such periods, in periods."""
SEARCHES: Final = 5
"""Rows for which one plan searches a node, at most. A search takes some milliseconds in a large cluster."""


class Pods(Protocol):
    """Our Pods: those that wait for a node, and those on nodes."""

    def probes(self) -> Iterable[Probe]: ...
    def runs(self) -> Iterable[PodRun]: ...


class PodsWithoutDoubt(Struct, frozen=True):
    """The picture without Pods for which kube-scheduler contradicts our room estimate: a claim would not help them.

    shapes: the shapes in doubt.
    """

    picture: Pods
    shapes: Container[str]

    def probes(self) -> Iterable[Probe]:
        return (one for one in self.picture.probes() if one.job.shape not in self.shapes)

    def runs(self) -> Iterable[PodRun]:
        return self.picture.runs()


class Waiter(Struct, frozen=True):
    """A row that waits for room, in line or with a Job whose Pod has no node.

    since: the time since which it is known to wait.
    """

    task_id: int
    queue: str
    needs: PodNeeds
    since: datetime


class Claim(Struct, frozen=True):
    """A node that is kept for a row. `lets_ask`: Pods that could take the node may wait as demand now."""

    task_id: int
    queue: str
    needs: PodNeeds
    node: str
    lets_ask: bool = False


class Claims:
    """The claims, from cycle to cycle. A restart begins the wait of a row in line anew; a waiting Pod has its own time.

    current: the claims of the next cycle.
    """

    def __init__(self, *, is_enforced: bool = False) -> None:
        """`is_enforced`: no other Pod can take a claimed node."""
        self.current: tuple[Claim, ...] = ()
        self._is_enforced = is_enforced
        self._since, self._last_at = LONG_AGO, LONG_AGO
        """Since when there are claims, and when there was one last."""
        self._waits: dict[int, tuple[datetime, datetime]] = {}
        """Since when each row waits, and when that was seen last."""
        self._planned_at = LONG_AGO

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
        waiters = [Waiter(task_id, pod.queue, pod.needs, now) for task_id, pod in held.items() if pod.needs is not None]
        waiters += [
            Waiter(one.job.task_id, one.job.queue, one.needs, one.pod.unschedulable_since or now)
            for one in picture.probes()
            if one.needs is not None
        ]
        waiters = self._with_earlier_waits(waiters, now)
        if abs(now - self._planned_at) >= ROUND:
            self._planned_at = now
            current = {claim.task_id: claim.node for claim in self.current}
            self.current = plan_claims({**known, **current}, waiters, picture.runs, view, now)
        waiting = {one.task_id for one in waiters}
        kept = [claim for claim in self.current if claim.task_id in waiting]
        if kept:
            self._since = now if abs(now - self._last_at) > GUARD else self._since
            self._last_at = now
        lets_ask = self._is_enforced or is_turn_to_ask(now - self._since)
        self.current = tuple(replace(claim, lets_ask=lets_ask) for claim in kept)

    def _with_earlier_waits(self, waiters: Sequence[Waiter], now: datetime) -> list[Waiter]:
        """The waiters with their earlier times. A wait goes on when a row gets a Pod, and when it loses the Pod."""
        known = {task_id: one for task_id, one in self._waits.items() if now - one[1] <= BETWEEN}
        found = [replace(one, since=min(one.since, known.get(one.task_id, (now,))[0])) for one in waiters]
        self._waits = known | {one.task_id: (one.since, now) for one in found}
        return found


def is_turn_to_ask(age: timedelta) -> bool:
    """Whether Pods may wait beside claims now. `age`: for how long there have been claims."""
    turn = age // TURN
    return turn > 0 and ((turn & (turn - 1)) == 0 or turn % MOST_TURNS == 0)


def plan_claims(
    known: Mapping[int, str],
    waiters: Iterable[Waiter],
    runs: Callable[[], Iterable[PodRun]],
    view: RoomView,
    now: datetime,
) -> tuple[Claim, ...]:
    """The claims after this cycle.

    A claim lasts while its row waits and the node will fit it. So a node that other people's Pods take is claimed no
    longer. In each queue, the row claims that has waited longest and can get a node.

    known: nodes of the claims before this cycle, by task.
    waiters: the rows that wait for room.
    runs: our Pods on nodes.
    """
    starving = sorted(waiters, key=lambda one: (one.since, one.task_id))
    keeping = [one for one in starving if one.task_id in known]
    late = [one for one in starving if one.task_id not in known and now - one.since >= GUARD]
    by_node = runs_by_node(runs()) if keeping or late else {}
    claims: dict[str, Claim] = {}
    for one in (*keeping, *in_turns(late, now)):
        if one.queue in claims or len(claims) == MOST_CLAIMS:
            continue
        taken, before = {claim.node for claim in claims.values()}, known.get(one.task_id, "")
        node = before if will_fit(one.needs, before, by_node, view, now) and before not in taken else ""
        if not node and now - one.since >= GUARD:
            node = soonest(one.needs, by_node, view, now, taken)
        if node:
            claims[one.queue] = Claim(one.task_id, one.queue, one.needs, node)
    return tuple(claims.values())


def in_turns(late: Sequence[Waiter], now: datetime) -> list[Waiter]:
    """The rows of this plan: all, or other ones each time if there are more than one plan searches for."""
    begin = int(now.timestamp() / ROUND.total_seconds()) * SEARCHES % len(late) if len(late) > SEARCHES else 0
    return [*late[begin:], *late[:begin]][:SEARCHES]


def runs_by_node(runs: Iterable[PodRun]) -> dict[str, list[PodRun]]:
    """Our Pods on each node, in the order in which they end."""
    found: dict[str, list[PodRun]] = {}
    for run in sorted(runs, key=lambda run: run.ends_at):
        found.setdefault(run.node, []).append(run)
    return found


def soonest(
    needs: PodNeeds, runs: Mapping[str, Sequence[PodRun]], view: RoomView, now: datetime, taken: set[str]
) -> str:
    """The node that fits the Pod soonest. Empty: no node does."""
    found = ((will_fit(needs, node, runs, view, now), node) for node in runs if node not in taken)
    return min(((at, node) for at, node in found if at is not None), default=(now, ""))[1]


def will_fit(
    needs: PodNeeds, node: str, runs: Mapping[str, Sequence[PodRun]], view: RoomView, now: datetime
) -> datetime | None:
    """When the node fits the Pod, as our own Pods there end by their run limits. None: never.

    Other people's Pods have no known end, so they are expected to stay.
    """
    threshold = view.threshold(needs)
    if threshold is None or not may_have(needs, node, view):
        return None
    free: Amounts = view.level(threshold).free[node]
    if fits(needs.asks, free):
        return now
    for run in runs.get(node, ()):
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


REJECTIONS: Final = 3
"""Rejected Pods of a shape, or shapes of a submitter, after which a node is avoided."""
WITHIN: Final = timedelta(minutes=10)
"""Time within which these Pods were rejected."""
LOOKED_AT_AGAIN: Final = timedelta(seconds=30)
"""Time between two looks while no Pod changes."""
MOST_AVOIDED: Final = 20
"""Avoided nodes, at most: a Pod's affinity names each of them."""
NO_ROW: Final = 0
"""A task id that no row has: Pods of every row avoid the node."""


class RejectingNodes(Struct, frozen=True):
    """The nodes whose kubelets reject our Pods, each with its kubelet's word.

    every: all of them.
    by_origin: those that reject the Pods of one submitter and shape, or of a submitter and ANY_SHAPE.
    """

    every: Mapping[str, str] = {}
    by_origin: Mapping[PodOrigin, Mapping[str, str]] = {}

    def avoided_by(self, origin: PodOrigin) -> Mapping[str, str]:
        known = self.by_origin
        return {**known.get((origin[0], ANY_SHAPE), {}), **known.get(origin, {})} if known else {}


ANY_SHAPE: Final = "*"
NONE_REJECTS: Final = RejectingNodes()


class Rejections:
    """The rejecting nodes, as the last look found them.

    current: the nodes that reject Pods.
    told: the node of each Pod that the last look found rejected for the first time.
    """

    def __init__(self) -> None:
        self.current = NONE_REJECTS
        self.told: Sequence[str] = ()
        self._rejected: Set[str] | None = None
        """UIDs of the rejected Pods. The process before this one has reported those of the first look."""
        self._looked_at: tuple[Mapping[str, Pod], datetime] | None = None

    def look(self, pods: Mapping[str, Pod], jobs: Iterable[Job], now: datetime) -> RejectingNodes:
        """Looks again if a Pod has changed, or time has passed. An equal answer is the same object.

        jobs: ours. A Pod without a Job does not count: its author could take a node from everybody.
        """
        last, self.told = self._looked_at, ()
        if last is None or last[0] is not pods or now - last[1] > LOOKED_AT_AGAIN:
            self._looked_at = pods, now
            is_any = any(pod.is_rejected for pod in pods.values())
            origins = {job.uid: (job.submitted_by, job.shape) for job in jobs} if is_any else {}
            ours = [pod for pod in pods.values() if pod.job_uid in origins]
            rejected = {pod.uid: pod.node_name for pod in ours if pod.is_rejected}
            known = self._rejected
            self.told = [node for uid, node in rejected.items() if known is not None and uid not in known]
            self._rejected = rejected.keys()
            found = rejecting_nodes(ours, origins, now) if rejected else NONE_REJECTS
            self.current = self.current if found == self.current else found
        return self.current


def rejecting_nodes(pods: Sequence[Pod], origins: Mapping[str, PodOrigin], now: datetime) -> RejectingNodes:
    """The nodes that have rejected our newest Pods. `origins`: by UID of the Job."""
    bad = {pod.node_name for pod in pods if pod.is_rejected}
    every: PodsOfNodes = defaultdict(list)
    of_origins: dict[PodOrigin, PodsOfNodes] = defaultdict(lambda: defaultdict(list))
    for pod in pods:
        if pod.node_name in bad:
            submitter, shape = origins[pod.job_uid]
            every[pod.node_name].append((pod.uid, pod))
            of_origins[submitter, shape][pod.node_name].append((pod.uid, pod))
            of_origins[submitter, ANY_SHAPE][pod.node_name].append((shape, pod))
    by_origin = {origin: found for origin, nodes in of_origins.items() if (found := words_by_node(nodes, now))}
    return RejectingNodes(words_by_node(every, now), by_origin)


PodsOfNodes = dict[str, list[tuple[str, Pod]]]
"""Pods by node, each with its kind. Pods of one kind count once."""


def words_by_node(pods: PodsOfNodes, now: datetime) -> Mapping[str, str]:
    return {node: word for node, its in pods.items() if (word := word_of(its, now))}


def word_of(pods: Sequence[tuple[str, Pod]], now: datetime) -> str:
    """The word of a node's kubelet if it rejected the newest of these Pods, REJECTIONS kinds or more within WITHIN."""
    rejected = [(kind, pod) for kind, pod in pods if pod.is_rejected and now - pod.created_at < WITHIN]
    if len({kind for kind, _ in rejected}) < REJECTIONS:
        return ""
    _, newest = max(rejected, key=lambda one: one[1].created_at)
    has_healed = any(pod.had_begun and pod.created_at > newest.created_at for _, pod in pods)
    return "" if has_healed or newest.end is None else f"{newest.end.reason} ({len(rejected)} Pods)"
