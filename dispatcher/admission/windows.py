"""Windows: how many Pods of a shape may wait beyond the estimate of room. kube-scheduler is the judge. Pure.

    Pods, RoomView ─▶ Windows.look ─▶ sizes by shape ─▶ demand.why_not_ask

The estimate can be too low: a device driver (DRA), an extender or the settings of kube-scheduler may give a Pod a node
that it could not have by our count. Such a Pod contradicts the estimate, and the window of its shape doubles. The
window halves when kube-scheduler finds no node any more. Where the estimate is right, every window stays one.

The estimate can be too high: it does not know ports, volumes, spread or affinity between Pods. If it has room for a Pod
and kube-scheduler has none, the shape is in doubt: then the window alone counts, and the shape's Pods take no room.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dispatcher.admission.room_view import RoomView, may_have_one_day
from dispatcher.model.cluster import LONG_AGO, Pod
from dispatcher.model.needs import PodNeeds

PATIENCE: Final = timedelta(seconds=5)
"""A window halves if kube-scheduler has found no node within this time, and has bound no Pod of the shape meanwhile."""
AGREED: Final = timedelta(minutes=1)
"""A window also halves if kube-scheduler has not contradicted the estimate within this time, as in a busy cluster."""
REMEMBERED: Final = timedelta(minutes=10)
"""An unused window closes after this time."""
DOUBT: Final = timedelta(seconds=12)
"""A shape is in doubt after the estimate has had room for its Pod during this time. kube-scheduler retries
within 10 s.
"""
LARGEST: Final = 2**20
"""The largest window, in Pods."""
LOOK: Final = timedelta(seconds=1)
"""Time between two looks while no Pod changes."""
HasRoom = Callable[[PodNeeds | None], bool]


class Contradictions(Struct, frozen=True):
    """What kube-scheduler did against the estimate, by shape.

    sizes: the windows of shapes whose Pods got nodes against our count, and of shapes in doubt. All other windows are
    one.
    doubted: shapes for which the estimate does not count, with the words of kube-scheduler.
    """

    sizes: Mapping[str, int] = {}
    doubted: Mapping[str, str] = {}


AGREES: Final = Contradictions()


class Window(Struct, frozen=True):
    """The window of one shape.

    size: Pods that may wait beyond the estimate, a power of two.
    at: when the size changed.
    out: names of the Pods that were without a node since then.
    has_grown: whether the estimate was ever contradicted.
    wrong_at: when it was contradicted last.
    used_at: when a Pod was without a node last.
    fits_since: since when the estimate has room for a Pod that kube-scheduler finds no node for; None: it has none.
    doubted_at: when kube-scheduler contradicted such room last; None: the estimate counts.
    words: kube-scheduler's words at `doubted_at`.
    """

    size: int
    at: datetime
    out: frozenset[str] = frozenset()
    has_grown: bool = False
    wrong_at: datetime = LONG_AGO
    used_at: datetime = LONG_AGO
    fits_since: datetime | None = None
    doubted_at: datetime | None = None
    words: str = ""


class PodsOfShape(Struct, frozen=True):
    """Pods of one shape.

    waiting: those without a node.
    bound: those of `Window.out` that have a node; for a new window, all that have one.
    every: our Pods of all shapes.
    """

    shape: str
    waiting: Sequence[Pod]
    bound: Sequence[Pod]
    every: Mapping[str, Pod]

    def bound_at(self) -> datetime:
        """When the newest Pod with a node got it. It looks at every Pod, so call it only after a contradiction."""
        shape = self.shape
        return max(
            (pod.scheduled_at or LONG_AGO for pod in self.every.values() if pod.shape == shape), default=LONG_AGO
        )


class PodsInView(Struct, frozen=True):
    """The Pods in the namespace of Jobs that have our labels.

    pods: by name.
    made: what Pods of each shape need.
    asking: names of our Jobs for which kube-scheduler found no node; None: all of our Jobs.
    """

    pods: Mapping[str, Pod]
    made: Mapping[str, PodNeeds]
    asking: Container[str] | None = None

    def is_strange(self, pod: Pod) -> bool:
        """Whether it waits for a node and belongs to no Job of ours. Anybody's Pod may have our labels."""
        return self.asking is not None and pod.unschedulable_since is not None and pod.name not in self.asking


class Windows:
    """The windows, from cycle to cycle. A restart makes a window as large as its Pods need. `found`: last result."""

    def __init__(self) -> None:
        self.found = AGREES
        self._windows: Mapping[str, Window] = {}
        self._looked_at: tuple[Mapping[str, Pod], datetime] | None = None
        self._compared_at = LONG_AGO

    def look(self, seen: PodsInView, room: RoomView, has_room: HasRoom, now: datetime) -> Contradictions:
        """Looks again if a Pod has changed, or time has passed. An equal answer is the same object.

        has_room: whether the estimate has a node for a Pod, if none of ours waits.
        now: the API server's clock.
        """
        pods = seen.pods
        last = self._looked_at
        if last is not None and last[0] is pods and not (self._windows and abs(now - last[1]) >= LOOK):
            return self.found
        compares = abs(now - self._compared_at) >= LOOK
        self._looked_at, self._compared_at = (pods, now), now if compares else self._compared_at
        moved: dict[str, Window] = {}
        for group in pods_of_shapes(seen, self._windows):
            needs = seen.made.get(group.shape)
            one = moved_window(self._windows.get(group.shape), group, contradicts(group.bound, needs, room), now)
            if one is not None:
                moved[group.shape] = with_doubt(one, group, partial(has_room, needs), now) if compares else one
        self._windows = moved
        found = Contradictions(
            {shape: one.size for shape, one in moved.items() if one.has_grown},
            {shape: one.words for shape, one in moved.items() if one.doubted_at is not None},
        )
        self.found = self.found if found == self.found else found
        return self.found


def pods_of_shapes(seen: PodsInView, windows: Mapping[str, Window]) -> Iterator[PodsOfShape]:
    """The Pods of each shape that has a window, or a Pod without a node."""
    pods, waiting = seen.pods, dict[str, list[Pod]]((shape, []) for shape in windows)
    for one in [pod for pod in pods.values() if not pod.node_name]:
        if not (one.has_ended or one.deleting or one.is_gated or seen.is_strange(one)):
            waiting.setdefault(one.shape, []).append(one)
    bound = {shape: list[Pod]() for shape in waiting.keys() - windows.keys()}
    for one in pods.values() if bound else ():
        if one.node_name and one.shape in bound and not one.has_ended:
            bound[one.shape].append(one)
    for shape, window in windows.items():
        bound[shape] = [pod for name in window.out if (pod := pods.get(name)) is not None and pod.node_name]
    for shape, own in waiting.items():
        yield PodsOfShape(shape, own, bound[shape], pods)


def moved_window(one: Window | None, pods: PodsOfShape, is_wrong: bool, now: datetime) -> Window | None:
    """The window after this moment. None: no Pod waits, and a window of one Pod or a long unused one is forgotten.

    is_wrong: the estimate was contradicted.
    """
    waiting = frozenset(pod.name for pod in pods.waiting)
    if one is None:
        size = 1 << (len(waiting) - 1).bit_length() if is_wrong else 1  # a restart takes nothing back
        return Window(size, now, waiting, has_grown=is_wrong, used_at=now) if waiting else None
    is_wrong = is_wrong or bool(one.doubted_at and pods.bound)
    unschedulable = [pod.unschedulable_since for pod in pods.waiting if pod.unschedulable_since is not None]
    if is_wrong and not unschedulable and 2 * len(pods.bound) >= one.size:
        return replace(one, size=min(2 * one.size, LARGEST), at=now, out=waiting, has_grown=True, used_at=now)
    one = replace(one, wrong_at=now) if is_wrong else one
    is_stuck = unschedulable and one.size > 1 and now - max(min(unschedulable), one.at) >= PATIENCE
    if is_stuck and (now - pods.bound_at() >= PATIENCE or now - max(one.wrong_at, one.at) >= AGREED):
        return replace(one, size=one.size // 2, at=now, out=waiting, has_grown=True, used_at=now)
    if waiting:
        return replace(one, used_at=now, out=waiting | {pod.name for pod in pods.bound})
    is_kept = one.size > 1 or one.doubted_at is not None
    return one if is_kept and now - one.used_at < REMEMBERED else None


def with_doubt(one: Window, pods: PodsOfShape, fits: Callable[[], bool], now: datetime) -> Window:
    """The window, in doubt if the estimate has had room for DOUBT, and kube-scheduler none. `fits`: it has room now.

    A Pod for which others are being preempted counts as placed.
    """
    stuck = [pod for pod in pods.waiting if pod.unschedulable_since is not None and not pod.nominated_node]
    if one.doubted_at is not None:
        if stuck and fits():  # in a full cluster both agree
            return replace(one, doubted_at=now, words=stuck[-1].waiting_message)
        return one if now - one.doubted_at < REMEMBERED else replace(one, doubted_at=None, fits_since=None)
    if not stuck or not fits():
        return replace(one, fits_since=None)
    since = min(one.fits_since or now, now)
    if now - max(since, pods.bound_at()) < DOUBT:
        return replace(one, fits_since=since)
    return replace(one, size=1, at=now, has_grown=True, doubted_at=now, words=stuck[-1].waiting_message)


def contradicts(bound: Sequence[Pod], needs: PodNeeds | None, room: RoomView) -> bool:
    """Whether one of these Pods has a node that it could not have by our count."""
    threshold = room.threshold(needs) if needs is not None else None
    if needs is None or threshold is None:
        return False
    reserved = {one.node for one in room.reservations or ()}
    for pod in bound:
        node = room.nodes.get(pod.node_name)
        if node is None or pod.is_rejected or node.name in reserved:
            continue
        free = room.level(threshold).free[node.name]
        if not may_have_one_day(needs, node) or any(free.get(name, -1) < 0 for name, _ in needs.asks):
            return True
    return False
