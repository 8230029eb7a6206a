"""Decides which nodes a Pod may have as far as reservations are concerned.

A node without a reservation always passes: kube-scheduler checks everything else. While the reservations or the bound
Pods are uncertain, nodes that are reserved for others are refused.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from dispatcher.extender.wire import MetaVictims, Pod, read_pod_request
from dispatcher.model.amounts import NOTHING, Amounts, added
from dispatcher.model.capacity import BoundPod, NodeCapacities
from dispatcher.model.notices import Notices
from dispatcher.reservations.book import UNCERTAIN, ReservationBook
from dispatcher.reservations.fit import REFUSED
from dispatcher.reservations.pod_request import PodRequest
from dispatcher.reservations.status import refusal_notices
from dispatcher.reservations.waiting_pods import WaitingPod, WaitingPods


class NotListed(Exception):
    """Reservations, nodes or Pods are not listed yet, so no question can be answered."""


def always() -> bool:
    return True


def no_pods() -> Iterable[BoundPod]:
    return ()


def no_fault() -> str:
    return ""


class ClusterFacts(Struct, frozen=True):
    """The extender's knowledge of the cluster. Each field is a function, which is called at every use.

    `is_synced`: reservations, nodes and Pods were all listed once.
    `is_certain`: all watches are up to date, and all Pods between filter and bind are known.
    `now`: the API server's clock, in seconds since 1970.
    `bound_pods`: all bound Pods.
    `fault`: which lists or watches are not up to date. Empty: none.
    `hears_bindings`: a Pod that is bound now is heard of now.
    `knows_reservations`: the watch of reservations is up to date.
    `elapsed`: a clock that only goes forward, in seconds.
    """

    is_synced: Callable[[], bool] = always
    is_certain: Callable[[], bool] = always
    now: Callable[[], float] = lambda: 0.0
    bound_pods: Callable[[], Iterable[BoundPod]] = no_pods
    fault: Callable[[], str] = no_fault
    hears_bindings: Callable[[], bool] = always
    knows_reservations: Callable[[], bool] = always
    elapsed: Callable[[], float] = lambda: 0.0


class NodeFilter:
    """Answers filter, preempt and explain, and remembers the Pods that wait because of reservations.

    `notices` gets one for a Pod that is newly refused on every node, and one for each reservation that refuses it.
    """

    def __init__(self, book: ReservationBook, facts: ClusterFacts, notices: Notices) -> None:
        self._book = book
        self._facts = facts
        self._notices = notices
        self._waiting = WaitingPods()
        self._doubts = 0
        """Pods that were refused in doubt. Each counts as a change: all waiting Pods are checked after the doubt."""

    def filter_nodes(self, pod: Pod | None, names: Collection[str]) -> dict[str, str]:
        """Returns the refused nodes with the reason. NotListed: no answer is possible yet.

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

    def filter_victims(self, pod: Pod | None, victims: Mapping[str, MetaVictims]) -> dict[str, MetaVictims]:
        """Returns `victims` without the nodes that the Pod may not have even after preemption. NotListed: as above."""
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

    def explain(self, pod: Pod, names: Collection[str]) -> dict[str, dict[str, object]]:
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
        """True if `ready_to_retry` has not checked every Pod since the last change."""
        return self._waiting.is_checking

    def note_earlier_refusal(self, request: PodRequest) -> None:
        """Remembers a Pod that an earlier process refused. Its nodes are not known."""
        self._waiting.note(request, {"": UNCERTAIN}, in_doubt=True)
        self._doubts += 1

    def forget(self, pod: WaitingPod) -> None:
        """The Pod was notified, or is gone."""
        self._waiting.forget(pod)

    def retry_later(self, pod: WaitingPod) -> None:
        """The Pod could not be notified."""
        self._waiting.retry_later(pod, self._facts.elapsed())

    def _would_pass(self, request: PodRequest, node: str, freed: Amounts) -> bool:
        return request.is_exempt or self._book.would_fit(request, node, freed)

    def _notify_refused(self, request: PodRequest, refused: Mapping[str, str]) -> None:
        """Names the reservations of the last node, which lacks least."""
        node, why = list(refused.items())[-1]
        others = self._book.active.of_others(request, node)
        blocking = [one for one in others if why in map(REFUSED.format, one.amounts)]
        for notice in refusal_notices(request.name, request.uid, blocking, why, len(refused)):
            self._notices.say(notice)

    def _check_listed(self) -> None:
        if not self._facts.is_synced():
            raise NotListed(f"reservations, nodes and Pods are not all listed yet: {self._facts.fault()}")

    def _with_certain_keys(self, request: PodRequest | None) -> PodRequest | None:
        """Drops the Pod's keys while reservations are uncertain: others may have an unknown one on the same node."""
        if request is None or self._facts.knows_reservations():
            return request
        return replace(request, keys=())

    def _is_certain_for(self, request: PodRequest) -> bool:
        return request.is_exempt or self._facts.is_certain()


def unreserved_filter() -> NodeFilter:
    """A filter without reservations: every node passes."""
    return NodeFilter(ReservationBook(NodeCapacities()), ClusterFacts(), Notices())


def asks_by_uid(pods: Iterable[BoundPod]) -> dict[str, Amounts]:
    return {key.rpartition("/")[2]: one.asks for one in pods for key in one.keys if key.startswith("uid ")}


def freed_by(victims: MetaVictims, asks: Mapping[str, Amounts]) -> Amounts:
    """The amounts that become free without the victims."""
    found: Amounts = {}
    for pod in victims.pods or ():
        found = added(found, asks.get(pod.uid, {}))
    return found
