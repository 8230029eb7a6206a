"""The meaning of an extender's points for kube-scheduler."""

import pytest

from tests.scheduling.kube_scheduler import entry
from tests.scheduling.nodes_and_pods import NodeGroup
from tests.scheduling.scripted_extender import ScriptedExtender, points
from tests.scheduling.shared_nodes import ScriptedNodes

pytest_plugins = ["tests.scheduling.fixtures"]


async def test_pod_without_points_is_bound_with_two_calls_over_one_connection(shared_nodes: ScriptedNodes) -> None:
    pods = [await shared_nodes.pod() for _ in range(5)]
    assert set(await shared_nodes.node_group.bound(*pods)) <= set(shared_nodes.nodes)
    calls = shared_nodes.extender.calls
    assert [call.verb for call in calls] == ["filter", "prioritize"] * 5
    assert [call.pod for call in calls[::2]] == [call.pod for call in calls[1::2]]
    assert sorted(call.pod for call in calls[::2]) == sorted(pods)
    assert len({call.peer for call in calls}) == 1


async def test_single_node_needs_no_points(node_group: NodeGroup, extender: ScriptedExtender) -> None:
    await node_group.nodes(1)
    await node_group.bound(await node_group.pod(node_group.scheduler(entry(extender.url))))
    assert [call.verb for call in extender.calls] == ["filter"]


async def test_one_point_of_weight_three_is_thirty(node_group: NodeGroup, extender: ScriptedExtender) -> None:
    first, second = await node_group.nodes(2)
    extender.prioritize = points(**{first: 1})
    scheduler = node_group.scheduler(entry(extender.url, weight=3))
    pod = await node_group.pod(scheduler)
    assert await node_group.bound(pod) == [first]
    added = [scheduler.extender_score(node_group.key(pod), node) for node in (first, second)]
    assert added == [30, 0]


@pytest.mark.parametrize(("said", "wins"), [(3, "idle"), (5, "busy")])
async def test_five_points_outweigh_a_cpu_three_quarters_full_and_three_do_not(
    node_group: NodeGroup, extender: ScriptedExtender, said: int, wins: str
) -> None:
    busy, idle = await node_group.nodes(2)
    await node_group.occupy(busy, cpu="6")
    extender.prioritize = points(**{busy: said})
    scheduler = node_group.scheduler(entry(extender.url))
    pod = await node_group.pod(scheduler)
    assert await node_group.bound(pod) == [{"idle": idle, "busy": busy}[wins]]
    plugins = [sum(scheduler.plugin_scores(node_group.key(pod), node).values()) for node in (idle, busy)]
    assert 30 < plugins[0] - plugins[1] < 40


async def test_points_given_twice_add_up(shared_nodes: ScriptedNodes) -> None:
    first, second = shared_nodes.nodes
    shared_nodes.extender.prioritize = lambda asked: [{"Host": first, "Score": 2}] * 2 + [{"Host": second, "Score": 3}]
    pod, node = await shared_nodes.bound()
    assert node == first
    assert shared_nodes.added(pod) == [40, 30]


async def test_node_left_out_of_the_answer_loses_ties_to_a_node_with_zero(shared_nodes: ScriptedNodes) -> None:
    """Only nodes with an answer take part in the random choice that breaks ties."""
    for node in shared_nodes.nodes:
        shared_nodes.extender.prioritize = points(**{node: 0})
        pods = [await shared_nodes.pod(cpu=None, memory=None) for _ in range(6)]
        assert await shared_nodes.node_group.bound(*pods) == [node] * 6
    assert len(set(shared_nodes.scheduler.final_scores(shared_nodes.node_group.key(pods[-1])).values())) == 1, "a tie"
