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
from tests.scheduling.electing import Electing
from tests.scheduling.ledger import Ledger
from tests.scheduling.nodes_and_pods import Ground
from tests.scheduling.own_extender import OurExtender
from tests.scheduling.reserving import CPU, OURS, Plot, is_held, plot_of, task

pytest_plugins = ["tests.scheduling.fixtures"]
pytestmark = pytest.mark.usefixtures("reservations")
LITTLE = {"cpu": "1m"}
PODS, SETTLED_SECONDS = 40, 90


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shaken(look_only: Path) -> AsyncIterator[OurExtender]:
    """An extender that these tests stop and kill."""
    async with OurExtender(look_only) as made:
        await made.ready()
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def shaky(ground: Ground, ours: OurExtender, shaken: OurExtender) -> Plot:
    return await plot_of(ground, shaken, ours)


async def half_held(plot: Plot) -> tuple[list[str], list[str]]:
    """Four nodes of four cores, half of every second one held; the extender has seen the holds and all Pods."""
    nodes = await plot.ground.nodes(4, cpu="4", pods=200)
    held = nodes[::2]
    for number, node in enumerate(held, start=1):
        await plot.reserving.hold(node, {"cpu": "2"}, taskId=number)
    for node in held:
        await plot.becomes_held(node)
        await plot.becomes_free(node, LITTLE)
    return nodes, held


async def settled(plot: Plot, nodes: list[str], held: list[str], ledger: Ledger) -> None:
    """Waits until every Pod that fits is bound beside the holds."""

    def are_settled() -> bool:
        used = ledger.bound()
        return all(used[node] == (6 if node in held else 13) for node in nodes)

    await wait_for(are_settled, f"what fits is bound: {ledger.bound()}", SETTLED_SECONDS, check=ledger.check)
    assert ledger.bound()[""] == PODS - 2 * (6 + 13)


async def owners_land(plot: Plot, held: list[str]) -> None:
    owners = [await plot.pod(cpu="2", meta=task(number + 1)) for number in range(len(held))]
    assert await plot.ground.bound(*owners, seconds=30) == held


Disturbance = Callable[[Plot], Awaitable[None]]


async def extender_stopped(plot: Plot) -> None:
    """Stops the extender until kube-scheduler has given it up."""
    plot.ours.process.send_signal(signal.SIGSTOP)
    try:
        await somebody_is_told(plot, "SchedulerError")
    finally:
        plot.ours.process.send_signal(signal.SIGCONT)


async def extender_killed(plot: Plot) -> None:
    await plot.ours.kill()
    await somebody_is_told(plot, "SchedulerError")
    await plot.ours.start()


async def scheduler_restarted(plot: Plot) -> None:
    await asyncio.to_thread(plot.scheduler.kill)
    plot.scheduler.start()


async def somebody_is_told(plot: Plot, reason: str) -> None:
    async def is_told() -> bool:
        told = [pod["status"].get("conditions", ()) for pod in (await plot.ground.pods()).values()]
        return any(one.get("reason") == reason for conditions in told for one in conditions)

    await wait_for(is_told, f"a Pod is told {reason}", 20)


@pytest.mark.parametrize(
    "disturb", [extender_stopped, extender_killed, scheduler_restarted], ids=lambda disturb: disturb.__name__
)
async def test_burst_during_a_restart_never_gets_held_room(shaky: Plot, disturb: Disturbance) -> None:
    """A program goes away in the middle of the burst, and comes back."""
    nodes, held = await half_held(shaky)
    async with Ledger(shaky.ground, dict.fromkeys(held, 2000)) as ledger:
        await asyncio.gather(*(shaky.pod(cpu="300m") for _ in range(PODS // 2)))
        await wait_for(lambda: ledger.bound()[""] < PODS // 2, "some are bound")
        others = asyncio.gather(*(shaky.pod(cpu="300m") for _ in range(PODS // 2)))
        await disturb(shaky)
        await others
        await settled(shaky, nodes, held, ledger)
    await owners_land(shaky, held)


async def test_pod_refused_before_a_restart_is_bound_after_the_end_of_the_hold(shaky: Plot) -> None:
    """kube-scheduler does not ask again by itself, and the new process has never heard of the Pod."""
    (node,) = await shaky.ground.nodes(1, cpu="3900m")
    hold = await shaky.reserving.hold(node, {"cpu": "3900m"}, jobName="ours")
    await shaky.becomes_held(node)
    pod = await shaky.pod(cpu="2000m")
    await shaky.ground.held(pod, "Unschedulable", CPU)
    await shaky.ours.kill()
    await shaky.ours.start()
    await shaky.ours.ready()
    await shaky.reserving.release(hold)
    assert await shaky.ground.bound(pod, seconds=20) == [node]


async def test_held_room_is_kept_while_the_watch_of_pods_is_two_seconds_late(
    control_plane: ControlPlane, ground: Ground, ours: OurExtender, look_only: Path
) -> None:
    async with AsyncExitStack() as between:
        proxy = await between.enter_async_context(KubeProxy(control_plane.url, control_plane.ca_file))
        rule = proxy.add(lag(2), asks("watch", "pods"))
        late = await between.enter_async_context(OurExtender(proxy.kubeconfig(look_only)))
        await late.ready()
        plot = await plot_of(ground, late, ours)
        nodes, held = await half_held(plot)
        async with Ledger(ground, dict.fromkeys(held, 2000)) as ledger:
            await asyncio.gather(*(plot.pod(cpu="300m") for _ in range(PODS)))
            await settled(plot, nodes, held, ledger)
        await owners_land(plot, held)
        assert rule.hits > PODS


async def test_two_schedulers_that_ask_keep_held_room(plot: Plot) -> None:
    """Two schedulers may give away unheld room twice; no extender can know that."""
    both = plot, replace(plot, scheduler=plot.ground.scheduler_of(await plot.ours.printed()))
    _, held = await half_held(plot)
    async with Ledger(plot.ground, dict.fromkeys(held, 2000)) as ledger:
        await asyncio.gather(*(each.pod(cpu="300m") for each in both for _ in range(PODS // 2)))
        await wait_for(lambda: ledger.bound()[""] <= PODS - 2 * (6 + 13), "what fits is bound", 60, check=ledger.check)
    await owners_land(plot, held)


async def test_scheduler_that_does_not_ask_takes_held_room_and_the_status_says_so(plot: Plot) -> None:
    (node,) = await plot.ground.nodes(1, cpu="3900m")
    hold = await plot.reserving.hold(node, {"cpu": "2000m"}, jobName="ours")
    await plot.becomes_held(node)
    stranger = await plot.ground.pod(plot.ground.scheduler(), cpu="3000m")
    await plot.ground.bound(stranger)
    await plot.reserving.becomes(hold, "Active", "less is free than is held: cpu lacks 1100m")
    owner = await plot.pod(cpu="2000m", meta=OURS)
    await plot.ground.held(owner, "Unschedulable", "Insufficient cpu")
    await plot.ground.delete_pod(stranger)
    assert await plot.ground.bound(owner) == [node]


async def test_held_room_is_kept_when_another_scheduler_takes_the_lead(plot: Plot) -> None:
    printed = await plot.ours.printed()
    leader, next_one = (Electing(plot.ground, printed, term) for term in ("a", "b"))
    nodes, held = await half_held(plot)
    leader.start()
    try:
        await leader.leads()
        next_one.start()
        led = replace(plot, scheduler=leader)
        async with Ledger(plot.ground, dict.fromkeys(held, 2000)) as ledger:
            await asyncio.gather(*(led.pod(cpu="300m") for _ in range(PODS // 2)))
            await wait_for(lambda: ledger.bound()[""] < PODS // 2, "some are bound")
            others = asyncio.gather(*(led.pod(cpu="300m") for _ in range(PODS // 2)))
            await asyncio.to_thread(leader.kill)
            await others
            await next_one.leads()
            await settled(led, nodes, held, ledger)
        await owners_land(led, held)
    finally:
        for one in (leader, next_one):
            await asyncio.to_thread(one.kill)


async def test_pod_that_is_not_bound_after_filter_frees_its_room_soon(plot: Plot) -> None:
    (node,) = await plot.ground.nodes(1, cpu="3900m")
    await plot.reserving.hold(node, {"cpu": "2000m"}, jobName="ours")
    await plot.becomes_held(node)
    await plot.becomes_free(node, {"cpu": "1900m"})
    pod = await plot.pod(cpu="1900m")
    await plot.ground.held(pod, "Unschedulable", CPU)
    assert await plot.ground.bound(pod, seconds=20) == [node]


async def test_node_that_is_gone_and_back_keeps_its_hold(plot: Plot) -> None:
    (node,) = await plot.ground.nodes(1, cpu="3900m")
    hold = await plot.reserving.hold(node, {"cpu": "2000m"}, jobName="ours")
    await plot.reserving.becomes(hold, "Active")
    was = await plot.ground.remove_node(node)
    await plot.reserving.becomes(hold, "NodeMissing", f"there is no node {node}")
    await plot.ground.return_node(was)
    await plot.reserving.becomes(hold, "Active")
    assert await is_held(plot.ours, node)
    assert await plot.ground.held(await plot.pod(cpu="3000m"), "Unschedulable", CPU)
    assert await plot.ground.bound(await plot.pod(cpu="2000m", meta=OURS)) == [node]


@pytest_asyncio.fixture(loop_scope="session")
async def cut_off(
    control_plane: ControlPlane, ground: Ground, ours: OurExtender, look_only: Path
) -> AsyncIterator[tuple[KubeProxy, Plot]]:
    """An extender behind a proxy whose answers a test controls."""
    async with (
        KubeProxy(control_plane.url, control_plane.ca_file) as proxy,
        OurExtender(proxy.kubeconfig(look_only)) as behind,
    ):
        await behind.ready()
        yield proxy, await plot_of(ground, behind, ours)


async def test_failed_write_of_one_note_delays_no_other_pod(cut_off: tuple[KubeProxy, Plot]) -> None:
    proxy, plot = cut_off
    (node,) = await plot.ground.nodes(1, cpu="3900m")
    hold = await plot.reserving.hold(node, {"cpu": "3900m"}, jobName="ours")
    await plot.becomes_held(node)
    first, second = [await plot.pod(cpu="1000m") for _ in range(2)]
    for pod in (first, second):
        await plot.ground.held(pod, "Unschedulable", CPU)
    rule = proxy.add(status(500), lambda asked: asks("patch", "pods/status")(asked) and asked.name == first)
    await plot.reserving.release(hold)
    assert await plot.ground.bound(second, seconds=20) == [node]
    assert rule.hits
