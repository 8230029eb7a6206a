"""The Pods that get a node: their requests need room on it, and keep that room until the Pods have ended."""

import asyncio
import re
from collections import Counter

import pytest

from tests.contract.played_kubelet import SIZE, PlayedKubelet
from tests.contract.played_kubelet_objects import condition, is_bound, is_unschedulable
from tests.controlplane.api import Json
from tests.controlplane.sides import BOTH_SIDES

pytestmark = BOTH_SIDES

NONE_AVAILABLE = re.compile(r"0/\d+ nodes are available: ")


async def full(kubelet: PlayedKubelet) -> str:
    """A node of 4 CPUs, all taken by the Pod `first`; the Pod `second` waits for as many."""
    node = await kubelet.join()
    await kubelet.make_pod("first", {"cpu": "4"})
    assert await kubelet.placed("first") == node
    await kubelet.make_pod("second", {"cpu": "4"})
    await kubelet.held("second")
    return node


class TestPlacing:
    async def test_pod_that_fits_is_placed_and_says_so(self, kubelet: PlayedKubelet) -> None:
        node = await kubelet.join()
        made = await kubelet.make_pod("a", {"cpu": "1"})
        assert (made["status"]["phase"], made["spec"].get("nodeName")) == ("Pending", None)
        assert await kubelet.placed("a") == node
        told = condition(await kubelet.pod("a"), "PodScheduled")
        assert told
        assert (told["status"], "reason" in told) == ("True", False)
        assert (await kubelet.pod("a"))["status"]["phase"] == "Pending"

    async def test_pod_that_fits_nowhere_is_held_and_says_so(self, kubelet: PlayedKubelet) -> None:
        await kubelet.join()
        await kubelet.make_pod("b", {"cpu": "4"})
        await kubelet.placed("b")
        await kubelet.make_pod("a", {"cpu": "5"})
        pod = await kubelet.held("a")
        told = condition(pod, "PodScheduled")
        assert told
        assert NONE_AVAILABLE.match(told["message"])
        assert (pod["status"]["phase"], pod["spec"].get("nodeName")) == ("Pending", None)

    async def test_events_tell_of_placed_and_of_held_pods(self, kubelet: PlayedKubelet) -> None:
        node = await kubelet.join()
        fits, waits = await kubelet.make_pod("fits", {"cpu": "1"}), await kubelet.make_pod("waits", {"cpu": "5"})
        placed, held = (
            await kubelet.until_event("fits", "Scheduled"),
            await kubelet.until_event("waits", "FailedScheduling"),
        )
        assert (placed["type"], held["type"]) == ("Normal", "Warning")
        for event, pod in ((placed, fits), (held, waits)):
            about = event["involvedObject"]
            assert (about["kind"], about["namespace"]) == ("Pod", pod["metadata"]["namespace"])
            assert about["uid"] == pod["metadata"]["uid"]
        assert node in placed["message"]
        assert NONE_AVAILABLE.match(held["message"])

    async def test_pod_of_another_scheduler_is_left_alone(self, kubelet: PlayedKubelet) -> None:
        await kubelet.join()
        await kubelet.make_pod("theirs", spec={"schedulerName": "another"})
        await kubelet.make_pod("later")
        await kubelet.placed("later")
        theirs = await kubelet.pod("theirs")
        assert (theirs["spec"].get("nodeName"), condition(theirs, "PodScheduled")) == (None, None)

    async def test_pod_made_for_a_node_is_on_it_without_scheduling(self, kubelet: PlayedKubelet) -> None:
        node = await kubelet.join()
        await kubelet.make_pod("there", {"cpu": "5"}, {"nodeName": node})
        await kubelet.refused("later", {"cpu": "1"})  # all room is taken, and more
        there = await kubelet.pod("there")
        assert (there["spec"]["nodeName"], condition(there, "PodScheduled")) == (node, None)

    async def test_pod_of_a_job_is_placed_like_any_other(self, kubelet: PlayedKubelet) -> None:
        await kubelet.join()
        requests = {"containers": kubelet.pod_spec({"cpu": "4"})["containers"]}
        await kubelet.submit("one", pod=requests)
        first = await kubelet.pod_of("one")
        await kubelet.submit("two", pod=requests)
        second = await kubelet.pod_of("two", bound=False)
        await kubelet.held(second)
        await kubelet.succeed(first)
        await kubelet.placed(second)


class TestRoom:
    @pytest.mark.parametrize(
        ("fits", "too_much"),
        [
            ({"cpu": "2500m"}, {"cpu": "1501m"}),
            ({"memory": "5Gi"}, {"memory": "3073Mi"}),
            ({"example.com/gpu": "1"}, {"example.com/gpu": "2"}),
            ({"cpu": "1", "memory": "5Gi"}, {"cpu": "1", "memory": "4Gi"}),
            ({}, {}),
        ],
        ids=["cpu", "memory", "another resource", "memory, though not cpu", "number of Pods"],
    )
    async def test_taken_room_counts(self, kubelet: PlayedKubelet, fits: Json, too_much: Json) -> None:
        await kubelet.join(size={"example.com/gpu": "2", "pods": "20" if fits else "1"})
        await kubelet.make_pod("a", fits)
        await kubelet.placed("a")
        await kubelet.make_pod("b", too_much)
        await kubelet.held("b")

    async def test_pod_waits_for_a_resource_that_no_node_has(self, kubelet: PlayedKubelet) -> None:
        node = await kubelet.join()
        await kubelet.make_pod("a", {"example.com/gpu": "1"})
        await kubelet.held("a")
        await kubelet.tell_node(node, size=SIZE | {"example.com/gpu": "1"})
        assert await kubelet.placed("a") == node

    async def test_pod_without_requests_needs_no_room(self, kubelet: PlayedKubelet) -> None:
        node = await full(kubelet)
        await kubelet.make_pod("small")
        assert await kubelet.placed("small") == node

    async def test_room_may_be_taken_completely(self, kubelet: PlayedKubelet) -> None:
        await kubelet.join(size={"cpu": "1"})
        for name in ("a", "b"):
            await kubelet.make_pod(name, {"cpu": "500m"})
            await kubelet.placed(name)

    async def test_allocatable_of_a_node_counts_and_not_its_capacity(self, kubelet: PlayedKubelet) -> None:
        node = await kubelet.join()
        found = await kubelet.plane.admin("GET", f"/api/v1/nodes/{node}")
        found["status"]["allocatable"]["cpu"] = "1"
        await kubelet.plane.admin("PUT", f"/api/v1/nodes/{node}/status", found)
        await kubelet.refused("a", {"cpu": "2"})
        await kubelet.make_pod("b", {"cpu": "1"})
        assert await kubelet.placed("b") == node

    async def test_requests_of_containers_add_up(self, kubelet: PlayedKubelet) -> None:
        await kubelet.join()
        container = kubelet.pod_spec({"cpu": "1001m"})["containers"][0]
        await kubelet.make_pod("a", spec={"containers": [container, container | {"name": "other"}]})
        await kubelet.placed("a")
        await kubelet.make_pod("b", {"cpu": "2"})
        await kubelet.held("b")

    async def test_largest_init_container_counts(self, kubelet: PlayedKubelet) -> None:
        await kubelet.join()
        first = kubelet.pod_spec({"cpu": "3"})["containers"][0]
        firsts = {"initContainers": [first | {"name": "init"}, first | {"name": "init-too"}]}
        await kubelet.make_pod("a", {"cpu": "1"}, firsts)
        await kubelet.placed("a")
        await kubelet.make_pod("b", {"cpu": "1001m"})
        await kubelet.held("b")

    async def test_twenty_pods_at_once_fill_exactly_the_room(self, kubelet: PlayedKubelet) -> None:
        nodes = {await kubelet.join(size={"cpu": "5"}): 5, await kubelet.join(size={"pods": "7"}): 4}
        names = [f"crowd-{number}" for number in range(20)]
        await asyncio.gather(*[kubelet.make_pod(name, {"cpu": "1"}) for name in names])

        async def settled() -> list[Json]:
            pods = [await kubelet.pod(name) for name in names]
            return pods if all(is_bound(pod) or is_unschedulable(pod) for pod in pods) else []

        pods = await kubelet.plane.wait_for(settled, "all are placed or held")
        assert Counter(pod["spec"]["nodeName"] for pod in pods if is_bound(pod)) == nodes


class TestFreedRoom:
    @pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
    async def test_room_is_free_when_a_pod_has_ended(self, kubelet: PlayedKubelet, phase: str) -> None:
        node = await full(kubelet)
        await kubelet.run("first")
        await (kubelet.succeed("first") if phase == "Succeeded" else kubelet.fail("first"))
        assert await kubelet.placed("second") == node

    async def test_room_is_free_when_a_pod_is_gone_and_not_while_it_ends(self, kubelet: PlayedKubelet) -> None:
        node = await full(kubelet)
        await kubelet.run("first")
        await kubelet.delete_pod("first")
        await kubelet.make_pod("third", {"cpu": "1"})
        await kubelet.held("third")
        assert not is_bound(await kubelet.pod("second"))
        await kubelet.delete_pod("third")
        await kubelet.reap("first")
        assert await kubelet.placed("second") == node

    async def test_room_is_free_when_a_node_joins(self, kubelet: PlayedKubelet) -> None:
        await full(kubelet)
        joined = await kubelet.join()
        assert await kubelet.placed("second") == joined

    async def test_room_is_free_when_a_node_grows(self, kubelet: PlayedKubelet) -> None:
        node = await full(kubelet)
        await kubelet.tell_node(node, size=SIZE | {"cpu": "8"})
        assert await kubelet.placed("second") == node

    async def test_freed_room_goes_to_one_waiting_pod_and_then_to_the_other(self, kubelet: PlayedKubelet) -> None:
        await full(kubelet)
        await kubelet.make_pod("third", {"cpu": "4"})
        await kubelet.held("third")
        await kubelet.succeed("first")

        async def placed() -> list[str]:
            return [name for name in ("second", "third") if is_bound(await kubelet.pod(name))]

        (next_one,) = await kubelet.plane.wait_for(placed, "one of them is placed")
        await kubelet.succeed(next_one)
        await kubelet.placed("third" if next_one == "second" else "second")
