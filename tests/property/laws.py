"""The laws that hold at every step. The numbers I1, I2 ... are the invariants that the design was checked against.

Each law checks the true state (rows, cluster, requests on their way), never a dispatcher's view. The only exceptions
are the exceptions of the protocol:

* a stray: a create that a deposed or dead process had in flight, also if it is repeated in a later term,
* a finished Job of the row's current attempt that somebody deleted,
* an event that a watch has not shown.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from math import inf

from dispatcher.admission.dispatch import Decision
from dispatcher.admission.snapshot import effective_queues
from dispatcher.jobs.env import CONTRACT
from dispatcher.jobs.memory import REFUSED_SECONDS
from dispatcher.model.jobs import ApiAnswer, Job, Manifest, ObjectWrite, Phase
from dispatcher.model.launches import LaunchSpec, job_name, name_of, task_identity
from dispatcher.model.tasks import Queue, Status
from dispatcher.model.verdicts import HoldReason
from tests.property.api import Api, Held, Late
from tests.property.cluster import Cluster, Container
from tests.property.kubelet import seen_env, seen_words
from tests.property.removal_laws import RemovalLaws
from tests.property.replica import PASSED, RULES, Replica
from tests.property.rows import Look, Row, Table
from tests.rig.builders import DATABASE_ID

TEMPLATES_OWN = {"default": {"SECRET", "MODE"}, "other": set[str]()}
Caps = dict[str, tuple[float, float]]


class Laws:
    """Checks every decision, every write when it is sent, and every create when it lands."""

    def __init__(self, cluster: Cluster, table: Table, max_jobs: int) -> None:
        self._cluster = cluster
        self._max_jobs = max_jobs
        self._table = table
        self.replicas: dict[int, Replica] = {}
        self.leader: Replica | None = None
        self.removals = RemovalLaws(cluster, table)
        self.touched = self.removals.touched  # tasks with a Job that somebody deleted
        self.tampered: set[int] = set()
        self.met: set[int] = set()  # tasks with a foreign Job under one of their names
        self.strays: set[str] = set()
        self.unseen: set[str] = set()
        self.made: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.relaunches = self.deletes = 0
        self.breach: AssertionError | None = None
        self._orders: dict[str, LaunchSpec] = {}
        self._listed: dict[int, frozenset[int]] = {}  # rows that a replica has listed so far
        self.term = 0
        self._terms: dict[str, int] = {}  # the term in which a create was decided first
        self._decided_at: dict[str, int] = {}
        self._peaks: dict[str, Caps] = {}
        self._doubted: set[tuple[int, str]] = set()
        self._refused: dict[tuple[int, str], float] = {}  # when
        self.crashes: Counter[tuple[int, int]] = Counter()

    @property
    def refusals(self) -> int:
        """Creates that were refused. Each of their rows is tried again after REFUSED_SECONDS, for ever."""
        return self.answers["409"] + self.answers["422"]

    # events of the world

    def caps_changed(self) -> None:
        now = caps_of(list(self._table.queues.values()))
        self._peaks = {name: highest(peak, now) for name, peak in self._peaks.items()}

    def first_order(self, row: Row) -> str:
        """Name of the Job of attempt 1, launch 1."""
        identity = task_identity(DATABASE_ID, row.task.id, row.task.created_at)
        return job_name("dispatcher", row.task.id, identity, 1, 1)

    def crashed(self, container: Container) -> None:
        """A container that held its row failed, and so its Job failed."""
        if container.token is not None:
            self.crashes[container.task_id, container.at[0]] += 1

    def deleted_by_hand(self, job: Job) -> None:
        row = self._table.rows.get(job.task_id)
        self.touched.add(job.task_id)
        if row is not None and job.is_finished and row.task.attempt == job.attempt:
            self.tampered.add(job.task_id)

    def entered(self, container: Container) -> None:
        """A container got its row. A task with max_failures 1 must not have started before in this attempt."""
        starts = self._table.starts[container.task_id, container.at[0]]
        assert len(starts) == len(set(starts)), f"I3: a launch of task {container.task_id} was accepted twice"
        if self._table.rows[container.task_id].task.max_failures == 1:
            assert len(starts) == 1, f"I3: task {container.task_id} was started {len(starts)} times"

    def decided(self, replica: Replica, look: Look, decision: Decision) -> None:
        self.unseen |= {job.uid for job in replica.view.hidden()}
        now = highest(caps_of(list(self._table.queues.values())), caps_of(look.frame.queues))
        for order in decision.orders:
            name = name_of(order, "dispatcher")
            self._orders[name] = order
            self._decided_at[name] = self._cluster.version
            if not order.launch.is_repeat or name not in self._peaks:
                self._peaks[name], self._terms[name] = now, self.term
            assert is_due(order, look), f"I4: {name} was launched although its row was not to be"
        assert not (decision.orders and replica.seen and replica.seen.stale), "I6: launched by a view that is too old"
        collided = {id_ for id_, hold in decision.plan.holds.items() if hold.reason is HoldReason.NAME_COLLISION}
        assert collided <= self.met, "I19: NameCollision, and nobody else has its name"
        self._listed[id(replica)] = self._listed.get(id(replica), frozenset()) | look.listed
        check_reasons(look, decision, replica.dispatch.picture.resting().keys() - look.read, self._listed[id(replica)])

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        """Keeps a breach. The task of a create would raise it only in the next cycle, or never."""
        try:
            yield
        except AssertionError as breach:
            self.breach = self.breach or breach
            raise

    def sent(self, api: Api, manifest: Manifest) -> None:
        with self._noted():
            self._check_sent(api, manifest)

    def landed(self, api: Api, manifest: Manifest, answer: ApiAnswer) -> None:
        with self._noted():
            self._check_landed(api, manifest, answer)

    def removing(self, api: Api, end: ObjectWrite) -> None:
        with self._noted():
            replica = self.replicas[id(api)]
            assert replica is self.leader, f"I6: {end.name} was removed by a replica that does not lead"
            self.deletes += 1
            self.removals.check(replica, end)

    def _check_sent(self, api: Api, manifest: Manifest) -> None:
        name, replica = manifest["metadata"]["name"], self.replicas[id(api)]
        assert replica is self.leader, f"I6: {name} was sent by a replica that does not lead"
        order = self._orders[name]
        rested = api.network.clock() - self._refused.get((id(api), row_key(order)), -inf)
        assert rested >= REFUSED_SECONDS, f"I8: {name} is sent again {rested} s after it was refused"
        both: list[Held | Late] = [*api.network.late, *api.network.held]
        underway = [on_its_way(one) for one in both if one.api is api]
        others = {one for one, task in underway if task == order.task.id and one != name}
        # A POST that was given up may land at any time. Where its repeat has made the Job, it changes nothing.
        others -= replica.seen.jobs.keys() if replica.seen else set()
        assert not others, f"I12: {name} is sent while what became of {others} is not known"
        check_container(manifest, order)

    def heard(self, api: Api, name: str, answer: ApiAnswer) -> None:
        """Notes that a process got a 422 for a create, and then a 404 for the GET of the same Job."""
        key = id(api), row_key(self._orders[name]) if name in self._orders else name
        if answer.status == 422:
            self._doubted.add(key)
        elif answer.status == 404 and key in self._doubted:
            self._refused[key] = api.network.clock()

    def _check_landed(self, api: Api, manifest: Manifest, answer: ApiAnswer) -> None:
        order = self._orders[manifest["metadata"]["name"]]
        self.answers[str(answer.status)] += 1
        if answer.status != 201:
            return
        job = self._cluster.jobs[manifest["metadata"]["name"]]
        is_stray = self.replicas[id(api)] is not self.leader or self._terms[job.name] != self.term
        if is_stray:
            self.strays.add(job.uid)
        self.made[job.name] += 1
        self.relaunches += job.launch > 1
        if is_stray:
            return
        assert self.made[job.name] == 1 or job.task_id in self.touched, f"I2: {job.name} was made twice"
        self._check_single(job)
        self._check_budgets(job, order)
        self._check_caps(job)

    # the laws of a create that landed

    def _check_single(self, job: Job) -> None:
        others = [
            one.name
            for one in self._cluster.unfinished()
            if one.identity == job.identity and one.name != job.name and self._is_in_the_way(one, job)
        ]
        assert not others or job.task_id in self.tampered, f"I1: {job.name} beside {others}"

    def _is_in_the_way(self, other: Job, job: Job) -> bool:
        """Whether another Job forbids this one. A stray does if it landed before this launch was decided."""
        if self._counts(other):
            return True
        is_told = other.uid in self.strays and job.task_id not in self.touched
        return is_told and self._cluster.made_at[other.name] <= self._decided_at[job.name]

    def _check_budgets(self, job: Job, order: LaunchSpec) -> None:
        """Checks that launch numbers grow and are bounded, and that failures and unstarted launches are counted."""
        task, key = order.task, (job.task_id, job.attempt)
        most = RULES.max_launches + task.max_failures + 20 + job.unplaced_before
        assert task.launch < job.launch <= most, f"I3: launch {job.launch} of a row at {task.launch}"
        if job.task_id in self.touched:
            return
        crashes = self.crashes[key]
        assert crashes + task.failures < task.max_failures, f"I3: {job.name} after {crashes} crashes"
        started = self._table.starts.get(key, [])
        unstarted = [
            one.launch
            for one in self._cluster.of_task(job.task_id)
            if one.attempt == job.attempt and one.phase is Phase.FAILED and not (one.was_disrupted or one.is_unplaced)
            and one.launch not in started and one.uid not in self.strays
        ]  # fmt: skip
        assert len(unstarted) < RULES.max_launches, f"I3: {job.name} after {unstarted} never started"

    def _check_caps(self, job: Job) -> None:
        """Checks the caps for Jobs that the leader made. Only strays may exceed a cap."""
        counted = [one for one in self._cluster.unfinished() if self._counts(one)]
        of_queue = [one for one in counted if one.queue == job.queue]
        of_submitter = [one for one in of_queue if one.submitted_by == job.submitted_by]
        most, most_of_submitter = self._peaks[job.name].get(job.queue, (inf, inf))
        assert len(counted) <= self._max_jobs, f"I5: {len(counted)} Jobs"
        assert len(of_queue) <= most, f"I5: {len(of_queue)} Jobs of {job.queue}"
        assert len(of_submitter) <= most_of_submitter, f"I5: {len(of_submitter)} Jobs of {job.submitted_by}"

    def _counts(self, job: Job) -> bool:
        return job.uid not in self.strays and job.uid not in self.unseen


def on_its_way(one: Held | Late) -> tuple[str, int]:
    """Name and task of a create that may still land."""
    if one.manifest is None:
        return "", 0
    return one.manifest["metadata"]["name"], int(one.manifest["metadata"]["labels"]["dispatcher.internal/task-id"])


def row_key(order: LaunchSpec) -> str:
    return f"{order.task.id}/{order.task.attempt}"


def caps_of(queues: Sequence[Queue]) -> Caps:
    """By queue: its cap, and the cap of each submitter in it."""
    return {
        queue.name: (
            inf if queue.max_jobs is None else queue.max_jobs,
            inf if queue.max_jobs_per_submitter is None else queue.max_jobs_per_submitter,
        )
        for queue in effective_queues(queues).values()
    }


def highest(one: Caps, other: Caps) -> Caps:
    """The higher cap of each queue. A queue that is not declared has no cap."""
    none = inf, inf
    pairs = {name: (one.get(name, none), other.get(name, none)) for name in one | other}
    return {name: (max(a[0], b[0]), max(a[1], b[1])) for name, (a, b) in pairs.items()}


def is_due(order: LaunchSpec, look: Look) -> bool:
    """Whether the row was read as waiting or processing, as due, and in a queue that is not paused."""
    task, queue = look.rows[order.task.id].task, effective_queues(look.frame.queues).get(order.task.queue)
    is_paused = queue is not None and queue.paused_until is not None and queue.paused_until > look.now
    is_early = task.run_at is not None and task.run_at > look.now
    return task.status in {Status.WAITING, Status.PROCESSING} and not is_paused and not is_early


def check_reasons(look: Look, decision: Decision, resting: Set[int], listed: Set[int]) -> None:
    """I19: each row that was read is terminal, launched, or held for one reason. So is each resting row.

    The other listed rows are held by their kind, or were when a wide read listed them: its counts stand until the next
    one, also for rows that were launched meanwhile.
    """
    plan = decision.plan
    alive = {id_ for id_ in look.read if id_ in look.rows and look.rows[id_].task.finished_at is None}
    launched = {candidate.task.id for candidate in plan.launches}
    assert launched.isdisjoint(plan.holds), "I19: held and launched"
    assert alive == launched | plan.holds.keys(), "I19: a row that was read has no reason"
    waiting = [id_ for id_ in plan.holds if look.rows[id_].task.status is Status.WAITING]
    assert set(decision.resting) <= resting, "I19: a row rests that has news"
    passed = sum(decision.held.values()) - len(waiting) - len(decision.resting)
    assert 0 <= passed <= len(listed), f"I19: {passed} reasons for {len(listed)} rows"
    for id_, hold in plan.holds.items():
        task, queue = look.rows[id_].task, effective_queues(look.frame.queues).get(look.rows[id_].task.queue)
        if hold.reason is HoldReason.NOT_DUE:
            assert task.run_at is not None, "I19: NotDue, and it was due"
            assert task.run_at > look.now, "I19: NotDue, and it was due"
        if hold.reason is HoldReason.PAUSED:
            assert queue is not None, "I19: Paused by no queue"
            assert queue.paused_until is not None, "I19: Paused, and it is open"
            assert queue.paused_until > look.now, "I19: Paused, and it is open"


def check_container(manifest: Manifest, order: LaunchSpec) -> None:
    """I17: the container gets exactly the variables of contract, template and row, unchanged."""
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    seen, request = seen_env(container), order.request
    own = TEMPLATES_OWN[order.task.template]
    assert set(seen) == CONTRACT | own | PASSED.keys() | request.env.keys(), "I17: another set of variables"
    for name, value in (PASSED | request.env).items():
        assert seen[name] == value, f"I17: {name} arrives as {seen[name]!r}"
    for field in ("command", "args"):
        if field in request.spec:
            assert seen_words(container, field) == request.spec[field], f"I17: {field} does not arrive as it is"
    told = seen["TASK_ID"], seen["TASK_ATTEMPT"], seen["TASK_LAUNCH"], seen["TASK_START_KEY"]
    wanted = order.task.id, order.task.attempt, order.launch.number, order.start_key
    assert told == tuple(map(str, wanted)), f"I17: the container is told {told}"
