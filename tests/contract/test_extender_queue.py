"""The events after which kube-scheduler asks again about a refused Pod."""

from contextlib import suppress
from functools import partial
from itertools import count, cycle, islice

import pytest

from tests.controlplane.api import Json
from tests.controlplane.waiting import wait_for
from tests.scheduling.kube_scheduler import KubeScheduler, entry
from tests.scheduling.nodes_and_pods import NodeGroup
from tests.scheduling.scripted_extender import ScriptedExtender, refuse

pytest_plugins = ["tests.scheduling.fixtures"]
OWN = "UnschedulablePodUpdate"
PUT_BACK = "ScheduleAttemptFailure"


async def test_only_a_changing_refusal_phrase_makes_endless_calls(
    node_group: NodeGroup, extender: ScriptedExtender
) -> None:
    """Each new message is a new condition, and a new condition wakes the Pod: an endless loop of calls and writes.

    The Pod that is refused with the same words again is woken by its first condition alone.
    Events of nodes, for example of another test, may wake it too.
    """
    _, (same, changing), scheduler = await refused(node_group, extender, 2)
    seconds = count()

    def refuse_for(asked: Json) -> Json:
        phrase = "held for another" if asked["Pod"]["metadata"]["name"] == same else f"{next(seconds)} s"
        return {"NodeNames": [], "FailedAndUnresolvableNodes": dict.fromkeys(asked["NodeNames"], phrase)}

    extender.filter = refuse_for
    calls = len(extender.of("filter", changing))
    wakings = {pod: scheduler.retries_after(node_group.key(pod), OWN) for pod in (same, changing)}

    def woken(pod: str) -> int:
        return scheduler.retries_after(node_group.key(pod), OWN) - wakings[pod]

    await node_group.annotate_pod_by_status(changing, woken="1")
    await wait_for(lambda: len(extender.of("filter", changing)) >= calls + 20, "twenty calls")
    await wait_for(lambda: woken(changing) >= 10, "most of them after a condition of its own")
    assert woken(same) <= 2


@pytest.mark.slow
async def test_annotation_of_any_node_wakes_each_refused_pod(node_group: NodeGroup, extender: ScriptedExtender) -> None:
    (node, *_), pods, _ = await refused(node_group, extender, 3)
    before = {pod: len(extender.of("filter", pod)) for pod in pods}
    await node_group.annotate_node(node, load="0.7")
    await wait_for(lambda: all(len(extender.of("filter", pod)) > before[pod] for pod in pods), "a call for each")


async def test_annotation_of_a_refused_pod_wakes_that_pod_at_once(
    node_group: NodeGroup, extender: ScriptedExtender
) -> None:
    """A Pod that an event of a node has just woken, for example of another test, cannot be woken by its note.

    So Pods are annotated in turn until one is. The extender refuses all of them throughout.
    """
    _, pods, scheduler = await refused(node_group, extender, 3)
    for number, pod in enumerate(islice(cycle(pods), 21)):
        before = scheduler.retries_after(node_group.key(pod), OWN)
        await node_group.annotate_pod_by_status(pod, woken=str(number))
        with suppress(TimeoutError):
            await wait_for(partial(was_woken, scheduler, node_group.key(pod), before), "tried by the note", 3)
            return
    pytest.fail(f"none of {len(pods)} Pods was tried by its note")


def was_woken(scheduler: KubeScheduler, key: str, before: int) -> bool:
    """Whether kube-scheduler has tried the Pod again because of a change of the Pod."""
    return scheduler.retries_after(key, OWN) > before


async def refused(
    node_group: NodeGroup, extender: ScriptedExtender, number: int
) -> tuple[list[str], list[str], KubeScheduler]:
    """Pods that the extender refuses on every node, after kube-scheduler has stopped asking.

    The condition of the first refusal wakes a Pod once. The event is lost if the Pod is just tried again because of an
    event of a node, for example of another test. Then a note on the Pod wakes it.
    """
    nodes = await node_group.nodes(2)
    extender.filter = refuse(into="FailedAndUnresolvableNodes")
    scheduler = node_group.scheduler(entry(extender.url))
    pods = [await node_group.pod(scheduler) for _ in range(number)]
    for pod in pods:
        await node_group.held(pod, "Unschedulable", "held for another")
    keys = [node_group.key(pod) for pod in pods]

    def asleep() -> list[str]:
        return [pod for pod, key in zip(pods, keys, strict=True) if scheduler.retries_after(key, OWN) < 1]

    with suppress(TimeoutError):
        await wait_for(lambda: not asleep(), "woken by their conditions", 3)
    for pod in asleep():
        await node_group.annotate_pod_by_status(pod, nudged="1")
    await wait_for(lambda: not asleep(), "woken by their conditions or by a note")
    await wait_for(lambda: all(scheduler.retries_after(key, PUT_BACK) >= 2 for key in keys), "refused twice, put back")
    return nodes, pods, scheduler
