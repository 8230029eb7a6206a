"""Pods between filter and bind: nobody says where they go, so each of them is charged until it is seen bound.

Not all count at once: a Pod that may have no node with a hold takes nothing from one, unless a hold comes meanwhile.

A Pod that is never bound is forgotten after CHARGE_TICKS. Ticks are counted by the process itself, while it hears of
bindings, and not by a clock: one that was stopped has heard of none meanwhile, and must not forget before it has.

Not guaranteed: beyond MOST_NAMES in all, that it is known where a Pod cannot go; it counts everywhere then.
"""

from collections.abc import Collection, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dispatcher.model.amounts import NOTHING, Amounts, added, without
from dispatcher.reservations.pod_request import PodRequest

ASSUMED_TICKS: Final = 10
TICK_SECONDS: Final = 1
MOST_NAMES: Final = 20_000


class PossibleNodes(Struct, frozen=True, gc=False):
    """The nodes that a Pod was offered, but for those that it was refused; offered None: any."""

    offered: Collection[str] | None = None
    refused: Collection[str] = ()

    @property
    def names(self) -> int:
        return len(self.offered or ()) + len(self.refused)

    def may_lead_to(self, node: str) -> bool:
        return (self.offered is None or node in self.offered) and node not in self.refused


ANYWHERE: Final = PossibleNodes()


class AssumedPod(Struct, frozen=True, gc=False):
    request: PodRequest
    way: PossibleNodes
    ends: int
    counts: bool


class AssumedPods:
    """By name, in the order in which they end."""

    def __init__(self) -> None:
        self._assumed: dict[str, AssumedPod] = {}
        self._ticks = 0
        self._names = 0
        self.total: Amounts = NOTHING
        """What those that count ask for."""

    @property
    def are_whole(self) -> bool:
        """Nobody whom an earlier process let through is on its way any more."""
        return self._ticks >= ASSUMED_TICKS

    def put(self, request: PodRequest, way: PossibleNodes, *, counts: bool) -> None:
        """Once; whoever is charged already is to be settled before."""
        for less_precise in (PossibleNodes(None, way.refused), ANYWHERE):
            if self._names + way.names > MOST_NAMES:
                way = less_precise
        self._names += way.names
        self._assumed[request.name] = AssumedPod(request, way, self._ticks + ASSUMED_TICKS, counts)
        if counts:
            self.total = added(self.total, request.asks)

    def count_all(self) -> None:
        """A hold has come, on a node to which any of them may be on its way."""
        for name, charge in self._assumed.items():
            if not charge.counts:
                self._assumed[name] = replace(charge, counts=True)
                self.total = added(self.total, charge.request.asks)

    def forget(self, name: str) -> bool:
        """It is no longer on its way. True: it was."""
        charge = self._assumed.pop(name, None)
        if charge is None:
            return False
        self._names -= charge.way.names
        if charge.counts:
            self.total = without(self.total, charge.request.asks)
        return True

    def beside(self, name: str) -> Amounts:
        """What the others ask for."""
        own = self._assumed.get(name)
        return without(self.total, own.request.asks) if own and own.counts else self.total

    def towards(self, node: str, but: str) -> Iterator[PodRequest]:
        """Those that may be on their way to this very node; `but`: without this Pod."""
        for name, charge in self._assumed.items():
            if charge.counts and name != but and charge.way.may_lead_to(node):
                yield charge.request

    def tick(self) -> list[str]:
        """Those that are forgotten now."""
        self._ticks += 1
        over = [name for name, charge in self._assumed.items() if charge.ends <= self._ticks]
        for name in over:
            self.forget(name)
        return over
