"""Holds: by the clock of the API server, while bound Pods are unknown, in Events, and beside preemption."""

import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from dispatcher.extender.book import UNCERTAIN
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.waiting import wait_for
from tests.faults.http_proxy import Asked, KubeProxy, Verb, asks
from tests.faults.http_verbs import status
from tests.faults.rules import Rule
from tests.scheduling.nodes_and_pods import NodeGroup
from tests.scheduling.own_extender import OwnExtender
from tests.scheduling.reservations import CPU, TARGET_META, ReservedNodes, is_held, refusal_of, reserved_nodes_of

pytest_plugins = ["tests.scheduling.fixtures"]
pytestmark = pytest.mark.usefixtures("reservations")
SECONDS = 25
"""Of a hold. The extender is in doubt for the first ten, and `wait_until_held` gives up after 20."""


@pytest.mark.slow
@pytest.mark.fault(61)
@pytest.mark.parametrize("wrong_by", [-300, 300])
async def test_skew_of_five_minutes_does_not_move_the_end_of_a_hold(
    node_group: NodeGroup, own_extender: OwnExtender, extender_kubeconfig: Path, wrong_by: int
) -> None:
    wrong = OwnExtender(extender_kubeconfig)
    wrong.program = (sys.executable, "-m", "tests.scheduling.skewed_clock_extender", str(wrong_by))
    async with wrong:
        await wrong.ready()
        reserved = await reserved_nodes_of(node_group, wrong, own_extender)
        (node,) = await node_group.nodes(1, cpu="3900m")
        hold = await reserved.reservations.hold(node, {"cpu": "2"}, jobName="ours", seconds=SECONDS)
        ends_at = datetime.fromisoformat(await reserved.reservations.made_at(hold)) + timedelta(seconds=SECONDS)
        await reserved.wait_until_held(node)

        async def is_over() -> bool:
            return not await is_held(wrong, node)

        await wait_for(is_over, "the hold is over", 60, check=wrong.check)
        late = datetime.now(UTC) - ends_at
        assert timedelta(0) <= late < timedelta(seconds=5)
        await reserved.reservations.wait_for_phase(
            hold, "Expired", f"its time was over, at {ends_at:%Y-%m-%dT%H:%M:%SZ}"
        )


class Doubtful:
    """An extender that sees no Pod until the rule ends."""

    def __init__(self, reserved: ReservedNodes, rule: Rule[Asked, Verb]) -> None:
        self.reserved = reserved
        self.rule = rule

    async def node_held(self) -> tuple[str, str]:
        """Makes a node, half of it held for the Job `ours`. Returns the node and the reservation."""
        (node,) = await self.reserved.node_group.nodes(1, cpu="3900m")
        hold = await self.reserved.reservations.hold(node, {"cpu": "2000m"}, jobName="ours")

        async def is_in_doubt() -> bool:
            with suppress(aiohttp.ClientConnectionError):  # the extender does not listen yet
                return await refusal_of(self.reserved.own_extender, node, {"cpu": "1m"}) == UNCERTAIN
            return False

        await wait_for(is_in_doubt, "the extender is in doubt", 20, check=self.reserved.own_extender.check)
        return node, hold


@pytest_asyncio.fixture(loop_scope="session")
async def doubtful(
    control_plane: ControlPlane, node_group: NodeGroup, own_extender: OwnExtender, extender_kubeconfig: Path
) -> AsyncIterator[Doubtful]:
    async with AsyncExitStack() as between:
        proxy = await between.enter_async_context(KubeProxy(control_plane.url, control_plane.ca_file))
        rule = proxy.add(status(500), asks("watch", "pods"))
        behind = await between.enter_async_context(OwnExtender(proxy.kubeconfig(extender_kubeconfig)))
        yield Doubtful(await reserved_nodes_of(node_group, behind, own_extender), rule)


@pytest.mark.slow
async def test_pod_refused_in_doubt_is_bound_when_the_doubt_ends(doubtful: Doubtful) -> None:
    """No other event would make kube-scheduler try the Pod again."""
    reserved = doubtful.reserved
    node, _ = await doubtful.node_held()
    pod = await reserved.pod(cpu="1000m")
    await reserved.node_group.held(pod, "Unschedulable", f"1 {UNCERTAIN}")
    doubtful.rule.end()
    assert await reserved.node_group.bound(pod, seconds=60) == [node]


async def test_target_gets_its_node_in_doubt(doubtful: Doubtful) -> None:
    reserved = doubtful.reserved
    node, hold = await doubtful.node_held()
    assert await reserved.node_group.bound(await reserved.pod(cpu="3900m", meta=TARGET_META)) == [node]
    doubtful.rule.end()
    await reserved.reservations.wait_for_phase(hold, "Landed", f"its Pod is on node {node}", 60)


async def test_event_of_a_pod_names_the_reservation_and_the_node(reserved: ReservedNodes) -> None:
    nodes = await reserved.node_group.nodes(2, cpu="3900m")
    holds = [await reserved.reservations.hold(node, {"cpu": "2000m"}, taskId=7) for node in nodes]
    for node in nodes:
        await reserved.wait_until_held(node)
    fitting = [await reserved.pod(cpu="1500m") for _ in nodes]
    assert sorted(await reserved.node_group.bound(*fitting)) == sorted(nodes), "kube-scheduler knows both"
    pod = await reserved.pod(cpu="1000m")
    told = await reserved.reservations.wait_for_event("Pod", pod, "Refused", f"{CPU}: by NodeReservation ")
    assert told["type"] == "Warning"
    assert told["involvedObject"]["uid"] == (await reserved.node_group.read(pod))["metadata"]["uid"]
    assert told["involvedObject"]["apiVersion"] == "v1"
    assert told["message"].removeprefix(f"{CPU}: by NodeReservation ") in {
        f"{reserved.node_group.key(hold)} on node {node}, and on 1 other nodes"
        for hold, node in zip(holds, nodes, strict=True)
    }


async def test_events_of_a_reservation_name_refused_pods_and_its_end(reserved: ReservedNodes) -> None:
    here, there = await reserved.node_group.nodes(2, cpu="3900m")
    await reserved.node_group.occupy(there, cpu="3000m")
    hold = await reserved.reservations.hold(here, {"cpu": "3900m"}, jobName="ours")
    await reserved.wait_until_held(here)
    for _ in range(2):
        words = f"Pod {reserved.node_group.key(await reserved.pod(cpu='2000m'))} was kept from node {here}"
        event = await reserved.reservations.wait_for_event("NodeReservation", hold, "Refused", words)
        assert (event["type"], event["involvedObject"]["apiVersion"]) == ("Normal", "dispatcher.internal/v1alpha1")
    owner = await reserved.pod(cpu="3900m", meta=TARGET_META)
    assert await reserved.node_group.bound(owner) == [here]
    await reserved.reservations.wait_for_event("NodeReservation", hold, "Landed", f"its Pod is on node {here}")
    assert [one["reason"] for one in await reserved.reservations.told("NodeReservation", hold)] == ["Refused", "Landed"]


GATE = [{"name": "test.dispatcher.internal/gate"}]


async def high(reserved: ReservedNodes, **wanted: object) -> str:
    return await reserved.pod(priorityClassName=await reserved.node_group.priority("high", 100), **wanted)


async def test_refused_pod_preempts_on_another_node_when_the_hold_there_ends(reserved: ReservedNodes) -> None:
    first, second = await reserved.node_group.nodes(2, cpu="3900m")
    await reserved.reservations.hold(first, {"cpu": "3900m"}, taskId=7)
    hold = await reserved.reservations.hold(second, {"cpu": "2000m"}, jobName="ours")
    victim = await reserved.node_group.occupy(second, cpu="1500m")
    for node in (first, second):
        await reserved.wait_until_held(node)
    pod = await high(reserved, cpu="3000m")
    await reserved.node_group.held(pod, "Unschedulable", f"1 {CPU}")
    await reserved.reservations.release(hold)
    assert await reserved.node_group.bound(pod, seconds=25) == [second]
    await reserved.node_group.gone(victim)


async def test_pod_that_may_not_preempt_is_tried_again_when_a_pod_is_gone(reserved: ReservedNodes) -> None:
    """kube-scheduler ignores a note on a Pod that no `filter` refused. It tries the Pod again when any Pod is gone."""
    node, other = await reserved.node_group.nodes(2, cpu="3900m")
    hold = await reserved.reservations.hold(node, {"cpu": "2000m"}, jobName="ours")
    await reserved.node_group.occupy(node, cpu="1500m")
    middle = await reserved.node_group.priority("middle", 200)
    await reserved.node_group.occupy(other, cpu="3700m", priorityClassName=middle)
    brief = await reserved.node_group.occupy(other, cpu="100m", priorityClassName=middle)
    await reserved.wait_until_held(node)
    pod = await high(reserved, cpu="3000m")
    await reserved.node_group.held(pod, "Unschedulable", "preemption: ")
    await reserved.reservations.release(hold)
    await reserved.wait_until_free(node, {"cpu": "2400m"})
    await reserved.node_group.delete_pod(brief)
    assert await reserved.node_group.bound(pod, seconds=25) == [node]


async def test_preemption_prefers_a_node_without_a_hold_to_a_lower_victim(reserved: ReservedNodes) -> None:
    """kube-scheduler alone would choose the other node: there the victim's priority is lower."""
    held, other = await reserved.node_group.nodes(2, cpu="3900m")
    await reserved.reservations.hold(held, {"cpu": "2000m"}, jobName="ours")
    spared = await reserved.node_group.occupy(held, cpu="1500m")
    victim = await reserved.node_group.occupy(
        other, cpu="1500m", priorityClassName=await reserved.node_group.priority("middle", 50)
    )
    await reserved.wait_until_held(held)
    pod = await high(reserved, cpu="3000m")
    assert await reserved.node_group.bound(pod) == [other]
    await reserved.node_group.gone(victim)
    assert spared in await reserved.node_group.pods()


async def test_pod_whose_nominated_node_is_held_goes_elsewhere_in_the_same_cycle(reserved: ReservedNodes) -> None:
    """kube-scheduler asks for the nominated node alone, and then for all, in the same cycle."""
    held, other = await reserved.node_group.nodes(2, cpu="3900m")
    await reserved.reservations.hold(held, {"cpu": "2000m"}, jobName="ours")
    await reserved.wait_until_held(held)
    pod = await reserved.pod(cpu="3000m", schedulingGates=GATE)
    await reserved.node_group.nominate(pod, held)
    before = await reserved.own_extender.answered("filter")
    await reserved.node_group.open_gate(pod)
    assert await reserved.node_group.bound(pod) == [other]
    assert await reserved.own_extender.answered("filter") >= before + 2
    assert not reserved.scheduler.said("Unable to schedule pod; no fit; waiting", pod=reserved.node_group.key(pod))
    assert CPU not in str((await reserved.node_group.read(pod))["status"])
