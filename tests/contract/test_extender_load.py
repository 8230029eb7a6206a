"""Points for the expected real use of a Pod: the golden cases of the original plugin, on nodes of the same sizes.

The Pod requests 1000m and 1Gi and has limits of 4000m and 4Gi. REAL is the use of its earlier runs.
"""

import json

from tests.controlplane.waiting import wait_for
from tests.scheduling.nodes_and_pods import NodeGroup
from tests.scheduling.own_extender import OwnExtender

pytest_plugins = ["tests.scheduling.fixtures"]
REAL = json.dumps(
    [
        {"cpu": "3000m", "memory": "3000Mi"},
        {"cpu": "2500m", "memory": "2000Mi"},
        {"cpu": "2000m", "memory": "1500Mi"},
    ]
)
RESOURCES = {"requests": {"cpu": "1000m", "memory": "1Gi"}, "limits": {"cpu": "4000m", "memory": "4Gi"}}
CONTAINER = {"name": "task", "image": "registry.example/x:1", "resources": RESOURCES}
POD = {"metadata": {"annotations": {"dispatcher.internal/real-resources": REAL}}, "spec": {"containers": [CONTAINER]}}
GOLDEN = {
    ("5000m", "8Gi"): 7,
    ("4000m", "4Gi"): 6,
    ("2600m", "2500Mi"): 5,
    ("1500m", "1200Mi"): 1,
    ("5000m", "1200Mi"): 4,
    ("5000m", "4Gi"): 6,
}
"""Points by cpu and memory of the node."""


async def becomes(own_extender: OwnExtender, node: str, score: int) -> None:
    """Waits for these points: they change with the Pods on the node, once the extender hears of them."""

    async def is_so() -> bool:
        return await own_extender.scores(POD, [node]) == {node: score}

    await wait_for(is_so, f"the node is given {score} points")


async def test_point_of_a_golden_case_is_ten_points_of_kube_scheduler(
    node_group: NodeGroup, own_extender: OwnExtender
) -> None:
    """The node of the history has three more."""
    nodes = [(await node_group.nodes(1, cpu=cpu, memory=memory))[0] for cpu, memory in GOLDEN]
    for node, score in zip(nodes, GOLDEN.values(), strict=True):
        await becomes(own_extender, node, score)
    scheduler = node_group.scheduler_of(await own_extender.printed())
    notes = {"real-resources": REAL, "history-nodes": json.dumps(nodes[:1])}
    name = await node_group.pod(scheduler, notes=notes, containers=[CONTAINER])
    assert await node_group.bound(name) == nodes[:1]
    points = [scheduler.extender_score(node_group.key(name), node) for node in nodes]
    assert points == [100, *(10 * score for score in list(GOLDEN.values())[1:])]


async def test_requests_of_pods_on_the_node_are_not_free(node_group: NodeGroup, own_extender: OwnExtender) -> None:
    (node,) = await node_group.nodes(1, cpu="8", memory="12Gi")
    await becomes(own_extender, node, 7)
    filling = await node_group.occupy(node, cpu="4", memory="8Gi")
    await becomes(own_extender, node, 6)
    await node_group.delete_pod(filling)
    await becomes(own_extender, node, 7)


async def test_ended_pods_take_no_room(node_group: NodeGroup, own_extender: OwnExtender) -> None:
    (node,) = await node_group.nodes(1, cpu="8", memory="12Gi")
    ending = await node_group.occupy(node, cpu="4", memory="8Gi")
    await becomes(own_extender, node, 6)
    await node_group.end_pod(ending)
    await becomes(own_extender, node, 7)
