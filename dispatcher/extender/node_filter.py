"""Which nodes a Pod may have: what is held for others is not its own, and what is not known is not given away.

Nothing but reservations is looked at here, and a node without one always passes: kube-scheduler has seen to the rest.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from dispatcher.extender.wire import MetaVictims, Pod, read_pod_request
from dispatcher.model.amounts import NOTHING, Amounts, added
from dispatcher.model.capacity import BoundPod, NodeCapacities
from dispatcher.model.notices import Notices
from dispatcher.reservations.book import REFUSED, UNCERTAIN, ReservationBook
from dispatcher.reservations.pod_request import PodRequest
from dispatcher.reservations.status import kept_from
from dispatcher.reservations.waiting_pods import WaitingPod, WaitingPods


class NotListed(Exception):
    """Reservations, nodes or Pods have not been listed yet: nobody can say what is held."""


def yes() -> bool:
    return True


def nobody() -> Iterable[BoundPod]:
    return ()


def nothing() -> str:
    return ""


class ClusterFacts(Struct, frozen=True):
    """What is known of the cluster: whether everything was listed once, whether the watches live since, that of
    reservations alone, what is missing, and whether it is heard at this moment when a Pod is bound; the API server's
    clock, and one that only goes forward; the Pods that are bound.
    """

    is_synced: Callable[[], bool] = yes
    is_certain: Callable[[], bool] = yes
    now: Callable[[], float] = lambda: 0.0
    bound: Callable[[], Iterable[BoundPod]] = nobody
    fault: Callable[[], str] = nothing
    hears: Callable[[], bool] = yes
    is_certain_of_holds: Callable[[], bool] = yes
    elapsed: Callable[[], float] = lambda: 0.0


class NodeFilter:
    """`notices`: of each Pod that a hold keeps from a node, when that begins."""

    def __init__(self, holds: ReservationBook, known: ClusterFacts, notices: Notices) -> None:
        self._book = holds
        self._facts = known
        self._notices = notices
        self._waiting = WaitingPods()
        self._doubts = 0

    def refusals(self, pod: Pod | None, names: Collection[str]) -> dict[str, str]:
        """Nodes that the Pod must not have, and why; `pod` None: it cannot be read. `names`: quick to be looked up in.
        NotSynced: nobody can say.
        """
        self._check()
        request, now = read_pod_request(pod) if pod is not None else None, self._facts.now()
        if request is None or not self._is_known(request):
            refused = self._book.closed(self._in_doubt(request), names, now)
            if request is not None:
                self._waiting.note(request, refused, in_doubt=True)
                self._doubts += 1  # it is looked at once they are over
            return refused
        refused = self._book.refusals(request, names, now)
        if self._waiting.note(request, refused, everywhere=len(refused) == len(names)):
            self._tell_of(request, refused)
        return refused

    def spared(self, pod: Pod | None, victims: Mapping[str, MetaVictims]) -> dict[str, MetaVictims]:
        """Without the nodes that would not be the Pod's even if it pushed its victims aside. NotSynced: as above."""
        self._check()
        now, request = self._facts.now(), read_pod_request(pod) if pod is not None else None
        if request is None or not self._is_known(request):
            closed = set(self._book.nodes_of_others(self._in_doubt(request), now))
            return {node: those for node, those in victims.items() if node not in closed}
        held = [node for node in self._book.nodes(now) if node in victims]
        asks = asks_by_uid(one for one in (self._facts.bound() if held else ()) if one.node in held)
        closed = {node for node in held if not self._may_clear(request, node, freed(victims[node], asks))}
        self._waiting.note_push(request, closed)
        return {node: those for node, those in victims.items() if node not in closed}

    def look(self, pod: Pod, names: Collection[str]) -> dict[str, dict[str, object]]:
        """As `refusals`, for people, with the reservations that refuse; nobody is charged for it."""
        self._check()
        now, request = self._facts.now(), read_pod_request(pod)
        if not self._is_known(request):
            closed = set(self._book.nodes_of_others(self._in_doubt(request), now)) & set(names)
            return {node: {"verdict": "refused", "reservations": [], "doubt": UNCERTAIN} for node in closed}
        held = set(self._book.nodes(now)) & set(names)
        refused = {node for node in held if not self._may_clear(request, node, NOTHING)}
        names_of = {node: [one.name for one in self._book.holding(request, node)] for node in refused}
        return {node: {"verdict": "refused", "reservations": names} for node, names in names_of.items()}

    def ready_to_retry(self) -> list[WaitingPod]:
        """Pods that were turned away and could have a node by now."""
        self._book.pass_time(self._facts.now())
        if not self._facts.is_certain():
            return []
        self._waiting.hear(self._book.changes + self._doubts, self._book.take_gained())
        return self._waiting.ready_to_retry(self._book.would_fit, self._book.is_bound, self._facts.elapsed())

    @property
    def is_looking(self) -> bool:
        """Whether `who_could` has more to say."""
        return self._waiting.is_looking

    def was_waiting(self, request: PodRequest) -> None:
        """A Pod that an earlier process turned away."""
        self._waiting.note(request, {"": UNCERTAIN}, in_doubt=True)
        self._doubts += 1

    def told(self, attempt: WaitingPod) -> None:
        """The Pod knows, or is gone."""
        self._waiting.forget(attempt)

    def put_off(self, attempt: WaitingPod) -> None:
        """It could not be told."""
        self._waiting.put_off(attempt, self._facts.elapsed())

    def _may_clear(self, request: PodRequest, node: str, freed: Amounts) -> bool:
        return request.is_exempt or self._book.would_fit(request, node, freed)

    def _tell_of(self, request: PodRequest, refused: Mapping[str, str]) -> None:
        """Of one node, the one that is nearest to having room."""
        node, why = list(refused.items())[-1]
        holding = [one for one in self._book.holding(request, node) if why in map(REFUSED.format, one.amounts)]
        for notice in kept_from(request.name, request.uid, holding, why, len(refused)):
            self._notices.say(notice)

    def _check(self) -> None:
        if not self._facts.is_synced():
            raise NotListed(f"reservations, nodes and Pods are not all listed yet: {self._facts.fault()}")

    def _in_doubt(self, request: PodRequest | None) -> PodRequest | None:
        """Nobody's target, where it is not known whether others have a hold beside its own."""
        if request is None or self._facts.is_certain_of_holds():
            return request
        return replace(request, keys=())

    def _is_known(self, request: PodRequest) -> bool:
        """Whether it can be said what the Pod may have."""
        return request.is_exempt or self._facts.is_certain()


def unreserved_filter() -> NodeFilter:
    """Where there are no reservations."""
    return NodeFilter(ReservationBook(NodeCapacities()), ClusterFacts(), Notices())


def asks_by_uid(pods: Iterable[BoundPod]) -> dict[str, Amounts]:
    return {key.rpartition("/")[2]: one.asks for one in pods for key in one.keys if key.startswith("uid ")}


def freed(victims: MetaVictims, asks: Mapping[str, Amounts]) -> Amounts:
    """What a node gains without them."""
    found: Amounts = {}
    for pod in victims.pods or ():
        found = added(found, asks.get(pod.uid, {}))
    return found
