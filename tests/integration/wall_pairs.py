"""Compares what a login sees in two databases, statement by statement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from tests.integration.wall_allowed import ALLOWED, without_totals
from tests.integration.wall_seats import Parts, Seat, Statement, looks
from tests.rig.postgres import Database

TRIES: Final = 4
"""A difference is one if it is there each time, in a new session, too. Another session may have emptied a cache."""
CHUNK: Final = 200


@dataclass(frozen=True)
class Difference:
    statement: Statement
    part: str
    left: object
    right: object

    @property
    def is_allowed(self) -> bool:
        return any(self.part in ALLOWED[name] for name in self.statement.tells)

    def __str__(self) -> str:
        left, right = apart(self.left, self.right)
        return f"{self.statement.sql}\n  {self.part}: {left}\n  {' ' * len(self.part)}  {right}"


@dataclass(frozen=True)
class Pair:
    """Two sessions of one login. is_sized: the tables of both databases have the same sizes, so nothing is left out."""

    left: Seat
    right: Seat
    is_sized: bool = True

    def differences(self, statements: Iterable[Statement]) -> list[Difference]:
        """Every difference, the allowed ones, too."""
        every = list(statements)
        found: list[Difference] = []
        for start in range(0, len(every), CHUNK):
            found += self._lasting(every[start : start + CHUNK])
        return found

    def set(self, setting: str) -> bool:
        """Sets it in both sessions, and lets them forget their plans. False: the login may not set it."""
        answers = [seat.do(setting) and seat.do("DISCARD PLANS") for seat in (self.left, self.right)]
        assert answers[0] == answers[1], setting
        return answers[0]

    @contextmanager
    def in_transaction(self, begin: str) -> Iterator[None]:
        """Statements run in one open transaction of each session."""
        with ExitStack() as both:
            for seat in (self.left, self.right):
                both.enter_context(seat.in_transaction(begin))
            yield

    def _lasting(self, statements: list[Statement]) -> list[Difference]:
        found: list[Difference] = []
        for number in range(TRIES):
            if number:
                self.left.begin_again()
                self.right.begin_again()
            with ThreadPoolExecutor(2) as both:
                left, right = both.map(looks, (self.left, self.right), (statements, statements))
            found = [one for seen in zip(statements, left, right, strict=True) for one in self._compared(*seen)]
            suspected = {one.statement for one in found}
            statements = [one for one in statements if one in suspected]
            if not statements:
                break
        return found

    def _compared(self, statement: Statement, left: Parts, right: Parts) -> list[Difference]:
        if not self.is_sized:
            left, right = (without_totals(parts, self.left.counters) for parts in (left, right))
        parts = [part for part in left if left[part] != right[part]]
        return [Difference(statement, part, left[part], right[part]) for part in parts]


@contextmanager
def seated(databases: Sequence[Database], login: str, *, is_sized: bool = True) -> Iterator[Pair]:
    """A session of the login in each of two databases."""
    left, right = (Seat(database.url(login)) for database in databases)
    try:
        yield Pair(left, right, is_sized)
    finally:
        left.close()
        right.close()


def faults(found: Sequence[Difference]) -> list[str]:
    """The differences that no line of the table of allowed ones explains."""
    return [str(one) for one in found if not one.is_allowed]


def told(found: Sequence[Difference]) -> set[str]:
    """The lines of the table of allowed differences that were seen."""
    return {name for one in found for name in one.statement.tells if one.part in ALLOWED[name]}


def apart(left: object, right: object) -> tuple[object, object]:
    """The parts of two values that differ."""
    if isinstance(left, dict) and isinstance(right, dict):
        keys = [key for key in {**left, **right} if left.get(key) != right.get(key)]
        return {key: left.get(key) for key in keys}, {key: right.get(key) for key in keys}
    if isinstance(left, tuple | list) and isinstance(right, tuple | list) and len(left) == len(right):
        split = [apart(*both) for both in zip(left, right, strict=True) if both[0] != both[1]]
        return [one for one, _ in split], [one for _, one in split]
    return left, right
