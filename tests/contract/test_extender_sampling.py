"""The nodes that kube-scheduler shows to an extender, and the costs of having one: samples, whole nodes, batches."""

import json

import pytest

from tests.scheduling.kube_scheduler import entry
from tests.scheduling.nodes_and_pods import NodeGroup
from tests.scheduling.own_extender import OwnExtender
from tests.scheduling.scripted_extender import ScriptedExtender, points

pytest_plugins = ["tests.scheduling.fixtures"]
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
