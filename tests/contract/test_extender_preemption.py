"""Preemption: what kube-scheduler asks an extender before it evicts Pods, and what it does not ask."""

import pytest

from tests.controlplane.api import Json
from tests.scheduling.kube_scheduler import entry
from tests.scheduling.nodes_and_pods import Ground
from tests.scheduling.scripted import Scripted, refuse

pytest_plugins = ["tests.scheduling.fixtures"]


async def test_victims_are_lost_without_preempt_for_a_pod_that_no_node_takes(
    ground: Ground, extender: Scripted
) -> None:
    victims = await full(ground, 3)
    extender.filter = refuse(into="FailedAndUnresolvableNodes")
    pod = await high(ground, extender, preemptVerb=None)
    await ground.gone(*victims)
    await ground.held(pod, "Unschedulable", "held for another")
    assert "nodeName" not in (await ground.read(pod))["spec"]


async def test_preempt_saves_the_victims_of_a_pod_that_no_node_takes(ground: Ground, extender: Scripted) -> None:
    victims = await full(ground, 3)
    extender.filter = refuse(into="FailedAndUnresolvableNodes")
    extender.preempt = lambda asked: {"NodeNameToMetaVictims": {}}
    pod = await high(ground, extender)
    await ground.held(pod, "Unschedulable", "preemption: ")
    assert set(await ground.pods()) == {pod, *victims}
    assert extender.of("preempt")


async def test_fault_of_preempt_saves_the_victims(ground: Ground, extender: Scripted) -> None:
    victims = await full(ground, 2)
    extender.preempt = lambda asked: b"{"
    pod = await high(ground, extender)
    await ground.held(pod, "Unschedulable", "unexpected EOF")
    assert set(await ground.pods()) == {pod, *victims}


async def test_fault_of_an_ignorable_preempt_saves_nobody(ground: Ground, extender: Scripted) -> None:
    victims = await full(ground, 2)
    extender.preempt = lambda asked: b"{"
    pod = await high(ground, extender, ignorable=True)
    await ground.bound(pod)
    assert len(set(await ground.pods()) & set(victims)) == 1


async def test_node_that_preempt_drops_keeps_its_pods(ground: Ground, extender: Scripted) -> None:
    kept, taken = await ground.nodes(2, cpu="1")
    survivor, victim = [await ground.occupy(node, cpu="900m") for node in (kept, taken)]

    def drop(asked: Json) -> Json:
        indexed_rows = dict(asked["NodeNameToMetaVictims"])
        indexed_rows.pop(kept, None)
        return {"NodeNameToMetaVictims": indexed_rows}

    extender.preempt = drop
    pod = await high(ground, extender)
    assert await ground.bound(pod) == [taken]
    await ground.gone(victim)
    assert survivor in await ground.pods()
    assert [call.names for call in extender.of("filter", pod)] == [[taken]], "the nominated node"
    assert extender.of("prioritize", pod) == []


async def test_preempt_is_asked_with_the_uids_of_the_victims(ground: Ground, extender: Scripted) -> None:
    (name,) = await full(ground, 1)
    victim = await ground.read(name)
    await ground.bound(await high(ground, extender))
    asked = extender.of("preempt")[0].body
    assert asked["NodeNameToVictims"] is None
    assert asked["NodeNameToMetaVictims"] == {
        victim["spec"]["nodeName"]: {"Pods": [{"UID": victim["metadata"]["uid"]}], "NumPDBViolations": 0}
    }


async def test_preempt_without_node_cache_gets_whole_pods_and_answers_with_uids(
    ground: Ground, extender: Scripted
) -> None:
    (victim,) = await full(ground, 1)

    def echo(asked: Json) -> Json:
        indexed_rows = asked["NodeNameToVictims"].items()
        uids = {node: [{"UID": pod["metadata"]["uid"]} for pod in told["Pods"]] for node, told in indexed_rows}
        return {"NodeNameToMetaVictims": {node: {"Pods": pods, "NumPDBViolations": 0} for node, pods in uids.items()}}

    extender.preempt = echo
    await ground.bound(await high(ground, extender, nodeCacheCapable=False))
    assert extender.of("preempt")[0].body["NodeNameToMetaVictims"] is None
    await ground.gone(victim)


@pytest.mark.parametrize(
    ("pods", "fault"),
    [([], "expected at least one victim pod"), ([{"UID": "no-such"}], "the pod is not found on that node")],
    ids=["no victim", "an unknown one"],
)
async def test_unknown_or_no_victims_in_the_answer_fail_the_preemption(
    ground: Ground, extender: Scripted, pods: list[Json], fault: str
) -> None:
    victims = await full(ground, 1)
    extender.preempt = lambda asked: {
        "NodeNameToMetaVictims": {
            node: {"Pods": pods, "NumPDBViolations": 0} for node in asked["NodeNameToMetaVictims"]
        }
    }
    pod = await high(ground, extender)
    await ground.held(pod, "Unschedulable", fault)
    assert set(await ground.pods()) == {pod, *victims}


async def full(ground: Ground, number: int) -> list[str]:
    """Low-priority Pods that fill `number` nodes."""
    return [await ground.occupy(node, cpu="900m") for node in await ground.nodes(number, cpu="1")]


async def high(ground: Ground, extender: Scripted, **changes: object) -> str:
    """A Pod of high priority, for which others may be evicted."""
    scheduler = ground.scheduler(entry(extender.url, **changes))
    return await ground.pod(scheduler, cpu="500m", priorityClassName=await ground.priority("high", 100))
