"""Pods that were turned away, in the fewest words."""

from collections.abc import Callable

from dispatcher.reservations.pod_request import PodRequest
from dispatcher.reservations.waiting_pods import WaitingPod, WaitingPods


def an_asker(number: int, uid: str = "u") -> PodRequest:
    return PodRequest(f"team/p{number}", (), {}, uid=uid)


def nobody(_: PodRequest) -> bool:
    return False


class Kept:
    """Pods that were turned away, and what happens meanwhile."""

    def __init__(self) -> None:
        self.all = WaitingPods()
        self._changes = 0
        self.now = 0.0

    def note(self, number: int, *refused: str, **more: bool) -> bool:
        return self.all.note(an_asker(number), dict.fromkeys(refused, "why"), everywhere=True, **more)

    def attempts(
        self, may_have: Callable[[PodRequest, str], bool], *gained: str, is_bound: Callable[[PodRequest], bool] = nobody
    ) -> list[WaitingPod]:
        """After a change."""
        self._changes += 1
        self.all.hear(self._changes, gained)
        return self.all.ready_to_retry(may_have, is_bound, self.now)

    def could(self, may_have: Callable[[PodRequest, str], bool], *gained: str) -> list[str]:
        return [attempt.request.name for attempt in self.attempts(may_have, *gained)]


def anything(*_: object) -> bool:
    return True


def nothing(*_: object) -> bool:
    return False
