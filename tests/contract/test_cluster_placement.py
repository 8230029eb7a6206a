"""The node that a Pod gets: labels that it asks for, taints that it tolerates, nodes that take no Pods for now."""

import pytest

from tests.contract.played_kubelet import OWN, PlayedKubelet
from tests.contract.played_kubelet_objects import taints
from tests.controlplane.api import Json
from tests.controlplane.sides import BOTH_SIDES

pytestmark = BOTH_SIDES

DISK, AGE = "kubelet.test.internal/disk", "kubelet.test.internal/age"
TAINT = {"key": "kubelet.test.internal/private", "value": "ours", "effect": "NoSchedule"}
OLD, NEW = 0, 1


def rule(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def required(*terms: Json) -> Json:
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    }


def preferred(*rules: Json, weight: int = 10) -> Json:
    wish = {"weight": weight, "preference": {"matchExpressions": rules}}
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}}


async def old_and_new(kubelet: PlayedKubelet) -> list[str]:
    """Two nodes: an old one with a disk, a new one without."""
    return [await kubelet.join(labels={DISK: "slow", AGE: "7"}), await kubelet.join(labels={AGE: "3"})]


class TestLabels:
    async def test_node_selector_requires_its_labels(self, kubelet: PlayedKubelet) -> None:
        nodes = await old_and_new(kubelet)
        await kubelet.make_pod("new", spec={"nodeSelector": {OWN: kubelet.own, AGE: "3"}})
        await kubelet.make_pod("none", spec={"nodeSelector": {OWN: kubelet.own, AGE: "3", DISK: "slow"}})
        assert await kubelet.placed("new") == nodes[NEW]
        await kubelet.held("none")

    async def test_label_that_a_node_gets_later_counts(self, kubelet: PlayedKubelet) -> None:
        nodes = await old_and_new(kubelet)
        await kubelet.make_pod("a", spec={"nodeSelector": {OWN: kubelet.own, DISK: "fast"}})
        await kubelet.held("a")
        await kubelet.change_node(nodes[NEW], {"metadata": {"labels": {DISK: "fast"}}})
        assert await kubelet.placed("a") == nodes[NEW]

    async def test_required_affinity_picks_the_node_by_every_operator(self, kubelet: PlayedKubelet) -> None:
        """Each term is true of one of the two nodes."""
        nodes = await old_and_new(kubelet)
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
            await kubelet.make_pod(name, spec=required(term))
        placed = {name: await kubelet.placed(name) for name in wanted}
        assert placed == {name: nodes[which] for name, (_, which) in wanted.items()}

    async def test_term_needs_all_its_rules(self, kubelet: PlayedKubelet) -> None:
        nodes = await old_and_new(kubelet)
        await kubelet.make_pod("a", spec=required({"matchExpressions": [rule(DISK, "Exists"), rule(AGE, "Lt", "7")]}))
        await kubelet.make_pod("b", spec=required({"matchExpressions": [rule(AGE, "Exists"), rule(AGE, "Lt", "7")]}))
        assert await kubelet.placed("b") == nodes[NEW]
        await kubelet.held("a")

    async def test_affinity_needs_one_of_its_terms(self, kubelet: PlayedKubelet) -> None:
        nodes = await old_and_new(kubelet)
        never, new = {"matchExpressions": [rule(AGE, "In", "9")]}, {"matchExpressions": [rule(AGE, "In", "3")]}
        await kubelet.make_pod("a", spec=required(never, new))
        await kubelet.make_pod("b", spec=required(never))
        assert await kubelet.placed("a") == nodes[NEW]
        await kubelet.held("b")

    async def test_selector_and_affinity_must_both_hold(self, kubelet: PlayedKubelet) -> None:
        await old_and_new(kubelet)
        await kubelet.make_pod(
            "a",
            spec={"nodeSelector": {OWN: kubelet.own, AGE: "3"}}
            | required({"matchExpressions": [rule(DISK, "Exists")]}),
        )
        await kubelet.held("a")

    @pytest.mark.parametrize("which", [OLD, NEW])
    async def test_preferred_node_of_two_equal_nodes_is_taken(self, kubelet: PlayedKubelet, which: int) -> None:
        nodes = await old_and_new(kubelet)
        for number in range(3):
            name = f"pod-{number}"
            await kubelet.make_pod(name, spec=preferred(rule(DISK, "Exists" if which == OLD else "DoesNotExist")))
            assert await kubelet.placed(name) == nodes[which]

    async def test_pod_does_without_a_full_preferred_node(self, kubelet: PlayedKubelet) -> None:
        nodes = await old_and_new(kubelet)
        await kubelet.make_pod("first", {"cpu": "4"}, {"nodeSelector": {OWN: kubelet.own, DISK: "slow"}})
        assert await kubelet.placed("first") == nodes[OLD]
        await kubelet.make_pod("second", {"cpu": "1"}, preferred(rule(DISK, "Exists"), weight=100))
        assert await kubelet.placed("second") == nodes[NEW]


def tolerates(kubelet: PlayedKubelet, *tolerations: Json) -> Json:
    return {"tolerations": [*kubelet.pod_spec()["tolerations"], *tolerations]}


async def open_node(kubelet: PlayedKubelet, *tainted: Json) -> str:
    """A node with these taints. It took a Pod that tolerates everything, so the scheduler knows it and it is open."""
    node = await kubelet.join(tainted=tainted)
    spec = tolerates(kubelet, {"operator": "Exists"}) | {"nodeSelector": {"kubernetes.io/hostname": node}}
    await kubelet.make_pod(f"on-{node}", spec=spec)
    assert await kubelet.placed(f"on-{node}") == node
    return node


class TestTaints:
    async def test_taint_keeps_off_a_pod_without_tolerations(self, kubelet: PlayedKubelet) -> None:
        await open_node(kubelet, TAINT)
        await open_node(kubelet, TAINT | {"effect": "NoExecute"})
        await kubelet.make_pod("a")
        await kubelet.held("a")

    async def test_taint_lets_in_a_pod_that_tolerates_it(self, kubelet: PlayedKubelet) -> None:
        node = await kubelet.join(tainted=[TAINT])
        tolerations = {
            "equal": {"key": TAINT["key"], "operator": "Equal", "value": "ours", "effect": "NoSchedule"},
            "equal-of-any-effect": {"key": TAINT["key"], "value": "ours"},
            "exists": {"key": TAINT["key"], "operator": "Exists"},
            "of-any-key": {"operator": "Exists"},
        }
        for name, toleration in tolerations.items():
            await kubelet.make_pod(name, spec=tolerates(kubelet, toleration))
        assert {await kubelet.placed(name) for name in tolerations} == {node}

    async def test_taint_keeps_off_a_pod_that_tolerates_something_else(self, kubelet: PlayedKubelet) -> None:
        await open_node(kubelet, TAINT)
        tolerations = {
            "another-value": {"key": TAINT["key"], "operator": "Equal", "value": "theirs", "effect": "NoSchedule"},
            "another-key": {"key": "kubelet.test.internal/other", "operator": "Exists"},
            "another-effect": {"key": TAINT["key"], "operator": "Exists", "effect": "NoExecute"},
        }
        for name, toleration in tolerations.items():
            await kubelet.make_pod(name, spec=tolerates(kubelet, toleration))
        for name in tolerations:
            await kubelet.held(name)

    async def test_pod_must_tolerate_all_taints_of_a_node(self, kubelet: PlayedKubelet) -> None:
        await open_node(kubelet, TAINT, TAINT | {"key": "kubelet.test.internal/other"})
        await kubelet.make_pod("a", spec=tolerates(kubelet, {"key": TAINT["key"], "operator": "Exists"}))
        await kubelet.held("a")

    async def test_node_is_open_when_its_taint_is_removed(self, kubelet: PlayedKubelet) -> None:
        node = await kubelet.join(tainted=[TAINT])
        await kubelet.make_pod("a")
        await kubelet.held("a")
        await kubelet.change_node(node, {"spec": {"taints": [kubelet.taint]}})
        assert await kubelet.placed("a") == node


class TestClosedNodes:
    async def test_cordoned_node_takes_no_pod_until_it_is_uncordoned(self, kubelet: PlayedKubelet) -> None:
        node = await kubelet.join()
        await kubelet.change_node(node, {"spec": {"unschedulable": True}})
        await kubelet.refused("a")
        await kubelet.change_node(node, {"spec": {"unschedulable": None}})
        assert await kubelet.placed("a") == node

    async def test_node_that_was_never_ready_takes_no_pod_until_it_is(self, kubelet: PlayedKubelet) -> None:
        node = await kubelet.join(ready=False)
        await kubelet.make_pod("a")
        await kubelet.held("a")
        await kubelet.tell_node(node)
        assert await kubelet.placed("a") == node

    async def test_node_that_is_no_longer_ready_takes_no_pod_until_it_is(self, kubelet: PlayedKubelet) -> None:
        node = await kubelet.join()
        await kubelet.tell_node(node, "False")
        await kubelet.until_node(node, lambda seen: "NoSchedule" in taints(seen), "it takes none")
        await kubelet.refused("a")
        await kubelet.tell_node(node)
        assert await kubelet.placed("a") == node

    async def test_deleted_node_takes_no_pod_and_keeps_its_own(self, kubelet: PlayedKubelet) -> None:
        node = await kubelet.join()
        await kubelet.make_pod("before")
        assert await kubelet.placed("before") == node
        await kubelet.plane.admin("DELETE", f"/api/v1/nodes/{node}")
        await kubelet.refused("after")
        assert (await kubelet.pod("before"))["spec"]["nodeName"] == node
