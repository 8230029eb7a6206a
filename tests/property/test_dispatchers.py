"""Two dispatchers, their rows and a cluster, with events in any order. The laws hold after every step. After the faults
every row and every Job comes to its end.
"""

import sys
from collections import Counter
from datetime import timedelta
from typing import Final

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from dispatcher.model.tasks import Queue
from tests.property import disturbances
from tests.property.api import Outcome
from tests.property.endings import check_end
from tests.property.new_tasks import any_tasks, runnable_tasks
from tests.property.profiles import WORLD
from tests.property.replica import Replica
from tests.property.rows import NewTask
from tests.property.world import FAULTS, NAMES, QUEUES, LaunchFault, World

FLOOD: Final = 250
BAD_TEMPLATES: Final = ("broken", "unknown")
SEEN: Counter[str] = Counter()

numbers = st.integers(0, 7)
queues = st.sampled_from(QUEUES)
replicas = st.sampled_from(NAMES)
thens = st.sampled_from(["on", "on", "done", "fresh", "look", "nothing"])
seconds = st.sampled_from([0, 1, 5, 12, 31, 61, 130])
launch_faults = st.dictionaries(st.integers(1, 8), st.sampled_from(LaunchFault), max_size=4)
caps = st.none() | st.integers(0, 3)
in_flight = st.sampled_from([Outcome.LATE, Outcome.HELD, Outcome.LATE, Outcome.HELD, Outcome.ANSWER_LOST, Outcome.LOST])
lands = st.sampled_from(["at once", "later", "never"])
outcomes = st.sampled_from([outcome for outcome in Outcome if outcome is not Outcome.FINE])
answers = st.sampled_from([outcome for outcome in Outcome if outcome is not Outcome.HELD])


class Dispatchers(RuleBasedStateMachine):
    """All events that may happen. `laws` checks the effect of each.

    Hypothesis sorts rules by their names. So a rule with a new name changes the examples of the gate.
    """

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @initialize(some=st.lists(any_tasks(), min_size=1, max_size=4), launch_faults=launch_faults)
    def begin(self, some: list[NewTask], launch_faults: dict[int, LaunchFault]) -> None:
        self.world.launch_faults = launch_faults
        for new_task in some:
            self.world.insert(new_task, 2)
        self.world.tick("A")

    @rule(new_task=any_tasks(), delay=st.none() | st.integers(-60, 300), count=st.sampled_from([1, 3, FLOOD]))
    def insert(self, new_task: NewTask, delay: int | None, count: int) -> None:
        """Inserts rows. Rows that can never run may be more than the first window of a look."""
        count = count if new_task.template in BAD_TEMPLATES and len(self.world.table.rows) < FLOOD else min(count, 3)
        if delay is not None:
            new_task = msgspec.structs.replace(new_task, run_at=self.world.clock.of_rows + timedelta(seconds=delay))
        self.world.insert(new_task, count)
        self._then("on")

    @rule(name=queues, most=caps, of_submitter=caps, pause=st.sampled_from([None, None, None, 20]))
    def declare(self, name: str, most: int | None, of_submitter: int | None, pause: int | None) -> None:
        if (most, of_submitter) == (0, 0):
            self.world.remove_queue(name)
            return
        until = None if pause is None else self.world.clock.of_rows + timedelta(seconds=pause)
        self.world.set_queue(Queue(name, max_jobs=most, max_jobs_per_submitter=of_submitter, paused_until=until))

    @rule(then=thens, seconds=seconds)
    def tick(self, then: str, seconds: int) -> None:
        self._then(then)
        self.world.pass_time(seconds)

    @rule(name=replicas, stage=st.sampled_from(["dispatch", "sweep"]))
    def tick_any(self, name: str, stage: str) -> None:
        self.world.tick(name, stage)

    @rule(name=replicas, some=st.lists(outcomes, min_size=1, max_size=3), then=thens)
    def trouble(self, name: str, some: list[Outcome], then: str) -> None:
        self.world.replicas[name].api.outcomes.extend(some)
        self._then(then)

    @precondition(lambda self: self.world.network.held)
    @rule(number=numbers, outcome=answers)
    def release(self, number: int, outcome: Outcome) -> None:
        if (held := disturbances.pick(self.world.network.held, number)) is not None:
            self.world.network.release(held, outcome)
        self.world.go_on()

    @precondition(lambda self: self.world.network.late)
    @rule(number=numbers)
    def land(self, number: int) -> None:
        if (late := disturbances.pick(self.world.network.late, number)) is not None:
            self.world.network.land(late)

    @rule(name=replicas, kind=st.sampled_from(["jobs", "jobs", "pods", "nodes"]), most=st.integers(1, 5))
    def deliver(self, name: str, kind: str, most: int) -> None:
        self.world.replicas[name].view.deliver(kind, most)

    @rule(name=replicas, act=st.sampled_from(["all", "all", "all", "list", "cut", "skip-jobs", "skip-pods"]))
    def watch(self, name: str, act: str) -> None:
        view = self.world.replicas[name].view
        if act == "all":
            view.catch_up()
        elif act == "list":
            view.relist()
        elif act.startswith("skip-"):
            view.lose_event(act.removeprefix("skip-"))
        else:
            view.is_cut = True

    @rule(name=replicas, act=st.sampled_from(["away", "standby", "slow", "answer"]))
    def database(self, name: str, act: str) -> None:
        database = self.world.replicas[name].database
        if act == "slow":
            database.is_slow = True
        elif act == "answer":
            database.answer()
            self.world.go_on()
        else:
            database.fault = {"away": FAULTS[0], "standby": FAULTS[1]}[act]

    @rule(what=st.sampled_from(["away", "quota", "terminating"]))
    def api_server(self, what: str) -> None:
        world = self.world
        world.network.is_away = what == "away"
        world.cluster.is_quota_full, world.cluster.is_terminating = what == "quota", what == "terminating"

    @rule(number=numbers, act=st.sampled_from(disturbances.OF_CONTAINERS), then=thens)
    def container(self, number: int, act: str, then: str) -> None:
        disturbances.act_container(self.world, number, act)
        self._then(then)

    @rule(number=numbers, act=st.sampled_from(disturbances.OF_PODS), then=thens)
    def pod(self, number: int, act: str, then: str) -> None:
        disturbances.act_pod(self.world, number, act)
        self._then(then)

    @rule(number=numbers, act=st.sampled_from(disturbances.OF_JOBS), then=thens)
    def job(self, number: int, act: str, then: str) -> None:
        disturbances.act_job(self.world, number, act)
        self._then(then)

    @rule(number=numbers, act=st.sampled_from(disturbances.OF_ROWS), then=thens)
    def row(self, number: int, act: str, then: str) -> None:
        disturbances.act_row(self.world, number, act)
        self._then(then)

    @rule(name=replicas, new_task=runnable_tasks(), outcome=in_flight, lands=lands)
    def depose(self, name: str, new_task: NewTask, outcome: Outcome, lands: str) -> None:
        """Changes the leader, at once or after a time without one. The old leader has a create on its way."""
        self._send(self.world.laws.leader, new_task, outcome)
        self.world.next_leader = name
        self.world.lead(None if lands == "never" else name)
        self._land_all(lands)

    @rule(name=replicas, new_task=runnable_tasks(), outcome=in_flight, lands=lands)
    def crash(self, name: str, new_task: NewTask, outcome: Outcome, lands: str) -> None:
        """Kills a process between two calls. Its create on the way may land."""
        self._send(self.world.replicas[name], new_task, outcome)
        self.world.crash(name, lands_later=lands != "never")
        self._land_all(lands)

    def _send(self, replica: Replica | None, new_task: NewTask, outcome: Outcome) -> None:
        """Makes room, inserts one row, and lets the replica launch it. The create has this outcome."""
        self.world.cluster_turn()
        self.world.insert(new_task)
        if replica is not None:
            replica.view.catch_up()
            replica.api.outcomes.insert(0, outcome)
            self.world.tick(replica.name)

    def _land_all(self, lands: str) -> None:
        """Creates land after the new leader has listed. Their containers start before its view shows them."""
        if lands != "at once":
            return
        self.world.release_all()
        self.world.start_pods()
        self.world.run(to_the_end=False)
        self.world.pass_time(12)
        self._then("look")

    @rule(
        new_task=runnable_tasks(),
        outcome=in_flight,
        act=st.sampled_from(["cancel", "retry", "wait"]),
        is_cut=st.booleans(),
    )
    def move_on(self, new_task: NewTask, outcome: Outcome, act: str, is_cut: bool) -> None:
        """Cancels or retries a row, or waits, while its create is on its way. The watch may be cut."""
        self._send(self.world.laws.leader, new_task, outcome)
        disturbances.act_row(self.world, len(self.world.table.rows) - 1, act)
        if is_cut and (leader := self.world.laws.leader) is not None:
            self.world.release_all()
            leader.view.catch_up()
            leader.view.is_cut = True
        self._then("look")
        self.world.pass_time(130 if is_cut else 1)
        self._then("look")
        self._then("look")

    @rule(
        new_task=runnable_tasks(),
        act=st.sampled_from(["run", "run", "change"]),
        launch_fault=st.sampled_from([LaunchFault.FAILS, LaunchFault.FAILS_AT_FIRST]),
    )
    def look_slowly(self, new_task: NewTask, act: str, launch_fault: LaunchFault) -> None:
        """The rows of a look come late. Until then containers start and end, or another dispatcher leads."""
        if (leader := self.world.laws.leader) is None:
            return
        for id_ in self.world.insert(new_task, 2):
            self.world.launch_faults[id_] = launch_fault
        self._then("fresh")
        self.world.start_pods()
        self.world.insert(new_task, 2)
        leader.database.is_slow = True
        self._then("fresh")
        if act == "run":
            self.world.run(to_the_end=False)
            self.world.run(to_the_end=True)
        else:
            self._lead_for_a_while(leader.name)
        leader.view.catch_up()
        self.world.pass_time(12)
        leader.database.answer()
        self.world.go_on()

    def _lead_for_a_while(self, name: str) -> None:
        for one in ("A" if name == "B" else "B", name):
            self.world.next_leader = one
            self.world.lead(one)
            if one != name:
                self.world.insert(NewTask(priority=-1), 4)
                self._then("fresh")

    @rule(new_task=runnable_tasks(), is_cancelled=st.booleans())
    def delete_all(self, new_task: NewTask, is_cancelled: bool) -> None:
        """Every Job is deleted by somebody. Their Pods stay for a while."""
        self.world.start_pods()
        for job in list(self.world.cluster.unfinished()):
            self.world.delete_by_hand(job)
            if is_cancelled and job.task_id in self.world.table.rows:
                self.world.table.cancel(job.task_id)
        self.world.insert(new_task, 4)
        self._then("fresh")
        self.world.pass_time(61)
        self._then("fresh")

    @rule()
    def turn(self) -> None:
        self.world.turn()

    def _then(self, then: str) -> None:
        """The next step of the leader.

        nothing: no step.
        look: a cycle with the view that the leader has.
        fresh: a cycle with a fresh view.
        on: as fresh, and Pods and containers start.
        done: as on, and started containers end.
        """
        leader = self.world.laws.leader
        if then == "nothing" or leader is None:
            return
        if then != "look":
            leader.view.catch_up()
        self.world.tick(leader.name)
        if then in {"on", "done"}:
            self.world.start_pods()
            self.world.run(to_the_end=then == "done")
            self.world.pass_time(12)

    def teardown(self) -> None:
        """Checks that the run comes to an end, unless it has failed already."""
        try:
            if sys.exc_info()[0] is None:
                SEEN.update(disturbances.facts(self.world))
                check_end(self.world)
        finally:
            self.world.close()


@pytest.mark.slow
@pytest.mark.timeout(0)  # a nightly run takes hours, and the search for the smallest example ends by itself
def test_laws_hold_for_events_in_any_order() -> None:
    SEEN.clear()
    run_state_machine_as_test(Dispatchers, settings=WORLD)
    missing = [event for event, count in SEEN.items() if count == 0]
    assert not missing, f"the runs prove nothing about events that never happened: {missing}"
