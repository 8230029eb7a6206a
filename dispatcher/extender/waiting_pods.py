"""Pods that wait because a reservation refused them nodes, and which of them may be tried again.

kube-scheduler does not watch reservations, and would try such a Pod again only after minutes. So each Pod is remembered
with the nodes that it was refused. A Pod is ready for a retry once one of these nodes may have room for it. After each
change two groups of its nodes are checked: nodes that gained room, and the nearest nodes, which lacked least. The
nearest nodes need no gain: when an assumed Pod is forgotten, any reserved node may have room for others.

Not guaranteed:
- that the Pod still waits, or that the node still has room when kube-scheduler tries it;
- that every node is remembered, beyond MOST Pods and MOST_NAMES refused nodes in all;
- that kube-scheduler retries a Pod early if only `preempt` refused it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dispatcher.extender.assumed_pods import PodRequest
from dispatcher.model.errors import doubled

NEAREST: Final = 10
"""Nearest nodes of a Pod that are remembered, at most."""
PODS_AT_ONCE: Final = 200
"""Pods that one call checks, at most."""
NODES_AT_ONCE: Final = 4000
"""Nodes that one call checks, at most: this takes 20 ms, and filter has to wait for it."""
MOST: Final = 5000
"""Waiting Pods that are remembered, at most."""
MOST_NAMES: Final = 200_000
"""Names of refused nodes that are remembered in all, at most."""
MOST_TRIES: Final = 10
"""Notifications of one Pod that may fail before it is given up."""
RETRIES_AT_ONCE: Final = 5
"""Pods that are notified again by one call, at most."""
PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 15.0


class WaitingPod(Struct, frozen=True, gc=False):
    """A Pod that was refused at least one node.

    `nearest`: the refused nodes that lacked least.
    `refused`: all refused nodes.
    `everywhere`: no node was left for the Pod.
    `in_doubt`: the refusal came while anything was uncertain. The Pod is then retried without a check.
    `preempts`: it would preempt Pods on a node, as soon as the reservations there allow that.
    `tries`: number of notifications that failed.
    `retry_at`: it is not notified again before this time.
    """

    request: PodRequest
    nearest: tuple[str, ...]
    refused: Collection[str]
    everywhere: bool = False
    in_doubt: bool = False
    preempts: bool = False
    tries: int = 0
    retry_at: float = 0


class WaitingPods:
    """Waiting Pods by name, the oldest first.

    A round checks every Pod once after a change. Each call of `ready_to_retry` checks a part of it.
    """

    def __init__(self) -> None:
        self._pods: dict[str, WaitingPod] = {}
        self._names = 0
        self._retries: dict[str, None] = {}
        """Pods that could not be notified."""
        self._changes = 0
        self._to_check: dict[str, None] = {}
        """Pods that this round has still to check."""
        self._gained: set[str] = set()
        """Nodes that gained room before this round."""
        self._gained_since: set[str] | None = None
        """Nodes that gained room during this round, or None without a change."""
        self._nodes_checked = 0

    @property
    def is_checking(self) -> bool:
        """Whether some Pods were not checked since the last change."""
        return bool(self._to_check)

    def note(
        self, request: PodRequest, refused: Mapping[str, str], *, everywhere: bool = False, in_doubt: bool = False
    ) -> bool:
        """Remembers the answer of filter. Returns True if the Pod is newly refused on every node.

        `refused` maps node to reason, the most hopeless node of each reason first. Empty: the Pod waits no longer.
        """
        before = self._drop(request.name)
        if refused:
            self._put(WaitingPod(request, nearest(refused), refused, everywhere, in_doubt))
        return (
            bool(refused)
            and everywhere
            and not (before is not None and before.everywhere and before.request.uid == request.uid)
        )

    def note_preemption(self, request: PodRequest, refused: Iterable[str]) -> None:
        """Remembers further nodes: those that the Pod may not have even by preemption."""
        if nodes := dict.fromkeys(refused):
            is_to_check = request.name in self._to_check
            before = self._drop(request.name) or WaitingPod(request, (), ())
            refused = {**nodes, **dict.fromkeys(before.refused)}
            self._put(WaitingPod(request, before.nearest, refused, before.everywhere, before.in_doubt, preempts=True))
            if is_to_check:
                self._to_check[request.name] = None

    def forget(self, pod: WaitingPod) -> None:
        """Drops a Pod that was notified or bound. A Pod that was refused again since then stays."""
        if self._pods.get(pod.request.name) is pod:
            self._drop(pod.request.name)

    def retry_later(self, pod: WaitingPod, now: float) -> None:
        """Tries a Pod that could not be notified again after a pause. Gives up after MOST_TRIES."""
        if self._pods.get(pod.request.name) is pod:
            self._drop(pod.request.name)
            if pod.tries + 1 < MOST_TRIES:
                pause = doubled(PAUSE_SECONDS, pod.tries, LONGEST_PAUSE_SECONDS)
                self._put(replace(pod, tries=pod.tries + 1, retry_at=now + pause))
                self._retries[pod.request.name] = None

    def hear(self, changes: int, gained: Collection[str]) -> None:
        """Takes the number of changes so far, and the nodes that may have gained room. A new number begins a round."""
        if changes != self._changes:
            self._changes = changes
            self._gained.update(gained)
            if self._to_check:  # Pods that this round has checked already need another round
                self._gained_since = {*(self._gained_since or ()), *gained}
            else:
                self._to_check = dict.fromkeys(self._pods)

    def ready_to_retry(
        self, may_have: Callable[[PodRequest, str], bool], is_bound: Callable[[PodRequest], bool], now: float
    ) -> list[WaitingPod]:
        """Checks some Pods of the round. Returns those that may have a node now, or were refused in doubt.

        Pods whose pause is over are returned, too. A Pod is returned at every call until it is forgotten.
        """
        self._nodes_checked = 0
        found = [self._pods[name] for name in self._retries if self._pods[name].retry_at <= now][:RETRIES_AT_ONCE]
        found += self._check_some(may_have, is_bound)
        if not self._to_check:
            self._begin_next_round()
            found += self._check_some(may_have, is_bound)
        return found

    def _check_some(
        self, may_have: Callable[[PodRequest, str], bool], is_bound: Callable[[PodRequest], bool]
    ) -> Iterator[WaitingPod]:
        for pod in [self._pods[name] for name in islice(self._to_check, PODS_AT_ONCE)]:
            if is_bound(pod.request):
                self.forget(pod)
            elif pod.request.name not in self._retries and self._may_retry(pod, may_have):
                yield pod
            else:
                del self._to_check[pod.request.name]
            if self._nodes_checked > NODES_AT_ONCE:
                break

    def _begin_next_round(self) -> None:
        """Begins a round if there was a change during the last one."""
        since, self._gained_since = self._gained_since, None
        self._gained = since or set()
        self._to_check = dict.fromkeys(self._pods if since is not None else ())

    def _may_retry(self, pod: WaitingPod, may_have: Callable[[PodRequest, str], bool]) -> bool:
        fewer, more = sorted((self._gained, pod.refused), key=len)
        gained = [node for node in fewer if node in more]
        if pod.in_doubt or (pod.preempts and gained):
            return True
        for node in (*pod.nearest, *gained):
            self._nodes_checked += 1
            if may_have(pod.request, node):
                return True
        return False

    def _put(self, pod: WaitingPod) -> None:
        """Adds the Pod. If MOST_NAMES would be exceeded, only its nearest nodes are remembered."""
        if self._names + len(pod.refused) > MOST_NAMES:
            pod = replace(pod, refused=pod.nearest or tuple(islice(pod.refused, NEAREST)))
        self._pods[pod.request.name] = pod
        self._names += len(pod.refused)
        if len(self._pods) > MOST:
            self._drop(next(iter(self._pods)))

    def _drop(self, name: str) -> WaitingPod | None:
        pod = self._pods.pop(name, None)
        self._retries.pop(name, None)
        self._to_check.pop(name, None)
        self._names -= len(pod.refused) if pod is not None else 0
        return pod


def nearest(refused: Mapping[str, str]) -> tuple[str, ...]:
    """The last nodes of each reason: NEAREST in all, shared equally among the reasons."""
    names, reasons = [*refused], [*refused.values()][::-1]
    ends = [len(names) - reasons.index(why) for why in dict.fromkeys(reasons)]
    share = max(1, NEAREST // len(ends))
    return tuple(dict.fromkeys(name for end in ends[:NEAREST] for name in names[max(0, end - share) : end]))
