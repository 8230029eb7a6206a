"""Holds behind a scheduler that asks them, and that they hear of late: what is held stays free."""

from dataclasses import dataclass
from functools import partial
from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dispatcher.extender.assumed_pods import ASSUMED_TICKS, PodRequest
from dispatcher.extender.book import ReservationBook
from dispatcher.extender.waiting_pods import WaitingPods
from dispatcher.model.cluster import BoundPod, Node, NodeCapacities
from dispatcher.model.reservations import Reservation, key_of
from tests.property.profiles import FACT
from tests.rig.builders import NOW

SCARCE = ("cpu", "memory")
NODES = ("a", "b")
SIZE = {"cpu": 4, "memory": 4}
SMALL = st.fixed_dictionaries(dict.fromkeys(SCARCE, st.sampled_from([0, 1, 1, 2, 4])))
WITHIN_SECONDS = 3
"""At most so long from filter until it is seen that a Pod is bound, or known that it is not."""
NOBODY = PodRequest("nobody", (), {})


@dataclass(frozen=True)
class OnTheWay:
    since: int
    request: PodRequest
    node: str


class BehindAScheduler(RuleBasedStateMachine):
    """A scheduler that fits Pods by what it knows at once, and extender and cluster that hear of it later.

    Pods end, bindings fail, reservations expire, are deleted and land.
    """

    @initialize()
    def begin(self) -> None:
        self.number, self.now = 0, 0
        self.ran: set[str] = set()
        self.holds = ReservationBook(NodeCapacities())
        self.turned_away = WaitingPods()
        self.free = {node: dict(SIZE) for node in NODES}
        self.held: dict[str, Reservation] = {}
        self.on_the_way: list[OnTheWay] = []
        self.charged: dict[str, int] = {}
        self.waits: dict[str, tuple[PodRequest, frozenset[str]]] = {}
        self.bound: dict[str, BoundPod] = {}
        for node in NODES:
            self.holds.hear_node(None, Node(node, NOW, SIZE))

    @rule(node=st.sampled_from(NODES), resource=st.sampled_from(SCARCE), amount=st.integers(1, 4),
          seconds=st.integers(5, 30), chance=st.randoms(use_true_random=False))  # fmt: skip
    def reserved(self, node: str, resource: str, amount: int, seconds: int, chance: Random) -> None:
        """Of what is free, whoever is on the way; for somebody new, or for one who has a hold already."""
        left = self.free[node][resource] - sum(one.amounts.get(resource, 0) for one in self._held_on(node))
        if left >= amount:
            self.number += 1
            whom = chance.choice([f"t{self.number}", *sorted(self._targets() - self.ran)])
            made = Reservation(f"r{self.number}", f"u{self.number}", node, {resource: amount}, whom, self.now + seconds)
            self.holds.hear_reservation(None, made)
            self.held[made.name] = made

    @precondition(lambda self: len(self.held) > 1)
    @rule(chance=st.randoms(use_true_random=False))
    def released(self, chance: Random) -> None:
        self.holds.hear_reservation(self.held.pop(chance.choice(sorted(self.held))), None)

    @rule(burst=st.lists(st.tuples(SMALL, st.booleans()), min_size=1, max_size=4),
          chance=st.randoms(use_true_random=False))  # fmt: skip
    def scheduled(self, burst: list[tuple[dict[str, int], bool]], chance: Random) -> None:
        """Pods, of which some have room held for them."""
        for asks, has_hold in burst:
            keys = frozenset({chance.choice(sorted(self._targets()))} if has_hold and self.held else ())
            self.ran |= keys
            self._schedule(asks, keys, chance)

    def _schedule(self, asks: dict[str, int], keys: frozenset[str], chance: Random) -> None:
        self.number += 1
        uid = f"u{self.number}"
        request = PodRequest(f"x/p{self.number}", keys | {key_of("uid", "x", uid)}, asks, uid=uid)
        fit = [node for node in NODES if all(self.free[node][one] >= amount for one, amount in asks.items())]
        refused = self.holds.filter_nodes(request, fit, self.now)
        self.turned_away.note(request, refused)
        assert not any(self._is_all_its_own(node, keys) for node in refused)
        if passed := [node for node in fit if node not in refused]:
            node = chance.choice(passed)
            self._move(request, node, -1)
            self.on_the_way.append(OnTheWay(self.now, request, node))
            self.charged[request.name] = self.now + ASSUMED_TICKS
        else:
            self.waits[request.name] = request, frozenset(refused)

    @precondition(lambda self: self.on_the_way)
    @rule(chance=st.randoms(use_true_random=False))
    def is_seen_bound(self, chance: Random) -> None:
        one = self._arrived(chance)
        self.held = {name: held for name, held in self.held.items() if held.target not in one.request.keys}
        made = BoundPod(one.request.name, one.node, one.request.asks, tuple(one.request.keys))
        self.bound[made.name] = made
        self.holds.hear_pod(None, made)
        self.charged.pop(made.name)

    @precondition(lambda self: self.on_the_way)
    @rule(chance=st.randoms(use_true_random=False))
    def could_not_be_bound(self, chance: Random) -> None:
        """The extender is not told."""
        one = self._arrived(chance)
        self._move(one.request, one.node, 1)

    @precondition(lambda self: self.bound)
    @rule(chance=st.randoms(use_true_random=False))
    def ends(self, chance: Random) -> None:
        over = self.bound.pop(chance.choice(sorted(self.bound)))
        self._move(over, over.node, 1)
        self.holds.hear_pod(over, None)

    @rule(seconds=st.sampled_from([1, 2, ASSUMED_TICKS]))
    def seconds_pass(self, seconds: int) -> None:
        """As long as nobody would be on the way for too long."""
        for _ in range(seconds):
            if all(self.now - one.since < WITHIN_SECONDS for one in self.on_the_way):
                self.now += 1
                self.holds.tick()
        self.held = {name: one for name, one in self.held.items() if self.now < one.ends_at}
        self.charged = {name: ends for name, ends in self.charged.items() if self.now < ends}

    @rule()
    def those_who_could_are_woken(self) -> None:
        """All of them, at once, and nobody else who waits."""
        self.holds.pass_time(self.now)
        self.turned_away.hear(self.holds.changes, self.holds.take_gained())
        attempts = self.turned_away.ready_to_retry(self.holds.would_fit, self.holds.is_bound, self.now)
        told = {one.request.name: one for one in attempts}
        could = [name for name, (request, nodes) in self.waits.items() if any(map(partial(self._fits, request), nodes))]
        assert told.keys() & self.waits.keys() == set(could)
        assert not told.keys() & self.bound.keys()
        for name, one in told.items():
            self.turned_away.forget(one)
            self.waits.pop(name, None)

    @invariant()
    def what_is_held_is_free(self) -> None:
        """Or its target is on the way there."""
        for node in NODES if self.number else ():
            coming = {key for one in self.on_the_way if one.node == node for key in one.request.keys}
            for resource in SCARCE:
                held = [one for one in self._held_on(node) if one.target not in coming]
                assert sum(one.amounts.get(resource, 0) for one in held) <= self.free[node][resource]

    @invariant()
    def a_hold_lasts_until_its_end_and_no_longer(self) -> None:
        for node in NODES if self.number else ():
            self.holds.pass_time(self.now)
            assert {one.name for one in self.holds.active.of_others(NOBODY, node)} == {
                one.name for one in self._held_on(node)
            }

    def _targets(self) -> set[str]:
        return {one.target for one in self.held.values()}

    def _held_on(self, node: str) -> list[Reservation]:
        return [one for one in self.held.values() if one.node == node]

    def _is_all_its_own(self, node: str, keys: frozenset[str]) -> bool:
        return all(one.target in keys for one in self._held_on(node))

    def _fits(self, request: PodRequest, node: str) -> bool:
        return self.holds.would_fit(request, node)

    def _arrived(self, chance: Random) -> OnTheWay:
        return self.on_the_way.pop(chance.randrange(len(self.on_the_way)))

    def _move(self, pod: PodRequest | BoundPod, node: str, sign: int) -> None:
        self.free[node] = {one: self.free[node][one] + sign * pod.asks[one] for one in SCARCE}


TestBehindAScheduler = BehindAScheduler.TestCase
TestBehindAScheduler.settings = FACT
