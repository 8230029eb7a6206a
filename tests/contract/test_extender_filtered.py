"""The meaning of an extender's `filter` answer: the nodes that kube-scheduler takes, and what it tells the Pod."""

import re

import pytest

from tests.controlplane.api import Json
from tests.scheduling.kube_scheduler import entry
from tests.scheduling.nodes_and_pods import NodeGroup
from tests.scheduling.scripted_extender import Reply, ScriptedExtender, refuse
from tests.scheduling.shared_nodes import ScriptedNodes

pytest_plugins = ["tests.scheduling.fixtures"]


@pytest.mark.parametrize("names", [None, []], ids=["null", "an empty list"])
async def test_null_or_empty_names_mean_that_no_node_passes(
    shared_nodes: ScriptedNodes, names: list[str] | None
) -> None:
    shared_nodes.extender.filter = lambda asked: {"NodeNames": names}
    pod = await shared_nodes.pod()
    assert reasons(await shared_nodes.node_group.held(pod, "Unschedulable")) == []
    assert shared_nodes.extender.of("prioritize") == []


async def test_node_that_the_answer_does_not_name_has_no_reason(shared_nodes: ScriptedNodes) -> None:
    shared_nodes.extender.filter = lambda asked: {
        "NodeNames": [],
        "FailedNodes": {shared_nodes.nodes[0]: "held for another"},
    }
    pod = await shared_nodes.pod()
    assert reasons(await shared_nodes.node_group.held(pod, "Unschedulable")) == ["1 held for another"]


async def test_keys_of_the_answer_are_read_in_any_case(shared_nodes: ScriptedNodes) -> None:
    shared_nodes.extender.filter = lambda asked: {"nodenames": shared_nodes.nodes[:1]}
    _, node = await shared_nodes.bound()
    assert node == shared_nodes.nodes[0]


async def test_node_that_is_refused_and_passed_is_passed(shared_nodes: ScriptedNodes) -> None:
    maps = {"FailedNodes": dict.fromkeys(shared_nodes.nodes, "held")}
    shared_nodes.extender.filter = lambda asked: {"NodeNames": shared_nodes.nodes[:1], **maps}
    _, node = await shared_nodes.bound()
    assert node == shared_nodes.nodes[0]


async def test_node_that_is_named_twice_is_scored_twice(shared_nodes: ScriptedNodes) -> None:
    shared_nodes.extender.filter = lambda asked: {"NodeNames": asked["NodeNames"] * 2}
    pod, _ = await shared_nodes.bound()
    (asked,) = shared_nodes.extender.of("prioritize", pod)
    assert sorted(asked.names) == sorted(shared_nodes.nodes * 2)


async def test_unresolvable_refusal_is_counted_by_its_phrase_and_preempts_nobody(
    node_group: NodeGroup, extender: ScriptedExtender
) -> None:
    message = await refused(node_group, extender, refuse(into="FailedAndUnresolvableNodes"))
    assert reasons(message) == ["2 held for another"]
    assert "victim" not in message
    assert extender.of("preempt") == []


async def test_unresolvable_map_counts_if_both_maps_name_a_node(
    node_group: NodeGroup, extender: ScriptedExtender
) -> None:
    def both(asked: Json) -> Json:
        names = asked["NodeNames"]
        maps = {"FailedNodes": "held", "FailedAndUnresolvableNodes": "held for ever"}
        return {"NodeNames": [], **{into: dict.fromkeys(names, phrase) for into, phrase in maps.items()}}

    message = await refused(node_group, extender, both)
    assert reasons(message) == ["2 held for ever"]
    assert "victim" not in message


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
