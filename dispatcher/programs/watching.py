"""Everything that `dispatcher run` watches: Jobs, Pods and, with CHECK_ROOM, nodes and the room that they have."""

from collections.abc import Callable
from typing import Final

from dispatcher.admission.room_index import RoomIndex
from dispatcher.admission.room_view import RoomView
from dispatcher.kube.capacity import RoomMirror, pods_of_all
from dispatcher.kube.mirror import Mirror
from dispatcher.kube.reflectors import Reflectors
from dispatcher.settings.definition import Settings

OF_OUR_CONFIGURATION: Final = 100
"""percentageOfNodesToScore of the scheduler that `extender --print-scheduler-config` configures."""


class Watching:
    """The mirror of our Jobs and Pods, and the room of all nodes.

    all_pods: the resource that follows Pods of all namespaces; None: only ours are followed.
    """

    def __init__(self, reflectors: Reflectors, namespace: str, settings: Settings, *, with_all_pods: bool) -> None:
        kube, scheduler = settings.kube, settings.placement.scheduler_name
        with_all_pods = with_all_pods or kube.check_room
        self.all_pods = pods_of_all(namespace, kube.installation, scheduler) if with_all_pods else None
        self.mirror = Mirror(
            reflectors, namespace, kube.installation, with_nodes=kube.check_room, all_pods=self.all_pods
        )
        self._reflectors = reflectors
        self._index = RoomIndex([scheduler], OF_OUR_CONFIGURATION) if scheduler else RoomIndex([])
        is_judged = kube.check_room and self.all_pods
        self._room = RoomMirror(reflectors, self._index, self.all_pods) if is_judged and self.all_pods else None

    def room(self) -> RoomView | None:
        """The room at this moment; None: it is not judged."""
        return self._index.view() if self._room else None

    def on_gain(self, gained: Callable[[], None]) -> None:
        """Calls `gained` when a Pod of anybody leaves a node or changes."""
        if self._room and self.all_pods:
            pods = self._reflectors.of(self.all_pods)
            pods.store.on_each(lambda before, _: gained() if before is not None else None)

    def stale(self) -> str:
        """The stores that are too old to decide by, with reasons; empty if all are fresh."""
        return self.mirror.stale() or (self._room.stale() if self._room else "")
