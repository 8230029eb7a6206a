"""Two dispatchers, their rows and a cluster, in any order of events: the laws hold at every step, and all comes to an
end once the faults are over.
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
from tests.property.api import Fate
from tests.property.endings import check_end
from tests.property.profiles import WORLD
from tests.property.replica import Replica
from tests.property.rows import Wish
from tests.property.wishes import plain, wishes
from tests.property.world import FAULTS, NAMES, QUEUES, Lot, World

FLOOD: Final = 250
HOPELESS: Final = ("broken", "unknown")
SEEN: Counter[str] = Counter()

numbers = st.integers(0, 7)
queues = st.sampled_from(QUEUES)
replicas = st.sampled_from(NAMES)
thens = st.sampled_from(["on", "on", "done", "fresh", "look", "nothing"])
seconds = st.sampled_from([0, 1, 5, 12, 31, 61, 130])
lots = st.dictionaries(st.integers(1, 8), st.sampled_from(Lot), max_size=4)
caps = st.none() | st.integers(0, 3)
in_flight = st.sampled_from([Fate.LATE, Fate.HELD, Fate.LATE, Fate.HELD, Fate.UNHEARD, Fate.LOST])
lands = st.sampled_from(["at once", "later", "never"])
fates = st.sampled_from([fate for fate in Fate if fate is not Fate.FINE])
answers = st.sampled_from([fate for fate in Fate if fate is not Fate.HELD])


class Dispatchers(RuleBasedStateMachine):
    """Everything that may happen; whatever does, `laws` has already looked at it."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()

    @initialize(some=st.lists(wishes(), min_size=1, max_size=4), lots=lots)
    def begin(self, some: list[Wish], lots: dict[int, Lot]) -> None:
        self.world.lots = lots
        for wish in some:
            self.world.insert(wish, 2)
        self.world.tick("A")

    @rule(wish=wishes(), delay=st.none() | st.integers(-60, 300), count=st.sampled_from([1, 3, FLOOD]))
    def insert(self, wish: Wish, delay: int | None, count: int) -> None:
        """Of what can never run it may be more than a look reads at first."""
        count = count if wish.template in HOPELESS and len(self.world.table.rows) < FLOOD else min(count, 3)
        if delay is not None:
            wish = msgspec.structs.replace(wish, run_at=self.world.clock.of_rows + timedelta(seconds=delay))
        self.world.insert(wish, count)
        self._then("on")

    @rule(name=queues, most=caps, of_submitter=caps, pause=st.sampled_from([None, None, None, 20]))
    def declare(self, name: str, most: int | None, of_submitter: int | None, pause: int | None) -> None:
        if (most, of_submitter) == (0, 0):
            self.world.undeclare(name)
            return
        until = None if pause is None else self.world.clock.of_rows + timedelta(seconds=pause)
        self.world.declare(Queue(name, max_jobs=most, max_jobs_per_submitter=of_submitter, paused_until=until))

    @rule(then=thens, seconds=seconds)
    def tick(self, then: str, seconds: int) -> None:
        self._then(then)
        self.world.pass_time(seconds)

    @rule(name=replicas, stage=st.sampled_from(["dispatch", "sweep"]))
    def tick_any(self, name: str, stage: str) -> None:
        self.world.tick(name, stage)

    @rule(name=replicas, some=st.lists(fates, min_size=1, max_size=3), then=thens)
    def trouble(self, name: str, some: list[Fate], then: str) -> None:
        self.world.replicas[name].api.fates.extend(some)
        self._then(then)

    @precondition(lambda self: self.world.wires.held)
    @rule(number=numbers, fate=answers)
    def release(self, number: int, fate: Fate) -> None:
        if (held := disturbances.pick(self.world.wires.held, number)) is not None:
            self.world.wires.release(held, fate)
        self.world.go_on()

    @precondition(lambda self: self.world.wires.late)
    @rule(number=numbers)
    def land(self, number: int) -> None:
        if (late := disturbances.pick(self.world.wires.late, number)) is not None:
            self.world.wires.land(late)

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
            view.skip(act.removeprefix("skip-"))
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
        world.wires.is_away = what == "away"
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

    @rule(name=replicas, wish=plain(), fate=in_flight, lands=lands)
    def depose(self, name: str, wish: Wish, fate: Fate, lands: str) -> None:
        """Another leads, at once or after a while in which nobody does; the last one has something on its way."""
        self._send(self.world.laws.leader, wish, fate)
        self.world.heir = name
        self.world.lead(None if lands == "never" else name)
        self._land_all(lands)

    @rule(name=replicas, wish=plain(), fate=in_flight, lands=lands)
    def crash(self, name: str, wish: Wish, fate: Fate, lands: str) -> None:
        """Between two calls; what was on its way may land."""
        self._send(self.world.replicas[name], wish, fate)
        self.world.crash(name, lands_later=lands != "never")
        self._land_all(lands)

    def _send(self, replica: Replica | None, wish: Wish, fate: Fate) -> None:
        """Makes room, and one more row to launch: its create has this fate."""
        self.world.serve()
        self.world.insert(wish)
        if replica is not None:
            replica.view.catch_up()
            replica.api.fates.insert(0, fate)
            self.world.tick(replica.name)

    def _land_all(self, lands: str) -> None:
        """It lands when the new leader has listed already, starts, and is not told of for a while."""
        if lands != "at once":
            return
        self.world.release_all()
        self.world.bring_up()
        self.world.run(to_the_end=False)
        self.world.pass_time(12)
        self._then("look")

    @rule(wish=plain(), fate=in_flight, act=st.sampled_from(["cancel", "retry", "wait"]), is_cut=st.booleans())
    def move_on(self, wish: Wish, fate: Fate, act: str, is_cut: bool) -> None:
        """A row is cancelled, or begun anew, or waits, while its create is on its way and the watch may be silent."""
        self._send(self.world.laws.leader, wish, fate)
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
        wish=plain(),
        act=st.sampled_from(["run", "run", "change"]),
        lot=st.sampled_from([Lot.FAILS, Lot.FAILS_AT_FIRST]),
    )
    def look_slowly(self, wish: Wish, act: str, lot: Lot) -> None:
        """The rows of a look come late: meanwhile containers start and end, or another leads for a while."""
        if (leader := self.world.laws.leader) is None:
            return
        for id_ in self.world.insert(wish, 2):
            self.world.lots[id_] = lot
        self._then("fresh")
        self.world.bring_up()
        self.world.insert(wish, 2)
        leader.database.is_slow = True
        self._then("fresh")
        if act == "run":
            self.world.run(to_the_end=False)
            self.world.run(to_the_end=True)
        else:
            self._led_by_another(leader.name)
        leader.view.catch_up()
        self.world.pass_time(12)
        leader.database.answer()
        self.world.go_on()

    def _led_by_another(self, name: str) -> None:
        for one in ("A" if name == "B" else "B", name):
            self.world.heir = one
            self.world.lead(one)
            if one != name:
                self.world.insert(Wish(priority=-1), 4)
                self._then("fresh")

    @rule(wish=plain(), is_cancelled=st.booleans())
    def delete_all(self, wish: Wish, is_cancelled: bool) -> None:
        """Somebody deletes every Job, and their Pods take their time."""
        self.world.bring_up()
        for job in list(self.world.cluster.unfinished()):
            self.world.delete_by_hand(job)
            if is_cancelled and job.task_id in self.world.table.rows:
                self.world.table.cancel(job.task_id)
        self.world.insert(wish, 4)
        self._then("fresh")
        self.world.pass_time(61)
        self._then("fresh")

    @rule()
    def turn(self) -> None:
        self.world.turn()

    def _then(self, then: str) -> None:
        """What the leader does next: nothing, look with the view it has, or with a fresh one; or everybody acts."""
        leader = self.world.laws.leader
        if then == "nothing" or leader is None:
            return
        if then != "look":
            leader.view.catch_up()
        self.world.tick(leader.name)
        if then in {"on", "done"}:
            self.world.bring_up()
            self.world.run(to_the_end=then == "done")
            self.world.pass_time(12)

    def teardown(self) -> None:
        """The end belongs to the run, but not to one that has failed already."""
        try:
            if sys.exc_info()[0] is None:
                SEEN.update(disturbances.facts(self.world))
                check_end(self.world)
        finally:
            self.world.close()


@pytest.mark.timeout(0)  # a nightly run takes its time, and a search for the smallest example ends by itself
def test_the_laws_hold_whatever_happens() -> None:
    SEEN.clear()
    run_state_machine_as_test(Dispatchers, settings=WORLD)
    dull = [what for what, count in SEEN.items() if count == 0]
    assert not dull, f"too little happened to prove anything: no {dull}"
