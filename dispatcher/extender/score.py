"""Points of a node for a Pod, 0..10: how warm it is (3, 2, 1) and how well it can bear the Pod's real use (0..7).

The second as BlueKing CI's scheduler plugin has it, where it was a hundred: for cpu and for memory, 70 where the Pod's
limit fits into what is free (what has no limit never does), 60 to 20 where one of the uses that are known fits (60: the
highest), else 10; half of the sum counts, in whole tens. Without known use nothing is gained by it: kube-scheduler
itself sees to requests. A node whose room is not known gets what half of the others do not exceed: nothing would empty
it, the most would fill it.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from statistics import median_low
from typing import Final

from msgspec import Struct

from dispatcher.extender.wire import UNREADABLE, Pod, asks
from dispatcher.model.amounts import milli_of
from dispatcher.model.capacity import Room
from dispatcher.placement.history import history_points, read_history
from dispatcher.placement.usage import Needs, read_needs

UNSET: Final = {"cpu": "100m", "memory": "200Mi"}
"""What kube-scheduler takes a container for that asks for nothing, where it weighs nodes."""
FITS: Final = 70
STEP: Final = 10
LEAST: Final = 10
LOOK_EVERY: Final = 256
UNKNOWN: Final = -1


class Steps(Struct, frozen=True):
    """A tier as a function of what is free: `tiers[n]` from `edges[n - 1]` on."""

    edges: tuple[int, ...] = ()
    tiers: tuple[int, ...] = (0,)


class Wish(Struct, frozen=True):
    """What nodes are scored by; `faults` of it are counted, and otherwise ignored."""

    history: Mapping[str, int] = {}
    cpu: Steps = Steps()
    memory: Steps = Steps()
    by_tiers: tuple[tuple[int, ...], ...] = ()
    created_at: float = 0
    has_uses: bool = False
    faults: tuple[str, ...] = ()


class Score(Struct, frozen=True):
    """Points by node and term. `warmth`: of warm nodes alone. `loads`: of each, UNKNOWN where its room is not known."""

    warmth: Mapping[str, int]
    loads: Mapping[str, int]

    def totals(self) -> dict[str, int]:
        """Sums, 0..10, with what is neutral for nodes of unknown room."""
        sums = dict(self.loads)
        if UNKNOWN in sums.values():
            known = [load for load in sums.values() if load != UNKNOWN]
            neutral = median_low(known) if known else 0
            sums = {name: neutral if load == UNKNOWN else load for name, load in sums.items()}
        for name, warmth in self.warmth.items():
            sums[name] += warmth
        return sums

    def terms(self, name: str) -> dict[str, int | None]:
        """Of one node, for people; load None: its room is not known."""
        load = self.loads[name]
        return {"history": self.warmth.get(name, 0), "load": None if load == UNKNOWN else load}


def read_wish(pod: Pod) -> Wish:
    """Never fails: what cannot be read of a Pod's notes is a fault in it."""
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
    return Wish(
        history=history_points(nodes),
        cpu=cpu,
        memory=memory,
        by_tiers=tuple(tuple((one + other) // 2 // STEP for other in memory.tiers) for one in cpu.tiers),
        created_at=created.timestamp() if created else float("inf"),
        has_uses=bool(needs.cpu),
        faults=tuple(faults),
    )


def build_steps(request: int, limit: int | None, uses: Sequence[int | None]) -> Steps:
    """`tier` is the rule; it changes at these edges alone, so thousands of nodes are looked up."""
    edges = tuple(sorted({use for use in uses if use is not None} | {limit + 1 if limit is not None else 0}))
    return Steps(
        edges, (tier(edges[0] - 1, request, limit, uses), *(tier(edge, request, limit, uses) for edge in edges))
    )


def limit(pod: Pod, resource: str) -> int | None:
    """Of all containers; None: there is one without, so it has no end."""
    try:
        return sum(milli_of((one.resources.limits or {})[resource]) for one in pod.spec.containers)
    except (KeyError, ValueError):
        return None


def score(wish: Wish, rooms: Mapping[str, Room], names: Sequence[str]) -> Score:
    """In the order of the names, each once."""
    return with_warmth(wish, rooms, score_loads(wish, rooms, names))


def score_in_time(
    wish: Wish, rooms: Mapping[str, Room], names: Sequence[str], is_late: Callable[[], bool]
) -> Score | None:
    """As `score`, looked at the clock now and then; None: it is too late, and nobody gets any."""
    loads: dict[str, int] = {}
    for start in range(0, len(names), LOOK_EVERY):
        if is_late():
            return None
        loads |= score_loads(wish, rooms, names[start : start + LOOK_EVERY])
    return with_warmth(wish, rooms, loads)


def with_warmth(wish: Wish, rooms: Mapping[str, Room], loads: Mapping[str, int]) -> Score:
    return Score({name: warmth(wish, name, rooms.get(name)) for name in wish.history if name in loads}, loads)


def score_loads(wish: Wish, rooms: Mapping[str, Room], names: Sequence[str]) -> dict[str, int]:
    """Written for speed: thousands of nodes, for every Pod."""
    if not wish.has_uses:
        return dict.fromkeys(names, 0)
    get, points, look_up, cpu_edges, memory_edges = (
        rooms.get, wish.by_tiers, bisect_right, wish.cpu.edges, wish.memory.edges,
    )  # fmt: skip
    return {
        name: UNKNOWN if (room := get(name)) is None
        else points[look_up(cpu_edges, room.cpu)][look_up(memory_edges, room.memory)]
        for name in names
    }  # fmt: skip


def warmth(wish: Wish, name: str, room: Room | None) -> int:
    """A node that is younger than the Pod is another one of the same name: its disk is empty."""
    is_another = room is not None and room.created_at.timestamp() > wish.created_at
    return 0 if is_another else wish.history[name]


def tier(free: int, request: int, limit: int | None, uses: Sequence[int | None]) -> int:
    """A use that is not above the request says nothing: so much is asked for, and free."""
    if limit is not None and free > limit:
        return FITS
    for number, use in enumerate(uses, start=1):
        if use is not None and request < use <= free:
            return FITS - STEP * number
    return LEAST
