"""Pods that a hold kept from a node: whose turn it is to try again.

kube-scheduler hears nothing of reservations, and would ask again after minutes. So whoever was turned away is
remembered with the nodes that it was refused, and told once one of them could be its own: those on which somebody
gained room are looked at for everybody, and, because those on their way count everywhere, the nodes that lacked least.

Not guaranteed: that the Pod still waits, or that the node still has room when kube-scheduler asks; beyond MOST Pods and
MOST_NAMES refused nodes in all, that each is remembered with all of its nodes.
"""

from collections.abc import Callable, Collection, Iterable
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from dispatcher.placement.reservations import Asker

NEAREST, LOOKED_AT, MOST, MOST_NAMES, MOST_TRIES = 10, 200, 5000, 200_000, 10


class Attempt(Struct, frozen=True, gc=False):
    """`in_doubt`: nobody has judged it yet. `pushes`: it would make room by itself, as soon as a hold lets it. `tries`:
    to tell it, in vain.
    """

    asker: Asker
    nearest: tuple[str, ...]
    refused: Collection[str]
    in_doubt: bool = False
    pushes: bool = False
    tries: int = 0


class TurnedAway:
    """By name, in the order in which they came."""

    def __init__(self) -> None:
        self._attempts: dict[str, Attempt] = {}
        self._names = 0
        self._changes, self._to_look_at = 0, 0
        self._gained: set[str] = set()

    def note(self, asker: Asker, refused: Collection[str], *, in_doubt: bool = False) -> bool:
        """`refused`: quick to be looked up in; nodes with the least room first; none: it was not turned away. True: it
        is, and was not before.
        """
        before = self._drop(asker.name)
        if refused:
            self._put(Attempt(asker, tuple(islice(reversed([*refused]), NEAREST)), refused, in_doubt))
        return bool(refused) and (before is None or before.asker.uid != asker.uid)

    def note_push(self, asker: Asker, refused: Iterable[str]) -> None:
        """Nodes that it may not clear for itself, beside those that it was refused as they are."""
        if nodes := dict.fromkeys(refused):
            before = self._drop(asker.name)
            self._put(Attempt(asker, (), {**nodes, **dict.fromkeys(before.refused if before else ())}, pushes=True))

    def forget(self, attempt: Attempt) -> None:
        """It was told, or it is on a node; not, if it has asked again meanwhile."""
        if self._attempts.get(attempt.asker.name) is attempt:
            self._drop(attempt.asker.name)

    def put_off(self, attempt: Attempt) -> None:
        """It could not be told: the others first, and not for ever."""
        if self._attempts.get(attempt.asker.name) is attempt:
            self._drop(attempt.asker.name)
            if attempt.tries + 1 < MOST_TRIES:
                self._put(replace(attempt, tries=attempt.tries + 1))

    def hear(self, changes: int, gained: Collection[str]) -> None:
        """`changes` of what is held, counted; everybody is looked at once after the last. `gained`: where there may be
        more room than before.
        """
        if changes != self._changes:
            self._changes, self._to_look_at = changes, len(self._attempts)
            self._gained.update(gained)

    def who_could(self, may_have: Callable[[Asker, str], bool], is_bound: Callable[[Asker], bool]) -> list[Attempt]:
        """Of some of them, in turn, those that could have a node now, or have not been judged yet: again, until they
        are forgotten.
        """
        looked_at = list(islice(self._attempts.items(), min(LOOKED_AT, self._to_look_at)))
        found = []
        for name, attempt in looked_at:
            if is_bound(attempt.asker):
                self.forget(attempt)
            elif self._could(attempt, may_have):
                found.append(attempt)
            else:
                self._attempts[name] = self._attempts.pop(name)  # the others' turn
        self._to_look_at -= len(looked_at) - len(found)
        if not self._to_look_at:
            self._gained.clear()
        return found

    def _could(self, attempt: Attempt, may_have: Callable[[Asker, str], bool]) -> bool:
        gained = [node for node in self._gained if node in attempt.refused]
        if attempt.in_doubt or (attempt.pushes and gained):
            return True
        return any(may_have(attempt.asker, node) for node in (*attempt.nearest, *gained))

    def _put(self, attempt: Attempt) -> None:
        if self._names + len(attempt.refused) > MOST_NAMES:
            attempt = replace(attempt, refused=attempt.nearest or tuple(islice(attempt.refused, NEAREST)))
        self._attempts[attempt.asker.name] = attempt
        self._names += len(attempt.refused)
        if len(self._attempts) > MOST:
            self._drop(next(iter(self._attempts)))

    def _drop(self, name: str) -> Attempt | None:
        attempt = self._attempts.pop(name, None)
        self._names -= len(attempt.refused) if attempt is not None else 0
        return attempt
