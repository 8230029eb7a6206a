"""Which nodes a Pod may have: what is held for others is not its own, and what is not known is not given away.

Nothing but reservations is looked at here, and a node without one always passes: kube-scheduler has seen to the rest.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from msgspec import Struct

from dispatcher.amounts import Amounts, added
from dispatcher.placement.reservations import Asker, Holds
from dispatcher.placement.turned_away import TurnedAway
from dispatcher.placement.wire import MetaVictims, Pod, asks
from dispatcher.room import Bound, Rooms, keys_of

CRITICAL: Final = 2_000_000_000
"""system-cluster-critical, and above it system-node-critical."""
OF_NODES: Final = frozenset({"DaemonSet", "Node"})
"""Who owns Pods that belong to their node: daemons, and mirrors of static Pods."""
UNCERTAIN: Final = "what is reserved is not known for certain"


class NotSynced(Exception):
    """Reservations, nodes or Pods have not been listed yet: nobody can say what is held."""


def yes() -> bool:
    return True


def nobody() -> Iterable[Bound]:
    return ()


class Known(Struct, frozen=True):
    """What is known of the cluster: whether everything was listed once, whether the watches live since; the API
    server's clock; the Pods that are bound.
    """

    is_synced: Callable[[], bool] = yes
    is_certain: Callable[[], bool] = yes
    now: Callable[[], float] = lambda: 0.0
    bound: Callable[[], Iterable[Bound]] = nobody


class Gate:
    def __init__(self, holds: Holds, known: Known) -> None:
        self._holds = holds
        self._known = known
        self._turned_away = TurnedAway()

    def refusals(self, pod: Pod | None, names: Collection[str]) -> dict[str, str]:
        """Nodes that the Pod must not have, and why; `pod` None: it cannot be read. `names`: quick to be looked up in.
        NotSynced: nobody can say.
        """
        self._check()
        asker, now = read_asker(pod) if pod is not None else None, self._known.now()
        if asker is not None and self._is_known(asker):
            refused = self._holds.refusals(asker, names, now)
        else:
            refused = {name: UNCERTAIN for name in self._holds.nodes(now) if name in names}
        if asker is not None:
            self._turned_away.note(asker, refused)
        return refused

    def spared(self, pod: Pod | None, victims: Mapping[str, MetaVictims]) -> dict[str, MetaVictims]:
        """Without the nodes that would not be the Pod's even if it pushed its victims aside. NotSynced: as above."""
        self._check()
        held = [node for node in self._holds.nodes(self._known.now()) if node in victims]
        asker = read_asker(pod) if pod is not None else None
        if asker is None or not self._is_known(asker):
            return {node: those for node, those in victims.items() if node not in held}
        asks = asks_by_uid(one for one in (self._known.bound() if held else ()) if one.node in held)
        closed = {node for node in held if not self._holds.would_fit(asker, node, freed(victims[node], asks))}
        return {node: those for node, those in victims.items() if asker.is_exempt or node not in closed}

    def look(self, pod: Pod, names: Collection[str]) -> dict[str, dict[str, object]]:
        """As `refusals`, for people, with the reservations that refuse; nobody is charged for it."""
        self._check()
        asker = read_asker(pod)
        held = set(self._holds.nodes(self._known.now())) & set(names)
        refused = {node for node in held if not asker.is_exempt and not self._holds.would_fit(asker, node)}
        return {node: {"verdict": "refused", "reservations": self._holds.holding(asker, node)} for node in refused}

    def who_could(self) -> list[str]:
        """Pods that were turned away and could have a node by now; `namespace/name`."""
        self._holds.pass_time(self._known.now())
        if not self._known.is_certain():
            return []
        return self._turned_away.who_could(self._holds.would_fit, self._holds.is_bound, self._holds.changes)

    def told(self, pod: str) -> None:
        """The Pod knows, or is gone."""
        self._turned_away.forget(pod)

    def _check(self) -> None:
        if not self._known.is_synced():
            raise NotSynced("reservations, nodes and Pods are not listed yet")

    def _is_known(self, asker: Asker) -> bool:
        """Whether it can be said what the Pod may have."""
        return asker.is_exempt or self._known.is_certain()


def closed_to_nobody() -> Gate:
    """Where there are no reservations."""
    return Gate(Holds(Rooms()), Known())


def read_asker(pod: Pod) -> Asker:
    meta, owners = pod.metadata, pod.metadata.owner_references or []
    keys = keys_of(meta.namespace, meta.name, meta.uid, meta.labels or {}, (owner.uid for owner in owners))
    is_exempt = (pod.spec.priority or 0) >= CRITICAL or any(owner.kind in OF_NODES for owner in owners)
    return Asker(f"{meta.namespace}/{meta.name}", keys, asks(pod), is_exempt)


def asks_by_uid(pods: Iterable[Bound]) -> dict[str, Amounts]:
    return {key.rpartition("/")[2]: one.asks for one in pods for key in one.keys if key.startswith("uid ")}


def freed(victims: MetaVictims, asks: Mapping[str, Amounts]) -> Amounts:
    """What a node gains without them."""
    found: Amounts = {}
    for pod in victims.pods or ():
        found = added(found, asks.get(pod.uid, {}))
    return found
