"""Which Pods get a node: there has to be room for what they ask, and it is theirs until they have ended."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.contract.played_kubelet import SIZE, PlayedKubelet, playing
from tests.contract.played_kubelet_objects import condition, is_bound, is_unschedulable
from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.sides import BOTH_SIDES

pytestmark = BOTH_SIDES

NONE_AVAILABLE = re.compile(r"0/\d+ nodes are available: ")


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


async def full(hand: PlayedKubelet) -> str:
    """A node of 4 CPUs, all of them taken by the Pod `first`; `second` waits for as much."""
    node = await hand.join()
    await hand.make_pod("first", {"cpu": "4"})
    assert await hand.placed("first") == node
    await hand.make_pod("second", {"cpu": "4"})
    await hand.held("second")
    return node


class TestPlacing:
    async def test_a_pod_that_fits_is_placed_and_says_so(self, hand: PlayedKubelet) -> None:
        node = await hand.join()
        made = await hand.make_pod("a", {"cpu": "1"})
        assert (made["status"]["phase"], made["spec"].get("nodeName")) == ("Pending", None)
        assert await hand.placed("a") == node
        told = condition(await hand.pod("a"), "PodScheduled")
        assert told
        assert (told["status"], "reason" in told) == ("True", False)
        assert (await hand.pod("a"))["status"]["phase"] == "Pending"

    async def test_a_pod_that_fits_nowhere_is_held_and_says_so(self, hand: PlayedKubelet) -> None:
        await hand.join()
        await hand.make_pod("b", {"cpu": "4"})
        await hand.placed("b")
        await hand.make_pod("a", {"cpu": "5"})
        pod = await hand.held("a")
        told = condition(pod, "PodScheduled")
        assert told
        assert NONE_AVAILABLE.match(told["message"])
        assert (pod["status"]["phase"], pod["spec"].get("nodeName")) == ("Pending", None)

    async def test_an_event_tells_of_either(self, hand: PlayedKubelet) -> None:
        node = await hand.join()
        fits, waits = await hand.make_pod("fits", {"cpu": "1"}), await hand.make_pod("waits", {"cpu": "5"})
        placed, held = await hand.until_event("fits", "Scheduled"), await hand.until_event("waits", "FailedScheduling")
        assert (placed["type"], held["type"]) == ("Normal", "Warning")
        for event, pod in ((placed, fits), (held, waits)):
            about = event["involvedObject"]
            assert (about["kind"], about["namespace"]) == ("Pod", pod["metadata"]["namespace"])
            assert about["uid"] == pod["metadata"]["uid"]
        assert node in placed["message"]
        assert NONE_AVAILABLE.match(held["message"])

    async def test_another_schedulers_pod_is_left_alone(self, hand: PlayedKubelet) -> None:
        await hand.join()
        await hand.make_pod("theirs", spec={"schedulerName": "another"})
        await hand.make_pod("later")
        await hand.placed("later")
        theirs = await hand.pod("theirs")
        assert (theirs["spec"].get("nodeName"), condition(theirs, "PodScheduled")) == (None, None)

    async def test_a_pod_made_for_a_node_is_on_it_without_being_scheduled(self, hand: PlayedKubelet) -> None:
        node = await hand.join()
        await hand.make_pod("there", {"cpu": "5"}, {"nodeName": node})
        await hand.refused("later", {"cpu": "1"})  # all room is taken, and more
        there = await hand.pod("there")
        assert (there["spec"]["nodeName"], condition(there, "PodScheduled")) == (node, None)

    async def test_the_pod_of_a_job_is_placed_like_any_other(self, hand: PlayedKubelet) -> None:
        await hand.join()
        requests = {"containers": hand.pod_spec({"cpu": "4"})["containers"]}
        await hand.submit("one", pod=requests)
        first = await hand.pod_of("one")
        await hand.submit("two", pod=requests)
        second = await hand.pod_of("two", bound=False)
        await hand.held(second)
        await hand.succeed(first)
        await hand.placed(second)


class TestRoom:
    @pytest.mark.parametrize(
        ("fits", "too_much"),
        [
            ({"cpu": "2500m"}, {"cpu": "1501m"}),
            ({"memory": "5Gi"}, {"memory": "3073Mi"}),
            ({"example.com/gpu": "1"}, {"example.com/gpu": "2"}),
            ({"cpu": "1", "memory": "5Gi"}, {"cpu": "1", "memory": "4Gi"}),
        ],
        ids=["cpu", "memory", "another resource", "memory, though not cpu"],
    )
    async def test_what_is_taken_counts(self, hand: PlayedKubelet, fits: Json, too_much: Json) -> None:
        await hand.join(size={"example.com/gpu": "2"})
        await hand.make_pod("a", fits)
        await hand.placed("a")
        await hand.make_pod("b", too_much)
        await hand.held("b")

    async def test_a_resource_that_no_node_has_is_waited_for(self, hand: PlayedKubelet) -> None:
        node = await hand.join()
        await hand.make_pod("a", {"example.com/gpu": "1"})
        await hand.held("a")
        await hand.tell_node(node, size=SIZE | {"example.com/gpu": "1"})
        assert await hand.placed("a") == node

    async def test_a_node_takes_only_so_many_pods(self, hand: PlayedKubelet) -> None:
        await hand.join(size={"pods": "1"})
        await hand.make_pod("a")
        await hand.placed("a")
        await hand.make_pod("b")
        await hand.held("b")

    async def test_a_pod_without_requests_needs_no_room(self, hand: PlayedKubelet) -> None:
        node = await full(hand)
        await hand.make_pod("small")
        assert await hand.placed("small") == node

    async def test_all_room_may_be_taken(self, hand: PlayedKubelet) -> None:
        await hand.join(size={"cpu": "1"})
        for name in ("a", "b"):
            await hand.make_pod(name, {"cpu": "500m"})
            await hand.placed(name)

    async def test_what_can_be_had_of_the_node_counts_not_what_it_has(self, hand: PlayedKubelet) -> None:
        node = await hand.join()
        found = await hand.plane.admin("GET", f"/api/v1/nodes/{node}")
        found["status"]["allocatable"]["cpu"] = "1"
        await hand.plane.admin("PUT", f"/api/v1/nodes/{node}/status", found)
        await hand.refused("a", {"cpu": "2"})
        await hand.make_pod("b", {"cpu": "1"})
        assert await hand.placed("b") == node

    async def test_containers_add_up(self, hand: PlayedKubelet) -> None:
        await hand.join()
        container = hand.pod_spec({"cpu": "1001m"})["containers"][0]
        await hand.make_pod("a", spec={"containers": [container, container | {"name": "other"}]})
        await hand.placed("a")
        await hand.make_pod("b", {"cpu": "2"})
        await hand.held("b")

    async def test_of_first_containers_the_greatest_counts(self, hand: PlayedKubelet) -> None:
        await hand.join()
        first = hand.pod_spec({"cpu": "3"})["containers"][0]
        firsts = {"initContainers": [first | {"name": "init"}, first | {"name": "init-too"}]}
        await hand.make_pod("a", {"cpu": "1"}, firsts)
        await hand.placed("a")
        await hand.make_pod("b", {"cpu": "1001m"})
        await hand.held("b")

    async def test_of_twenty_pods_at_once_as_many_are_placed_as_there_is_room_for(self, hand: PlayedKubelet) -> None:
        nodes = {await hand.join(size={"cpu": "5"}): 5, await hand.join(size={"pods": "7"}): 4}
        names = [f"crowd-{number}" for number in range(20)]
        await asyncio.gather(*[hand.make_pod(name, {"cpu": "1"}) for name in names])

        async def settled() -> list[Json]:
            pods = [await hand.pod(name) for name in names]
            return pods if all(is_bound(pod) or is_unschedulable(pod) for pod in pods) else []

        pods = await hand.plane.wait_for(settled, "all are placed or held")
        assert Counter(pod["spec"]["nodeName"] for pod in pods if is_bound(pod)) == nodes


class TestRoomComes:
    @pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
    async def test_when_a_pod_has_ended(self, hand: PlayedKubelet, phase: str) -> None:
        node = await full(hand)
        await hand.run("first")
        await (hand.succeed("first") if phase == "Succeeded" else hand.fail("first"))
        assert await hand.placed("second") == node

    async def test_when_a_pod_is_gone_not_while_it_ends(self, hand: PlayedKubelet) -> None:
        node = await full(hand)
        await hand.run("first")
        await hand.delete_pod("first")
        await hand.make_pod("third", {"cpu": "1"})
        await hand.held("third")
        assert not is_bound(await hand.pod("second"))
        await hand.delete_pod("third")
        await hand.reap("first")
        assert await hand.placed("second") == node

    async def test_when_a_node_joins(self, hand: PlayedKubelet) -> None:
        await full(hand)
        joined = await hand.join()
        assert await hand.placed("second") == joined

    async def test_when_a_node_grows(self, hand: PlayedKubelet) -> None:
        node = await full(hand)
        await hand.tell_node(node, size=SIZE | {"cpu": "8"})
        assert await hand.placed("second") == node

    async def test_for_one_of_two_that_wait_and_then_for_the_other(self, hand: PlayedKubelet) -> None:
        await full(hand)
        await hand.make_pod("third", {"cpu": "4"})
        await hand.held("third")
        await hand.succeed("first")

        async def placed() -> list[str]:
            return [name for name in ("second", "third") if is_bound(await hand.pod(name))]

        (next_one,) = await hand.plane.wait_for(placed, "one of them is placed")
        await hand.succeed(next_one)
        await hand.placed("third" if next_one == "second" else "second")
