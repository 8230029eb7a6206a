"""Pods that were turned away, in the fewest words."""

from collections.abc import Callable

from dispatcher.reservations.pod_request import Asker
from dispatcher.reservations.waiting_pods import Attempt, TurnedAway


def an_asker(number: int, uid: str = "u") -> Asker:
    return Asker(f"team/p{number}", (), {}, uid=uid)


def nobody(_: Asker) -> bool:
    return False


class Kept:
    """Pods that were turned away, and what happens meanwhile."""

    def __init__(self) -> None:
        self.all = TurnedAway()
        self._changes = 0
        self.now = 0.0

    def note(self, number: int, *refused: str, **more: bool) -> bool:
        return self.all.note(an_asker(number), dict.fromkeys(refused, "why"), everywhere=True, **more)

    def attempts(
        self, may_have: Callable[[Asker, str], bool], *gained: str, is_bound: Callable[[Asker], bool] = nobody
    ) -> list[Attempt]:
        """After a change."""
        self._changes += 1
        self.all.hear(self._changes, gained)
        return self.all.who_could(may_have, is_bound, self.now)

    def could(self, may_have: Callable[[Asker, str], bool], *gained: str) -> list[str]:
        return [attempt.asker.name for attempt in self.attempts(may_have, *gained)]


def anything(*_: object) -> bool:
    return True


def nothing(*_: object) -> bool:
    return False
