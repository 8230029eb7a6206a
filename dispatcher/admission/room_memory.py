"""What cycles learn about the room, from one cycle to the next. Pure.

    Pods, nodes ─▶ look ─▶ Rejections · Windows · Demands ─▶ room ─▶ the gates of this cycle
    rows without room ─▶ plan_claims ─▶ Claims ─▶ room of the next cycle

Each cycle counts the room anew. But the deeds of kube-scheduler, autoscalers and kubelets show where the count is
wrong, for which Pods nodes come, and which nodes take no Pod. A restart forgets them, and learns again.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from dispatcher.admission.claims import Claim, Claims, Pods, PodsWithoutDoubt, RejectingNodes, Rejections
from dispatcher.admission.demand import Demand, Demands, FirstPods, Patience
from dispatcher.admission.room import Room, room_of
from dispatcher.admission.room_view import RoomView
from dispatcher.admission.windows import PodsInView, Windows
from dispatcher.model.cluster import LONG_AGO, ClusterView, ScaleAnswer
from dispatcher.model.launches import PodKind, Probe

SET_BACK: Final = timedelta(minutes=5)
"""A clock that goes back by more was set back. Those of the replicas of an API server may differ by some minutes."""
RoomInputs = tuple[Mapping[PodKind, int], Sequence[Claim], Demand, RejectingNodes]


class RoomMemory:
    """The memory of one replica.

    demands: the shapes of Pods that wait for a node, and what autoscalers do for them.
    claims: nodes that are kept for rows which would starve.
    rejections: nodes whose kubelets reject our Pods.
    """

    def __init__(self, demands: Demands, claims: Claims) -> None:
        self.demands = demands
        self.claims = claims
        self.rejections = Rejections()
        self._windows = Windows()
        self._patience = Patience()
        self._last_room: tuple[RoomView, RoomInputs, Room] | None = None
        self._looked_at = LONG_AGO

    def look(
        self, view: ClusterView, room: RoomView | None, probes: Sequence[Probe], answers: Mapping[str, ScaleAnswer]
    ) -> None:
        """Learns what came since the last look. A view that is too old teaches nothing but rejections.

        room: nodes and their free amounts now; None: room is not judged.
        probes: our Pods for which kube-scheduler found no node.
        answers: what autoscalers said of them, by UID.
        """
        if self._looked_at - view.now > SET_BACK:
            self._begin_anew()
        self._looked_at = view.now
        self.rejections.look(view.pods, view.jobs.values(), view.now)
        if view.stale:
            return
        if room is None:
            self.demands.update(probes, (), answers, view.now)
            return
        seen = PodsInView(view.pods, view.made, {probe.pod.name for probe in probes})
        contradicted = self._windows.look(seen, room, self._empty_room(room).has_room, view.now)
        self.demands.update(probes, room.young_nodes(), answers, view.now, contradicted)

    def _begin_anew(self) -> None:
        """Forgets all but the claims: its times lie in the future now, and nothing would change until they come."""
        self.demands.forget()
        self.rejections, self._windows, self._patience = Rejections(), Windows(), Patience()

    def _empty_room(self, view: RoomView) -> Room:
        """The room of nodes that have started, as if none of our Pods waited."""
        return Room(replace(view, starting=()), closed=self.claims.nodes())

    def room(self, view: RoomView, unplaced: Mapping[PodKind, int]) -> Room:
        """The room that Pods without a node leave. It is the last object if nothing has changed."""
        given = unplaced, self.claims.current, self.demands.current, self.rejections.current
        last = self._last_room
        if last is None or last[0] is not view or last[1] != given:
            last = self._last_room = view, given, room_of(view, *given)
        return replace(last[2], refusals={})  # the bounds of queues may have changed

    def first_pods(self, unplaced: Mapping[PodKind, int], view: ClusterView) -> FirstPods:
        """The shapes whose first Pod is awaited: only it shows what admission makes of them."""
        return self._patience.look(unplaced, view.made, view.now)

    def plan_claims(
        self, roomless: Mapping[int, PodKind], ours: Pods, room: RoomView, now: datetime, known: Mapping[int, str]
    ) -> None:
        """Plans the claims of the next cycle. `roomless`, `known`, `now`: see `Claims.update`."""
        doubted = self.demands.current.contradicted.doubted
        lacking = {task: pod for task, pod in roomless.items() if pod.shape not in doubted}
        self.claims.update(lacking, PodsWithoutDoubt(ours, doubted), room, now, known)
