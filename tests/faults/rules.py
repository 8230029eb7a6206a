"""Rules of the proxies: which requests get a fault, and how often the fault was done.

A rule selects requests by a predicate, and among them by turn. A *hit* counts when the fault was done, not when it was
planned: an answer that never came cannot be dropped. Random turns use a `random.Random` of the test.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Verb = TypeVar("Verb")
Turns = Callable[[int], bool]


def always(number: int) -> bool:
    return True


def nth(*numbers: int) -> Turns:
    """Matches with these numbers. The first match is 1."""
    return lambda number: number in numbers


def chance(probability: float, draw: random.Random) -> Turns:
    return lambda number: draw.random() < probability


class Rule(Generic[Asked, Verb]):
    """One fault.

    seen: number of matches.
    told: one text per hit.
    """

    def __init__(self, name: str, matches: Callable[[Asked], bool], verb: Verb, turns: Turns = always) -> None:
        self.name = name
        self.verb = verb
        self.seen = 0
        self.told: list[str] = []
        self._matches = matches
        self._turns = turns
        self._is_over = False

    @property
    def hits(self) -> int:
        return len(self.told)

    def takes(self, asked: Asked) -> bool:
        """Whether this rule applies to the request. Counts matches."""
        if self._is_over or not self._matches(asked):
            return False
        self.seen += 1
        return self._turns(self.seen)

    def hit(self, words: str) -> None:
        """Counts the fault as done; `words` names the request."""
        self.told.append(words)

    def end(self) -> None:
        """From now on the rule matches nothing. Requests that it holds stay held."""
        self._is_over = True

    def __repr__(self) -> str:
        return f"{self.name}: {self.hits} hits of {self.seen} that match"


class Rules(Generic[Asked, Verb]):
    """The rules of one proxy. The first rule that applies to a request is used."""

    def __init__(self) -> None:
        self._rules: list[Rule[Asked, Verb]] = []

    def add(
        self, verb: Verb, matches: Callable[[Asked], bool], turns: Turns = always, name: str = ""
    ) -> Rule[Asked, Verb]:
        """Appends a rule and returns it."""
        named = name or f"rule {len(self._rules) + 1}"
        self._rules.append(Rule(named, matches, verb, turns))
        return self._rules[-1]

    def of(self, asked: Asked) -> Rule[Asked, Verb] | None:
        return next((rule for rule in self._rules if rule.takes(asked)), None)

    def hits(self) -> dict[str, int]:
        """Hits by name of the rule, for the check that the faults happened."""
        return {rule.name: rule.hits for rule in self._rules}


class Gate:
    """Holds requests until the test opens it.

    held: requests that wait now.
    abandoned: requests whose client disconnected while they waited.
    """

    def __init__(self) -> None:
        self.held = 0
        self.abandoned = 0
        self._opened = asyncio.Event()

    def open(self) -> None:
        self._opened.set()

    async def passed(self, client_gone: asyncio.Event) -> None:
        """Waits until the gate is open. Counts the request as abandoned if its client disconnects before."""
        self.held += 1
        leaving = asyncio.create_task(self._count_leaving(client_gone))
        try:
            await self._opened.wait()
        finally:
            self.held -= 1
            leaving.cancel()

    async def _count_leaving(self, client_gone: asyncio.Event) -> None:
        await client_gone.wait()
        self.abandoned += 1
