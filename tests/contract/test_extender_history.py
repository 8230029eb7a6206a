"""Our extender and a real kube-scheduler: a Pod goes to the newest node of its history that will have it."""

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
    """Newest first."""
    return {"history-nodes": json.dumps(history)}


async def warm(ground: Ground, scheduler: KubeScheduler, *history: str, **wanted: object) -> str:
    return await ground.pod(scheduler, notes=noted(*history), **wanted)


async def test_three_nodes_get_thirty_twenty_and_ten_points(our_stage: DemoEnvironment) -> None:
    first, _, third, fourth = our_stage.nodes
    pod, node = await our_stage.bound(notes=noted(third, first, fourth))
    assert node == third
    assert our_stage.added(pod) == [20, 0, 30, 10]


async def test_a_pod_without_notes_gets_no_points_anywhere(our_stage: DemoEnvironment) -> None:
    pod, _ = await our_stage.bound()
    assert our_stage.added(pod) == [0] * 4


async def test_every_node_is_answered_for_so_that_ties_are_broken_by_lot(our_stage: DemoEnvironment) -> None:
    pods = [await our_stage.pod(cpu=None, memory=None) for _ in range(20)]
    assert len(set(await our_stage.ground.bound(*pods))) > 1
    for pod in pods:
        scored = our_stage.scheduler.said("Extender scored node for pod", pod=our_stage.ground.key(pod))
        assert sorted(line["node"] for line in scored) == sorted(our_stage.nodes)


async def test_a_node_that_stands_twice_in_it_takes_no_place_of_another(our_stage: DemoEnvironment) -> None:
    first, second, third, fourth = our_stage.nodes
    pod, _ = await our_stage.bound(notes=noted(first, first, second, third, fourth))
    assert our_stage.added(pod) == [30, 20, 10, 0]


async def test_nodes_that_are_gone_take_no_points_from_those_behind_them(our_stage: DemoEnvironment) -> None:
    pod, node = await our_stage.bound(notes=noted("no-such-node", our_stage.nodes[2]))
    assert node == our_stage.nodes[2]
    assert our_stage.added(pod) == [0, 0, 20, 0]


@pytest.mark.parametrize("written", ["", "n1", "{}", "5", "null", '["a", 5]', "[" * 2000, '"a"'])
async def test_a_history_that_is_none_is_counted_and_binds_the_pod_as_without(
    our_stage: DemoEnvironment, ours: OurExtender, written: str
) -> None:
    before = await ours.metric("dispatcher_extender_ignored_total", part="history-nodes")
    pod, _ = await our_stage.bound(notes={"history-nodes": written})
    assert our_stage.added(pod) == [0] * 4
    assert await ours.metric("dispatcher_extender_ignored_total", part="history-nodes") == before + 1


async def test_the_newest_node_is_cordoned(ground: Ground, ours: OurExtender) -> None:
    newest, second, _ = nodes = await ground.nodes(3)
    await ground.cordon(newest)
    assert await ground.bound(await warm(ground, ground.scheduler_of(await ours.printed()), *nodes)) == [second]


async def test_the_newest_node_is_full(ground: Ground, ours: OurExtender) -> None:
    newest, second, _ = nodes = await ground.nodes(3)
    await ground.occupy(newest, cpu="7950m")
    assert await ground.bound(await warm(ground, ground.scheduler_of(await ours.printed()), *nodes)) == [second]


async def test_the_two_newest_will_not_have_it(ground: Ground, ours: OurExtender) -> None:
    newest, second, third = nodes = await ground.nodes(3)
    await ground.cordon(second)
    await ground.occupy(newest, cpu="7950m")
    assert await ground.bound(await warm(ground, ground.scheduler_of(await ours.printed()), *nodes)) == [third]


async def test_the_newest_node_is_gone(ground: Ground, ours: OurExtender) -> None:
    newest, second, _ = nodes = await ground.nodes(3)
    await ground.remove_node(newest)
    assert await ground.bound(await warm(ground, ground.scheduler_of(await ours.printed()), *nodes)) == [second]


async def test_a_node_that_is_back_under_its_name_since_the_pod_was_made_is_another_one(
    ground: Ground, ours: OurExtender
) -> None:
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


async def test_a_node_that_is_back_gets_points_again_from_pods_that_ran_on_it_since(
    ground: Ground, ours: OurExtender
) -> None:
    newest, *_ = nodes = await ground.nodes(3)
    await ground.return_node(await ground.remove_node(newest))
    scheduler = ground.scheduler_of(await ours.printed())
    pod = await warm(ground, scheduler, *nodes)
    assert await ground.bound(pod) == [newest]
    assert scheduler.of_extenders(ground.key(pod), newest) == 30


async def another_second(made: Json) -> None:
    """Objects are dated in whole seconds: what is made now is younger than that."""
    created = datetime.fromisoformat(made["metadata"]["creationTimestamp"])
    await wait_for(lambda: (datetime.now(UTC) - created).total_seconds() >= 1, "another second")


async def in_sight(ours: OurExtender, node: str, *, known: bool) -> None:
    """Whether the extender has heard of the node."""

    async def is_so() -> bool:
        _, told = await ours.post("explain", {"Pod": {"metadata": {}, "spec": {}}, "Nodes": None, "NodeNames": None})
        return (node in told["nodes"]) == known

    await wait_for(is_so, f"{node} is {'known' if known else 'forgotten'}")
