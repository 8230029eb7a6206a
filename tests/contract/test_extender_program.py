"""`dispatcher extender` with a real kube-scheduler and the configuration that it prints: verbs, modes, messages."""

import asyncio
import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.api import Json
from tests.controlplane.cluster import ControlPlane
from tests.faults.http_proxy import KubeProxy, asks
from tests.faults.http_verbs import hold
from tests.faults.rules import Gate
from tests.scheduling.nodes_and_pods import Ground
from tests.scheduling.own_extender import OurExtender
from tests.scheduling.stage import DemoEnvironment

pytest_plugins = ["tests.scheduling.fixtures"]
FAULTS = "dispatcher_extender_config_faults"
WHOLE_NODES = {"nodeCacheCapable": False}


async def changed(ours: OurExtender, **fields: Any) -> Json:
    """The printed configuration with other fields of its extender; None removes a field."""
    wanted = deepcopy(await ours.printed())
    (extender,) = wanted["extenders"]
    extender.update(fields)
    wanted["extenders"] = [{name: value for name, value in extender.items() if value is not None}]
    return wanted


async def test_two_calls_bind_a_pod_and_are_counted(our_stage: DemoEnvironment, ours: OurExtender) -> None:
    before = [await ours.answered(verb) for verb in ("filter", "prioritize")]
    for _ in range(3):
        await our_stage.bound()
    assert [await ours.answered(verb) for verb in ("filter", "prioritize")] == [count + 3 for count in before]


async def test_printed_configuration_is_the_recommended_one(ours: OurExtender) -> None:
    printed = await ours.printed()
    assert printed["extenders"] == [
        {
            "urlPrefix": ours.url,
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "preemptVerb": "preempt",
            "weight": 1,
            "httpTimeout": "1s",
            "nodeCacheCapable": True,
            "ignorable": False,
        }
    ]
    assert printed["percentageOfNodesToScore"] == 100


async def test_pod_of_higher_priority_takes_the_place_of_one_pod(ground: Ground, ours: OurExtender) -> None:
    victims = [await ground.occupy(node, cpu="900m") for node in await ground.nodes(3, cpu="1")]
    before = await ours.answered("preempt")
    high = await ground.priority("high", 100)
    pod = await ground.pod(ground.scheduler_of(await ours.printed()), cpu="500m", priorityClassName=high)
    await ground.bound(pod)
    assert len(set(await ground.pods()) & set(victims)) == 2
    assert await ours.answered("preempt") == before + 1


async def test_whole_victims_are_answered_by_their_uids(ground: Ground, ours: OurExtender) -> None:
    (node,) = await ground.nodes(1, cpu="1")
    victim = await ground.occupy(node, cpu="900m")
    high = await ground.priority("high", 100)
    scheduler = ground.scheduler_of(await changed(ours, **WHOLE_NODES))
    await ground.bound(await ground.pod(scheduler, cpu="500m", priorityClassName=high))
    await ground.gone(victim)


async def test_whole_nodes_are_scored_like_names(ground: Ground, ours: OurExtender) -> None:
    nodes = await ground.nodes(3)
    scheduler = ground.scheduler_of(await changed(ours, **WHOLE_NODES))
    pod = await ground.pod(scheduler, notes={"history-nodes": json.dumps(nodes[1:])})
    assert await ground.bound(pod) == [nodes[1]]
    assert [scheduler.of_extenders(ground.key(pod), node) for node in nodes] == [0, 30, 20]


async def test_whole_nodes_go_back_as_they_came(ours: OurExtender) -> None:
    items = [{"metadata": {"name": name, "x": [1.5, None]}, "status": {"y": {"z": "ä"}}} for name in ("a", "b")]
    body = {"Pod": {"metadata": {"uid": "u"}}, "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}
    status, answer = await ours.post("filter", body)
    assert (status, answer["Nodes"]["items"], answer["NodeNames"]) == (200, items, None)


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
async def test_large_pod_and_five_thousand_names_are_answered(ours: OurExtender, verb: str) -> None:
    names = [f"node-{number}" for number in range(5000)]
    env = [{"name": f"A{number}", "value": "a" * 30_000} for number in range(50)]
    spec = {"containers": [{"name": "a", "env": env}]}
    status, answer = await ours.post(verb, {"Pod": {"metadata": {"uid": "u"}, "spec": spec}, "NodeNames": names})
    assert status == 200
    assert (answer["NodeNames"] if verb == "filter" else [one["Host"] for one in answer]) == names


async def test_body_above_sixteen_mebibytes_is_refused_and_the_next_answered(ours: OurExtender) -> None:
    status, answer = await ours.post("filter", b'{"NodeNames": ["' + b"a" * (17 << 20) + b'"]}')
    assert status == 413
    assert "bytes" in answer["Error"]
    assert (await ours.post("filter", {"NodeNames": ["a"]}))[1]["NodeNames"] == ["a"]


async def test_faults_of_a_scheduler_configuration_are_reported_once(
    ground: Ground, look_only: Path, ours: OurExtender
) -> None:
    await ground.nodes(2)
    async with OurExtender(look_only) as fresh:
        await fresh.ready()
        at_it = {"urlPrefix": fresh.url}
        await ask(ground, await changed(ours, **at_it, prioritizeVerb=None), 20)
        assert await told(fresh) == {"no-prioritize"}
        await ask(ground, await changed(ours, **at_it, **WHOLE_NODES), 1)
        assert await told(fresh) == {"no-prioritize", "uncached"}
        assert fresh.log.count("kube-scheduler's configuration") == 2, "each once"


async def test_two_schedulers_that_ask_in_turn_are_reported_and_successive_ones_not(
    ground: Ground, look_only: Path, ours: OurExtender
) -> None:
    await ground.nodes(2)
    async with OurExtender(look_only) as fresh:
        await fresh.ready()
        await ask(ground, await fresh.like(ours), 20)
        first, second = [ground.scheduler_of(await fresh.like(ours)) for _ in range(2)]
        await ground.bound(await ground.pod(first))
        assert await told(fresh) == set()
        for _ in range(4):
            await ground.bound(await ground.pod(second))
            await ground.bound(await ground.pod(first))
        assert await told(fresh) == {"two-callers"}


async def ask(ground: Ground, wanted: Json, pods: int) -> None:
    scheduler = ground.scheduler_of(wanted)
    await ground.bound(*[await ground.pod(scheduler) for _ in range(pods)])
    await asyncio.to_thread(scheduler.kill)


async def told(ours: OurExtender) -> set[str]:
    faults = ("no-prioritize", "no-filter", "uncached", "two-callers")
    return {fault for fault in faults if await ours.metric(FAULTS, fault=fault)}


@pytest.mark.parametrize("resource", ["nodes", "pods"])
async def test_extender_is_ready_when_it_has_seen_all_nodes_and_pods(
    control_plane: ControlPlane, look_only: Path, resource: str
) -> None:
    gate = Gate()
    async with KubeProxy(control_plane.url, control_plane.ca_file) as proxy:
        proxy.add(hold(gate), asks("list", resource))
        async with OurExtender(proxy.kubeconfig(look_only)) as ours:
            await ours.unready(resource)
            gate.open()
            await ours.ready()


async def test_extender_off_loopback_needs_certificates(look_only: Path) -> None:
    async with OurExtender(look_only, EXTENDER_ADDRESS="0.0.0.0:0") as ours:
        async with asyncio.timeout(20):
            assert await ours.process.wait() == 2
        assert "DISPATCHER_EXTENDER_TLS_DIR" in ours.log
