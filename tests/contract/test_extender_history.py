"""Our extender with a real kube-scheduler: a Pod goes to the newest node of its history that can take it."""

import json
from datetime import UTC, datetime

import pytest

from tests.controlplane.api import Json
from tests.controlplane.waiting import wait_for
from tests.scheduling.kube_scheduler import KubeScheduler
from tests.scheduling.nodes_and_pods import Ground
from tests.scheduling.own_extender import OurExtender
from tests.scheduling.stage import DemoEnvironment

pytest_plugins = ["tests.scheduling.fixtures"]


def noted(*history: str) -> dict[str, str]:
    """Notes with that history, newest node first."""
    return {"history-nodes": json.dumps(history)}


async def warm(ground: Ground, scheduler: KubeScheduler, *history: str, **wanted: object) -> str:
    return await ground.pod(scheduler, notes=noted(*history), **wanted)


async def test_nodes_of_the_history_get_thirty_twenty_and_ten_points(our_stage: DemoEnvironment) -> None:
    first, _, third, fourth = our_stage.nodes
    pod, node = await our_stage.bound(notes=noted(third, first, fourth))
    assert node == third
    assert our_stage.added(pod) == [20, 0, 30, 10]


async def test_pod_without_notes_gets_no_points(our_stage: DemoEnvironment) -> None:
    pod, _ = await our_stage.bound()
    assert our_stage.added(pod) == [0] * 4


async def test_every_node_gets_an_answer_so_ties_are_broken_at_random(our_stage: DemoEnvironment) -> None:
    pods = [await our_stage.pod(cpu=None, memory=None) for _ in range(20)]
    assert len(set(await our_stage.ground.bound(*pods))) > 1
    for pod in pods:
        scored = our_stage.scheduler.said("Extender scored node for pod", pod=our_stage.ground.key(pod))
        assert sorted(line["node"] for line in scored) == sorted(our_stage.nodes)


async def test_node_that_is_twice_in_the_history_takes_no_place_of_another(our_stage: DemoEnvironment) -> None:
    first, second, third, fourth = our_stage.nodes
    pod, _ = await our_stage.bound(notes=noted(first, first, second, third, fourth))
    assert our_stage.added(pod) == [30, 20, 10, 0]


async def test_node_that_is_gone_takes_no_points_from_the_next(our_stage: DemoEnvironment) -> None:
    pod, node = await our_stage.bound(notes=noted("no-such-node", our_stage.nodes[2]))
    assert node == our_stage.nodes[2]
    assert our_stage.added(pod) == [0, 0, 20, 0]


@pytest.mark.parametrize("written", ["", "n1", "{}", "5", "null", '["a", 5]', "[" * 2000, '"a"'])
async def test_invalid_history_is_counted_and_ignored(
    our_stage: DemoEnvironment, ours: OurExtender, written: str
) -> None:
    before = await ours.metric("dispatcher_extender_ignored_total", part="history-nodes")
    pod, _ = await our_stage.bound(notes={"history-nodes": written})
    assert our_stage.added(pod) == [0] * 4
    assert await ours.metric("dispatcher_extender_ignored_total", part="history-nodes") == before + 1


async def test_cordoned_newest_node_is_skipped(ground: Ground, ours: OurExtender) -> None:
    newest, second, _ = nodes = await ground.nodes(3)
    await ground.cordon(newest)
    assert await ground.bound(await warm(ground, ground.scheduler_of(await ours.printed()), *nodes)) == [second]


async def test_full_newest_node_is_skipped(ground: Ground, ours: OurExtender) -> None:
    newest, second, _ = nodes = await ground.nodes(3)
    await ground.occupy(newest, cpu="7950m")
    assert await ground.bound(await warm(ground, ground.scheduler_of(await ours.printed()), *nodes)) == [second]


async def test_third_node_is_taken_if_the_two_newest_cannot_take_the_pod(ground: Ground, ours: OurExtender) -> None:
    newest, second, third = nodes = await ground.nodes(3)
    await ground.cordon(second)
    await ground.occupy(newest, cpu="7950m")
    assert await ground.bound(await warm(ground, ground.scheduler_of(await ours.printed()), *nodes)) == [third]


async def test_newest_node_that_is_gone_is_skipped(ground: Ground, ours: OurExtender) -> None:
    newest, second, _ = nodes = await ground.nodes(3)
    await ground.remove_node(newest)
    assert await ground.bound(await warm(ground, ground.scheduler_of(await ours.printed()), *nodes)) == [second]


async def test_node_that_came_back_after_the_pod_was_made_gets_no_points(ground: Ground, ours: OurExtender) -> None:
    newest, second, _ = nodes = await ground.nodes(3)
    scheduler = ground.scheduler_of(await ours.printed())
    pod = await warm(ground, scheduler, *nodes, schedulingGates=[{"name": "test.dispatcher.internal/wait"}])
    was = await ground.remove_node(newest)
    await in_sight(ours, newest, known=False)
    await another_second(await ground.read(pod))
    await ground.return_node(was)
    await in_sight(ours, newest, known=True)
    await ground.open_gate(pod)
    assert await ground.bound(pod) == [second]
    assert scheduler.of_extenders(ground.key(pod), newest) == 0


async def test_node_that_came_back_gets_points_from_pods_made_since(ground: Ground, ours: OurExtender) -> None:
    newest, *_ = nodes = await ground.nodes(3)
    await ground.return_node(await ground.remove_node(newest))
    scheduler = ground.scheduler_of(await ours.printed())
    pod = await warm(ground, scheduler, *nodes)
    assert await ground.bound(pod) == [newest]
    assert scheduler.of_extenders(ground.key(pod), newest) == 30


async def another_second(made: Json) -> None:
    """Objects have times in whole seconds. Waits until a new object is younger than this one."""
    created = datetime.fromisoformat(made["metadata"]["creationTimestamp"])
    await wait_for(lambda: (datetime.now(UTC) - created).total_seconds() >= 1, "another second")


async def in_sight(ours: OurExtender, node: str, *, known: bool) -> None:
    """Waits until the extender knows the node, or has forgotten it."""

    async def is_so() -> bool:
        _, told = await ours.post("explain", {"Pod": {"metadata": {}, "spec": {}}, "Nodes": None, "NodeNames": None})
        return (node in told["nodes"]) == known

    await wait_for(is_so, f"{node} is {'known' if known else 'forgotten'}")
