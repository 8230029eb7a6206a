"""Holds and preemption: no Pod is evicted for a node that the preemptor could not get."""

import pytest

from tests.scheduling.reserving import CPU, Plot

pytest_plugins = ["tests.scheduling.fixtures"]
pytestmark = pytest.mark.usefixtures("reservations")
GATE = [{"name": "test.dispatcher.internal/gate"}]


async def high(plot: Plot, **wanted: object) -> str:
    return await plot.pod(priorityClassName=await plot.ground.priority("high", 100), **wanted)


async def test_no_pod_is_evicted_if_the_held_room_would_still_be_missing(plot: Plot) -> None:
    (node,) = await plot.ground.nodes(1, cpu="3900m")
    await plot.reserving.hold(node, {"cpu": "2000m"}, jobName="ours")
    victim = await plot.ground.occupy(node, cpu="1500m")
    await plot.becomes_held(node)
    pod = await high(plot, cpu="3000m")
    await plot.ground.held(pod, "Unschedulable", "preemption: ")
    assert set(await plot.ground.pods()) == {pod, victim}


async def test_refused_pod_preempts_on_another_node_when_the_hold_there_ends(plot: Plot) -> None:
    first, second = await plot.ground.nodes(2, cpu="3900m")
    await plot.reserving.hold(first, {"cpu": "3900m"}, taskId=7)
    hold = await plot.reserving.hold(second, {"cpu": "2000m"}, jobName="ours")
    victim = await plot.ground.occupy(second, cpu="1500m")
    for node in (first, second):
        await plot.becomes_held(node)
    pod = await high(plot, cpu="3000m")
    await plot.ground.held(pod, "Unschedulable", f"1 {CPU}")
    await plot.reserving.release(hold)
    assert await plot.ground.bound(pod, seconds=25) == [second]
    await plot.ground.gone(victim)


async def test_pod_that_may_not_preempt_is_tried_again_when_a_pod_is_gone(plot: Plot) -> None:
    """kube-scheduler ignores a note on a Pod that no `filter` refused. It tries the Pod again when any Pod is gone."""
    node, other = await plot.ground.nodes(2, cpu="3900m")
    hold = await plot.reserving.hold(node, {"cpu": "2000m"}, jobName="ours")
    await plot.ground.occupy(node, cpu="1500m")
    middle = await plot.ground.priority("middle", 200)
    await plot.ground.occupy(other, cpu="3700m", priorityClassName=middle)
    brief = await plot.ground.occupy(other, cpu="100m", priorityClassName=middle)
    await plot.becomes_held(node)
    pod = await high(plot, cpu="3000m")
    await plot.ground.held(pod, "Unschedulable", "preemption: ")
    await plot.reserving.release(hold)
    await plot.becomes_free(node, {"cpu": "2400m"})
    await plot.ground.delete_pod(brief)
    assert await plot.ground.bound(pod, seconds=25) == [node]


async def test_preemption_prefers_a_node_without_a_hold_to_a_lower_victim(plot: Plot) -> None:
    """kube-scheduler alone would choose the other node: there the victim's priority is lower."""
    held, other = await plot.ground.nodes(2, cpu="3900m")
    await plot.reserving.hold(held, {"cpu": "2000m"}, jobName="ours")
    spared = await plot.ground.occupy(held, cpu="1500m")
    victim = await plot.ground.occupy(other, cpu="1500m", priorityClassName=await plot.ground.priority("middle", 50))
    await plot.becomes_held(held)
    pod = await high(plot, cpu="3000m")
    assert await plot.ground.bound(pod) == [other]
    await plot.ground.gone(victim)
    assert spared in await plot.ground.pods()


async def test_pod_that_fits_beside_the_hold_may_preempt(plot: Plot) -> None:
    (node,) = await plot.ground.nodes(1, cpu="3900m")
    await plot.reserving.hold(node, {"cpu": "2000m"}, jobName="ours")
    victim = await plot.ground.occupy(node, cpu="2500m")
    await plot.becomes_held(node)
    pod = await high(plot, cpu="1900m")
    assert await plot.ground.bound(pod) == [node]
    await plot.ground.gone(victim)


async def test_pod_whose_nominated_node_is_held_goes_elsewhere_in_the_same_cycle(plot: Plot) -> None:
    """kube-scheduler asks for the nominated node alone, and then for all, in the same cycle."""
    held, other = await plot.ground.nodes(2, cpu="3900m")
    await plot.reserving.hold(held, {"cpu": "2000m"}, jobName="ours")
    await plot.becomes_held(held)
    pod = await plot.pod(cpu="3000m", schedulingGates=GATE)
    await plot.ground.promise(pod, held)
    before = await plot.ours.answered("filter")
    await plot.ground.open_gate(pod)
    assert await plot.ground.bound(pod) == [other]
    assert await plot.ours.answered("filter") >= before + 2
    assert not plot.scheduler.said("Unable to schedule pod; no fit; waiting", pod=plot.ground.key(pod))
    assert CPU not in str((await plot.ground.read(pod))["status"])
