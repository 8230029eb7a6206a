"""The meaning of an extender's `filter` answer: the nodes that kube-scheduler takes, and what it tells the Pod."""

import re

import pytest

from tests.controlplane.api import Json
from tests.scheduling.kube_scheduler import entry
from tests.scheduling.nodes_and_pods import Ground
from tests.scheduling.scripted import Reply, Scripted, refuse
from tests.scheduling.stage import ScriptedStage

pytest_plugins = ["tests.scheduling.fixtures"]


@pytest.mark.parametrize("names", [None, []], ids=["null", "an empty list"])
async def test_null_or_empty_names_mean_that_no_node_passes(stage: ScriptedStage, names: list[str] | None) -> None:
    stage.extender.filter = lambda asked: {"NodeNames": names}
    pod = await stage.pod()
    assert reasons(await stage.ground.held(pod, "Unschedulable")) == []
    assert stage.extender.of("prioritize") == []


async def test_node_that_the_answer_does_not_name_has_no_reason(stage: ScriptedStage) -> None:
    stage.extender.filter = lambda asked: {"NodeNames": [], "FailedNodes": {stage.nodes[0]: "held for another"}}
    pod = await stage.pod()
    assert reasons(await stage.ground.held(pod, "Unschedulable")) == ["1 held for another"]


async def test_keys_of_the_answer_are_read_in_any_case(stage: ScriptedStage) -> None:
    stage.extender.filter = lambda asked: {"nodenames": stage.nodes[:1]}
    _, node = await stage.bound()
    assert node == stage.nodes[0]


async def test_node_that_is_refused_and_passed_is_passed(stage: ScriptedStage) -> None:
    maps = {"FailedNodes": dict.fromkeys(stage.nodes, "held")}
    stage.extender.filter = lambda asked: {"NodeNames": stage.nodes[:1], **maps}
    _, node = await stage.bound()
    assert node == stage.nodes[0]


async def test_node_that_is_named_twice_is_scored_twice(stage: ScriptedStage) -> None:
    stage.extender.filter = lambda asked: {"NodeNames": asked["NodeNames"] * 2}
    pod, _ = await stage.bound()
    (asked,) = stage.extender.of("prioritize", pod)
    assert sorted(asked.names) == sorted(stage.nodes * 2)


async def test_unresolvable_refusal_is_counted_by_its_phrase_and_preempts_nobody(
    ground: Ground, extender: Scripted
) -> None:
    message = await refused(ground, extender, refuse(into="FailedAndUnresolvableNodes"))
    assert reasons(message) == ["2 held for another"]
    assert "victim" not in message
    assert extender.of("preempt") == []


async def test_unresolvable_map_counts_if_both_maps_name_a_node(ground: Ground, extender: Scripted) -> None:
    def both(asked: Json) -> Json:
        names = asked["NodeNames"]
        maps = {"FailedNodes": "held", "FailedAndUnresolvableNodes": "held for ever"}
        return {"NodeNames": [], **{into: dict.fromkeys(names, phrase) for into, phrase in maps.items()}}

    message = await refused(ground, extender, both)
    assert reasons(message) == ["2 held for ever"]
    assert "victim" not in message


@pytest.mark.parametrize("verb", ["preempt", None], ids=["with preempt", "without"])
async def test_refusal_in_failed_nodes_starts_a_useless_preemption(
    ground: Ground, extender: Scripted, verb: str | None
) -> None:
    message = await refused(ground, extender, refuse(into="FailedNodes"), preemptVerb=verb)
    assert reasons(message) == ["2 held for another"]
    assert "expected at least one victim pod on node" in message


async def refused(ground: Ground, extender: Scripted, reply: Reply, **changes: object) -> str:
    """The message of a refused Pod of high priority, while lower Pods run on nodes with room."""
    for node in await ground.nodes(2):
        await ground.occupy(node)
    extender.filter = reply
    high = await ground.priority("high", 100)
    pod = await ground.pod(ground.scheduler(entry(extender.url, **changes)), priorityClassName=high)
    message = await ground.held(pod, "Unschedulable")
    assert len(await ground.pods()) == 3
    return message


def reasons(message: str) -> list[str]:
    """Reasons of the extender. Those of kube-scheduler begin with `node(s)`, and are about nodes of other tests."""
    told = re.match(r"0/\d+ nodes are available:(.*?)(?:no new claims to deallocate, )?preemption: ", message)
    assert told, message
    return [one for one in told[1].strip(" .").split(", ") if one and not re.match(r"\d+ node\(s\) ", one)]
