"""The nodes of a page, each with what its room is used for, and how many Pods of one size would fit. Pure.

The names of the fields are public: they are the names in JSON.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import UTC, datetime
from heapq import nsmallest
from itertools import chain
from typing import Annotated, Final

from msgspec import Meta, Struct

from dispatcher.admission.last_cycle import LastCycle, SeenPods
from dispatcher.admission.room import Room
from dispatcher.admission.room_view import EVERY_POD
from dispatcher.model.cluster import Node
from dispatcher.model.jobs import Job
from dispatcher.model.needs import CORDON_KEY, REFUSING
from dispatcher.model.reservations import Reservation
from dispatcher.model.resources import NOTHING, Amounts, added, less, written
from dispatcher.views.nodes import FitSummary, PodFits, free_of
from dispatcher.views.status import ShapeDemand, demand_of

NODE_PAGE: Final = 100
"""Nodes of a page, if the request names no limit."""
LONGEST_NAME: Final = 253
"""Characters of the name of a node, at most."""

LAST_SECOND: Final = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp()
"""The last second of all times. A reservation may name a part of it, which a float rounds up to the year 10000."""


class WantedNodes(Struct, frozen=True, forbid_unknown_fields=True):
    """Which nodes a page holds.

    cpu, memory: size of a Pod, as quantities, of which the page says how many fit; None: no size.
    after: the last node of the page before. The next page has the names behind it.
    start: the page has no name before this one.
    limit: most nodes of a page.
    """

    cpu: Annotated[str, Meta(max_length=40)] | None = None
    memory: Annotated[str, Meta(max_length=40)] | None = None
    after: Annotated[str, Meta(max_length=LONGEST_NAME)] | None = None
    start: Annotated[str, Meta(max_length=LONGEST_NAME)] | None = None
    limit: Annotated[int, Meta(ge=1, le=500)] = NODE_PAGE


class HeldRoom(Struct, frozen=True):
    """A NodeReservation that takes room.

    name: `namespace/name`.
    target: kind and name of what it is for, such as `jobName builds/dispatcher-7-1c2e9f04-1`.
    amounts: what it keeps, as quantities.
    ends_at: when it ends, unless its target gets a node before.
    """

    name: str
    target: str
    amounts: Mapping[str, str]
    ends_at: datetime


class KeptCaches(Struct, frozen=True):
    """The caches that the cache keeper of a node reports.

    directories, bytes: their number, and their size on the disk.
    is_whole: False: the node has more of them.
    """

    directories: int
    bytes: int
    is_whole: bool


class NodeRoom(Struct, frozen=True, kw_only=True):
    """One node, as rows see it. Amounts are quantities by resource.

    ready: whether its kubelet reports.
    cordoned: whether somebody keeps new Pods from it.
    taints: its other taints that refuse Pods.
    size: what it has for Pods.
    others: requests of Pods that are not ours.
    ours: requests of our Pods.
    coming: requests of our launches under way.
    reserved: what NodeReservations keep.
    free: the rest.
    kept_for: the row that the whole rest is kept for; None: it is not kept.
    rejects: its kubelet's word for our newest Pods there, which it has rejected; empty: it takes them.
    reservations: the NodeReservations.
    warm: number of cache keys whose files it probably has, by queue.
    caches: what its cache keeper reports; None: it reports nothing.
    fits: how many Pods of the wanted size fit on it; None: no size is wanted.
    """

    name: str
    ready: bool
    cordoned: bool
    taints: Sequence[str]
    size: Mapping[str, str]
    others: Mapping[str, str]
    ours: Mapping[str, str]
    coming: Mapping[str, str]
    reserved: Mapping[str, str]
    free: Mapping[str, str]
    kept_for: int | None
    rejects: str
    reservations: Sequence[HeldRoom] = ()
    warm: Mapping[str, int] = {}
    caches: KeptCaches | None = None
    fits: int | None = None


class NodesPage(Struct, frozen=True, kw_only=True):
    """A page of nodes, by name.

    as_of: time of the cycle that saw them, by the database's clock.
    total: number of all nodes.
    next_after: `after` of the next page; None: this is the last one.
    fits: how many Pods of the wanted size fit; None: no size is wanted.
    reservations_are_watched: without an extender nobody enforces NodeReservations, so nobody watches them.
    warm_ends: the newest ends of rows from which the cache keys are counted; None: they cannot be read now.
    demand: our Pods that wait for nodes, shape by shape.
    """

    as_of: datetime
    total: int
    nodes: Sequence[NodeRoom]
    next_after: str | None
    fits: FitSummary | None
    reservations_are_watched: bool
    warm_ends: int | None
    demand: Sequence[ShapeDemand] = ()


class WarmKeys(Struct, frozen=True):
    """Cache keys whose rows succeeded on nodes.

    ends: the newest ends that were looked at.
    by_node: number of different keys by node and queue. The keys are texts of rows, so they are not shown.
    """

    ends: int
    by_node: Mapping[str, Mapping[str, int]]


class NodePageInputs(Struct, frozen=True):
    """What is known of the nodes of a page besides their room.

    fits: how many Pods fit; None: no size is wanted.
    warm: None: it cannot be read now.
    caches: by node.
    """

    fits: PodFits | None
    warm: WarmKeys | None
    caches: Mapping[str, KeptCaches]


def names_of(room: Room, wanted: WantedNodes) -> list[str]:
    """Names of the nodes of the page, and of one more node, if there is one."""
    after, start = wanted.after or "", wanted.start or ""
    return nsmallest(wanted.limit + 1, (name for name in room.view.nodes if name > after and name >= start))


def nodes_page(
    names: Sequence[str],
    wanted: WantedNodes,
    cycle: LastCycle,
    room: Room,
    known: NodePageInputs,
) -> NodesPage:
    """The page. `names`: the result of `names_of`."""
    shown = names[: wanted.limit]
    ours = ours_on(frozenset(shown), chain.from_iterable(cycle.picture.jobs.values()), cycle.picture.cluster)
    held = reserved_on(frozenset(shown), room.view.reservations or ())
    return NodesPage(
        as_of=cycle.at,
        total=len(room.view.nodes),
        nodes=[
            node_status(room.view.nodes[name], room, ours.get(name, NOTHING), held.get(name, ()), known)
            for name in shown
        ],
        next_after=shown[-1] if len(names) > len(shown) else None,
        fits=known.fits.told if known.fits else None,
        reservations_are_watched=room.view.reservations is not None,
        warm_ends=known.warm.ends if known.warm else None,
        demand=demand_of(cycle),
    )


def ours_on(nodes: Set[str], jobs: Iterable[Job], cluster: SeenPods) -> dict[str, Amounts]:
    """Requests of our Pods on these nodes."""
    found: dict[str, Amounts] = defaultdict(dict)
    for job in jobs:
        for pod in cluster.pods.get(job.uid, ()):
            node = pod.node_name or pod.nominated_node
            if node in nodes and not pod.has_ended and (needs := cluster.needs_of(job)) is not None:
                found[node] = added(found[node], dict(needs.asks))
    return found


def reserved_on(nodes: Set[str], reservations: Iterable[Reservation]) -> dict[str, list[Reservation]]:
    found: dict[str, list[Reservation]] = defaultdict(list)
    for one in reservations:
        if one.node in nodes:
            found[one.node].append(one)
    return found


def node_status(node: Node, room: Room, ours: Amounts, held: Sequence[Reservation], known: NodePageInputs) -> NodeRoom:
    """One node. `ours`: requests of our Pods there. `held`: its NodeReservations."""
    taints, fits = [taint.key for taint in node.taints if taint.effect in REFUSING], known.fits
    reserved = total(one.amounts for one in held)
    asked = total(room.view.asked.get(node.name, {}).values())
    return NodeRoom(
        name=node.name,
        ready=node.ready,
        cordoned=CORDON_KEY in taints,
        taints=[key for key in dict.fromkeys(taints) if key != CORDON_KEY],  # a key may have several effects
        size=quantities(node.size),
        others=used(node, less(asked, added(ours, reserved))),
        ours=used(node, ours),
        coming=used(node, room.taken.get(node.name, NOTHING)),
        reserved=used(node, reserved),
        free=quantities(free_of(node, room, EVERY_POD)),
        kept_for=room.closed.get(node.name),
        rejects=room.rejecting.every.get(node.name, ""),
        reservations=[held_room(one) for one in held],
        warm=known.warm.by_node.get(node.name, {}) if known.warm else {},
        caches=known.caches.get(node.name),
        fits=fits.by_node.get(node.name, 0) if fits else None,
    )


def held_room(one: Reservation) -> HeldRoom:
    ends_at = datetime.fromtimestamp(min(one.ends_at, LAST_SECOND), UTC)
    return HeldRoom(one.name, one.target, quantities(one.amounts), ends_at)


def total(every: Iterable[Amounts]) -> Amounts:
    found: Amounts = {}
    for amounts in every:
        found = added(found, amounts)
    return found


def used(node: Node, amounts: Amounts) -> dict[str, str]:
    """The amounts above 0 of resources that the node has."""
    return quantities({name: amounts[name] for name in node.size if amounts.get(name, 0) > 0})


def quantities(amounts: Amounts) -> dict[str, str]:
    return {name: written(name, max(0, amount)) for name, amount in amounts.items()}
