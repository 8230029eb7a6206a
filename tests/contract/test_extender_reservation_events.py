"""Events of a Pod and of a reservation: which reservation keeps which Pod from which node, and what became of it."""

import pytest

from tests.scheduling.reserving import CPU, OURS, Plot

pytest_plugins = ["tests.scheduling.fixtures"]
pytestmark = pytest.mark.usefixtures("reservations")


async def test_event_of_a_pod_names_the_reservation_and_the_node(plot: Plot) -> None:
    nodes = await plot.ground.nodes(2, cpu="3900m")
    holds = [await plot.reserving.hold(node, {"cpu": "2000m"}, taskId=7) for node in nodes]
    for node in nodes:
        await plot.becomes_held(node)
    fitting = [await plot.pod(cpu="1500m") for _ in nodes]
    assert sorted(await plot.ground.bound(*fitting)) == sorted(nodes), "kube-scheduler knows both"
    pod = await plot.pod(cpu="1000m")
    told = await plot.reserving.becomes_told("Pod", pod, "Refused", f"{CPU}: by NodeReservation ")
    assert told["type"] == "Warning"
    assert told["involvedObject"]["uid"] == (await plot.ground.read(pod))["metadata"]["uid"]
    assert told["involvedObject"]["apiVersion"] == "v1"
    assert told["message"].removeprefix(f"{CPU}: by NodeReservation ") in {
        f"{plot.ground.key(hold)} on node {node}, and on 1 other nodes" for hold, node in zip(holds, nodes, strict=True)
    }


async def test_events_of_a_reservation_name_refused_pods_and_its_end(plot: Plot) -> None:
    here, there = await plot.ground.nodes(2, cpu="3900m")
    await plot.ground.occupy(there, cpu="3000m")
    hold = await plot.reserving.hold(here, {"cpu": "3900m"}, jobName="ours")
    await plot.becomes_held(here)
    for _ in range(2):
        words = f"Pod {plot.ground.key(await plot.pod(cpu='2000m'))} was kept from node {here}"
        event = await plot.reserving.becomes_told("NodeReservation", hold, "Refused", words)
        assert (event["type"], event["involvedObject"]["apiVersion"]) == ("Normal", "dispatcher.internal/v1alpha1")
    owner = await plot.pod(cpu="3900m", meta=OURS)
    assert await plot.ground.bound(owner) == [here]
    await plot.reserving.becomes_told("NodeReservation", hold, "Landed", f"its Pod is on node {here}")
    assert [one["reason"] for one in await plot.reserving.told("NodeReservation", hold)] == ["Refused", "Landed"]


async def test_event_tells_that_a_reserved_node_is_missing_and_back(plot: Plot) -> None:
    (node,) = await plot.ground.nodes(1)
    hold = await plot.reserving.hold(node, {"cpu": "1"}, jobName="ours")
    await plot.reserving.becomes(hold, "Active")
    was = await plot.ground.remove_node(node)
    event = await plot.reserving.becomes_told("NodeReservation", hold, "NodeMissing", f"there is no node {node}")
    assert event["type"] == "Warning"
    await plot.ground.return_node(was)
    await plot.reserving.becomes_told("NodeReservation", hold, "Active", f"room is held on node {node}")


async def test_reservation_that_only_holds_has_no_events(plot: Plot) -> None:
    (node,) = await plot.ground.nodes(1)
    hold = await plot.reserving.hold(node, {"cpu": "1"}, jobName="ours")
    await plot.reserving.becomes(hold, "Active")
    later = await plot.reserving.hold("nowhere", {"cpu": "1"}, jobName="theirs")
    await plot.reserving.becomes_told("NodeReservation", later, "NodeMissing", "there is no node nowhere")
    assert await plot.reserving.told("NodeReservation", hold) == []
