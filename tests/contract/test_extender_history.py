"""Our extender with a real kube-scheduler: a Pod goes to the newest node of its history that can take it."""

import json
from datetime import UTC, datetime

from tests.controlplane.api import Json
from tests.controlplane.waiting import wait_for
from tests.scheduling.kube_scheduler import KubeScheduler
from tests.scheduling.nodes_and_pods import NodeGroup
from tests.scheduling.own_extender import OwnExtender
from tests.scheduling.shared_nodes import SharedNodes

pytest_plugins = ["tests.scheduling.fixtures"]


def noted(*history: str) -> dict[str, str]:
    """Notes with that history, newest node first."""
    return {"history-nodes": json.dumps(history)}


async def warm(node_group: NodeGroup, scheduler: KubeScheduler, *history: str, **wanted: object) -> str:
    return await node_group.pod(scheduler, notes=noted(*history), **wanted)


async def test_nodes_of_the_history_get_thirty_twenty_and_ten_points(own_extender_nodes: SharedNodes) -> None:
    first, _, third, fourth = own_extender_nodes.nodes
    pod, node = await own_extender_nodes.bound(notes=noted(third, first, fourth))
    assert node == third
    assert own_extender_nodes.added(pod) == [20, 0, 30, 10]


async def test_every_node_gets_an_answer_so_ties_are_broken_at_random(own_extender_nodes: SharedNodes) -> None:
    pods = [await own_extender_nodes.pod(cpu=None, memory=None) for _ in range(20)]
    assert len(set(await own_extender_nodes.node_group.bound(*pods))) > 1
    for pod in pods:
        scored = own_extender_nodes.scheduler.said(
            "Extender scored node for pod", pod=own_extender_nodes.node_group.key(pod)
        )
        assert sorted(line["node"] for line in scored) == sorted(own_extender_nodes.nodes)


async def test_node_that_is_twice_in_the_history_takes_no_place_of_another(own_extender_nodes: SharedNodes) -> None:
    first, second, third, fourth = own_extender_nodes.nodes
    pod, _ = await own_extender_nodes.bound(notes=noted(first, first, second, third, fourth))
    assert own_extender_nodes.added(pod) == [30, 20, 10, 0]


async def test_third_node_is_taken_if_the_two_newest_cannot_take_the_pod(
    node_group: NodeGroup, own_extender: OwnExtender
) -> None:
    newest, second, third = nodes = await node_group.nodes(3)
    await node_group.cordon(second)
    await node_group.occupy(newest, cpu="7950m")
    assert await node_group.bound(
        await warm(node_group, node_group.scheduler_of(await own_extender.printed()), *nodes)
    ) == [third]


async def test_newest_node_that_is_gone_is_skipped(node_group: NodeGroup, own_extender: OwnExtender) -> None:
    newest, second, _ = nodes = await node_group.nodes(3)
    await node_group.remove_node(newest)
    assert await node_group.bound(
        await warm(node_group, node_group.scheduler_of(await own_extender.printed()), *nodes)
    ) == [second]


async def test_node_that_came_back_after_the_pod_was_made_gets_no_points(
    node_group: NodeGroup, own_extender: OwnExtender
) -> None:
    newest, second, _ = nodes = await node_group.nodes(3)
    scheduler = node_group.scheduler_of(await own_extender.printed())
    pod = await warm(node_group, scheduler, *nodes, schedulingGates=[{"name": "test.dispatcher.internal/wait"}])
    was = await node_group.remove_node(newest)
    await in_sight(own_extender, newest, known=False)
    await another_second(await node_group.read(pod))
    await node_group.return_node(was)
    await in_sight(own_extender, newest, known=True)
    await node_group.open_gate(pod)
    assert await node_group.bound(pod) == [second]
    assert scheduler.extender_score(node_group.key(pod), newest) == 0


async def test_node_that_came_back_gets_points_from_pods_made_since(
    node_group: NodeGroup, own_extender: OwnExtender
) -> None:
    newest, *_ = nodes = await node_group.nodes(3)
    await node_group.return_node(await node_group.remove_node(newest))
    scheduler = node_group.scheduler_of(await own_extender.printed())
    pod = await warm(node_group, scheduler, *nodes)
    assert await node_group.bound(pod) == [newest]
    assert scheduler.extender_score(node_group.key(pod), newest) == 30


async def another_second(made: Json) -> None:
    """Objects have times in whole seconds. Waits until a new object is younger than this one."""
    created = datetime.fromisoformat(made["metadata"]["creationTimestamp"])
    await wait_for(lambda: (datetime.now(UTC) - created).total_seconds() >= 1, "another second")


async def in_sight(own_extender: OwnExtender, node: str, *, known: bool) -> None:
    """Waits until the extender knows the node, or has forgotten it."""

    async def is_so() -> bool:
        _, told = await own_extender.post(
            "explain", {"Pod": {"metadata": {}, "spec": {}}, "Nodes": None, "NodeNames": None}
        )
        return (node in told["nodes"]) == known

    await wait_for(is_so, f"{node} is {'known' if known else 'forgotten'}")
