"""Holds and preemption: no Pod is evicted for a node that the preemptor could not get."""

import pytest

from tests.scheduling.reservations import CPU, ReservedNodes

pytest_plugins = ["tests.scheduling.fixtures"]
pytestmark = pytest.mark.usefixtures("reservations")
GATE = [{"name": "test.dispatcher.internal/gate"}]


async def high(reserved: ReservedNodes, **wanted: object) -> str:
    return await reserved.pod(priorityClassName=await reserved.node_group.priority("high", 100), **wanted)


async def test_no_pod_is_evicted_if_the_held_room_would_still_be_missing(reserved: ReservedNodes) -> None:
    (node,) = await reserved.node_group.nodes(1, cpu="3900m")
    await reserved.reservations.hold(node, {"cpu": "2000m"}, jobName="ours")
    victim = await reserved.node_group.occupy(node, cpu="1500m")
    await reserved.wait_until_held(node)
    pod = await high(reserved, cpu="3000m")
    await reserved.node_group.held(pod, "Unschedulable", "preemption: ")
    assert set(await reserved.node_group.pods()) == {pod, victim}


async def test_refused_pod_preempts_on_another_node_when_the_hold_there_ends(reserved: ReservedNodes) -> None:
    first, second = await reserved.node_group.nodes(2, cpu="3900m")
    await reserved.reservations.hold(first, {"cpu": "3900m"}, taskId=7)
    hold = await reserved.reservations.hold(second, {"cpu": "2000m"}, jobName="ours")
    victim = await reserved.node_group.occupy(second, cpu="1500m")
    for node in (first, second):
        await reserved.wait_until_held(node)
    pod = await high(reserved, cpu="3000m")
    await reserved.node_group.held(pod, "Unschedulable", f"1 {CPU}")
    await reserved.reservations.release(hold)
    assert await reserved.node_group.bound(pod, seconds=25) == [second]
    await reserved.node_group.gone(victim)


async def test_pod_that_may_not_preempt_is_tried_again_when_a_pod_is_gone(reserved: ReservedNodes) -> None:
    """kube-scheduler ignores a note on a Pod that no `filter` refused. It tries the Pod again when any Pod is gone."""
    node, other = await reserved.node_group.nodes(2, cpu="3900m")
    hold = await reserved.reservations.hold(node, {"cpu": "2000m"}, jobName="ours")
    await reserved.node_group.occupy(node, cpu="1500m")
    middle = await reserved.node_group.priority("middle", 200)
    await reserved.node_group.occupy(other, cpu="3700m", priorityClassName=middle)
    brief = await reserved.node_group.occupy(other, cpu="100m", priorityClassName=middle)
    await reserved.wait_until_held(node)
    pod = await high(reserved, cpu="3000m")
    await reserved.node_group.held(pod, "Unschedulable", "preemption: ")
    await reserved.reservations.release(hold)
    await reserved.wait_until_free(node, {"cpu": "2400m"})
    await reserved.node_group.delete_pod(brief)
    assert await reserved.node_group.bound(pod, seconds=25) == [node]


async def test_preemption_prefers_a_node_without_a_hold_to_a_lower_victim(reserved: ReservedNodes) -> None:
    """kube-scheduler alone would choose the other node: there the victim's priority is lower."""
    held, other = await reserved.node_group.nodes(2, cpu="3900m")
    await reserved.reservations.hold(held, {"cpu": "2000m"}, jobName="ours")
    spared = await reserved.node_group.occupy(held, cpu="1500m")
    victim = await reserved.node_group.occupy(
        other, cpu="1500m", priorityClassName=await reserved.node_group.priority("middle", 50)
    )
    await reserved.wait_until_held(held)
    pod = await high(reserved, cpu="3000m")
    assert await reserved.node_group.bound(pod) == [other]
    await reserved.node_group.gone(victim)
    assert spared in await reserved.node_group.pods()


async def test_pod_that_fits_beside_the_hold_may_preempt(reserved: ReservedNodes) -> None:
    (node,) = await reserved.node_group.nodes(1, cpu="3900m")
    await reserved.reservations.hold(node, {"cpu": "2000m"}, jobName="ours")
    victim = await reserved.node_group.occupy(node, cpu="2500m")
    await reserved.wait_until_held(node)
    pod = await high(reserved, cpu="1900m")
    assert await reserved.node_group.bound(pod) == [node]
    await reserved.node_group.gone(victim)


async def test_pod_whose_nominated_node_is_held_goes_elsewhere_in_the_same_cycle(reserved: ReservedNodes) -> None:
    """kube-scheduler asks for the nominated node alone, and then for all, in the same cycle."""
    held, other = await reserved.node_group.nodes(2, cpu="3900m")
    await reserved.reservations.hold(held, {"cpu": "2000m"}, jobName="ours")
    await reserved.wait_until_held(held)
    pod = await reserved.pod(cpu="3000m", schedulingGates=GATE)
    await reserved.node_group.nominate(pod, held)
    before = await reserved.own_extender.answered("filter")
    await reserved.node_group.open_gate(pod)
    assert await reserved.node_group.bound(pod) == [other]
    assert await reserved.own_extender.answered("filter") >= before + 2
    assert not reserved.scheduler.said("Unable to schedule pod; no fit; waiting", pod=reserved.node_group.key(pod))
    assert CPU not in str((await reserved.node_group.read(pod))["status"])
