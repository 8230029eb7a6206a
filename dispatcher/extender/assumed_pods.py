"""Assumed Pods: Pods that filter let through and that are not seen bound yet; and the request of one Pod. Pure.

`AssumedPods`: kube-scheduler does not tell which node it chose for such a Pod. So the request of each counted Pod
counts against every reserved node. A Pod is counted if it could land on a reserved node, or if a reservation appears
while it is assumed.

A Pod that is never seen bound is forgotten after ASSUMED_TICKS. Ticks are not read from a clock: the process counts
them while it hears of bindings. A process that was stopped has heard of no binding in that time, so it must not forget.

Not guaranteed: the nodes that a Pod cannot go to are not remembered beyond MOST_NAMES node names in all, nor while no
node has several reservations. Such a Pod counts on every node.
"""

from collections.abc import Collection, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dispatcher.model.resources import NOTHING, Amounts, added, without


class PodRequest(Struct, frozen=True, gc=False):
    """One Pod that kube-scheduler asks about.

    `name`: namespace and name, with a slash between them.
    `keys`: all keys that a reservation may have as its target, each once (`model.reservations.keys_of`).
    `asks`: the requested amounts.
    `is_exempt`: True if no reservation applies: the Pod is critical, of a DaemonSet, or static.
    `uid`: the UID of the Pod.
    """

    name: str
    keys: Collection[str]
    asks: Amounts
    is_exempt: bool = False
    uid: str = ""


ASSUMED_TICKS: Final = 10
"""Ticks after which a Pod is forgotten that is never seen bound."""
TICK_SECONDS: Final = 1
"""Seconds between two ticks."""
MOST_NAMES: Final = 20_000
"""Names of nodes that are remembered in all, at most."""


class PossibleNodes(Struct, frozen=True, gc=False):
    """The nodes where a Pod may be bound: `offered` (None: all nodes) without `refused`."""

    offered: Collection[str] | None = None
    refused: Collection[str] = ()

    @property
    def name_count(self) -> int:
        """Number of names that are stored here."""
        return len(self.offered or ()) + len(self.refused)

    def __contains__(self, node: str) -> bool:
        return (self.offered is None or node in self.offered) and node not in self.refused


ANYWHERE: Final = PossibleNodes()


class AssumedPod(Struct, frozen=True, gc=False):
    """One assumed Pod. `forgotten_at`: the tick at which it is forgotten. `is_counted`: its request counts."""

    request: PodRequest
    possible_nodes: PossibleNodes
    forgotten_at: int
    is_counted: bool


class AssumedPods:
    """Assumed Pods by name, in the order in which they are forgotten."""

    def __init__(self) -> None:
        self._assumed: dict[str, AssumedPod] = {}
        self._ticks = 0
        self._names = 0
        self.total: Amounts = NOTHING
        """The sum of the requests of all counted Pods."""

    @property
    def are_complete(self) -> bool:
        """Whether no Pod that an earlier process let through is assumed any more: ASSUMED_TICKS after the start."""
        return self._ticks >= ASSUMED_TICKS

    def assume(self, request: PodRequest, possible_nodes: PossibleNodes, *, is_counted: bool) -> None:
        """Adds a Pod. An assumed Pod must be forgotten before it is added again."""
        for less_precise in (PossibleNodes(None, possible_nodes.refused), ANYWHERE):
            if self._names + possible_nodes.name_count > MOST_NAMES:
                possible_nodes = less_precise
        self._names += possible_nodes.name_count
        forgotten_at = self._ticks + ASSUMED_TICKS
        self._assumed[request.name] = AssumedPod(request, possible_nodes, forgotten_at, is_counted)
        if is_counted:
            self.total = added(self.total, request.asks)

    def count_every_pod(self) -> None:
        """Counts all assumed Pods from now on: any of them may land on the node of a new reservation."""
        for name, pod in self._assumed.items():
            if not pod.is_counted:
                self._assumed[name] = replace(pod, is_counted=True)
                self.total = added(self.total, pod.request.asks)

    def forget(self, name: str) -> bool:
        """Removes the Pod. Returns True if it was assumed."""
        pod = self._assumed.pop(name, None)
        if pod is None:
            return False
        self._names -= pod.possible_nodes.name_count
        if pod.is_counted:
            self.total = without(self.total, pod.request.asks)
        return True

    def total_without(self, name: str) -> Amounts:
        """The sum of the requests of all counted Pods except this one."""
        own = self._assumed.get(name)
        return without(self.total, own.request.asks) if own and own.is_counted else self.total

    def requests_for_node(self, node: str, other_than: str) -> Iterator[PodRequest]:
        """Requests of counted Pods that may be bound to the node, without the Pod named `other_than`."""
        for name, pod in self._assumed.items():
            if pod.is_counted and name != other_than and node in pod.possible_nodes:
                yield pod.request

    def tick(self) -> list[str]:
        """Counts one tick. Returns the names of the Pods that are forgotten now."""
        self._ticks += 1
        over = [name for name, pod in self._assumed.items() if pod.forgotten_at <= self._ticks]
        for name in over:
            self.forget(name)
        return over
