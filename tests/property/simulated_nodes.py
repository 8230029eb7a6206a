"""Nodes with our Pods on them, and kube-scheduler, in virtual time: the ground of simulations of room."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dispatcher.admission.claims import Claim
from dispatcher.admission.room import Room, RoomIndex, room_of
from dispatcher.model.cluster import BoundPod, Node
from dispatcher.model.jobs import Job
from dispatcher.model.launches import PodKind
from dispatcher.model.needs import PodNeeds
from tests.rig.builders import NOW, a_job


@dataclass
class SimulatedPod:
    """A Pod of ours. `avoided`: nodes that kube-scheduler should not choose for it."""

    row: int
    kind: PodKind
    launched_at: datetime
    run_seconds: float
    avoided: frozenset[str] = frozenset()
    node: str = ""
    bound_at: datetime = NOW
    job: Job = field(init=False)

    def __post_init__(self) -> None:
        name = f"job-{self.row}"
        self.job = a_job(task_id=self.row, name=name, uid=name, needs=self.needs, created_at=self.launched_at)

    @property
    def needs(self) -> PodNeeds:
        assert self.kind.needs is not None
        return self.kind.needs

    @property
    def bound(self) -> BoundPod:
        return BoundPod(f"jobs/{self.job.name}", self.node, dict(self.needs.asks))

    def is_over(self, now: datetime) -> bool:
        return bool(self.node) and now >= self.bound_at + timedelta(seconds=self.run_seconds)


class SimulatedNodes:
    """Nodes, the Pods on them and the Pods that wait, as kube-scheduler places them.

    placed: seconds after which each row's Pod got its node.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.now = NOW
        self.pods: list[SimulatedPod] = []
        self.placed: dict[int, float] = {}
        self._index = RoomIndex(())
        self._free: dict[str, Counter[str]] = {}
        for node in nodes:
            self._index.hear_node(None, node)
            self._free[node.name] = Counter(node.size)

    @property
    def waiting(self) -> list[SimulatedPod]:
        return [pod for pod in self.pods if not pod.node]

    @property
    def running(self) -> list[SimulatedPod]:
        return [pod for pod in self.pods if pod.node]

    def room(self, claims: Sequence[Claim] = ()) -> Room:
        return room_of(self._index.view(), Counter(pod.kind for pod in self.waiting), claims)

    def step(self) -> None:
        """One second goes by: Pods end, and others get their nodes."""
        self.now += timedelta(seconds=1)
        for pod in [pod for pod in self.pods if pod.is_over(self.now)]:
            self.remove(pod)
        self.place()

    def add(self, pod: SimulatedPod) -> None:
        self.pods.append(pod)

    def remove(self, pod: SimulatedPod) -> None:
        self.pods.remove(pod)
        if pod.node:
            self._index.hear_pod(pod.bound, None)
            self._free[pod.node].update(dict(pod.needs.asks))

    def place(self) -> None:
        """Gives each waiting Pod the node with the most free cores, the older Pod first, avoided nodes last."""
        for pod in self.waiting:
            fitting = [
                name
                for name, free in self._free.items()
                if all(free[resource] >= amount for resource, amount in pod.needs.asks)
            ]
            if fitting:
                pod.node = min(fitting, key=lambda name: (name in pod.avoided, -self._free[name]["cpu"], name))
                pod.bound_at = self.now
                self._free[pod.node].subtract(dict(pod.needs.asks))
                self._index.hear_pod(None, pod.bound)
                self.placed.setdefault(pod.row, (self.now - NOW).total_seconds())
