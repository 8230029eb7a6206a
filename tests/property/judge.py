"""A kube-scheduler that has places of its own, whatever our count of room says.

Two pools of nodes. Our count gives each node of a pool PLACES places. kube-scheduler gives the pool another number:
more (a device that no node tells, an extender) or fewer (ports, volumes, affinity). Both may change at any time.
"""

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from dispatcher.admission.room import RoomIndex
from dispatcher.admission.room_view import RoomView
from dispatcher.model.cluster import BoundPod, ClusterView, Node, Pod
from dispatcher.model.tasks import Task
from dispatcher.settings.definition import AdmissionSettings
from tests.property.cluster import NODE
from tests.property.replica import Installation
from tests.property.rows import NewTask
from tests.property.world import World
from tests.unit.rooms import a_node

POOLS: Final = ("default", "other")
PLACES: Final = 2
NO_PLACE: Final = "0/9 nodes are available: 9 node(s) had volume node affinity conflict."
SLOW: Final = timedelta(seconds=2)


class JudgedWorld(World):
    """Rows of two templates. The Pods of each go to the pool of its name.

    places: what kube-scheduler has, by pool.
    is_slow: it looks at a Pod only after SLOW.
    """

    def __init__(self, max_jobs: int = 100) -> None:
        folder, admission = Path(__file__).parent / "pools", AdmissionSettings(max_jobs=max_jobs, max_pending=1000)
        super().__init__(Installation(str(folder), admission, room_of_view))
        self.places = dict.fromkeys(POOLS, 0)
        self.is_slow = False

    def count(self, pool: str, places: int) -> None:
        """Lets our count of the pool be so large, a multiple of PLACES."""
        names = [f"{pool}-{number}" for number in range(places // PLACES)]
        for name in [one.name for one in self.cluster.nodes.values() if one.labels.get("pool") == pool]:
            if name not in names:
                self.cluster.remove_node(name)
        for name in names:
            if name not in self.cluster.nodes:
                size = a_node(cpu=str(PLACES), memory="64Gi", pods="100").size
                self.cluster.put_node(
                    Node(name, labels={"pool": pool}, size=size, created_at=self.clock.of_cluster - timedelta(hours=1))
                )

    def insert_rows(self, pool: str, count: int, queue: str = "", team: str = "team_a", priority: int = 100) -> None:
        """Rows for the pool, in the queue of its name or in another one."""
        self.insert(NewTask(template=pool, queue=queue or pool, submitted_by=team, priority=priority), count)

    def start_pods(self) -> None:
        for job in self.cluster.jobs_without_pod():
            self.cluster.add_pod(job)
            (pod,) = [pod for pod in self.cluster.pods.values() if pod.job_uid == job.uid]
            self.cluster.put_pod(replace(pod, needs=job.needs))
        self._judge()

    def bound(self) -> Counter[str]:
        """Pods on nodes, by pool."""
        return Counter(self._pool_of(pod) for pod in self.cluster.pods.values() if pod.node_name and not pod.has_ended)

    def refused(self) -> Counter[str]:
        """Pods that kube-scheduler has found no node for, by pool."""
        return Counter(self._pool_of(pod) for pod in self.cluster.pods.values() if pod.unschedulable_since)

    def tasks_that_ask(self) -> list[Task]:
        """The rows whose Pods kube-scheduler has found no node for."""
        jobs = [self.cluster.job_of(pod) for pod in self.cluster.pods.values() if pod.unschedulable_since]
        return [self.table.rows[job.task_id].task for job in jobs if job is not None]

    def open_by_pool(self) -> Counter[str]:
        """Rows that have not ended, by pool."""
        return Counter(self.table.rows[id_].task.template for id_ in self.open_rows())

    def calm_down(self) -> None:
        self.places = dict.fromkeys(POOLS, 1000)
        super().calm_down()

    def seconds(self, seconds: int, *, ends: bool = False) -> None:
        """So many seconds of all parts. `ends`: containers end a second after their start."""
        for _ in range(seconds):
            self.start_pods()
            self.run(to_the_end=ends)
            self.replicas["A"].view.catch_up()
            self.tick("A")
            self.tick("A", "sweep")
            self.pass_time(1)

    def _judge(self) -> None:
        """The oldest Pods get the places. The others are Unschedulable."""
        now, taken = self.clock.of_cluster, self.bound()
        waiting = [pod for pod in self.cluster.pods.values() if not (pod.node_name or pod.deleting or pod.has_ended)]
        for pod in sorted(waiting, key=lambda pod: (pod.created_at, pod.name)):
            pool = self._pool_of(pod)
            if self.is_slow and now - pod.created_at < SLOW:
                continue
            if taken[pool] < self.places[pool]:
                taken[pool] += 1
                self.cluster.bind(pod, self._node_of(pool))
            elif pod.unschedulable_since is None:
                self.cluster.put_pod(replace(pod, unschedulable_since=now, waiting_message=NO_PLACE))

    def _pool_of(self, pod: Pod) -> str:
        job = self.cluster.manifests[pod.name.rpartition("-")[0]]
        return str(job["spec"]["template"]["spec"]["nodeSelector"]["pool"])

    def _node_of(self, pool: str) -> str:
        """The node of the pool with the fewest Pods. Where it has none, kube-scheduler takes one of others."""
        nodes = [one.name for one in self.cluster.nodes.values() if one.labels.get("pool") == pool]
        pods = Counter(pod.node_name for pod in self.cluster.pods.values() if not pod.has_ended)
        return min(nodes, key=lambda name: (pods[name], name), default=NODE)


def room_of_view(view: ClusterView) -> RoomView:
    """The room of the nodes in the view, as the watch of nodes and Pods gives it."""
    index = RoomIndex(())
    for node in view.nodes.values():
        index.hear_node(None, node)
    for pod in view.pods.values():
        if pod.node_name and not pod.has_ended and pod.needs is not None:
            index.hear_pod(None, BoundPod(f"jobs/{pod.name}", pod.node_name, dict(pod.needs.asks), own=pod))
    return index.view(view.now.timestamp())
