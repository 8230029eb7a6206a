"""The effect of an extender that fails or hangs on the Pods that kube-scheduler asks it about."""

import pytest
from aiohttp import web

from tests.controlplane.api import Json
from tests.scheduling.kube_scheduler import entry
from tests.scheduling.nodes_and_pods import NodeGroup
from tests.scheduling.scripted_extender import Reply, ScriptedExtender
from tests.scheduling.shared_nodes import ScriptedNodes

pytest_plugins = ["tests.scheduling.fixtures"]
UNSCORED = "Failed to run extender's priority function. No score given by this extender."
HALF = b'{"NodeNames": ["'


def status(code: int) -> Reply:
    return lambda asked: web.Response(status=code, text="no")


FAULTS = [
    pytest.param({"NodeNames": ["no-such-node"]}, "which is not found in the input node list", id="unknown node"),
    pytest.param({"NodeNames": None, "Error": "no store yet"}, "no store yet", id="error"),
    pytest.param(HALF, "unexpected EOF", id="cut"),
    pytest.param(b"<html>", "invalid character '<'", id="not json"),
    pytest.param({"NodeNames": 5}, "cannot unmarshal number", id="another type"),
]


@pytest.mark.parametrize(("said", "words"), FAULTS)
async def test_invalid_answer_is_a_fault_of_the_pod_in_raw_words(
    shared_nodes: ScriptedNodes, said: Json | bytes, words: str
) -> None:
    shared_nodes.extender.filter = lambda asked: said
    await shared_nodes.node_group.held(await shared_nodes.pod(), "SchedulerError", words)


@pytest.mark.parametrize("code", [400, 404, 413, 500, 503])
async def test_status_other_than_200_is_a_fault(shared_nodes: ScriptedNodes, code: int) -> None:
    shared_nodes.extender.filter = status(code)
    words = f"failed filter with extender at URL {shared_nodes.extender.url}/filter, code {code}"
    await shared_nodes.node_group.held(await shared_nodes.pod(), "SchedulerError", words)


@pytest.mark.fault(60)
async def test_hanging_extender_costs_its_timeout_and_is_a_fault(
    node_group: NodeGroup, extender: ScriptedExtender
) -> None:
    await node_group.nodes(2)
    extender.filter = extender.hang
    pod = await node_group.pod(node_group.scheduler(entry(extender.url, httpTimeout="200ms")))
    await node_group.held(pod, "SchedulerError", "context deadline exceeded")


FAILING = {"a status": status(500), "half": lambda asked: HALF, "nothing": lambda asked: b""}


@pytest.mark.parametrize("reply", FAILING.values(), ids=FAILING)
async def test_fault_of_prioritize_is_only_logged(shared_nodes: ScriptedNodes, reply: Reply) -> None:
    shared_nodes.extender.prioritize = reply
    pod, node = await shared_nodes.bound()
    assert node in shared_nodes.nodes
    assert len(shared_nodes.scheduler.said(UNSCORED, pod=shared_nodes.node_group.key(pod))) == 1, "at level 5"


async def test_connection_closed_during_a_call_fails_the_pod(shared_nodes: ScriptedNodes) -> None:
    """As when the server closes an idle connection just as a Pod comes: kube-scheduler does not repeat the call."""
    before, _ = await shared_nodes.bound()
    shared_nodes.extender.filter = shared_nodes.extender.hang_up
    pod = await shared_nodes.pod()
    await shared_nodes.node_group.held(pod, "SchedulerError", "EOF")
    peers = [shared_nodes.extender.of("filter", asked)[0].peer for asked in (before, pod)]
    assert peers[0] == peers[1], "over the connection that was idle"
