"""Preemption: what kube-scheduler asks an extender before it evicts Pods, and what it does not ask."""

from tests.controlplane.api import Json
from tests.scheduling.kube_scheduler import entry
from tests.scheduling.nodes_and_pods import NodeGroup
from tests.scheduling.scripted_extender import ScriptedExtender, refuse

pytest_plugins = ["tests.scheduling.fixtures"]


async def test_victims_are_lost_without_preempt_for_a_pod_that_no_node_takes(
    node_group: NodeGroup, extender: ScriptedExtender
) -> None:
    victims = await full(node_group, 3)
    extender.filter = refuse(into="FailedAndUnresolvableNodes")
    pod = await high(node_group, extender, preemptVerb=None)
    await node_group.gone(*victims)
    await node_group.held(pod, "Unschedulable", "held for another")
    assert "nodeName" not in (await node_group.read(pod))["spec"]


async def test_preempt_saves_the_victims_of_a_pod_that_no_node_takes(
    node_group: NodeGroup, extender: ScriptedExtender
) -> None:
    victims = await full(node_group, 3)
    extender.filter = refuse(into="FailedAndUnresolvableNodes")
    extender.preempt = lambda asked: {"NodeNameToMetaVictims": {}}
    pod = await high(node_group, extender)
    await node_group.held(pod, "Unschedulable", "preemption: ")
    assert set(await node_group.pods()) == {pod, *victims}
    assert extender.of("preempt")


async def test_fault_of_preempt_saves_the_victims(node_group: NodeGroup, extender: ScriptedExtender) -> None:
    victims = await full(node_group, 2)
    extender.preempt = lambda asked: b"{"
    pod = await high(node_group, extender)
    await node_group.held(pod, "Unschedulable", "unexpected EOF")
    assert set(await node_group.pods()) == {pod, *victims}


async def test_node_that_preempt_drops_keeps_its_pods(node_group: NodeGroup, extender: ScriptedExtender) -> None:
    kept, taken = await node_group.nodes(2, cpu="1")
    survivor, victim = [await node_group.occupy(node, cpu="900m") for node in (kept, taken)]

    def drop(asked: Json) -> Json:
        indexed_rows = dict(asked["NodeNameToMetaVictims"])
        indexed_rows.pop(kept, None)
        return {"NodeNameToMetaVictims": indexed_rows}

    extender.preempt = drop
    pod = await high(node_group, extender)
    assert await node_group.bound(pod) == [taken]
    await node_group.gone(victim)
    assert survivor in await node_group.pods()
    assert [call.names for call in extender.of("filter", pod)] == [[taken]], "the nominated node"
    assert extender.of("prioritize", pod) == []


async def test_preempt_is_asked_with_the_uids_of_the_victims(node_group: NodeGroup, extender: ScriptedExtender) -> None:
    (name,) = await full(node_group, 1)
    victim = await node_group.read(name)
    await node_group.bound(await high(node_group, extender))
    asked = extender.of("preempt")[0].body
    assert asked["NodeNameToVictims"] is None
    assert asked["NodeNameToMetaVictims"] == {
        victim["spec"]["nodeName"]: {"Pods": [{"UID": victim["metadata"]["uid"]}], "NumPDBViolations": 0}
    }


async def full(node_group: NodeGroup, number: int) -> list[str]:
    """Low-priority Pods that fill `number` nodes."""
    return [await node_group.occupy(node, cpu="900m") for node in await node_group.nodes(number, cpu="1")]


async def high(node_group: NodeGroup, extender: ScriptedExtender, **changes: object) -> str:
    """A Pod of high priority, for which others may be evicted."""
    scheduler = node_group.scheduler(entry(extender.url, **changes))
    return await node_group.pod(scheduler, cpu="500m", priorityClassName=await node_group.priority("high", 100))
