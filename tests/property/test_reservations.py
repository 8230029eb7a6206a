"""Holds against a simple model of them.

The model looks at everything each time; the program keeps it in order and looks at what has changed.
"""

from collections.abc import Callable, Iterator
from random import Random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, rule
from msgspec import Struct
from msgspec.structs import replace

from dispatcher.extender.assumed_pods import ASSUMED_TICKS, PodRequest
from dispatcher.extender.book import ReservationBook
from dispatcher.model.cluster import BoundPod, Node, NodeCapacities
from dispatcher.model.reservations import Reservation
from tests.property.profiles import FACT
from tests.rig.builders import NOW

NODES = ("a", "b", "c")
SIZE = {"cpu": 4, "memory": 4}
TARGETS = st.sampled_from(["t1", "t2", "t3"])
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.integers(1, 3), min_size=1)
ASKS = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.integers(0, 3))
KEYS = st.frozensets(TARGETS, max_size=2)


class Charged(Struct):
    """`counts`: it may go to a node with a hold, or a hold came later."""

    keys: frozenset[str]
    asks: dict[str, int]
    until: int
    counts: bool
    open: set[str]


class AgainstTheModel(RuleBasedStateMachine):
    pods: Bundle[PodRequest] = Bundle("pods")

    @initialize()
    def begin(self) -> None:
        self.now, self.number = 0.0, 0
        self.holds = ReservationBook(NodeCapacities())
        self.nodes: dict[str, Node] = {}
        self.reservations: dict[str, Reservation] = {}
        self.landed: set[str] = set()
        self.bound: dict[str, BoundPod] = {}
        self.charges: dict[str, Charged] = {}
        self.ticks = 0

    @rule(name=st.sampled_from(NODES), more=st.integers(0, 2))
    def node_comes(self, name: str, more: int) -> None:
        size = Node(name, NOW, {resource: amount + more for resource, amount in SIZE.items()})
        self.holds.hear_node(self.nodes.get(name), size)
        self.nodes[name] = size

    @rule(name=st.sampled_from(NODES))
    def node_goes(self, name: str) -> None:
        self.holds.hear_node(self.nodes.pop(name, None), None)

    @rule(node=st.sampled_from(NODES), amounts=AMOUNTS, whom=TARGETS, ends=st.integers(0, 30), latched=st.booleans())
    def reserved(self, node: str, amounts: dict[str, int], whom: str, ends: int, latched: bool) -> None:
        self.number += 1
        name = f"r{self.number % 4}"
        made = Reservation(
            name, f"u{self.number}", node, amounts, whom, self.now + ends, phase="Landed" * (latched and ends > 20)
        )
        self._put(made)

    @rule(number=st.integers(0, 3), amounts=AMOUNTS, ends=st.integers(0, 30))
    def changed(self, number: int, amounts: dict[str, int], ends: int) -> None:
        if was := self.reservations.get(f"r{number}"):
            self._put(replace(was, amounts=amounts, ends_at=self.now + ends))

    def _put(self, made: Reservation) -> None:
        self.holds.hear_reservation(self.reservations.get(made.name), made)
        self.reservations[made.name] = made
        self.charges = {name: replace(one, counts=True) for name, one in self.charges.items()}
        if made.has_landed or any(made.target in pod.keys for pod in self.bound.values()):
            self.landed.add(made.uid)

    @rule(number=st.integers(0, 3))
    def released(self, number: int) -> None:
        if was := self.reservations.pop(f"r{number}", None):
            self.holds.hear_reservation(was, None)

    @rule(target=pods, asks=ASKS, keys=KEYS, is_exempt=st.sampled_from([False, False, True]), again=st.booleans(),
          offered=st.sampled_from([NODES, NODES, ("a", "b"), ("c",)]))  # fmt: skip
    def asked(
        self, asks: dict[str, int], keys: frozenset[str], is_exempt: bool, again: bool, offered: tuple[str, ...]
    ) -> PodRequest:
        self.number += not again
        request = PodRequest(f"p{self.number}", keys, asks, is_exempt)
        self.charges.pop(request.name, None)
        passed = set(offered) - set(self._refused(request))
        assert set(offered) - self.holds.filter_nodes(request, offered, self.now).keys() == passed
        if passed:
            is_coming = any(map(self._active, passed))
            is_precise = any(len(self._active(node)) > 1 for node in NODES)
            possible = passed if is_precise else set(NODES)
            self.charges[request.name] = Charged(keys, asks, self.ticks + ASSUMED_TICKS, is_coming, possible)
        return request

    @rule(asks=ASKS, keys=KEYS)
    def asked_in_doubt(self, asks: dict[str, int], keys: frozenset[str]) -> None:
        """A Pod that is refused every node gets no node."""
        request = PodRequest("in doubt", keys, asks)
        of_others = {node for node in NODES if any(one.target not in keys for one in self._active(node))}
        assert self.holds.filter_nodes_in_doubt(request, of_others, self.now).keys() == of_others
        assert set(self.holds.active.nodes_of_others(request, self.now)) == of_others

    @rule(request=consumes(pods), node=st.sampled_from(NODES))
    def is_bound(self, request: PodRequest, node: str) -> None:
        made = BoundPod(request.name, node, request.asks, tuple(request.keys))
        self.holds.hear_pod(self.bound.get(request.name), made)
        self.bound[request.name] = made
        self.charges.pop(request.name, None)
        self.landed |= {one.uid for one in self.reservations.values() if one.target in request.keys}

    @rule(chance=st.randoms(use_true_random=False))
    def ends(self, chance: Random) -> None:
        if self.bound:
            self.holds.hear_pod(self.bound.pop(chance.choice(sorted(self.bound))), None)

    @rule(seconds=st.sampled_from([0.5, 1, 5, 10]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(ticks=st.sampled_from([1, ASSUMED_TICKS // 2, ASSUMED_TICKS]))
    def is_at_work(self, ticks: int) -> None:
        for _ in range(ticks):
            self.holds.tick()
        self.ticks += ticks

    def _active(self, node: str) -> list[Reservation]:
        return [
            one for one in self.reservations.values()
            if one.node == node and one.uid not in self.landed and self.now < one.ends_at
        ]  # fmt: skip

    def _refused(self, request: PodRequest) -> Iterator[str]:
        on_the_way = [one for one in self.charges.values() if self.ticks < one.until and one.counts]
        for node in NODES if not request.is_exempt else ():
            active = self._active(node)
            for resource in {resource for one in active for resource in one.amounts}:
                size = self.nodes[node].size.get(resource, 0) if node in self.nodes else 0
                used = sum(pod.asks.get(resource, 0) for pod in self.bound.values() if pod.node == node)
                used = used if node in self.nodes and resource in self.nodes[node].size else 0
                held = sum(one.amounts.get(resource, 0) for one in active if one.target not in request.keys)
                asked = request.asks.get(resource, 0)
                coming = sum(self._beyond(node, resource, request, on_the_way))
                if asked and held and asked + coming > size - used - held:
                    yield node

    def _beyond(self, node: str, resource: str, request: PodRequest, on_the_way: list[Charged]) -> Iterator[int]:
        """The amount that each other Pod on its way may take on the node.

        If nothing is reserved there for this request, the amount is all that the other Pod asks for. Otherwise the
        amount is what is not reserved for the other Pod, and each reservation counts once.
        """
        unclaimed = [one for one in self._active(node) if one.target not in request.keys]
        is_own = len(unclaimed) < len(self._active(node))
        for other in on_the_way:
            if not is_own:
                yield other.asks.get(resource, 0)
            elif node in other.open:
                theirs = [one for one in unclaimed if one.target in other.keys]
                unclaimed = [one for one in unclaimed if one.target not in other.keys]
                yield max(0, other.asks.get(resource, 0) - sum(one.amounts.get(resource, 0) for one in theirs))


TestAgainstTheModel = AgainstTheModel.TestCase
TestAgainstTheModel.settings = FACT


@pytest.mark.parametrize("seed", range(10))
def test_long_walk_agrees_with_the_model(seed: int) -> None:
    """Most runs of the state machine are short, so they compare few Pods with a node that has a reservation."""
    chance, machine, asked = Random(seed), AgainstTheModel(), list[PodRequest]()
    machine.begin()

    def amounts(least: int) -> dict[str, int]:
        return {one: chance.randint(least, 3) for one in ("cpu", "memory") if chance.random() < 0.7} or {"gpu": 1}

    def ask() -> None:
        keys = frozenset(one for one in ("t1", "t2", "t3") if chance.random() < 0.3)
        offered = chance.choice([NODES, NODES, ("a", "b"), ("c",)])
        made = machine.asked(amounts(0), keys, chance.random() < 0.1, chance.random() < 0.3, offered)
        assert isinstance(made, PodRequest)
        asked.append(made)

    def reserve() -> None:
        whom = chance.choice(["t1", "t2", "t3"])
        machine.reserved(chance.choice(NODES), amounts(1), whom, chance.randint(0, 30), chance.random() < 0.2)

    moves: dict[Callable[[], object], int] = {
        ask: 20,
        reserve: 8,
        lambda: machine.node_comes(chance.choice(NODES), chance.randint(0, 2)): 6,
        lambda: machine.node_goes(chance.choice(NODES)): 1,
        lambda: machine.changed(chance.randrange(4), amounts(1), chance.randint(0, 30)): 2,
        lambda: machine.released(chance.randrange(4)): 1,
        lambda: asked and machine.is_bound(asked.pop(), chance.choice(NODES)): 2,
        lambda: machine.ends(chance): 4,
        lambda: machine.time_passes(chance.choice([0.5, 1, 5])): 1,
        lambda: machine.is_at_work(chance.choice([1, ASSUMED_TICKS // 2])): 3,
    }
    for move in chance.choices(list(moves), list(moves.values()), k=500):
        move()
