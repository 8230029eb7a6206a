"""`dispatcher extender` with a real kube-scheduler and the configuration that it prints: verbs, modes, messages."""

import asyncio
import json
import socket
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.faults.http_proxy import KubeProxy, asks
from tests.faults.http_verbs import hold
from tests.faults.rules import Gate
from tests.scheduling.nodes_and_pods import NodeGroup
from tests.scheduling.own_extender import OwnExtender
from tests.scheduling.shared_nodes import SharedNodes

pytest_plugins = ["tests.scheduling.fixtures"]
FAULTS = "dispatcher_extender_config_faults"
WHOLE_NODES = {"nodeCacheCapable": False}


async def changed(own_extender: OwnExtender, **fields: Any) -> Json:
    """The printed configuration with other fields of its extender; None removes a field."""
    wanted = deepcopy(await own_extender.printed())
    (extender,) = wanted["extenders"]
    extender.update(fields)
    wanted["extenders"] = [{name: value for name, value in extender.items() if value is not None}]
    return wanted


async def test_two_calls_bind_a_pod_and_are_counted(own_extender_nodes: SharedNodes, own_extender: OwnExtender) -> None:
    before = [await own_extender.answered(verb) for verb in ("filter", "prioritize")]
    for _ in range(3):
        await own_extender_nodes.bound()
    assert [await own_extender.answered(verb) for verb in ("filter", "prioritize")] == [count + 3 for count in before]


async def test_pod_of_higher_priority_takes_the_place_of_one_pod(
    node_group: NodeGroup, own_extender: OwnExtender
) -> None:
    victims = [await node_group.occupy(node, cpu="900m") for node in await node_group.nodes(3, cpu="1")]
    before = await own_extender.answered("preempt")
    high = await node_group.priority("high", 100)
    pod = await node_group.pod(
        node_group.scheduler_of(await own_extender.printed()), cpu="500m", priorityClassName=high
    )
    await node_group.bound(pod)

    async def one_is_gone() -> list[Json]:
        """A victim leaves its place when it has failed. Its object goes later."""
        left = [found for name, found in (await node_group.pods()).items() if name in victims]
        return left if len(left) == 2 else []

    left = await node_group.plane.wait_for(one_is_gone, "one victim is gone, and two are left")
    assert not any("deletionTimestamp" in victim["metadata"] for victim in left)
    assert await own_extender.answered("preempt") == before + 1


async def test_whole_victims_are_answered_by_their_uids(node_group: NodeGroup, own_extender: OwnExtender) -> None:
    (node,) = await node_group.nodes(1, cpu="1")
    victim = await node_group.occupy(node, cpu="900m")
    high = await node_group.priority("high", 100)
    scheduler = node_group.scheduler_of(await changed(own_extender, **WHOLE_NODES))
    await node_group.bound(await node_group.pod(scheduler, cpu="500m", priorityClassName=high))
    await node_group.gone(victim)


async def test_whole_nodes_are_scored_like_names(node_group: NodeGroup, own_extender: OwnExtender) -> None:
    nodes = await node_group.nodes(3)
    scheduler = node_group.scheduler_of(await changed(own_extender, **WHOLE_NODES))
    pod = await node_group.pod(scheduler, notes={"history-nodes": json.dumps(nodes[1:])})
    assert await node_group.bound(pod) == [nodes[1]]
    assert [scheduler.extender_score(node_group.key(pod), node) for node in nodes] == [0, 30, 20]


async def test_whole_nodes_go_back_as_they_came(own_extender: OwnExtender) -> None:
    items = [{"metadata": {"name": name, "x": [1.5, None]}, "status": {"y": {"z": "ä"}}} for name in ("a", "b")]
    body = {"Pod": {"metadata": {"uid": "u"}}, "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}
    status, answer = await own_extender.post("filter", body)
    assert (status, answer["Nodes"]["items"], answer["NodeNames"]) == (200, items, None)


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
async def test_large_pod_and_five_thousand_names_are_answered(own_extender: OwnExtender, verb: str) -> None:
    names = [f"node-{number}" for number in range(5000)]
    env = [{"name": f"A{number}", "value": "a" * 30_000} for number in range(50)]
    spec = {"containers": [{"name": "a", "env": env}]}
    status, answer = await own_extender.post(
        verb, {"Pod": {"metadata": {"uid": "u"}, "spec": spec}, "NodeNames": names}
    )
    assert status == 200
    assert (answer["NodeNames"] if verb == "filter" else [one["Host"] for one in answer]) == names


async def test_body_above_sixteen_mebibytes_is_refused_and_the_next_answered(own_extender: OwnExtender) -> None:
    status, answer = await own_extender.post("filter", b'{"NodeNames": ["' + b"a" * (17 << 20) + b'"]}')
    assert status == 413
    assert "bytes" in answer["Error"]
    assert (await own_extender.post("filter", {"NodeNames": ["a"]}))[1]["NodeNames"] == ["a"]


async def test_faults_of_a_scheduler_configuration_are_reported_once(
    node_group: NodeGroup, extender_kubeconfig: Path, own_extender: OwnExtender
) -> None:
    await node_group.nodes(2)
    async with OwnExtender(extender_kubeconfig) as fresh:
        await fresh.ready()
        at_it = {"urlPrefix": fresh.url}
        await ask(node_group, await changed(own_extender, **at_it, prioritizeVerb=None), 20)
        assert await told(fresh) == {"no-prioritize"}
        await ask(node_group, await changed(own_extender, **at_it, **WHOLE_NODES), 1)
        assert await told(fresh) == {"no-prioritize", "uncached"}
        assert fresh.log.count("kube-scheduler's configuration") == 2, "each once"


@pytest.mark.slow
async def test_two_schedulers_that_ask_in_turn_are_reported_and_successive_ones_not(
    node_group: NodeGroup, extender_kubeconfig: Path, own_extender: OwnExtender
) -> None:
    await node_group.nodes(2)
    async with OwnExtender(extender_kubeconfig) as fresh:
        await fresh.ready()
        await ask(node_group, await fresh.configuration_like(own_extender), 20)
        first, second = [node_group.scheduler_of(await fresh.configuration_like(own_extender)) for _ in range(2)]
        await node_group.bound(await node_group.pod(first))
        assert await told(fresh) == set()
        for _ in range(4):
            await node_group.bound(await node_group.pod(second))
            await node_group.bound(await node_group.pod(first))
        assert await told(fresh) == {"two-callers"}


async def ask(node_group: NodeGroup, wanted: Json, pods: int) -> None:
    scheduler = node_group.scheduler_of(wanted)
    await node_group.bound(*[await node_group.pod(scheduler) for _ in range(pods)])
    await asyncio.to_thread(scheduler.kill)


async def told(own_extender: OwnExtender) -> set[str]:
    faults = ("no-prioritize", "no-filter", "uncached", "two-callers")
    return {fault for fault in faults if await own_extender.metric(FAULTS, fault=fault)}


@pytest.mark.parametrize("resource", ["nodes", "pods"])
async def test_extender_is_ready_when_it_has_seen_all_nodes_and_pods(
    control_plane: ControlPlane, extender_kubeconfig: Path, resource: str
) -> None:
    gate = Gate()
    async with KubeProxy(control_plane.url, control_plane.ca_file) as proxy:
        proxy.add(hold(gate), asks("list", resource))
        async with OwnExtender(proxy.kubeconfig(extender_kubeconfig)) as own_extender:
            await own_extender.unready(resource)
            gate.open()
            await own_extender.ready()


async def test_extender_off_loopback_needs_certificates(extender_kubeconfig: Path) -> None:
    async with OwnExtender(extender_kubeconfig, EXTENDER_ADDRESS="0.0.0.0:0") as own_extender:
        async with asyncio.timeout(20):
            assert await own_extender.process.wait() == 2
        assert "DISPATCHER_EXTENDER_TLS_DIR" in own_extender.log


async def test_extender_names_an_address_that_is_taken(extender_kubeconfig: Path) -> None:
    """The message stands alone, without a trace."""
    taken = OwnExtender(extender_kubeconfig)
    with socket.create_server(("127.0.0.1", taken.extender_port)):
        await taken.start()
        async with asyncio.timeout(20):
            assert await taken.process.wait() == 2
    assert taken.log.splitlines()[-1].startswith("DISPATCHER_EXTENDER_ADDRESS is '127.0.0.1:")
