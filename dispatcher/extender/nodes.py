"""Which nodes a Pod may have because of reservations, and how many points each node gets.

`NodeFilter`: a node without a reservation always passes: kube-scheduler checks everything else. While the reservations
or the bound Pods are uncertain, nodes that are reserved for others are refused.

`score`: points of a node for a Pod, 0..10: history (3, 2, 1 or 0), plus load (0..7). Load says how well the free
capacity fits the Pod's limit and its real use. BlueKing CI's scheduler plugin has this rule, with a hundred points. cpu
and memory each have a tier:

    70          the limit fits into what is free (never, if a container has no limit)
    60 to 20    one of the known uses fits; 60 for the highest use
    10          otherwise

The load is half of the sum of both tiers, in whole tens. Without known use it is 0: kube-scheduler compares requests.

A node of unknown capacity gets the low median of the others. Zero would starve it; the maximum would flood it.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from statistics import median_low
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dispatcher.extender.assumed_pods import PodRequest
from dispatcher.extender.book import UNCERTAIN, ReservationBook
from dispatcher.extender.hold_index import REFUSED
from dispatcher.extender.lifecycle import refusal_notices
from dispatcher.extender.waiting_pods import WaitingPod, WaitingPods
from dispatcher.extender.wire import ExtenderPod, MetaVictims, asks, read_pod_request
from dispatcher.kube.wire import UNREADABLE
from dispatcher.model.cluster import BoundPod, FreeCapacity
from dispatcher.model.jobs import Notices
from dispatcher.model.resources import NOTHING, Amounts, added, milli_of
from dispatcher.placement.placing import RealUses, history_points, read_history, read_needs


class NotListed(Exception):
    """Reservations, nodes or Pods are not listed yet, so no question can be answered."""


class ClusterFacts(Struct, frozen=True, kw_only=True):
    """The extender's knowledge of the cluster. Each field is a function, which is called at every use.

    `is_synced`: reservations, nodes and Pods were all listed once.
    `is_certain`: all watches are up to date, and all Pods between filter and bind are known.
    `now`: the API server's clock, in seconds since 1970.
    `bound_pods`: all bound Pods.
    `fault`: the lists or watches that are not up to date. Empty: none.
    `hears_bindings`: news of a Pod that is bound now arrive at once.
    `knows_reservations`: the watch of reservations is up to date.
    `elapsed`: a clock that only goes forward, in seconds.
    """

    is_synced: Callable[[], bool]
    is_certain: Callable[[], bool]
    now: Callable[[], float]
    bound_pods: Callable[[], Iterable[BoundPod]]
    fault: Callable[[], str]
    hears_bindings: Callable[[], bool]
    knows_reservations: Callable[[], bool]
    elapsed: Callable[[], float]


class NodeFilter:
    """Answers filter, preempt and explain, and remembers the Pods that wait because of reservations.

    `notices`: gets one for a Pod that is newly refused on every node, and one for each refusing reservation.
    """

    def __init__(self, book: ReservationBook, facts: ClusterFacts, notices: Notices) -> None:
        self._book = book
        self._facts = facts
        self._notices = notices
        self._waiting = WaitingPods()
        self._doubts = 0
        """Pods that were refused in doubt. Each counts as a change: all waiting Pods are checked after the doubt."""

    def filter_nodes(self, pod: ExtenderPod | None, names: Collection[str]) -> dict[str, str]:
        """Returns the refused nodes with the reason. Raises NotListed if no answer is possible yet.

        `pod` is None if it cannot be read. `names` is a dict or a set, because it is searched often.
        """
        self._check_listed()
        request, now = read_pod_request(pod) if pod is not None else None, self._facts.now()
        if request is None or not self._is_certain_for(request):
            refused = self._book.filter_nodes_in_doubt(self._with_certain_keys(request), names, now)
            if request is not None:
                self._waiting.note(request, refused, in_doubt=True)
                self._doubts += 1
            return refused
        refused = self._book.filter_nodes(request, names, now)
        if self._waiting.note(request, refused, everywhere=len(refused) == len(names)):
            self._notify_refused(request, refused)
        return refused

    def filter_victims(self, pod: ExtenderPod | None, victims: Mapping[str, MetaVictims]) -> dict[str, MetaVictims]:
        """The `victims` without the nodes that the Pod may not have even after preemption. Raises NotListed, too."""
        self._check_listed()
        now, request = self._facts.now(), read_pod_request(pod) if pod is not None else None
        if request is None or not self._is_certain_for(request):
            refused = set(self._book.active.nodes_of_others(self._with_certain_keys(request), now))
            return {node: those for node, those in victims.items() if node not in refused}
        reserved = [node for node in self._book.active.nodes(now) if node in victims]
        asks = asks_by_uid(one for one in (self._facts.bound_pods() if reserved else ()) if one.node in reserved)
        refused = {node for node in reserved if not self._would_pass(request, node, freed_by(victims[node], asks))}
        self._waiting.note_preemption(request, refused)
        return {node: those for node, those in victims.items() if node not in refused}

    def explain(self, pod: ExtenderPod, names: Collection[str]) -> dict[str, dict[str, object]]:
        """The refused nodes with the reservations that refuse them, for people. The Pod is not assumed."""
        self._check_listed()
        now, request = self._facts.now(), read_pod_request(pod)
        if not self._is_certain_for(request):
            refused = set(self._book.active.nodes_of_others(self._with_certain_keys(request), now)) & set(names)
            return {node: {"verdict": "refused", "reservations": [], "doubt": UNCERTAIN} for node in refused}
        reserved = set(self._book.active.nodes(now)) & set(names)
        refused = {node for node in reserved if not self._would_pass(request, node, NOTHING)}
        blocking = {node: [one.name for one in self._book.active.of_others(request, node)] for node in refused}
        return {node: {"verdict": "refused", "reservations": reservations} for node, reservations in blocking.items()}

    def ready_to_retry(self) -> list[WaitingPod]:
        """Waiting Pods that may have a node by now. Empty while anything is uncertain."""
        self._book.pass_time(self._facts.now())
        if not self._facts.is_certain():
            return []
        self._waiting.hear(self._book.changes + self._doubts, self._book.take_gained())
        return self._waiting.ready_to_retry(self._book.would_fit, self._book.is_bound, self._facts.elapsed())

    @property
    def is_checking(self) -> bool:
        """Whether `ready_to_retry` has not checked every Pod since the last change."""
        return self._waiting.is_checking

    def note_earlier_refusal(self, request: PodRequest) -> None:
        """Remembers a Pod that an earlier process refused. Its nodes are not known."""
        self._waiting.note(request, {"": UNCERTAIN}, in_doubt=True)
        self._doubts += 1

    def forget(self, pod: WaitingPod) -> None:
        """Forgets a Pod that was notified, or is gone."""
        self._waiting.forget(pod)

    def retry_later(self, pod: WaitingPod) -> None:
        """Tries a Pod again later, because it could not be notified."""
        self._waiting.retry_later(pod, self._facts.elapsed())

    def _would_pass(self, request: PodRequest, node: str, freed: Amounts) -> bool:
        return request.is_exempt or self._book.would_fit(request, node, freed)

    def _notify_refused(self, request: PodRequest, refused: Mapping[str, str]) -> None:
        """Notifies of a refusal. The notice names the reservations of the last node, which lacks least."""
        node, why = list(refused.items())[-1]
        others = self._book.active.of_others(request, node)
        blocking = [one for one in others if why in map(REFUSED.format, one.amounts)]
        for notice in refusal_notices(request.name, request.uid, blocking, why, len(refused)):
            self._notices.say(notice)

    def _check_listed(self) -> None:
        if not self._facts.is_synced():
            raise NotListed(f"reservations, nodes and Pods are not all listed yet: {self._facts.fault()}")

    def _with_certain_keys(self, request: PodRequest | None) -> PodRequest | None:
        """The request without keys while reservations are uncertain: others may have an unknown one on its node."""
        if request is None or self._facts.knows_reservations():
            return request
        return replace(request, keys=())

    def _is_certain_for(self, request: PodRequest) -> bool:
        return request.is_exempt or self._facts.is_certain()


def asks_by_uid(pods: Iterable[BoundPod]) -> dict[str, Amounts]:
    return {key.rpartition("/")[2]: one.asks for one in pods for key in one.keys if key.startswith("uid ")}


def freed_by(victims: MetaVictims, asks: Mapping[str, Amounts]) -> Amounts:
    """The amounts that become free without the victims."""
    found: Amounts = {}
    for pod in victims.pods or ():
        found = added(found, asks.get(pod.uid, {}))
    return found


UNSET: Final = {"cpu": "100m", "memory": "200Mi"}
"""The requests that kube-scheduler assumes, where it scores nodes, for a container without requests."""
FITS: Final = 70
"""The tier of a node where the limit fits."""
STEP: Final = 10
"""The difference between two tiers."""
LEAST: Final = 10
"""The lowest tier."""
NODES_BETWEEN_LOOKS: Final = 256
"""Nodes that are scored between two looks at the clock."""
UNKNOWN: Final = -1
"""The load of a node of unknown capacity."""


class Steps(Struct, frozen=True):
    """The tier as a function of the free amount: `tiers[n]` counts from `edges[n - 1]` on."""

    edges: tuple[int, ...] = ()
    tiers: tuple[int, ...] = (0,)


class Preferences(Struct, frozen=True):
    """The parts of one Pod that nodes are scored by.

    `history`: points by node.
    `cpu`: the tier by free cpu.
    `memory`: the tier by free memory.
    `load_points`: the points by index of the cpu tier and index of the memory tier.
    `created_at`: creation of the Pod, in seconds since 1970.
    `has_uses`: True if the real use is known.
    `faults`: parts of the Pod that could not be read. They are counted, and otherwise ignored.
    """

    history: Mapping[str, int] = {}
    cpu: Steps = Steps()
    memory: Steps = Steps()
    load_points: tuple[tuple[int, ...], ...] = ()
    created_at: float = 0
    has_uses: bool = False
    faults: tuple[str, ...] = ()


class Score(Struct, frozen=True):
    """Points by node.

    `history`: only for nodes of the history.
    `loads`: for all nodes; UNKNOWN for a node of unknown capacity.
    """

    history: Mapping[str, int]
    loads: Mapping[str, int]

    def totals(self) -> dict[str, int]:
        """The sums, 0..10. A node of unknown capacity gets the low median of the known loads."""
        sums = dict(self.loads)
        if UNKNOWN in sums.values():
            known = [load for load in sums.values() if load != UNKNOWN]
            neutral = median_low(known) if known else 0
            sums = {name: neutral if load == UNKNOWN else load for name, load in sums.items()}
        for name, points in self.history.items():
            sums[name] += points
        return sums

    def terms(self, name: str) -> dict[str, int | None]:
        """The points of one node, for people. `load` is None for a node of unknown capacity."""
        load = self.loads[name]
        return {"history": self.history.get(name, 0), "load": None if load == UNKNOWN else load}


def read_preferences(pod: ExtenderPod) -> Preferences:
    """The parts of a Pod for scoring. It never fails: an annotation that cannot be read becomes a fault."""
    notes, faults = pod.metadata.annotations or {}, []
    nodes: tuple[str, ...] = ()
    needs = RealUses()
    try:
        nodes = read_history(notes)
    except UNREADABLE:
        faults.append("history-nodes")
    try:
        needs = read_needs(notes)
    except UNREADABLE:
        faults.append("real-resources")
    asked, created = asks(pod, UNSET), pod.metadata.creation_timestamp
    cpu = build_steps(asked.get("cpu", 0), limit(pod, "cpu"), needs.cpu)
    memory = build_steps(asked.get("memory", 0), limit(pod, "memory"), needs.memory)
    return Preferences(
        history=history_points(nodes),
        cpu=cpu,
        memory=memory,
        load_points=tuple(tuple((one + other) // 2 // STEP for other in memory.tiers) for one in cpu.tiers),
        created_at=created.timestamp() if created else float("inf"),
        has_uses=bool(needs.cpu),
        faults=tuple(faults),
    )


def build_steps(request: int, limit: int | None, uses: Sequence[int | None]) -> Steps:
    """The steps of `tier` over the free amount, so that thousands of nodes can be looked up."""
    edges = tuple(sorted({use for use in uses if use is not None} | {limit + 1 if limit is not None else 0}))
    return Steps(
        edges, (tier(edges[0] - 1, request, limit, uses), *(tier(edge, request, limit, uses) for edge in edges))
    )


def limit(pod: ExtenderPod, resource: str) -> int | None:
    """The limit of all containers together, or None if at least one of them has no limit."""
    try:
        return sum(milli_of((one.resources.limits or {})[resource]) for one in pod.spec.containers)
    except (KeyError, ValueError):
        return None


def score(wanted: Preferences, free: Mapping[str, FreeCapacity], names: Sequence[str]) -> Score:
    """Scores nodes in the order of their names. Each name must be there once."""
    return with_history(wanted, free, score_loads(wanted, free, names))


def score_in_time(
    wanted: Preferences, free: Mapping[str, FreeCapacity], names: Sequence[str], is_late: Callable[[], bool]
) -> Score | None:
    """As `score`, but returns None as soon as `is_late` says so. It is asked every NODES_BETWEEN_LOOKS nodes."""
    loads: dict[str, int] = {}
    for start in range(0, len(names), NODES_BETWEEN_LOOKS):
        if is_late():
            return None
        loads |= score_loads(wanted, free, names[start : start + NODES_BETWEEN_LOOKS])
    return with_history(wanted, free, loads)


def with_history(wanted: Preferences, free: Mapping[str, FreeCapacity], loads: Mapping[str, int]) -> Score:
    history = {name: points_of_history(wanted, name, free.get(name)) for name in wanted.history if name in loads}
    return Score(history, loads)


def score_loads(wanted: Preferences, free: Mapping[str, FreeCapacity], names: Sequence[str]) -> dict[str, int]:
    """The loads. It is written for speed: it scores thousands of nodes for every Pod."""
    if not wanted.has_uses:
        return dict.fromkeys(names, 0)
    get, points, look_up, cpu_edges, memory_edges = (
        free.get, wanted.load_points, bisect_right, wanted.cpu.edges, wanted.memory.edges,
    )  # fmt: skip
    return {
        name: UNKNOWN if (node := get(name)) is None
        else points[look_up(cpu_edges, node.cpu)][look_up(memory_edges, node.memory)]
        for name in names
    }  # fmt: skip


def points_of_history(wanted: Preferences, name: str, node: FreeCapacity | None) -> int:
    """The points of a node's rank. 0 for a node that is younger than the Pod: it has another disk, which is empty."""
    is_another = node is not None and node.created_at.timestamp() > wanted.created_at
    return 0 if is_another else wanted.history[name]


def tier(free: int, request: int, limit: int | None, uses: Sequence[int | None]) -> int:
    """The tier for a free amount. A use that is not above the request is skipped: kube-scheduler compares requests."""
    if limit is not None and free > limit:
        return FITS
    for number, use in enumerate(uses, start=1):
        if use is not None and request < use <= free:
            return FITS - STEP * number
    return LEAST
