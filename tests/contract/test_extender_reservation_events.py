"""Events of a Pod and of a reservation: which reservation keeps which Pod from which node, and what became of it."""

import pytest

from tests.scheduling.reservations import CPU, TARGET_META, ReservedNodes

pytest_plugins = ["tests.scheduling.fixtures"]
pytestmark = pytest.mark.usefixtures("reservations")


async def test_event_of_a_pod_names_the_reservation_and_the_node(reserved: ReservedNodes) -> None:
    nodes = await reserved.node_group.nodes(2, cpu="3900m")
    holds = [await reserved.reservations.hold(node, {"cpu": "2000m"}, taskId=7) for node in nodes]
    for node in nodes:
        await reserved.wait_until_held(node)
    fitting = [await reserved.pod(cpu="1500m") for _ in nodes]
    assert sorted(await reserved.node_group.bound(*fitting)) == sorted(nodes), "kube-scheduler knows both"
    pod = await reserved.pod(cpu="1000m")
    told = await reserved.reservations.wait_for_event("Pod", pod, "Refused", f"{CPU}: by NodeReservation ")
    assert told["type"] == "Warning"
    assert told["involvedObject"]["uid"] == (await reserved.node_group.read(pod))["metadata"]["uid"]
    assert told["involvedObject"]["apiVersion"] == "v1"
    assert told["message"].removeprefix(f"{CPU}: by NodeReservation ") in {
        f"{reserved.node_group.key(hold)} on node {node}, and on 1 other nodes"
        for hold, node in zip(holds, nodes, strict=True)
    }


async def test_events_of_a_reservation_name_refused_pods_and_its_end(reserved: ReservedNodes) -> None:
    here, there = await reserved.node_group.nodes(2, cpu="3900m")
    await reserved.node_group.occupy(there, cpu="3000m")
    hold = await reserved.reservations.hold(here, {"cpu": "3900m"}, jobName="ours")
    await reserved.wait_until_held(here)
    for _ in range(2):
        words = f"Pod {reserved.node_group.key(await reserved.pod(cpu='2000m'))} was kept from node {here}"
        event = await reserved.reservations.wait_for_event("NodeReservation", hold, "Refused", words)
        assert (event["type"], event["involvedObject"]["apiVersion"]) == ("Normal", "dispatcher.internal/v1alpha1")
    owner = await reserved.pod(cpu="3900m", meta=TARGET_META)
    assert await reserved.node_group.bound(owner) == [here]
    await reserved.reservations.wait_for_event("NodeReservation", hold, "Landed", f"its Pod is on node {here}")
    assert [one["reason"] for one in await reserved.reservations.told("NodeReservation", hold)] == ["Refused", "Landed"]


async def test_reservation_that_only_holds_has_no_events(reserved: ReservedNodes) -> None:
    (node,) = await reserved.node_group.nodes(1)
    hold = await reserved.reservations.hold(node, {"cpu": "1"}, jobName="ours")
    await reserved.reservations.wait_for_phase(hold, "Active")
    later = await reserved.reservations.hold("nowhere", {"cpu": "1"}, jobName="theirs")
    await reserved.reservations.wait_for_event("NodeReservation", later, "NodeMissing", "there is no node nowhere")
    assert await reserved.reservations.told("NodeReservation", hold) == []
