"""Which node a Pod gets: labels that it asks for, taints that it bears, nodes that take none for now."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.contract.played_kubelet import OWN, PlayedKubelet, playing
from tests.contract.played_kubelet_objects import taints
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.sides import BOTH_SIDES

pytestmark = BOTH_SIDES

DISK, AGE = "hand.test.internal/disk", "hand.test.internal/age"
TAINT = {"key": "hand.test.internal/private", "value": "ours", "effect": "NoSchedule"}
OLD, NEW = 0, 1


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def ground(control_plane: ControlPlane) -> AsyncIterator[str]:
    """One namespace for these tests: each ends its Pods."""
    name = await control_plane.create_namespace()
    yield name
    await control_plane.delete_namespace(name)


@pytest_asyncio.fixture(loop_scope="session")
async def hand(control_plane: ControlPlane, ground: str) -> AsyncIterator[PlayedKubelet]:
    async with playing(control_plane, ground) as playing_here:
        yield playing_here


def rule(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def required(*terms: Json) -> Json:
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    }


def preferred(*rules: Json, weight: int = 10) -> Json:
    wish = {"weight": weight, "preference": {"matchExpressions": rules}}
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}}


async def old_and_new(hand: PlayedKubelet) -> list[str]:
    """Two nodes: an old one with a disk, a new one without."""
    return [await hand.join(labels={DISK: "slow", AGE: "7"}), await hand.join(labels={AGE: "3"})]


class TestLabels:
    async def test_a_selector_names_labels_that_the_node_must_have(self, hand: PlayedKubelet) -> None:
        nodes = await old_and_new(hand)
        await hand.make_pod("new", spec={"nodeSelector": {OWN: hand.own, AGE: "3"}})
        await hand.make_pod("none", spec={"nodeSelector": {OWN: hand.own, AGE: "3", DISK: "slow"}})
        assert await hand.placed("new") == nodes[NEW]
        await hand.held("none")

    async def test_a_label_that_a_node_gets_later_counts(self, hand: PlayedKubelet) -> None:
        nodes = await old_and_new(hand)
        await hand.make_pod("a", spec={"nodeSelector": {OWN: hand.own, DISK: "fast"}})
        await hand.held("a")
        await hand.change_node(nodes[NEW], {"metadata": {"labels": {DISK: "fast"}}})
        assert await hand.placed("a") == nodes[NEW]

    async def test_affinity_may_require(self, hand: PlayedKubelet) -> None:
        """Each of these is true of one of the two nodes."""
        nodes = await old_and_new(hand)
        wanted = {
            "in": ({"matchExpressions": [rule(DISK, "In", "fast", "slow")]}, OLD),
            "not-in": ({"matchExpressions": [rule(DISK, "NotIn", "slow")]}, NEW),
            "exists": ({"matchExpressions": [rule(DISK, "Exists")]}, OLD),
            "does-not-exist": ({"matchExpressions": [rule(DISK, "DoesNotExist")]}, NEW),
            "gt": ({"matchExpressions": [rule(AGE, "Gt", "6")]}, OLD),
            "lt": ({"matchExpressions": [rule(AGE, "Lt", "7")]}, NEW),
            "name": ({"matchFields": [rule("metadata.name", "In", nodes[NEW])]}, NEW),
            "not-name": ({"matchFields": [rule("metadata.name", "NotIn", nodes[NEW])]}, OLD),
        }
        for name, (term, _) in wanted.items():
            await hand.make_pod(name, spec=required(term))
        placed = {name: await hand.placed(name) for name in wanted}
        assert placed == {name: nodes[which] for name, (_, which) in wanted.items()}

    async def test_all_rules_of_a_term_must_hold(self, hand: PlayedKubelet) -> None:
        nodes = await old_and_new(hand)
        await hand.make_pod("a", spec=required({"matchExpressions": [rule(DISK, "Exists"), rule(AGE, "Lt", "7")]}))
        await hand.make_pod("b", spec=required({"matchExpressions": [rule(AGE, "Exists"), rule(AGE, "Lt", "7")]}))
        assert await hand.placed("b") == nodes[NEW]
        await hand.held("a")

    async def test_one_of_the_terms_must_hold(self, hand: PlayedKubelet) -> None:
        nodes = await old_and_new(hand)
        never, new = {"matchExpressions": [rule(AGE, "In", "9")]}, {"matchExpressions": [rule(AGE, "In", "3")]}
        await hand.make_pod("a", spec=required(never, new))
        await hand.make_pod("b", spec=required(never))
        assert await hand.placed("a") == nodes[NEW]
        await hand.held("b")

    async def test_selector_and_affinity_must_both_hold(self, hand: PlayedKubelet) -> None:
        await old_and_new(hand)
        await hand.make_pod(
            "a",
            spec={"nodeSelector": {OWN: hand.own, AGE: "3"}} | required({"matchExpressions": [rule(DISK, "Exists")]}),
        )
        await hand.held("a")

    @pytest.mark.parametrize("which", [OLD, NEW])
    async def test_of_two_equal_nodes_the_preferred_one_is_taken(self, hand: PlayedKubelet, which: int) -> None:
        nodes = await old_and_new(hand)
        for number in range(3):
            name = f"pod-{number}"
            await hand.make_pod(name, spec=preferred(rule(DISK, "Exists" if which == OLD else "DoesNotExist")))
            assert await hand.placed(name) == nodes[which]

    async def test_a_preferred_node_that_is_full_is_done_without(self, hand: PlayedKubelet) -> None:
        nodes = await old_and_new(hand)
        await hand.make_pod("first", {"cpu": "4"}, {"nodeSelector": {OWN: hand.own, DISK: "slow"}})
        assert await hand.placed("first") == nodes[OLD]
        await hand.make_pod("second", {"cpu": "1"}, preferred(rule(DISK, "Exists"), weight=100))
        assert await hand.placed("second") == nodes[NEW]


def bears(hand: PlayedKubelet, *tolerations: Json) -> Json:
    return {"tolerations": [*hand.pod_spec()["tolerations"], *tolerations]}


async def an_open_one_for(hand: PlayedKubelet, *tainted: Json) -> str:
    """A node with such taints, that took a Pod which bears everything: so it is known, and open."""
    node = await hand.join(tainted=tainted)
    spec = bears(hand, {"operator": "Exists"}) | {"nodeSelector": {"kubernetes.io/hostname": node}}
    await hand.make_pod(f"on-{node}", spec=spec)
    assert await hand.placed(f"on-{node}") == node
    return node


class TestTaints:
    async def test_it_keeps_off_whoever_does_not_bear_it(self, hand: PlayedKubelet) -> None:
        await an_open_one_for(hand, TAINT)
        await an_open_one_for(hand, TAINT | {"effect": "NoExecute"})
        await hand.make_pod("a")
        await hand.held("a")

    async def test_it_lets_in_who_bears_it(self, hand: PlayedKubelet) -> None:
        node = await hand.join(tainted=[TAINT])
        bearing = {
            "equal": {"key": TAINT["key"], "operator": "Equal", "value": "ours", "effect": "NoSchedule"},
            "equal-of-any-effect": {"key": TAINT["key"], "value": "ours"},
            "exists": {"key": TAINT["key"], "operator": "Exists"},
            "of-any-key": {"operator": "Exists"},
        }
        for name, toleration in bearing.items():
            await hand.make_pod(name, spec=bears(hand, toleration))
        assert {await hand.placed(name) for name in bearing} == {node}

    async def test_it_keeps_off_who_bears_something_else(self, hand: PlayedKubelet) -> None:
        await an_open_one_for(hand, TAINT)
        bearing = {
            "another-value": {"key": TAINT["key"], "operator": "Equal", "value": "theirs", "effect": "NoSchedule"},
            "another-key": {"key": "hand.test.internal/other", "operator": "Exists"},
            "another-effect": {"key": TAINT["key"], "operator": "Exists", "effect": "NoExecute"},
        }
        for name, toleration in bearing.items():
            await hand.make_pod(name, spec=bears(hand, toleration))
        for name in bearing:
            await hand.held(name)

    async def test_all_of_them_must_be_borne(self, hand: PlayedKubelet) -> None:
        await an_open_one_for(hand, TAINT, TAINT | {"key": "hand.test.internal/other"})
        await hand.make_pod("a", spec=bears(hand, {"key": TAINT["key"], "operator": "Exists"}))
        await hand.held("a")

    async def test_when_it_is_taken_away_the_node_is_open(self, hand: PlayedKubelet) -> None:
        node = await hand.join(tainted=[TAINT])
        await hand.make_pod("a")
        await hand.held("a")
        await hand.change_node(node, {"spec": {"taints": [hand.taint]}})
        assert await hand.placed("a") == node


class TestNodesThatTakeNone:
    async def test_one_that_was_cordoned_and_again_when_it_is_open(self, hand: PlayedKubelet) -> None:
        node = await hand.join()
        await hand.change_node(node, {"spec": {"unschedulable": True}})
        await hand.refused("a")
        await hand.change_node(node, {"spec": {"unschedulable": None}})
        assert await hand.placed("a") == node

    async def test_one_that_was_never_ready(self, hand: PlayedKubelet) -> None:
        node = await hand.join(ready=False)
        await hand.make_pod("a")
        await hand.held("a")
        await hand.tell_node(node)
        assert await hand.placed("a") == node

    async def test_one_that_is_no_longer_ready_and_again_when_it_is(self, hand: PlayedKubelet) -> None:
        node = await hand.join()
        await hand.tell_node(node, "False")
        await hand.until_node(node, lambda seen: "NoSchedule" in taints(seen), "it takes none")
        await hand.refused("a")
        await hand.tell_node(node)
        assert await hand.placed("a") == node

    async def test_one_that_was_deleted(self, hand: PlayedKubelet) -> None:
        node = await hand.join()
        await hand.make_pod("before")
        assert await hand.placed("before") == node
        await hand.plane.admin("DELETE", f"/api/v1/nodes/{node}")
        await hand.refused("after")
        assert (await hand.pod("before"))["spec"]["nodeName"] == node
