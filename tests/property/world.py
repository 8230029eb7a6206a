"""Rows, a cluster, and two dispatchers that share them. A test calls every step, and the laws check it."""

import asyncio
from enum import StrEnum
from typing import Final

import msgspec

from dispatcher.model.cluster import Pod
from dispatcher.model.errors import DatabaseAway, DatabaseNotPrimary
from dispatcher.model.jobs import Job
from dispatcher.model.tasks import Queue, Status
from tests.property.api import Network, Outcome
from tests.property.cluster import NODE, Cluster, Container
from tests.property.laws import Laws
from tests.property.replica import Installation, Replica
from tests.property.rows import NewTask, Table
from tests.property.timing import Timeline

NAMES: Final = ("A", "B")
QUEUES: Final = ("default", "other")
PERIOD_SECONDS: Final = 10
OUTAGE_SECONDS: Final = 20
AS_SHIPPED: Final = Installation()
SOON_SECONDS: Final = 0.25
LOOKS_PER_TURN: Final = 2


class LaunchFault(StrEnum):
    """How launches of a task go wrong."""

    FAILS = "fails"
    FAILS_AT_FIRST = "fails-at-first"
    NEVER_STARTS = "never-starts"


class World:
    """Two dispatchers, A and B, and everything that they share. A leads at first.

    launch_faults: how launches of a task go wrong, by task id.
    next_leader: the dispatcher that leads after an outage without a leader.
    """

    def __init__(self, installed: Installation = AS_SHIPPED) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = Timeline()
        self.table = Table(self.clock)
        self.cluster = Cluster(self.clock)
        self.installed = installed
        self.laws = Laws(self.cluster, self.table, installed.admission.max_jobs)
        self.network = Network(self.cluster, self.clock, self.laws)
        self.table.queues = {name: Queue(name) for name in QUEUES}
        self.replicas: dict[str, Replica] = {}
        self.next_leader = "A"
        self.launch_faults: dict[int, LaunchFault] = {}
        for name in NAMES:
            self.start(name)
        self.lead("A")

    def close(self) -> None:
        for replica in self.replicas.values():
            replica.kill(self.loop, lands_later=False)
        self.loop.close()

    # processes

    def start(self, name: str) -> None:
        replica = Replica(name, self.network, self.table, self._term_of, self.installed)
        replica.dispatch.decided = lambda look, decision: self.laws.decided(replica, look, decision)
        self.replicas[name] = replica
        self.laws.replicas[id(replica.api)] = replica
        replica.view.relist()

    def _term_of(self, replica: Replica) -> int:
        return self.laws.term if self.laws.leader is replica else 0

    def crash(self, name: str, *, lands_later: bool = False) -> None:
        """Kills a process and starts a new one at once. If it led, the new one leads."""
        old = self.replicas[name]
        old.kill(self.loop, lands_later=lands_later)
        is_leader = self.laws.leader is old
        self.start(name)
        if is_leader:
            self.lead(name)

    def lead(self, name: str | None) -> None:
        """Begins a term of this leader, or of no leader. A leader lists anew before it counts."""
        self.laws.term += 1
        self.laws.leader = self.replicas[name] if name else None
        if name:
            self.replicas[name].view.begin_term()
            self.replicas[name].view.relist()

    def tick(self, name: str, stage: str = "dispatch") -> None:
        self.replicas[name].begin(self.loop, stage)
        self._raise_breach()

    def go_on(self) -> None:
        for replica in self.replicas.values():
            replica.go_on(self.loop)
        self._raise_breach()

    def _raise_breach(self) -> None:
        if self.laws.breach is not None:
            raise self.laws.breach

    def pass_time(self, seconds: float) -> None:
        self.clock.seconds += seconds
        for replica in self.replicas.values():
            replica.view.receive_bookmark()
        if seconds > OUTAGE_SECONDS:
            self.end_outages()
        self.network.expire()
        self.go_on()

    def release_all(self) -> None:
        """Lets all requests land that are on their way. All their answers are lost."""
        for late in list(self.network.late):
            self.network.land(late)
        for held in list(self.network.held):
            self.network.release(held, Outcome.ANSWER_LOST)
        self.go_on()

    # rows

    def insert(self, new_task: NewTask, count: int = 1) -> list[int]:
        return [self.table.insert(new_task) for _ in range(count)]

    def set_queue(self, queue: Queue) -> None:
        self.table.queues[queue.name] = queue
        self.laws.caps_changed()

    def remove_queue(self, name: str) -> None:
        self.table.queues.pop(name, None)
        self.laws.caps_changed()

    # containers and controllers

    def start_run(self, container: Container) -> None:
        """The container calls task_start. A refused container exits with 0."""
        token = self._call_start(container)
        if token is None:
            self.exit_container(container, 0)
        else:
            container.token = token
            self.laws.entered(container)

    def repeat_start(self, container: Container) -> None:
        """The container calls task_start again, because the answer was lost. The same Pod gets the same token, or is
        refused if the row has changed since.
        """
        assert self._call_start(container) in {container.token, None}, "the same Pod got another answer"

    def _call_start(self, container: Container) -> str | None:
        by = container.job_uid, container.pod
        return self.table.start(container.task_id, container.environment["TASK_START_KEY"], container.at, by)

    def report(self, container: Container, outcome: str) -> None:
        if container.token is not None:
            self.table.finish(container.token, outcome)
        self.exit_container(container, 0)

    def exit_container(self, container: Container, code: int) -> None:
        held = container.token is not None
        if self.cluster.end_container(container, code) and held:
            self.laws.crashed(container)

    def delete_by_hand(self, job: Job) -> None:
        self.laws.deleted_by_hand(job)
        self.cluster.begin_delete(job)

    def start_pods(self) -> None:
        """The Job controller makes missing Pods, and the node starts pending ones."""
        for job in self.cluster.jobs_without_pod():
            self.cluster.add_pod(job)
        for pod in [pod for pod in self.cluster.pods.values() if pod.phase == "Pending" and not pod.deleting]:
            if not pod.waiting_reason:
                self._place(pod)

    def _place(self, pod: Pod) -> None:
        job = self.cluster.job_of(pod)
        if job is not None and self.launch_faults.get(job.task_id) is LaunchFault.NEVER_STARTS:
            self.cluster.put_pod(msgspec.structs.replace(pod, node_name=NODE, waiting_reason="ImagePullBackOff"))
        else:
            self.cluster.bind(pod)

    def _fails(self, container: Container) -> bool:
        launch_fault = self.launch_faults.get(container.task_id)
        return launch_fault is LaunchFault.FAILS or (
            launch_fault is LaunchFault.FAILS_AT_FIRST and container.at[1] == 1
        )

    def cluster_turn(self) -> None:
        """One fair turn of controllers, node and containers. Containers succeed, unless their task has a fault."""
        for job in [job for job in self.cluster.jobs.values() if job.deleting]:
            self.cluster.finish_delete(job)
        self.start_pods()
        self._end_pods_of_nobody()
        self.run(to_the_end=True)

    def _end_pods_of_nobody(self) -> None:
        """The node ends a Pod at its run limit, also if its image never comes. Without a row, nobody else does."""
        for pod in list(self.cluster.pods.values()):
            job = self.cluster.job_of(pod)
            if pod.waiting_reason and job is not None and job.task_id not in self.table.rows:
                self.cluster.fail(job)

    def run(self, *, to_the_end: bool) -> None:
        """Containers start. With `to_the_end`, containers that have started before end."""
        for container in list(self.cluster.containers):
            if container.token is None:
                self.start_run(container)
            elif to_the_end and self._fails(container):
                self.exit_container(container, 1)
            elif to_the_end:
                self.report(container, "failed" if self.table.heartbeat(container.token) == "cancel" else "succeeded")

    # the end of a run

    def end_outages(self) -> None:
        """Ends outages. Otherwise most runs would make no progress."""
        self.network.is_away = self.cluster.is_quota_full = self.cluster.is_terminating = False
        for replica in self.replicas.values():
            replica.view.is_cut = False
        if self.laws.leader is None:
            self.lead(self.next_leader)

    def calm_down(self) -> None:
        """Ends all faults. A leads, and every queue is open."""
        self.end_outages()
        for replica in self.replicas.values():
            replica.api.outcomes.clear()
            replica.database.fault, replica.database.is_slow = None, False
            replica.database.answer()
        self.network.late.clear()
        for held in list(self.network.held):
            self.network.release(held, Outcome.FINE)
        self.cluster.restore_node()
        self.table.hidden.clear()
        for name in QUEUES:
            queue = self.table.queues.get(name, Queue(name))
            caps = open_cap(queue.max_jobs), open_cap(queue.max_jobs_per_submitter)
            self.set_queue(Queue(queue.name, max_jobs=caps[0], max_jobs_per_submitter=caps[1]))
        self.go_on()
        self.lead("A")
        for replica in self.replicas.values():
            replica.view.relist()

    def turn(self) -> None:
        """One fair period: cluster and dispatchers act, views catch up, and time passes. A dispatcher that asks for a
        short pause acts again soon.
        """
        self.cluster_turn()
        for name, replica in self.replicas.items():
            replica.view.catch_up()
            self.tick(name)
            self.tick(name, "sweep")
        for _ in range(LOOKS_PER_TURN):
            for name, replica in self.replicas.items():
                if replica.pauses.get("dispatch", 0) < SOON_SECONDS:
                    replica.view.catch_up()
                    self.tick(name)
            self.pass_time(SOON_SECONDS)
        self.pass_time(PERIOD_SECONDS)

    def open_rows(self) -> list[int]:
        return [id_ for id_, row in self.table.rows.items() if row.task.finished_at is None]

    def leftovers(self) -> list[str]:
        """Names of Jobs of this database whose row is terminal or absent."""
        rows, foreign = self.table.rows, self.laws.removals.foreign
        ours = [job for job in self.cluster.jobs.values() if job.uid not in foreign]
        return [job.name for job in ours if job.task_id not in rows or rows[job.task_id].task.status in ENDED]


def open_cap(cap: int | None) -> int | None:
    """The cap, at least 1: a queue with cap 0 launches nothing, so no run would end."""
    return None if cap is None else max(cap, 1)


ENDED: Final = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELLED})
FAULTS: Final = (DatabaseAway("no connection"), DatabaseNotPrimary("a standby"))
