"""Room, after any changes of nodes and Pods, against a slow and simple rule: look at every node and every Pod."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dispatcher.admission.room import Room, RoomIndex, room_of
from dispatcher.model.cluster import BoundPod, Node, PriorityClass
from dispatcher.model.launches import PodKind
from dispatcher.model.needs import CORDON, PodNeeds
from dispatcher.model.resources import NOTHING, Amounts
from tests.property.profiles import STORY
from tests.unit.rooms import NO_NODE, node_for

NAMES = st.sampled_from([f"node-{number}" for number in range(6)])
RESOURCES = ("cpu", "memory", "pods", "example.com/gpu")
AMOUNTS = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 4), max_size=4)
PRIORITIES = st.sampled_from([-5, 0, 1000])
CLASSES = [PriorityClass("low", -5), PriorityClass("high", 1000), PriorityClass("polite", 1000, never_preempts=True)]
NEEDS = st.builds(
    lambda asks, name: PodNeeds(
        tuple(sorted((key, amount) for key, amount in {**asks, "pods": 1}.items() if amount)), priority_class=name
    ),
    AMOUNTS,
    st.sampled_from(["", "low", "high", "polite"]),
)


class Rooms(RuleBasedStateMachine):
    """An index that lives as long as the program, and cycles that look at it."""

    def __init__(self) -> None:
        super().__init__()
        self.index = RoomIndex([])
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, BoundPod] = {}
        for one in CLASSES:
            self.index.hear_priority_class(None, one)

    @rule(name=NAMES, size=AMOUNTS, cordoned=st.booleans())
    def node_is_there(self, name: str, size: dict[str, int], cordoned: bool) -> None:
        after = Node(name, size=size, taints=(CORDON,) if cordoned else ())
        self.index.hear_node(self.nodes.get(name), after)
        self.nodes[name] = after

    @rule(name=NAMES)
    def node_is_gone(self, name: str) -> None:
        if name in self.nodes:
            self.index.hear_node(self.nodes.pop(name), None)

    @rule(pod=st.sampled_from("abcdefgh"), node=NAMES, asks=AMOUNTS, priority=PRIORITIES, nominated=st.booleans())
    def pod_uses_room(self, pod: str, node: str, asks: dict[str, int], priority: int, nominated: bool) -> None:
        place: dict[str, Any] = {"node": "", "nominated": node} if nominated else {"node": node}
        after = BoundPod(name=pod, asks=asks, priority=priority, **place)
        self.index.hear_pod(self.pods.get(pod), after)
        self.pods[pod] = after

    @rule(pod=st.sampled_from("abcdefgh"))
    def pod_is_gone(self, pod: str) -> None:
        if pod in self.pods:
            self.index.hear_pod(self.pods.pop(pod), None)

    @rule(wanted=NEEDS)
    def room_is_where_the_simple_rule_says(self, wanted: PodNeeds) -> None:
        found = node_for(Room(self.index.view()), wanted)
        possible = {name for name in self.nodes if self.has_room(name, wanted)}
        assert found in (possible or {NO_NODE})

    @rule(waiting=st.lists(NEEDS, max_size=12))
    def our_launches_never_take_more_than_there_is(self, waiting: list[PodNeeds]) -> None:
        """Also: a Pod waits as a probe only if no node has room beside what the Pods before it took."""
        left = room_of(self.index.view(), {})
        for needs in waiting:
            node = node_for(left, needs)
            if node == NO_NODE:
                for name in self.nodes:
                    assert not self.has_room(name, needs, left.taken.get(name, {}))
            else:
                assert self.has_room(node, needs, left.taken.get(node, {}))
            left = left.with_launches(PodKind("q", "team_a", "s", needs))

    @invariant()
    def view_is_the_same_until_something_changes(self) -> None:
        assert self.index.view() is self.index.view()

    def has_room(self, name: str, needs: PodNeeds, taken: Amounts = NOTHING) -> bool:
        node = self.nodes[name]
        threshold = {"": 0, "low": -5, "high": 1000, "polite": -(2**31)}[needs.priority_class]
        used = [pod for pod in self.pods.values() if name in (pod.node, pod.nominated) and pod.priority >= threshold]
        return not node.taints and all(
            node.size.get(resource, 0) - sum(pod.asks.get(resource, 0) for pod in used) - taken.get(resource, 0)
            >= amount
            for resource, amount in needs.asks
        )


TestRooms = Rooms.TestCase
TestRooms.settings = STORY


@given(st.dictionaries(NEEDS, st.integers(1, 9), min_size=1, max_size=8))
def test_many_equal_launches_at_once_are_the_same_as_one_after_another(waiting: dict[PodNeeds, int]) -> None:
    index = RoomIndex([])
    for one in CLASSES:
        index.hear_priority_class(None, one)
    for number in range(3):
        index.hear_node(None, Node(f"n{number}", size=dict.fromkeys(RESOURCES, 3)))
    pods = {PodKind("q", "t", "s", needs): count for needs, count in waiting.items()}
    at_once, left = room_of(index.view(), pods), Room(index.view())
    for pod, count in pods.items():
        for _ in range(count):
            left = left.with_launches(pod)
    assert (at_once.taken, at_once.waiting) == (left.taken, left.waiting)
