"""Pods that a hold kept from a node: whose turn it is to try again.

kube-scheduler hears nothing of reservations, and would ask again after minutes. So whoever was turned away is
remembered with the nodes that it was refused, and told once one of them could be its own: those on which somebody
gained room are looked at for everybody, and, because those on their way count everywhere, the nodes that lacked least.

Not guaranteed: that the Pod still waits, or that the node still has room when kube-scheduler asks; beyond MOST Pods and
MOST_NAMES refused nodes in all, that each is remembered with all of its nodes; that kube-scheduler, told of a Pod that
no `filter` turned away but `preempt` alone, tries it again before its own time.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dispatcher.reservations.pod_request import PodRequest

NEAREST, LOOKED_AT, MOST, MOST_NAMES, MOST_TRIES = 10, 200, 5000, 200_000, 10
MOST_NODES: Final = 4000
"""That are looked at in one go: 20 ms, in which filter has to wait."""
PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, LATE_AT_ONCE = 0.5, 15.0, 5


class WaitingPod(Struct, frozen=True, gc=False):
    """`everywhere`: no other node was on offer. `in_doubt`: nobody has judged it yet. `pushes`: it would make room by
    itself, as soon as a hold lets it. `tries`: to tell it, in vain; then not before `tries_at`.
    """

    request: PodRequest
    nearest: tuple[str, ...]
    refused: Collection[str]
    everywhere: bool = False
    in_doubt: bool = False
    pushes: bool = False
    tries: int = 0
    tries_at: float = 0


class WaitingPods:
    """By name, in the order in which they came."""

    def __init__(self) -> None:
        self._attempts: dict[str, WaitingPod] = {}
        self._names = 0
        self._late: dict[str, None] = {}
        self._changes = 0
        self._due: dict[str, None] = {}
        self._gained: set[str] = set()
        self._gained_since: set[str] | None = None
        self._looks = 0

    @property
    def is_looking(self) -> bool:
        """Whether somebody has not had his turn since the last change."""
        return bool(self._due)

    def note(
        self, request: PodRequest, refused: Mapping[str, str], *, everywhere: bool = False, in_doubt: bool = False
    ) -> bool:
        """`refused`: nodes and why; of each reason those that it is least likely to have first; none: it was not turned
        away. True: it is, everywhere, and was not before.
        """
        before = self._drop(request.name)
        if refused:
            self._put(WaitingPod(request, nearest(refused), refused, everywhere, in_doubt))
        return (
            bool(refused)
            and everywhere
            and not (before is not None and before.everywhere and before.request.uid == request.uid)
        )

    def note_push(self, request: PodRequest, refused: Iterable[str]) -> None:
        """Nodes that it may not clear for itself, beside those that it was refused as they are."""
        if nodes := dict.fromkeys(refused):
            is_due = request.name in self._due
            before = self._drop(request.name) or WaitingPod(request, (), ())
            refused = {**nodes, **dict.fromkeys(before.refused)}
            self._put(WaitingPod(request, before.nearest, refused, before.everywhere, before.in_doubt, pushes=True))
            if is_due:
                self._due[request.name] = None

    def forget(self, attempt: WaitingPod) -> None:
        """It was told, or it is on a node; not, if it has asked again meanwhile."""
        if self._attempts.get(attempt.request.name) is attempt:
            self._drop(attempt.request.name)

    def put_off(self, attempt: WaitingPod, now: float) -> None:
        """It could not be told: after a while again, and not for ever."""
        if self._attempts.get(attempt.request.name) is attempt:
            self._drop(attempt.request.name)
            if attempt.tries + 1 < MOST_TRIES:
                pause = min(PAUSE_SECONDS * 2.0**attempt.tries, LONGEST_PAUSE_SECONDS)
                self._put(replace(attempt, tries=attempt.tries + 1, tries_at=now + pause))
                self._late[attempt.request.name] = None

    def hear(self, changes: int, gained: Collection[str]) -> None:
        """`changes` of what is held, counted; everybody is looked at once after the last. `gained`: where there may be
        more room than before.
        """
        if changes != self._changes:
            self._changes = changes
            self._gained.update(gained)
            if self._due:  # those who had their turn have not heard of it
                self._gained_since = {*(self._gained_since or ()), *gained}
            else:
                self._due = dict.fromkeys(self._attempts)

    def ready_to_retry(
        self, may_have: Callable[[PodRequest, str], bool], is_bound: Callable[[PodRequest], bool], now: float
    ) -> list[WaitingPod]:
        """Of some of them, in turn, those that could have a node now, or have not been judged yet: again, until they
        are forgotten. Those that were put off are among them when their time has come.
        """
        self._looks = 0
        found = [self._attempts[name] for name in self._late if self._attempts[name].tries_at <= now][:LATE_AT_ONCE]
        found += self._look(may_have, is_bound)
        if not self._due:
            self._begin_again()
            found += self._look(may_have, is_bound)
        return found

    def _look(
        self, may_have: Callable[[PodRequest, str], bool], is_bound: Callable[[PodRequest], bool]
    ) -> Iterator[WaitingPod]:
        """At some of those whose turn it is."""
        for attempt in [self._attempts[name] for name in islice(self._due, LOOKED_AT)]:
            if is_bound(attempt.request):
                self.forget(attempt)
            elif attempt.request.name not in self._late and self._could(attempt, may_have):
                yield attempt
            else:
                del self._due[attempt.request.name]
            if self._looks > MOST_NODES:
                break

    def _begin_again(self) -> None:
        """Everybody had a turn; with what was gained meanwhile there is another one."""
        since, self._gained_since = self._gained_since, None
        self._gained = since or set()
        self._due = dict.fromkeys(self._attempts if since is not None else ())

    def _could(self, attempt: WaitingPod, may_have: Callable[[PodRequest, str], bool]) -> bool:
        fewer, more = sorted((self._gained, attempt.refused), key=len)
        gained = [node for node in fewer if node in more]
        if attempt.in_doubt or (attempt.pushes and gained):
            return True
        for node in (*attempt.nearest, *gained):
            self._looks += 1
            if may_have(attempt.request, node):
                return True
        return False

    def _put(self, attempt: WaitingPod) -> None:
        if self._names + len(attempt.refused) > MOST_NAMES:
            attempt = replace(attempt, refused=attempt.nearest or tuple(islice(attempt.refused, NEAREST)))
        self._attempts[attempt.request.name] = attempt
        self._names += len(attempt.refused)
        if len(self._attempts) > MOST:
            self._drop(next(iter(self._attempts)))

    def _drop(self, name: str) -> WaitingPod | None:
        attempt = self._attempts.pop(name, None)
        self._late.pop(name, None)
        self._due.pop(name, None)
        self._names -= len(attempt.refused) if attempt is not None else 0
        return attempt


def nearest(refused: Mapping[str, str]) -> tuple[str, ...]:
    """Of each reason the last ones."""
    names, reasons = [*refused], [*refused.values()][::-1]
    ends = [len(names) - reasons.index(why) for why in dict.fromkeys(reasons)]
    share = max(1, NEAREST // len(ends))
    return tuple(dict.fromkeys(name for end in ends[:NEAREST] for name in names[max(0, end - share) : end]))
