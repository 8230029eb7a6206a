"""Makes an order for each launch: the inputs of its Job, with the history of its cache key and its nodes.

`CacheNodeChooser`: a launch with a cache key is drawn to warm nodes, and to one more node while these have no room.
kube-scheduler chooses the node. Without a hint, each launch that finds no room on a warm node goes to a node of its
own, and a busy key ends up on all nodes.

`NodeRing`: an order of all nodes for each cache key, so that launches that must go cold go to the same node. The order
hardly changes when nodes come and go (consistent hashing: Karger et al., STOC 1997).
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final, Protocol
from zlib import crc32

import msgspec
from msgspec import Struct

from dispatcher.admission.claims import MOST_AVOIDED, NO_ROW, NONE_REJECTS, RejectingNodes, may_have
from dispatcher.admission.gates import Candidate
from dispatcher.admission.room import NOBODY, Room, pods_left
from dispatcher.model.caches import CacheHistory, Placement, Use
from dispatcher.model.launches import NO_KEY, Launch, LaunchSpec, Offer, PodOrigin, start_key
from dispatcher.model.needs import PodNeeds
from dispatcher.model.resources import NOTHING
from dispatcher.model.tasks import Request, Task

Key = tuple[str, str]
"""Queue and cache key."""
Order = Callable[[Key, Collection[str]], Iterator[str]]
"""Returns all nodes, in an order that the key gives."""
MOST_WARM: Final = 20
"""Warm nodes of a key that are looked at, at most. Each costs some microseconds for each key of a cycle."""
MOST_LOOKED_AT: Final = 200
"""Nodes that are looked at for one more node with room, at most."""


class CacheNodeChooser:
    """Chooses nodes for launches with a cache key, within one cycle.

    room: the room at its beginning; None: it is not judged, so no node is added.
    copies: nodes to which a key is drawn, at most.
    """

    def __init__(self, room: Room | None, order: Order, copies: int) -> None:
        self._room = room
        self._order = order
        self._copies = copies
        self._keys: dict[tuple[Key, PodNeeds, PodOrigin], CacheNodeChoice] = {}

    def nodes(
        self, key: Key, warm: Sequence[str], needs: PodNeeds | None, origin: PodOrigin = NOBODY
    ) -> tuple[str, ...]:
        """The nodes of the next launch of a key, those with room first. `warm`: its warm nodes, the best first."""
        threshold = self._room.view.threshold(needs) if self._room is not None and needs is not None else None
        if self._room is None or needs is None or threshold is None or not warm:
            return tuple(warm)
        if (key, needs, origin) not in self._keys:
            more = (node for node in self._order(key, self._room.view.nodes) if node not in warm)
            choice = CacheNodeChoice(self._room, needs, threshold, (warm[:MOST_WARM], more), origin)
            self._keys[key, needs, origin] = choice
        return self._keys[key, needs, origin].next(self._copies)


class CacheNodeChoice:
    """A key in one cycle: its nodes, and the number of further launches that they have room for."""

    def __init__(
        self, room: Room, needs: PodNeeds, threshold: int, nodes: tuple[Sequence[str], Iterator[str]], origin: PodOrigin
    ) -> None:
        """`nodes`: the warm ones, and all others in the order of the key."""
        self._room = room
        self._needs = needs
        self._is_usable = room.usable_by(origin)
        self._free = room.view.level(threshold).free
        warm, others = nodes
        self._more = islice(others, MOST_LOOKED_AT)
        self._left = {node: self._room_on(node) for node in warm}

    def next(self, copies: int) -> tuple[str, ...]:
        """The nodes of the next launch. It is counted on the first one that has room."""
        first = next((node for node, left in self._left.items() if left > 0), "") or self._one_more(copies)
        if first:
            self._left[first] -= 1
        return tuple(sorted(self._left, key=lambda node: (node != first, self._left[node] <= 0)))

    def _one_more(self, copies: int) -> str:
        """One more node that has room; empty: there is none, or the key has enough nodes."""
        if len(self._left) >= copies:
            return ""
        found = next(((node, left) for node in self._more if (left := self._room_on(node)) > 0), None)
        if found is None:
            return ""
        self._left[found[0]] = found[1]
        return found[0]

    def _room_on(self, node: str) -> int:
        """Number of Pods of the key that the node has room for."""
        if not self._is_usable(node) or not may_have(self._needs, node, self._room.view):
            return 0
        return max(0, pods_left(self._needs.asks, self._free.get(node, NOTHING), self._room.taken.get(node, NOTHING)))


class Histories(Protocol):
    """The queries for requests, histories and the start secret."""

    database_id: str

    async def start_secret(self) -> tuple[bytes, bytes]: ...
    async def requests(self, ids: Sequence[int]) -> dict[int, Request]: ...
    async def histories(self, keys: Sequence[Key]) -> dict[Key, dict[str, float]]: ...


PlanPlacement = Callable[[str, Request, CacheHistory], Placement]


class PlacementPlanner(Struct, frozen=True):
    """How launches are placed. No call of it waits.

    plan: the placement of a row of a queue, by its cache history.
    uses: real use of earlier runs of a cache key.
    warm: the warm nodes of a cache key, the best first. Its argument has the nodes where the key succeeded, as
    containers reported them, newest first, with the seconds since then. A reported name alone is not believed.
    order: all nodes, in an order of the cache key.
    copies: nodes to which a cache key is drawn, at most.
    """

    plan: PlanPlacement
    uses: Callable[[Key], tuple[Use, ...]]
    warm: Callable[[Key, Mapping[str, float]], tuple[str, ...]]
    order: Order
    copies: int


class NodesNow(Struct, frozen=True):
    """The nodes in one cycle.

    room: the room at its beginning; None: it is not judged.
    claimed: claimed nodes, with the task of each.
    rejecting: nodes whose kubelets reject Pods.
    """

    room: Room | None
    claimed: Mapping[str, int]
    rejecting: RejectingNodes


class OrderInputs(Struct, frozen=True):
    """Inputs that all Jobs of one cycle share.

    database_id: the database that the rows are from.
    secret: secret from which start keys are derived; None: no Job is made.
    plan: the placement of a row of a queue, by its cache history.
    claimed: claimed nodes, with the task of each. Pods of other rows avoid them.
    rejecting: nodes whose kubelets reject Pods. Such Pods avoid them.
    """

    database_id: str
    secret: tuple[bytes, bytes] | None
    plan: PlanPlacement
    claimed: Mapping[str, int] = {}
    rejecting: RejectingNodes = NONE_REJECTS


async def make_orders(
    rows: Histories,
    launches: Sequence[Candidate],
    requests: Mapping[int, Request],
    planner: PlacementPlanner,
    now: NodesNow,
) -> list[LaunchSpec]:
    """The orders of the launches. One query reads the missing requests, and one query reads all histories."""
    if not launches:
        return []
    missing = [one.task.id for one in launches if one.task.id not in requests]
    known = {**requests, **(await rows.requests(missing) if missing else {})}
    keys = cache_keys([one.task for one in launches], known)
    nodes = await rows.histories(sorted(set(keys.values()))) if keys else {}
    warm = {key: planner.warm(key, nodes.get(key, {})) for key in set(keys.values())}
    draw = CacheNodeChooser(now.room, planner.order, planner.copies)
    histories = {
        one.task.id: history_of(draw.nodes(key, warm[key], needs_of(one), one.pod.origin), warm[key], planner.uses(key))
        for one in launches if (key := keys.get(one.task.id))
    }  # fmt: skip
    inputs = OrderInputs(rows.database_id, await rows.start_secret(), planner.plan, now.claimed, now.rejecting)
    return [order for one in launches if (order := order_of(one, known.get(one.task.id), histories, inputs))]


def history_of(drawn: tuple[str, ...], warm: Sequence[str], uses: tuple[Use, ...]) -> CacheHistory:
    """The history of a launch. `drawn`: its nodes, the best first; `warm`: the nodes that have the cache."""
    return CacheHistory(drawn, uses, tuple(node for node in drawn if node not in warm))


def cache_keys(tasks: Iterable[Task], requests: Mapping[int, Request]) -> dict[int, Key]:
    """(queue, cache key) by task, for tasks that have a cache key."""
    found = ((task, requests.get(task.id)) for task in tasks)
    return {
        task.id: (task.queue, request.cache_key)
        for task, request in found
        if request is not None and request.cache_key is not None
    }


def needs_of(candidate: Candidate) -> PodNeeds | None:
    return candidate.offer.needs if isinstance(candidate.offer, Offer) else None


def order_of(
    candidate: Candidate, request: Request | None, histories: Mapping[int, CacheHistory], inputs: OrderInputs
) -> LaunchSpec | None:
    launch, offer = candidate.jobs.verdict, candidate.offer
    if request is None or request.fault or not isinstance(launch, Launch) or not isinstance(offer, Offer):
        return None
    history = histories.get(candidate.task.id, CacheHistory())
    return make_order(candidate.task, request, (launch, offer), history, inputs)


def make_order(
    task: Task, request: Request, launch: tuple[Launch, Offer], history: CacheHistory, inputs: OrderInputs
) -> LaunchSpec:
    """The order for one launch of a row: all inputs of its Job."""
    rejecting = sorted(inputs.rejecting.avoided_by((task.submitted_by, launch[1].shape)))[:MOST_AVOIDED]
    avoided = {**dict.fromkeys((*launch[0].avoid, *rejecting), NO_ROW), **inputs.claimed}
    placement = avoiding(inputs.plan(task.queue, request, history), task.id, avoided)
    key = start_key(inputs.secret, task.id, task.created_at) if inputs.secret else NO_KEY
    return LaunchSpec(task, request, *launch, inputs.database_id, placement, key)


def avoiding(placement: Placement, task_id: int, claimed: Mapping[str, int]) -> Placement:
    """The placement of a Pod that should not take a node which is claimed for another row."""
    avoided = tuple(sorted(node for node, other in claimed.items() if other != task_id))
    if not avoided:
        return placement
    preferred = tuple(node for node in placement.preferred if node not in avoided)
    return msgspec.structs.replace(placement, preferred=preferred, avoided=avoided)


PLACES: Final = 8
"""Positions of each node on the ring. More of them spread keys more evenly over the nodes."""


class NodeRing:
    """The ring of the nodes that were asked about last."""

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()
        self._ring: list[tuple[int, str]] = []

    def order(self, key: tuple[str, str], names: Collection[str]) -> Iterator[str]:
        """The nodes in the order of the key, each once."""
        if len(names) != len(self._names) or not self._names.issuperset(names):
            self._names = frozenset(names)
            self._ring = sorted((place(f"{name}/{at}"), name) for name in names for at in range(PLACES))
        ring, begin = self._ring, bisect_left(self._ring, (place("/".join(key)), ""))
        seen = set[str]()
        for at in chain(range(begin, len(ring)), range(begin)):
            if (name := ring[at][1]) not in seen:
                seen.add(name)
                yield name


def place(text: str) -> int:
    return crc32(text.encode(errors="surrogatepass"))
