"""Points of a node for a Pod, 0..10: history (3, 2, 1 or 0), plus load (0..7).

Load tells how well the free capacity fits the Pod's limit and its real use. BlueKing CI's scheduler plugin has this
rule, with a hundred points. cpu and memory each have a tier:

    70          the limit fits into what is free (never, if a container has no limit)
    60 to 20    one of the known uses fits; 60 for the highest use
    10          otherwise

The load is half of the sum of both tiers, in whole tens. Without known use it is 0: kube-scheduler compares requests.

A node of unknown capacity gets the low median of the others. Zero would starve it; the maximum would flood it.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from statistics import median_low
from typing import Final

from msgspec import Struct

from dispatcher.extender.wire import Pod, asks
from dispatcher.kube.wire import UNREADABLE
from dispatcher.model.amounts import milli_of
from dispatcher.model.capacity import FreeCapacity
from dispatcher.placement.history import history_points, read_history
from dispatcher.placement.usage import Needs, read_needs

UNSET: Final = {"cpu": "100m", "memory": "200Mi"}
"""The request that kube-scheduler assumes, where it scores nodes, for a container without one."""
FITS: Final = 70
STEP: Final = 10
LEAST: Final = 10
NODES_BETWEEN_LOOKS: Final = 256
UNKNOWN: Final = -1


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


def read_preferences(pod: Pod) -> Preferences:
    """Never fails: an annotation that cannot be read becomes a fault."""
    notes, faults = pod.metadata.annotations or {}, []
    nodes: tuple[str, ...] = ()
    needs = Needs()
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
    """Calculates `tier` at each amount where it changes, so that thousands of nodes can be looked up."""
    edges = tuple(sorted({use for use in uses if use is not None} | {limit + 1 if limit is not None else 0}))
    return Steps(
        edges, (tier(edges[0] - 1, request, limit, uses), *(tier(edge, request, limit, uses) for edge in edges))
    )


def limit(pod: Pod, resource: str) -> int | None:
    """The limit of all containers together, or None if at least one of them has no limit."""
    try:
        return sum(milli_of((one.resources.limits or {})[resource]) for one in pod.spec.containers)
    except (KeyError, ValueError):
        return None


def score(wanted: Preferences, free: Mapping[str, FreeCapacity], names: Sequence[str]) -> Score:
    """Scores in the order of the names. Each name must be there once."""
    return with_history(wanted, free, score_loads(wanted, free, names))


def score_in_time(
    wanted: Preferences, free: Mapping[str, FreeCapacity], names: Sequence[str], is_late: Callable[[], bool]
) -> Score | None:
    """As `score`, but returns None as soon as `is_late` says so. Asks every NODES_BETWEEN_LOOKS nodes."""
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
    """Written for speed: it scores thousands of nodes for every Pod."""
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
    """0 for a node that is younger than the Pod: it is another node of the same name, and its disk is empty."""
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
