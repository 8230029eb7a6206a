"""Rows, a cluster, and two dispatchers that share them. Nothing moves unless it is told to; laws watch every step."""

import asyncio
from enum import StrEnum
from typing import Final

import msgspec

from dispatcher.model.cluster import Pod
from dispatcher.model.errors import DatabaseAway, DatabaseNotPrimary
from dispatcher.model.jobs import Job
from dispatcher.model.tasks import Queue, Status
from tests.property.api import Fate, Wires
from tests.property.cluster import Cluster, Container
from tests.property.laws import Laws
from tests.property.replica import Replica
from tests.property.rows import Table, Wish
from tests.property.timing import Timeline

NAMES: Final = ("A", "B")
QUEUES: Final = ("default", "other")
PERIOD_SECONDS: Final = 10
SPELL_SECONDS: Final = 20
SOON_SECONDS: Final = 0.25
LOOKS_A_TURN: Final = 2


class Lot(StrEnum):
    """What befalls each launch of a task that has no luck."""

    FAILS = "fails"
    FAILS_AT_FIRST = "fails-at-first"
    NEVER_STARTS = "never-starts"


class World:
    """`A` leads at first."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = Timeline()
        self.table = Table(self.clock)
        self.cluster = Cluster(self.clock)
        self.laws = Laws(self.cluster, self.table)
        self.wires = Wires(self.cluster, self.clock, self.laws)
        self.table.queues = {name: Queue(name) for name in QUEUES}
        self.replicas: dict[str, Replica] = {}
        self.heir = "A"
        self.lots: dict[int, Lot] = {}
        for name in NAMES:
            self.start(name)
        self.lead("A")

    def close(self) -> None:
        for replica in self.replicas.values():
            replica.kill(self.loop, lands_later=False)
        self.loop.close()

    # processes

    def start(self, name: str) -> None:
        replica = Replica(name, self.wires, self.table, lambda one: self.laws.term if self.laws.leader is one else 0)
        replica.dispatch.decided = lambda look, decision: self.laws.decided(replica, look, decision)
        self.replicas[name] = replica
        self.laws.replicas[id(replica.api)] = replica
        replica.view.relist()

    def crash(self, name: str, *, lands_later: bool = False) -> None:
        """Kill -9, and a new process at once; if it led, it leads again when its lease is won."""
        old = self.replicas[name]
        old.kill(self.loop, lands_later=lands_later)
        is_leader = self.laws.leader is old
        self.start(name)
        if is_leader:
            self.lead(name)

    def lead(self, name: str | None) -> None:
        """A term begins: its caps are counted from a list of that term."""
        self.laws.term += 1
        self.laws.leader = self.replicas[name] if name else None
        if name:
            self.replicas[name].view.forget()
            self.replicas[name].view.relist()

    def tick(self, name: str, stage: str = "dispatch") -> None:
        self.replicas[name].begin(self.loop, stage)
        self._obey()

    def go_on(self) -> None:
        for replica in self.replicas.values():
            replica.go_on(self.loop)
        self._obey()

    def _obey(self) -> None:
        if self.laws.breach is not None:
            raise self.laws.breach

    def pass_time(self, seconds: float) -> None:
        self.clock.seconds += seconds
        for replica in self.replicas.values():
            replica.view.prove()
        if seconds > SPELL_SECONDS:
            self.mend()
        self.wires.expire()
        self.go_on()

    def release_all(self) -> None:
        """All that is on its way lands, and no answer is heard."""
        for late in list(self.wires.late):
            self.wires.land(late)
        for held in list(self.wires.held):
            self.wires.release(held, Fate.UNHEARD)
        self.go_on()

    # rows

    def insert(self, wish: Wish, count: int = 1) -> list[int]:
        return [self.table.insert(wish) for _ in range(count)]

    def declare(self, queue: Queue) -> None:
        self.table.queues[queue.name] = queue
        self.laws.caps_changed()

    def undeclare(self, name: str) -> None:
        self.table.queues.pop(name, None)
        self.laws.caps_changed()

    # containers and controllers

    def enter(self, container: Container) -> None:
        """It calls task_start. Refused: it exits with 0."""
        token = self._ask(container)
        if token is None:
            self.leave(container, 0)
        else:
            container.token = token
            self.laws.entered(container)

    def enter_again(self, container: Container) -> None:
        """Its answer was lost: the same Pod gets the same one, or none once the row has moved on."""
        assert self._ask(container) in {container.token, None}, "the same Pod got another answer"

    def _ask(self, container: Container) -> str | None:
        by = container.job_uid, container.pod
        return self.table.start(container.task_id, container.told["TASK_START_KEY"], container.at, by)

    def report(self, container: Container, outcome: str) -> None:
        if container.token is not None:
            self.table.finish(container.token, outcome)
        self.leave(container, 0)

    def leave(self, container: Container, code: int) -> None:
        held = container.token is not None
        if self.cluster.end_container(container, code) and held:
            self.laws.crashed(container)

    def delete_by_hand(self, job: Job) -> None:
        self.laws.deleted_by_hand(job)
        self.cluster.begin_delete(job)

    def bring_up(self) -> None:
        """The Job controller and the node do what they can."""
        for job in self.cluster.podless():
            self.cluster.add_pod(job)
        for pod in [pod for pod in self.cluster.pods.values() if pod.phase == "Pending" and not pod.deleting]:
            if not pod.waiting_reason:
                self._place(pod)

    def _place(self, pod: Pod) -> None:
        job = self.cluster.job_of(pod)
        if job is not None and self.lots.get(job.task_id) is Lot.NEVER_STARTS:
            self.cluster.put_pod(msgspec.structs.replace(pod, waiting_reason="ImagePullBackOff"))
        else:
            self.cluster.bind(pod)

    def _fails(self, container: Container) -> bool:
        lot = self.lots.get(container.task_id)
        return lot is Lot.FAILS or (lot is Lot.FAILS_AT_FIRST and container.at[1] == 1)

    def serve(self) -> None:
        """One fair turn of everybody who is not a dispatcher: controllers, node, containers, all successful."""
        for job in [job for job in self.cluster.jobs.values() if job.deleting]:
            self.cluster.bury(job)
        self.cluster.expire()
        self.bring_up()
        self.run(to_the_end=True)

    def run(self, *, to_the_end: bool) -> None:
        """Containers start, or end what they had started."""
        for container in list(self.cluster.containers):
            if container.token is None:
                self.enter(container)
            elif to_the_end and self._fails(container):
                self.leave(container, 1)
            elif to_the_end:
                self.report(container, "failed" if self.table.heartbeat(container.token) == "cancel" else "succeeded")

    # an end

    def mend(self) -> None:
        """Outages end by themselves, or nothing would ever come of most runs."""
        self.wires.is_away = self.cluster.is_quota_full = self.cluster.is_terminating = False
        for replica in self.replicas.values():
            replica.view.is_cut = False
        if self.laws.leader is None:
            self.lead(self.heir)

    def calm_down(self) -> None:
        """No faults any more; A leads; every queue is open."""
        self.mend()
        for replica in self.replicas.values():
            replica.api.fates.clear()
            replica.database.fault, replica.database.is_slow = None, False
            replica.database.answer()
        self.wires.late.clear()
        for held in list(self.wires.held):
            self.wires.release(held, Fate.FINE)
        self.cluster.find()
        self.table.hidden.clear()
        for name in QUEUES:
            queue = self.table.queues.get(name, Queue(name))
            caps = open_cap(queue.max_jobs), open_cap(queue.max_jobs_per_submitter)
            self.declare(Queue(queue.name, max_jobs=caps[0], max_jobs_per_submitter=caps[1]))
        self.go_on()
        self.lead("A")
        for replica in self.replicas.values():
            replica.view.relist()

    def turn(self) -> None:
        """A fair period: everybody acts, a dispatcher as soon again as it wants to, views catch up, and time passes."""
        self.serve()
        for name, replica in self.replicas.items():
            replica.view.catch_up()
            self.tick(name)
            self.tick(name, "sweep")
        for _ in range(LOOKS_A_TURN):
            for name, replica in self.replicas.items():
                if replica.pauses.get("dispatch", 0) < SOON_SECONDS:
                    replica.view.catch_up()
                    self.tick(name)
            self.pass_time(SOON_SECONDS)
        self.pass_time(PERIOD_SECONDS)

    def open_rows(self) -> list[int]:
        return [id_ for id_, row in self.table.rows.items() if row.task.finished_at is None]

    def leftovers(self) -> list[str]:
        """Jobs of ours whose row is over or gone."""
        rows, foreign = self.table.rows, self.laws.removals.foreign
        ours = [job for job in self.cluster.jobs.values() if job.uid not in foreign]
        return [job.name for job in ours if job.task_id not in rows or rows[job.task_id].task.status in ENDED]


def open_cap(cap: int | None) -> int | None:
    """A cap of 0 is a pause by another name."""
    return None if cap is None else max(cap, 1)


ENDED: Final = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELLED})
FAULTS: Final = (DatabaseAway("no connection"), DatabaseNotPrimary("a standby"))
