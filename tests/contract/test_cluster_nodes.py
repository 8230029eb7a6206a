"""What the control plane does to a Node: taints for as long as it is not ready, cordoned or out of reach."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.contract.played_kubelet import OWN, PlayedKubelet, playing
from tests.contract.played_kubelet_objects import NOT_READY, UNREACHABLE, taints
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.sides import BOTH_SIDES

pytestmark = BOTH_SIDES

CORDONED = "node.kubernetes.io/unschedulable"


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


async def test_a_new_one_is_made_with_a_taint_beside_its_own(hand: PlayedKubelet) -> None:
    name = await hand.join(ready=False)
    node = await hand.plane.admin("GET", f"/api/v1/nodes/{name}")
    assert (taints(node), taints(node, OWN)) == (["NoSchedule"], ["NoSchedule"])


async def test_the_answer_to_its_create_shows_the_taint(hand: PlayedKubelet) -> None:
    name = f"hand-{hand.own}-bare"
    hand.nodes.append(name)
    # Without a word about its readiness it loses the taint again at once: that is not asked here.
    made = await hand.plane.admin("POST", "/api/v1/nodes", {"metadata": {"name": name}})
    assert made["spec"]["taints"] == [{"key": NOT_READY, "effect": "NoSchedule"}]


async def test_when_it_is_ready_only_its_own_taints_are_left(hand: PlayedKubelet) -> None:
    name = await hand.join(ready=False)
    await hand.tell_node(name)
    node = await hand.until_node(name, lambda node: taints(node) == [], "it takes Pods")
    assert node["spec"]["taints"] == [hand.taint]


@pytest.mark.parametrize(
    ("status", "key", "other"), [("False", NOT_READY, UNREACHABLE), ("Unknown", UNREACHABLE, NOT_READY)]
)
async def test_a_condition_becomes_a_taint_and_back(hand: PlayedKubelet, status: str, key: str, other: str) -> None:
    name = await hand.join()
    await hand.tell_node(name, status)
    node = await hand.until_node(name, lambda node: "NoSchedule" in taints(node, key), "it is tainted")
    assert taints(node, other) == []
    await hand.tell_node(name)
    await hand.until_node(name, lambda node: taints(node, key) == [], "it is as before")


async def test_cordoned_it_is_tainted_until_it_is_open_again(hand: PlayedKubelet) -> None:
    name = await hand.join()
    await hand.change_node(name, {"spec": {"unschedulable": True}})
    await hand.until_node(name, lambda node: taints(node, CORDONED) == ["NoSchedule"], "it is tainted")
    await hand.change_node(name, {"spec": {"unschedulable": None}})
    node = await hand.until_node(name, lambda node: taints(node, CORDONED) == [], "it is as before")
    assert node["spec"]["taints"] == [hand.taint]


async def test_its_size_is_what_it_says(hand: PlayedKubelet) -> None:
    name = await hand.join(size={"cpu": "3", "example.com/gpu": "1"})
    status = (await hand.plane.admin("GET", f"/api/v1/nodes/{name}"))["status"]
    assert status["capacity"] == status["allocatable"]
    assert status["allocatable"] == {"cpu": "3", "memory": "8Gi", "pods": "20", "example.com/gpu": "1"}
