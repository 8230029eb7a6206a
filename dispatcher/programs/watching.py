"""Everything that `dispatcher run` watches: Jobs, Pods, ResourceQuotas and, with CHECK_ROOM, nodes and their room."""

import time
from collections.abc import Callable
from typing import Final

from dispatcher.admission.reserved_room import ReservedRoom
from dispatcher.admission.room_index import RoomIndex
from dispatcher.admission.room_view import RoomView
from dispatcher.kube.capacity import RoomMirror, pods_of_all
from dispatcher.kube.claims import ClaimObjects
from dispatcher.kube.mirror import Mirror
from dispatcher.kube.node_caches import node_caches
from dispatcher.kube.quotas import QuotaMirror
from dispatcher.kube.reflectors import Reflectors
from dispatcher.kube.reservations import RESERVATIONS
from dispatcher.placement.warmth import Warmth
from dispatcher.settings.definition import Settings

OF_OUR_CONFIGURATION: Final = 100
"""percentageOfNodesToScore of the scheduler that `extender --print-scheduler-config` configures."""


class Watching:
    """The mirror of our Jobs and Pods, and the room of all nodes.

    all_pods: the resource that follows Pods of all namespaces; None: only ours are followed.
    warmth: which nodes have the directory of a cache key.
    quotas: the ResourceQuotas of the namespace of Jobs; none if they are not known.
    """

    def __init__(self, reflectors: Reflectors, namespace: str, settings: Settings, *, with_all_pods: bool) -> None:
        kube, scheduler = settings.kube, settings.placement.scheduler_name
        with_all_pods = with_all_pods or kube.check_room
        self.all_pods = pods_of_all(namespace, kube.installation, scheduler) if with_all_pods else None
        self.mirror = Mirror(
            reflectors, namespace, kube.installation, with_nodes=kube.check_room, all_pods=self.all_pods
        )
        self.warmth = Warmth(kube.installation, self.mirror.has_shown, time.monotonic)
        if settings.placement.cache_root:
            told = node_caches(reflectors.client.own_namespace or namespace, kube.installation)
            reflectors.of(told).store.on_each(self.warmth.hear)
        self._reflectors = reflectors
        self._reserved = bool(scheduler)
        self._index = RoomIndex([])
        if scheduler:
            reserved = ReservedRoom(namespace, kube.installation)
            self._index = RoomIndex([scheduler], OF_OUR_CONFIGURATION, reserved)
        self._room: RoomMirror | None = None
        if kube.check_room and self.all_pods:
            self._room = RoomMirror(reflectors, self._index, self.all_pods, with_reservations=self._reserved)
        self._quotas = QuotaMirror(reflectors, namespace)
        self.quotas = self._quotas.quotas

    def room(self) -> RoomView | None:
        """The room at this moment; None: it is not judged."""
        return self._index.view(self._reflectors.client.now().timestamp()) if self._room else None

    def claims(self, namespace: str, installation: str, may_write: Callable[[], bool]) -> ClaimObjects | None:
        """Claims as NodeReservations; None: no extender enforces them."""
        if self._room is None or not self._reserved:
            return None
        reservations = self._reflectors.of(RESERVATIONS)
        return ClaimObjects(self._reflectors.client, reservations, namespace, installation, may_write)

    def on_gain(self, gained: Callable[[], None]) -> None:
        """Calls `gained` when a Pod of anybody, a reservation or a ResourceQuota goes or changes."""
        self._quotas.on_change(gained)
        if self._room and self.all_pods:
            pods = self._reflectors.of(self.all_pods)
            pods.store.on_each(lambda before, _: gained() if before is not None else None)
        if self._room and self._reserved:
            self._reflectors.of(RESERVATIONS).store.on_each(lambda before, _: gained() if before is not None else None)

    def stale(self) -> str:
        """The stores that are too old to decide by, with reasons; empty if all are fresh."""
        return self.mirror.stale() or (self._room.stale() if self._room else "")
