"""The meaning of an extender's `filter` answer: the nodes that kube-scheduler takes, and what it tells the Pod."""

import re

import pytest

from tests.scheduling.kube_scheduler import entry
from tests.scheduling.nodes_and_pods import NodeGroup
from tests.scheduling.scripted_extender import Reply, ScriptedExtender, refuse

pytest_plugins = ["tests.scheduling.fixtures"]


async def test_unresolvable_refusal_is_counted_by_its_phrase_and_preempts_nobody(
    node_group: NodeGroup, extender: ScriptedExtender
) -> None:
    message = await refused(node_group, extender, refuse(into="FailedAndUnresolvableNodes"))
    assert reasons(message) == ["2 held for another"]
    assert "victim" not in message
    assert extender.of("preempt") == []


@pytest.mark.parametrize("verb", ["preempt", None], ids=["with preempt", "without"])
async def test_refusal_in_failed_nodes_starts_a_useless_preemption(
    node_group: NodeGroup, extender: ScriptedExtender, verb: str | None
) -> None:
    message = await refused(node_group, extender, refuse(into="FailedNodes"), preemptVerb=verb)
    assert reasons(message) == ["2 held for another"]
    assert "expected at least one victim pod on node" in message


async def refused(node_group: NodeGroup, extender: ScriptedExtender, reply: Reply, **changes: object) -> str:
    """The message of a refused Pod of high priority, while lower Pods run on nodes with room."""
    for node in await node_group.nodes(2):
        await node_group.occupy(node)
    extender.filter = reply
    high = await node_group.priority("high", 100)
    pod = await node_group.pod(node_group.scheduler(entry(extender.url, **changes)), priorityClassName=high)
    message = await node_group.held(pod, "Unschedulable")
    assert len(await node_group.pods()) == 3
    return message


def reasons(message: str) -> list[str]:
    """Reasons of the extender. Those of kube-scheduler begin with `node(s)`, and are about nodes of other tests."""
    told = re.match(r"0/\d+ nodes are available:(.*?)(?:no new claims to deallocate, )?preemption: ", message)
    assert told, message
    return [one for one in told[1].strip(" .").split(", ") if one and not re.match(r"\d+ node\(s\) ", one)]
