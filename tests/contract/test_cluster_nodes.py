"""The control plane taints a Node while it is not ready, cordoned or unreachable."""

import pytest

from tests.contract.played_kubelet import OWN, PlayedKubelet
from tests.contract.played_kubelet_objects import NOT_READY, UNREACHABLE, taints
from tests.controlplane.sides import BOTH_SIDES

pytestmark = BOTH_SIDES

CORDONED = "node.kubernetes.io/unschedulable"


async def test_new_node_has_the_not_ready_taint_and_its_own(kubelet: PlayedKubelet) -> None:
    name = await kubelet.join(ready=False)
    node = await kubelet.plane.admin("GET", f"/api/v1/nodes/{name}")
    assert (taints(node), taints(node, OWN)) == (["NoSchedule"], ["NoSchedule"])


async def test_answer_to_the_create_of_a_node_shows_the_not_ready_taint(kubelet: PlayedKubelet) -> None:
    name = f"played-{kubelet.own}-bare"
    kubelet.nodes.append(name)
    # Without a report on its readiness the node loses the taint again at once. This test does not check that.
    made = await kubelet.plane.admin("POST", "/api/v1/nodes", {"metadata": {"name": name}})
    assert made["spec"]["taints"] == [{"key": NOT_READY, "effect": "NoSchedule"}]


async def test_ready_node_keeps_only_its_own_taints(kubelet: PlayedKubelet) -> None:
    name = await kubelet.join(ready=False)
    await kubelet.tell_node(name)
    node = await kubelet.until_node(name, lambda node: taints(node) == [], "it takes Pods")
    assert node["spec"]["taints"] == [kubelet.taint]


@pytest.mark.parametrize(
    ("status", "key", "other"), [("False", NOT_READY, UNREACHABLE), ("Unknown", UNREACHABLE, NOT_READY)]
)
async def test_ready_condition_becomes_a_taint_and_back(
    kubelet: PlayedKubelet, status: str, key: str, other: str
) -> None:
    name = await kubelet.join()
    await kubelet.tell_node(name, status)
    node = await kubelet.until_node(name, lambda node: "NoSchedule" in taints(node, key), "it is tainted")
    assert taints(node, other) == []
    await kubelet.tell_node(name)
    await kubelet.until_node(name, lambda node: taints(node, key) == [], "it is as before")


async def test_cordoned_node_is_tainted_until_it_is_uncordoned(kubelet: PlayedKubelet) -> None:
    name = await kubelet.join()
    await kubelet.change_node(name, {"spec": {"unschedulable": True}})
    await kubelet.until_node(name, lambda node: taints(node, CORDONED) == ["NoSchedule"], "it is tainted")
    await kubelet.change_node(name, {"spec": {"unschedulable": None}})
    node = await kubelet.until_node(name, lambda node: taints(node, CORDONED) == [], "it is as before")
    assert node["spec"]["taints"] == [kubelet.taint]


async def test_size_of_a_node_is_what_the_node_reports(kubelet: PlayedKubelet) -> None:
    name = await kubelet.join(size={"cpu": "3", "example.com/gpu": "1"})
    status = (await kubelet.plane.admin("GET", f"/api/v1/nodes/{name}"))["status"]
    assert status["capacity"] == status["allocatable"]
    assert status["allocatable"] == {"cpu": "3", "memory": "8Gi", "pods": "20", "example.com/gpu": "1"}
