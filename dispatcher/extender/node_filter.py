"""Which nodes a Pod may have: what is held for others is not its own, and what is not known is not given away.

Nothing but reservations is looked at here, and a node without one always passes: kube-scheduler has seen to the rest.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from dispatcher.extender.wire import MetaVictims, Pod, read_asker
from dispatcher.model.amounts import NOTHING, Amounts, added
from dispatcher.model.capacity import Bound, Rooms
from dispatcher.model.notices import Notices
from dispatcher.reservations.book import REFUSED, UNCERTAIN, Holds
from dispatcher.reservations.pod_request import Asker
from dispatcher.reservations.status import kept_from
from dispatcher.reservations.waiting_pods import Attempt, TurnedAway


class NotSynced(Exception):
    """Reservations, nodes or Pods have not been listed yet: nobody can say what is held."""


def yes() -> bool:
    return True


def nobody() -> Iterable[Bound]:
    return ()


def nothing() -> str:
    return ""


class Known(Struct, frozen=True):
    """What is known of the cluster: whether everything was listed once, whether the watches live since, that of
    reservations alone, what is missing, and whether it is heard at this moment when a Pod is bound; the API server's
    clock, and one that only goes forward; the Pods that are bound.
    """

    is_synced: Callable[[], bool] = yes
    is_certain: Callable[[], bool] = yes
    now: Callable[[], float] = lambda: 0.0
    bound: Callable[[], Iterable[Bound]] = nobody
    fault: Callable[[], str] = nothing
    hears: Callable[[], bool] = yes
    is_certain_of_holds: Callable[[], bool] = yes
    elapsed: Callable[[], float] = lambda: 0.0


class Gate:
    """`notices`: of each Pod that a hold keeps from a node, when that begins."""

    def __init__(self, holds: Holds, known: Known, notices: Notices) -> None:
        self._holds = holds
        self._known = known
        self._notices = notices
        self._turned_away = TurnedAway()
        self._doubts = 0

    def refusals(self, pod: Pod | None, names: Collection[str]) -> dict[str, str]:
        """Nodes that the Pod must not have, and why; `pod` None: it cannot be read. `names`: quick to be looked up in.
        NotSynced: nobody can say.
        """
        self._check()
        asker, now = read_asker(pod) if pod is not None else None, self._known.now()
        if asker is None or not self._is_known(asker):
            refused = self._holds.closed(self._in_doubt(asker), names, now)
            if asker is not None:
                self._turned_away.note(asker, refused, in_doubt=True)
                self._doubts += 1  # it is looked at once they are over
            return refused
        refused = self._holds.refusals(asker, names, now)
        if self._turned_away.note(asker, refused, everywhere=len(refused) == len(names)):
            self._tell_of(asker, refused)
        return refused

    def spared(self, pod: Pod | None, victims: Mapping[str, MetaVictims]) -> dict[str, MetaVictims]:
        """Without the nodes that would not be the Pod's even if it pushed its victims aside. NotSynced: as above."""
        self._check()
        now, asker = self._known.now(), read_asker(pod) if pod is not None else None
        if asker is None or not self._is_known(asker):
            closed = set(self._holds.nodes_of_others(self._in_doubt(asker), now))
            return {node: those for node, those in victims.items() if node not in closed}
        held = [node for node in self._holds.nodes(now) if node in victims]
        asks = asks_by_uid(one for one in (self._known.bound() if held else ()) if one.node in held)
        closed = {node for node in held if not self._may_clear(asker, node, freed(victims[node], asks))}
        self._turned_away.note_push(asker, closed)
        return {node: those for node, those in victims.items() if node not in closed}

    def look(self, pod: Pod, names: Collection[str]) -> dict[str, dict[str, object]]:
        """As `refusals`, for people, with the reservations that refuse; nobody is charged for it."""
        self._check()
        now, asker = self._known.now(), read_asker(pod)
        if not self._is_known(asker):
            closed = set(self._holds.nodes_of_others(self._in_doubt(asker), now)) & set(names)
            return {node: {"verdict": "refused", "reservations": [], "doubt": UNCERTAIN} for node in closed}
        held = set(self._holds.nodes(now)) & set(names)
        refused = {node for node in held if not self._may_clear(asker, node, NOTHING)}
        names_of = {node: [one.name for one in self._holds.holding(asker, node)] for node in refused}
        return {node: {"verdict": "refused", "reservations": names} for node, names in names_of.items()}

    def who_could(self) -> list[Attempt]:
        """Pods that were turned away and could have a node by now."""
        self._holds.pass_time(self._known.now())
        if not self._known.is_certain():
            return []
        self._turned_away.hear(self._holds.changes + self._doubts, self._holds.take_gained())
        return self._turned_away.who_could(self._holds.would_fit, self._holds.is_bound, self._known.elapsed())

    @property
    def is_looking(self) -> bool:
        """Whether `who_could` has more to say."""
        return self._turned_away.is_looking

    def was_waiting(self, asker: Asker) -> None:
        """A Pod that an earlier process turned away."""
        self._turned_away.note(asker, {"": UNCERTAIN}, in_doubt=True)
        self._doubts += 1

    def told(self, attempt: Attempt) -> None:
        """The Pod knows, or is gone."""
        self._turned_away.forget(attempt)

    def put_off(self, attempt: Attempt) -> None:
        """It could not be told."""
        self._turned_away.put_off(attempt, self._known.elapsed())

    def _may_clear(self, asker: Asker, node: str, freed: Amounts) -> bool:
        return asker.is_exempt or self._holds.would_fit(asker, node, freed)

    def _tell_of(self, asker: Asker, refused: Mapping[str, str]) -> None:
        """Of one node, the one that is nearest to having room."""
        node, why = list(refused.items())[-1]
        holding = [one for one in self._holds.holding(asker, node) if why in map(REFUSED.format, one.amounts)]
        for notice in kept_from(asker.name, asker.uid, holding, why, len(refused)):
            self._notices.say(notice)

    def _check(self) -> None:
        if not self._known.is_synced():
            raise NotSynced(f"reservations, nodes and Pods are not all listed yet: {self._known.fault()}")

    def _in_doubt(self, asker: Asker | None) -> Asker | None:
        """Nobody's target, where it is not known whether others have a hold beside its own."""
        if asker is None or self._known.is_certain_of_holds():
            return asker
        return replace(asker, keys=())

    def _is_known(self, asker: Asker) -> bool:
        """Whether it can be said what the Pod may have."""
        return asker.is_exempt or self._known.is_certain()


def closed_to_nobody() -> Gate:
    """Where there are no reservations."""
    return Gate(Holds(Rooms()), Known(), Notices())


def asks_by_uid(pods: Iterable[Bound]) -> dict[str, Amounts]:
    return {key.rpartition("/")[2]: one.asks for one in pods for key in one.keys if key.startswith("uid ")}


def freed(victims: MetaVictims, asks: Mapping[str, Amounts]) -> Amounts:
    """What a node gains without them."""
    found: Amounts = {}
    for pod in victims.pods or ():
        found = added(found, asks.get(pod.uid, {}))
    return found
