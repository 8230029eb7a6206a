"""The exact requests that kube-scheduler sends to an extender."""

import pytest

from tests.scheduling.kube_scheduler import entry
from tests.scheduling.nodes_and_pods import NodeGroup
from tests.scheduling.scripted_extender import ScriptedExtender
from tests.scheduling.shared_nodes import ScriptedNodes

pytest_plugins = ["tests.scheduling.fixtures"]


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
async def test_scheduler_sends_the_pod_and_the_names_of_fitting_nodes(shared_nodes: ScriptedNodes, verb: str) -> None:
    pod, _ = await shared_nodes.bound(notes={"cache-key": "a"})
    (call,) = shared_nodes.extender.of(verb, pod)
    assert set(call.body) == {"Pod", "Nodes", "NodeNames"}
    assert (call.body["Nodes"], sorted(call.names)) == (None, sorted(shared_nodes.nodes))
    whole = await shared_nodes.node_group.read(pod)
    assert call.body["Pod"]["metadata"]["uid"] == whole["metadata"]["uid"]
    assert call.body["Pod"]["metadata"]["annotations"] == {"dispatcher.internal/cache-key": "a"}
    assert "managedFields" not in call.body["Pod"]["metadata"]
    assert call.body["Pod"]["spec"]["containers"] == whole["spec"]["containers"]


async def test_scheduler_sends_its_user_agent_and_accepts_gzip(
    node_group: NodeGroup, extender: ScriptedExtender
) -> None:
    await node_group.nodes(1)
    await node_group.bound(await node_group.pod(node_group.scheduler(entry(extender.url + "/"))))
    (call,) = extender.of("filter")
    sent = {name: text for name, text in call.headers.items() if name not in {"Host", "Content-Length"}}
    assert sent == {
        "User-Agent": "Go-http-client/1.1",
        "Content-Type": "application/json",
        "Accept-Encoding": "gzip",
    }


async def test_scheduler_without_node_cache_sends_whole_nodes(
    node_group: NodeGroup, extender: ScriptedExtender
) -> None:
    nodes = await node_group.nodes(2)
    await node_group.bound(await node_group.pod(node_group.scheduler(entry(extender.url, nodeCacheCapable=False))))
    for call in extender.calls:
        assert call.body["NodeNames"] is None
        assert sorted(call.names) == sorted(nodes)
        assert {node["status"]["allocatable"]["cpu"] for node in call.body["Nodes"]["items"]} == {"8"}
    assert [call.verb for call in extender.calls] == ["filter", "prioritize"]
    assert "managedFields" in extender.calls[0].body["Nodes"]["items"][0]["metadata"], (
        "managed fields of Nodes come along"
    )
