"""Our extender with a real kube-scheduler: points for history and real use, and the nodes that it is shown."""

import json
from datetime import UTC, datetime

import pytest

from tests.controlplane.api import Json
from tests.controlplane.waiting import wait_for
from tests.scheduling.kube_scheduler import KubeScheduler, entry
from tests.scheduling.nodes_and_pods import NodeGroup
from tests.scheduling.own_extender import OwnExtender
from tests.scheduling.scripted_extender import ScriptedExtender, points
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


REAL = json.dumps(
    [{"cpu": "3000m", "memory": "3000Mi"}, {"cpu": "2500m", "memory": "2000Mi"}, {"cpu": "2000m", "memory": "1500Mi"}]
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


async def test_ended_pods_take_no_room(node_group: NodeGroup, own_extender: OwnExtender) -> None:
    (node,) = await node_group.nodes(1, cpu="8", memory="12Gi")
    ending = await node_group.occupy(node, cpu="4", memory="8Gi")
    await becomes(own_extender, node, 6)
    await node_group.end_pod(ending)
    await becomes(own_extender, node, 7)


NODES = 130
SAMPLE = 100
SPREAD = {"name": "PodTopologySpread", "args": {"defaultingType": "List"}}
"""Without the default constraints. With them no two Pods are alike enough for a batch."""


@pytest.mark.slow
async def test_sampling_hides_the_best_node_except_with_our_configuration(
    node_group: NodeGroup, extender: ScriptedExtender, own_extender: OwnExtender
) -> None:
    warm = (await node_group.nodes(NODES))[NODES // 2]
    extender.prioritize = points(**{warm: 10})
    sampled, whole = node_group.scheduler(entry(extender.url)), node_group.scheduler_of(await own_extender.printed())
    pods = [await node_group.pod(sampled) for _ in range(6)]
    hits = {pod for pod, node in zip(pods, await node_group.bound(*pods), strict=True) if node == warm}
    shown = extender.of("prioritize")
    assert {len(call.names) for call in shown} == {SAMPLE}
    assert hits == {call.pod for call in shown if warm in call.names}
    pods = [await node_group.pod(whole, notes={"history-nodes": json.dumps([warm])}) for _ in range(20)]
    assert await node_group.bound(*pods) == [warm] * 20


@pytest.mark.parametrize(
    ("profile", "has_extender", "batches"),
    [({"pluginConfig": [SPREAD]}, False, True), ({"pluginConfig": [SPREAD]}, True, False), ({}, False, False)],
    ids=["without an extender", "with one", "without one, but as it comes"],
)
async def test_equal_pods_are_placed_in_batches_only_without_an_extender(
    node_group: NodeGroup, extender: ScriptedExtender, profile: dict[str, object], *, has_extender: bool, batches: bool
) -> None:
    await node_group.nodes(4, cpu="1")
    scheduler = node_group.scheduler(*[entry(extender.url)] * has_extender, **profile)
    pods = [await node_group.pod(scheduler, cpu="900m") for _ in range(4)]
    await node_group.bound(*pods)
    hints = [await scheduler.metric("scheduler_batch_attempts_total", result=result) for result in RESULTS]
    assert sum(hints) == 4
    assert (hints[0] > 0) == batches


RESULTS = ("hint_used", "no_hint", "hint_not_used")


@pytest.mark.parametrize("names_only", [True, False])
async def test_whole_nodes_make_kube_scheduler_forget_their_pods(
    node_group: NodeGroup, extender: ScriptedExtender, *, names_only: bool
) -> None:
    """Nodes that come back from `filter` count as empty nodes, so a busy node is as good as an idle one."""
    *busy, idle = await node_group.nodes(6)
    for node in busy:
        await node_group.occupy(node, cpu="6", memory="24Gi")
    scheduler = node_group.scheduler(entry(extender.url, nodeCacheCapable=names_only))
    pods = [await node_group.pod(scheduler) for _ in range(24)]
    on_idle = (await node_group.bound(*pods)).count(idle)
    if names_only:
        assert on_idle == 24
    else:
        assert on_idle < 16


async def test_pod_above_one_mebibyte_is_sent_whole(node_group: NodeGroup, extender: ScriptedExtender) -> None:
    """Made in two steps: neither a client nor the API server accepts such a Pod in one."""
    await node_group.nodes(1)
    env = [{"name": "A", "value": "a" * (1000 << 10)}]
    container = {"name": "task", "image": "registry.example/x:1", "env": env}
    gate = [{"name": "test.dispatcher.internal/whole"}]
    scheduler = node_group.scheduler(entry(extender.url))
    pod = await node_group.pod(scheduler, containers=[container], schedulingGates=gate)
    await node_group.annotate_pod(pod, padding="a" * (200 << 10))
    await node_group.open_gate(pod)
    await node_group.bound(pod)
    assert extender.calls[0].size > 1 << 20
