"""Pods between filter and bind: nobody says where they go, so each of them is charged until it is seen bound.

Not all count at once: a Pod that may have no node with a hold takes nothing from one, unless a hold comes meanwhile.

A Pod that is never bound is forgotten after CHARGE_TICKS. Ticks are counted by the process itself, while it hears of
bindings, and not by a clock: one that was stopped has heard of none meanwhile, and must not forget before it has.
"""

from collections.abc import Collection
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dispatcher.amounts import Amounts, added, without

CHARGE_TICKS: Final = 10
TICK_SECONDS: Final = 1
NOTHING: Final[Amounts] = {}


class Charge(Struct, frozen=True, gc=False):
    """`closed`: nodes that the Pod was refused, so that it is not on its way there."""

    asks: Amounts
    closed: Collection[str]
    ends: int
    counts: bool


class Charges:
    """By name, in the order in which they end."""

    def __init__(self) -> None:
        self._charges: dict[str, Charge] = {}
        self._ticks = 0
        self.total: Amounts = NOTHING
        """What those that count ask for."""

    @property
    def are_whole(self) -> bool:
        """Nobody whom an earlier process let through is on its way any more."""
        return self._ticks >= CHARGE_TICKS

    def put(self, name: str, asks: Amounts, closed: Collection[str], *, counts: bool) -> None:
        """Once; whoever is charged already is to be settled before."""
        self._charges[name] = Charge(asks, closed, self._ticks + CHARGE_TICKS, counts)
        if counts:
            self.total = added(self.total, asks)

    def count_all(self) -> None:
        """A hold has come, on a node to which any of them may be on its way."""
        for name, charge in self._charges.items():
            if not charge.counts:
                self._charges[name] = replace(charge, counts=True)
                self.total = added(self.total, charge.asks)

    def settle(self, name: str) -> bool:
        """It is no longer on its way. True: it was."""
        charge = self._charges.pop(name, None)
        if charge is None:
            return False
        if charge.counts:
            self.total = without(self.total, charge.asks)
        return True

    def beside(self, name: str) -> Amounts:
        """What the others ask for."""
        own = self._charges.get(name)
        return without(self.total, own.asks) if own and own.counts else self.total

    def towards(self, node: str, but: str) -> Amounts:
        """What those ask for that may be on their way to this very node; `but`: without this Pod."""
        found = NOTHING
        for name, charge in self._charges.items():
            if charge.counts and name != but and node not in charge.closed:
                found = added(found, charge.asks)
        return found

    def tick(self) -> list[str]:
        """Those that are forgotten now."""
        self._ticks += 1
        over = [name for name, charge in self._charges.items() if charge.ends <= self._ticks]
        for name in over:
            self.settle(name)
        return over
