"""Windows: how many Pods of a shape may wait beyond the estimate of room. kube-scheduler is the judge. Pure.

    Pods, RoomView ─▶ Windows.look ─▶ sizes by shape ─▶ demand.why_not_ask

The estimate can be wrong: a device driver (DRA), an extender or the settings of kube-scheduler may give a Pod a node
that it could not have by our count. Such a Pod contradicts the estimate, and the window of its shape doubles. It halves
when kube-scheduler finds no node any more. Where the estimate is right, every window stays one.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dispatcher.admission.room_view import RoomView, may_have_one_day
from dispatcher.model.cluster import LONG_AGO, Pod
from dispatcher.model.needs import PodNeeds

PATIENCE: Final = timedelta(seconds=5)
"""kube-scheduler has found no node for so long, and has bound no Pod of the shape meanwhile."""
REMEMBERED: Final = timedelta(minutes=10)
"""A window that nobody uses closes after this time."""
LARGEST: Final = 2**20
LOOK: Final = timedelta(seconds=1)


class Window(Struct, frozen=True):
    """The window of one shape.

    size: Pods that may wait beyond the estimate, a power of two.
    at: when the size changed.
    out: UIDs of the Pods that were without a node since then.
    has_grown: whether it was ever larger than one.
    used_at: when a Pod was without a node last.
    """

    size: int
    at: datetime
    out: frozenset[str] = frozenset()
    has_grown: bool = False
    used_at: datetime = LONG_AGO


class PodsOfShape(Struct):
    """Pods of one shape.

    waiting: those without a node.
    bound: those of `Window.out` that have a node.
    bound_at: when the newest Pod with a node got it.
    """

    waiting: list[Pod]
    bound: list[Pod]
    bound_at: datetime = LONG_AGO


class Windows:
    """The windows, from cycle to cycle. A restart begins with one each.

    sizes: of the shapes whose windows are, or were, larger than one. An equal answer is the same object.
    """

    def __init__(self) -> None:
        self.sizes: Mapping[str, int] = {}
        self._windows: Mapping[str, Window] = {}
        self._looked_at: tuple[Mapping[str, Pod], datetime] | None = None

    def look(
        self, pods: Mapping[str, Pod], made: Mapping[str, PodNeeds], room: RoomView, now: datetime
    ) -> Mapping[str, int]:
        """Looks again if a Pod has changed, or time has passed.

        pods: our Pods by name.
        made: what Pods of each shape need.
        now: the API server's clock.
        """
        last = self._looked_at
        if last is None or last[0] is not pods or (self._windows and now - last[1] >= LOOK):
            self._looked_at = pods, now
            groups = pods_of_shapes(pods.values(), self._windows)
            moved = {
                shape: moved_window(
                    self._windows.get(shape), group, contradicts(group.bound, made.get(shape), room), now
                )
                for shape, group in groups.items()
            }
            self._windows = {shape: one for shape, one in moved.items() if one is not None}
            sizes = {shape: one.size for shape, one in self._windows.items() if one.has_grown}
            self.sizes = self.sizes if sizes == self.sizes else sizes
        return self.sizes


def pods_of_shapes(pods: Iterable[Pod], windows: Mapping[str, Window]) -> Mapping[str, PodsOfShape]:
    """The Pods of each shape that has a window, or a Pod without a node."""
    found = {shape: PodsOfShape([], []) for shape in windows}
    for pod in pods:
        if not pod.node_name:
            if not (pod.has_ended or pod.deleting or pod.is_gated):
                found.setdefault(pod.shape, PodsOfShape([], [])).waiting.append(pod)
        elif (window := windows.get(pod.shape)) is not None:
            group = found[pod.shape]
            group.bound_at = max(group.bound_at, pod.scheduled_at or LONG_AGO)
            if pod.uid in window.out:
                group.bound.append(pod)
    return found


def moved_window(one: Window | None, pods: PodsOfShape, is_wrong: bool, now: datetime) -> Window | None:
    """The window after this moment; None: it is one, and nothing waits. `is_wrong`: the estimate was contradicted."""
    waiting = frozenset(pod.uid for pod in pods.waiting)
    if one is None:
        return Window(1, now, waiting, used_at=now) if waiting else None
    unschedulable = [pod.unschedulable_since for pod in pods.waiting if pod.unschedulable_since is not None]
    if is_wrong and not unschedulable and 2 * len(pods.bound) >= one.size:
        return Window(min(2 * one.size, LARGEST), now, waiting, has_grown=True, used_at=now)
    if unschedulable and one.size > 1 and now - max(min(unschedulable), one.at, pods.bound_at) >= PATIENCE:
        return Window(one.size // 2, now, waiting, has_grown=True, used_at=now)
    if waiting:
        return replace(one, used_at=now, out=waiting | {pod.uid for pod in pods.bound})
    return one if one.size > 1 and now - one.used_at < REMEMBERED else None


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
