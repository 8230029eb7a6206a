"""Pods that wait because of reservations, for short tests."""

from collections.abc import Callable

from dispatcher.extender.assumed_pods import PodRequest
from dispatcher.extender.waiting_pods import WaitingPod, WaitingPods


def a_pod_request(number: int, uid: str = "u") -> PodRequest:
    return PodRequest(f"team/p{number}", (), {}, uid=uid)


def not_bound(_: PodRequest) -> bool:
    return False


class Waiting:
    """The waiting Pods under test, and a clock."""

    def __init__(self) -> None:
        self.pods = WaitingPods()
        self._changes = 0
        self.now = 0.0

    def note(self, number: int, *refused: str, **more: bool) -> bool:
        return self.pods.note(a_pod_request(number), dict.fromkeys(refused, "why"), everywhere=True, **more)

    def ready(
        self,
        may_have: Callable[[PodRequest, str], bool],
        *gained: str,
        is_bound: Callable[[PodRequest], bool] = not_bound,
    ) -> list[WaitingPod]:
        """The Pods that are ready after a change."""
        self._changes += 1
        self.pods.hear(self._changes, gained)
        return self.pods.ready_to_retry(may_have, is_bound, self.now)

    def ready_names(self, may_have: Callable[[PodRequest, str], bool], *gained: str) -> list[str]:
        return [pod.request.name for pod in self.ready(may_have, *gained)]


def any_node(*_: object) -> bool:
    return True


def no_node(*_: object) -> bool:
    return False
