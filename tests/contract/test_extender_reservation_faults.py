"""Holds during faults around them: held room is kept, and no Pod waits for ever."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from tests.controlplane.cluster import ControlPlane
from tests.controlplane.waiting import wait_for
from tests.faults.http_proxy import KubeProxy, asks
from tests.faults.http_verbs import lag, status
from tests.scheduling.node_usage import NodeUsage
from tests.scheduling.nodes_and_pods import NodeGroup
from tests.scheduling.own_extender import OwnExtender
from tests.scheduling.reservations import CPU, TARGET_META, ReservedNodes, is_held, reserved_nodes_of, task

pytest_plugins = ["tests.scheduling.fixtures"]
pytestmark = pytest.mark.usefixtures("reservations")
LITTLE = {"cpu": "1m"}
PODS, SETTLED_SECONDS = 40, 90


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shaken(extender_kubeconfig: Path) -> AsyncIterator[OwnExtender]:
    """An extender that these tests stop and kill."""
    async with OwnExtender(extender_kubeconfig) as made:
        await made.ready()
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def shaky(node_group: NodeGroup, own_extender: OwnExtender, shaken: OwnExtender) -> ReservedNodes:
    return await reserved_nodes_of(node_group, shaken, own_extender)


async def half_held(reserved: ReservedNodes) -> tuple[list[str], list[str]]:
    """Four nodes of four cores, half of every second one held; the extender has seen the holds and all Pods."""
    nodes = await reserved.node_group.nodes(4, cpu="4", pods=200)
    held = nodes[::2]
    for number, node in enumerate(held, start=1):
        await reserved.reservations.hold(node, {"cpu": "2"}, taskId=number)
    for node in held:
        await reserved.wait_until_held(node)
        await reserved.wait_until_free(node, LITTLE)
    return nodes, held


async def settled(reserved: ReservedNodes, nodes: list[str], held: list[str], node_usage: NodeUsage) -> None:
    """Waits until every Pod that fits is bound beside the holds."""

    def are_settled() -> bool:
        used = node_usage.bound()
        return all(used[node] == (6 if node in held else 13) for node in nodes)

    await wait_for(are_settled, f"what fits is bound: {node_usage.bound()}", SETTLED_SECONDS, check=node_usage.check)
    assert node_usage.bound()[""] == PODS - 2 * (6 + 13)


async def owners_land(reserved: ReservedNodes, held: list[str]) -> None:
    owners = [await reserved.pod(cpu="2", meta=task(number + 1)) for number in range(len(held))]
    assert await reserved.node_group.bound(*owners, seconds=30) == held


Disturbance = Callable[[ReservedNodes], Awaitable[None]]


async def extender_stopped(reserved: ReservedNodes) -> None:
    """Stops the extender until kube-scheduler has given it up."""
    reserved.own_extender.process.send_signal(signal.SIGSTOP)
    try:
        await somebody_is_told(reserved, "SchedulerError")
    finally:
        reserved.own_extender.process.send_signal(signal.SIGCONT)


async def extender_killed(reserved: ReservedNodes) -> None:
    await reserved.own_extender.kill()
    await somebody_is_told(reserved, "SchedulerError")
    await reserved.own_extender.start()


async def scheduler_restarted(reserved: ReservedNodes) -> None:
    await asyncio.to_thread(reserved.scheduler.kill)
    reserved.scheduler.start()


async def somebody_is_told(reserved: ReservedNodes, reason: str) -> None:
    async def is_told() -> bool:
        told = [pod["status"].get("conditions", ()) for pod in (await reserved.node_group.pods()).values()]
        return any(one.get("reason") == reason for conditions in told for one in conditions)

    await wait_for(is_told, f"a Pod is told {reason}", 20)


@pytest.mark.slow
@pytest.mark.parametrize(
    "disturb", [extender_stopped, extender_killed, scheduler_restarted], ids=lambda disturb: disturb.__name__
)
async def test_burst_during_a_restart_never_gets_held_room(shaky: ReservedNodes, disturb: Disturbance) -> None:
    """A program goes away in the middle of the burst, and comes back."""
    nodes, held = await half_held(shaky)
    async with NodeUsage(shaky.node_group, dict.fromkeys(held, 2000)) as node_usage:
        await asyncio.gather(*(shaky.pod(cpu="300m") for _ in range(PODS // 2)))
        await wait_for(lambda: node_usage.bound()[""] < PODS // 2, "some are bound")
        others = asyncio.gather(*(shaky.pod(cpu="300m") for _ in range(PODS // 2)))
        await disturb(shaky)
        await others
        await settled(shaky, nodes, held, node_usage)
    await owners_land(shaky, held)


@pytest.mark.slow
async def test_pod_refused_before_a_restart_is_bound_after_the_end_of_the_hold(shaky: ReservedNodes) -> None:
    """kube-scheduler does not ask again by itself, and the new process has never heard of the Pod."""
    (node,) = await shaky.node_group.nodes(1, cpu="3900m")
    hold = await shaky.reservations.hold(node, {"cpu": "3900m"}, jobName="ours")
    await shaky.wait_until_held(node)
    pod = await shaky.pod(cpu="2000m")
    await shaky.node_group.held(pod, "Unschedulable", CPU)
    await shaky.own_extender.kill()
    await shaky.own_extender.start()
    await shaky.own_extender.ready()
    await shaky.reservations.release(hold)
    assert await shaky.node_group.bound(pod, seconds=20) == [node]


@pytest.mark.slow
async def test_held_room_is_kept_while_the_watch_of_pods_is_two_seconds_late(
    control_plane: ControlPlane, node_group: NodeGroup, own_extender: OwnExtender, extender_kubeconfig: Path
) -> None:
    async with AsyncExitStack() as between:
        proxy = await between.enter_async_context(KubeProxy(control_plane.url, control_plane.ca_file))
        rule = proxy.add(lag(2), asks("watch", "pods"))
        late = await between.enter_async_context(OwnExtender(proxy.kubeconfig(extender_kubeconfig)))
        await late.ready()
        reserved = await reserved_nodes_of(node_group, late, own_extender)
        nodes, held = await half_held(reserved)
        async with NodeUsage(node_group, dict.fromkeys(held, 2000)) as node_usage:
            await asyncio.gather(*(reserved.pod(cpu="300m") for _ in range(PODS)))
            await settled(reserved, nodes, held, node_usage)
        await owners_land(reserved, held)
        assert rule.hits > PODS


async def test_two_schedulers_that_ask_keep_held_room(reserved: ReservedNodes) -> None:
    """Two schedulers may give away unheld room twice; no extender can know that."""
    both = (
        reserved,
        replace(reserved, scheduler=reserved.node_group.scheduler_of(await reserved.own_extender.printed())),
    )
    _, held = await half_held(reserved)
    async with NodeUsage(reserved.node_group, dict.fromkeys(held, 2000)) as node_usage:
        await asyncio.gather(*(each.pod(cpu="300m") for each in both for _ in range(PODS // 2)))
        await wait_for(
            lambda: node_usage.bound()[""] <= PODS - 2 * (6 + 13), "what fits is bound", 60, check=node_usage.check
        )
    await owners_land(reserved, held)


async def test_scheduler_that_does_not_ask_takes_held_room_and_the_status_says_so(reserved: ReservedNodes) -> None:
    (node,) = await reserved.node_group.nodes(1, cpu="3900m")
    hold = await reserved.reservations.hold(node, {"cpu": "2000m"}, jobName="ours")
    await reserved.wait_until_held(node)
    stranger = await reserved.node_group.pod(reserved.node_group.scheduler(), cpu="3000m")
    await reserved.node_group.bound(stranger)
    await reserved.reservations.wait_for_phase(hold, "Active", "less is free than is held: cpu lacks 1100m")
    owner = await reserved.pod(cpu="2000m", meta=TARGET_META)
    await reserved.node_group.held(owner, "Unschedulable", "Insufficient cpu")
    await reserved.node_group.delete_pod(stranger)
    assert await reserved.node_group.bound(owner) == [node]


@pytest.mark.slow
async def test_pod_that_is_not_bound_after_filter_frees_its_room_soon(reserved: ReservedNodes) -> None:
    (node,) = await reserved.node_group.nodes(1, cpu="3900m")
    await reserved.reservations.hold(node, {"cpu": "2000m"}, jobName="ours")
    await reserved.wait_until_held(node)
    await reserved.wait_until_free(node, {"cpu": "1900m"})
    pod = await reserved.pod(cpu="1900m")
    await reserved.node_group.held(pod, "Unschedulable", CPU)
    assert await reserved.node_group.bound(pod, seconds=20) == [node]


async def test_node_that_is_gone_and_back_keeps_its_hold(reserved: ReservedNodes) -> None:
    (node,) = await reserved.node_group.nodes(1, cpu="3900m")
    hold = await reserved.reservations.hold(node, {"cpu": "2000m"}, jobName="ours")
    await reserved.reservations.wait_for_phase(hold, "Active")
    was = await reserved.node_group.remove_node(node)
    await reserved.reservations.wait_for_phase(hold, "NodeMissing", f"there is no node {node}")
    await reserved.node_group.return_node(was)
    await reserved.reservations.wait_for_phase(hold, "Active")
    assert await is_held(reserved.own_extender, node)
    assert await reserved.node_group.held(await reserved.pod(cpu="3000m"), "Unschedulable", CPU)
    assert await reserved.node_group.bound(await reserved.pod(cpu="2000m", meta=TARGET_META)) == [node]


@pytest_asyncio.fixture(loop_scope="session")
async def cut_off(
    control_plane: ControlPlane, node_group: NodeGroup, own_extender: OwnExtender, extender_kubeconfig: Path
) -> AsyncIterator[tuple[KubeProxy, ReservedNodes]]:
    """An extender behind a proxy whose answers a test controls."""
    async with (
        KubeProxy(control_plane.url, control_plane.ca_file) as proxy,
        OwnExtender(proxy.kubeconfig(extender_kubeconfig)) as behind,
    ):
        await behind.ready()
        yield proxy, await reserved_nodes_of(node_group, behind, own_extender)


@pytest.mark.slow
async def test_failed_write_of_one_note_delays_no_other_pod(cut_off: tuple[KubeProxy, ReservedNodes]) -> None:
    proxy, reserved = cut_off
    (node,) = await reserved.node_group.nodes(1, cpu="3900m")
    hold = await reserved.reservations.hold(node, {"cpu": "3900m"}, jobName="ours")
    await reserved.wait_until_held(node)
    first, second = [await reserved.gated_pod(cpu="1000m") for _ in range(2)]
    await reserved.refuse_all(node)
    rule = proxy.add(status(500), lambda asked: asks("patch", "pods/status")(asked) and asked.name == first)
    await reserved.reservations.release(hold)

    async def is_second_noted() -> str:
        return (await reserved.notes())[second]

    await wait_for(is_second_noted, "the second note")
    await wait_for(lambda: rule.hits, "a failed write of the first note")
    assert not (await reserved.notes())[first]
