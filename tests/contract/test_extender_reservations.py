"""Reservations with the real kube-scheduler: other Pods never get held room, its target does."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import permutations
from pathlib import Path

import aiohttp
import pytest

from tests.controlplane.api import Json
from tests.controlplane.waiting import wait_for
from tests.scheduling.nodes_and_pods import GPU
from tests.scheduling.own_extender import OwnExtender
from tests.scheduling.reservations import CPU, TARGET_META, ReservedNodes, is_held, task

pytest_plugins = ["tests.scheduling.fixtures"]
pytestmark = pytest.mark.usefixtures("reservations")


SECOND = timedelta(seconds=1)


AMOUNTS = {
    "cpu": ("2000m", "3000m", "2000m", "1500m"),
    "memory": ("2Gi", "3Gi", "2Gi", "1500Mi"),
    GPU: ("4", "6", "4", "3"),
}
"""By resource: the held amount, and the requests of a filler, the owner and a Pod that fits next to the hold.

A node has 3900m, 4Gi and 8 GPUs.
"""


def asking(resource: str, amount: str) -> Json:
    """A request of this amount, and of hardly any other resource."""
    asked: Json = {"cpu": "1m", "memory": "1Mi"}
    return asked | ({resource: amount} if resource in asked else {"also": {resource: amount}})


ORDERS = [*permutations(("owner", "later", "filler"))]
ORDERED = [*(("cpu", order) for order in ORDERS), ("memory", ORDERS[0]), (GPU, ORDERS[-1])]
"""Every order with cpu. The order and the resource do not depend on each other."""


@pytest.mark.parametrize(("resource", "order"), ORDERED, ids=[f"{what} {'-'.join(order)}" for what, order in ORDERED])
async def test_hold_is_kept_for_its_owner_in_any_order_of_pods(
    reserved: ReservedNodes, resource: str, order: tuple[str, ...]
) -> None:
    """Two fillers go to the other nodes. A third one waits, whenever it comes."""
    node_group = reserved.node_group
    held, filler, owner, later = AMOUNTS[resource]
    asks = {who: asking(resource, amount) for who, amount in (("filler", filler), ("owner", owner), ("later", later))}
    nodes = await node_group.nodes(3, cpu="3900m", memory="4Gi", gpu="8")
    await reserved.reservations.hold(nodes[0], {resource: held}, taskId=7)
    await reserved.wait_until_held(nodes[0], {resource: filler})
    first = [await reserved.pod(**asks["filler"]) for _ in range(2)]
    assert set(await node_group.bound(*first)) == set(nodes[1:])
    for who in order:
        pod = await reserved.pod(meta=task(7) if who == "owner" else None, **asks[who])
        if who == "filler":
            await node_group.held(pod, "Unschedulable", " nodes are available: ")
        else:
            assert await node_group.bound(pod) == [nodes[0]], who


async def test_all_waiting_pods_are_notified_within_seconds(reserved: ReservedNodes) -> None:
    """The API server has a part in the time of a hundred patches. So one of three rounds must be fast."""
    (node,) = await reserved.node_group.nodes(1, cpu="3900m", pods=200)
    spreads: list[timedelta] = []
    while not spreads or (min(spreads) >= 3 * SECOND and len(spreads) < 3):
        spreads.append(await spread_of_notes(reserved, node))
    assert min(spreads) < 3 * SECOND, spreads


async def spread_of_notes(reserved: ReservedNodes, node: str) -> timedelta:
    """Time from the first to the last of a hundred notes about the end of one hold."""
    await reserved.node_group.empty()
    hold = await reserved.reservations.hold(node, {"cpu": "3900m"}, jobName="ours")
    await reserved.wait_until_held(node)
    await asyncio.gather(*(reserved.gated_pod(cpu="10m") for _ in range(100)))
    await reserved.refuse_all(node)
    await reserved.reservations.release(hold)

    async def are_told() -> list[datetime]:
        notes = (await reserved.notes()).values()
        return sorted(map(datetime.fromisoformat, notes)) if all(notes) else []

    told = await wait_for(are_told, "all are told", 20)
    return told[-1] - told[0]


async def test_explain_and_metrics_name_the_refusing_reservation(reserved: ReservedNodes) -> None:
    here, there = await reserved.node_group.nodes(2, cpu="3900m")
    before = {name: await reserved.own_extender.metric(name, **labels) for name, labels in COUNTED.items()}
    hold = await reserved.reservations.hold(here, {"cpu": "5"}, jobName="ours")
    await reserved.reservations.wait_for_phase(hold, "Active", "less is free than is held: cpu lacks 1100m")
    await reserved.wait_until_held(here)
    await reserved.node_group.occupy(there, cpu="3900m")
    pod = await reserved.pod(cpu="100m")
    await reserved.reservations.wait_for_event("Pod", pod, "Refused", f"{CPU}: by NodeReservation ")
    asked = {"Pod": await reserved.node_group.read(pod), "NodeNames": [here, there]}
    status, answer = await reserved.own_extender.post("explain", asked)
    told = {name: (node["verdict"], node.get("reservations")) for name, node in answer["nodes"].items()}
    assert (status, told) == (200, {here: ("refused", [reserved.node_group.key(hold)]), there: ("pass", None)})
    for name, labels in COUNTED.items():
        assert await reserved.own_extender.metric(name, **labels) > before[name], name


COUNTED = {
    "dispatcher_reservations": {"phase": "Active"},
    "dispatcher_extender_refused_nodes_total": {"cause": "reserved"},
    "dispatcher_events_total": {"reason": "Refused", "outcome": "written"},
}


@pytest.mark.slow
async def test_two_extenders_do_not_contradict_each_other(reserved: ReservedNodes, extender_kubeconfig: Path) -> None:
    async with OwnExtender(extender_kubeconfig) as other:
        await other.ready()
        nowhere = await reserved.reservations.hold("nowhere", {"cpu": "1"}, taskId=8, seconds=600)
        brief = await reserved.reservations.hold("nowhere", {"cpu": "1"}, taskId=7, seconds=2)
        await reserved.reservations.wait_for_phase(brief, "Expired")
        after = await reserved.reservations.hold("nowhere", {"cpu": "1"}, taskId=9, seconds=1)
        await reserved.reservations.wait_for_event("NodeReservation", after, "Expired", "its time was over")
        reasons = [one["reason"] for one in await reserved.reservations.told("NodeReservation", brief)]
        assert reasons in (["Expired"], ["NodeMissing", "Expired"])
        assert [one["reason"] for one in await reserved.reservations.told("NodeReservation", nowhere)] == [
            "NodeMissing"
        ]


ENDS = ("deleted", "expired", "smaller", "landed")


async def end(reserved: ReservedNodes, hold: str, how: str, elsewhere: str) -> None:
    """Ends a hold for the Job `ours`."""
    if how == "deleted":
        await reserved.reservations.release(hold)
    if how == "smaller":
        await reserved.reservations.change(hold, resources={"cpu": "1"})
    if how == "expired":
        await reserved.reservations.change(hold, ttlSeconds=None, expiresAt=(datetime.now(UTC) + SECOND).isoformat())
    if how == "landed":
        await reserved.node_group.occupy(elsewhere, cpu="100m", meta=TARGET_META)


@pytest.mark.fault(61)
@pytest.mark.parametrize("how", ENDS)
async def test_refused_pod_is_bound_soon_after_the_end_of_the_hold(reserved: ReservedNodes, how: str) -> None:
    """Nothing else happens in the cluster that would make kube-scheduler ask again before minutes have passed."""
    here, there = await reserved.node_group.nodes(2, cpu="3900m")
    await reserved.node_group.occupy(there, cpu="3000m")
    hold = await reserved.reservations.hold(here, {"cpu": "3900m"}, jobName="ours")
    await reserved.wait_until_held(here)
    pod = await reserved.pod(cpu="2000m")
    await reserved.node_group.held(pod, "Unschedulable", CPU)
    await end(reserved, hold, how, there)
    assert await reserved.node_group.bound(pod, seconds=20) == [here]


@pytest.mark.slow
async def test_status_of_a_reservation_follows_its_state(reserved: ReservedNodes) -> None:
    here, there = await reserved.node_group.nodes(2, cpu="3900m")
    first = await reserved.reservations.hold(here, {"cpu": "2"}, jobName="ours")
    await reserved.reservations.wait_for_phase(first, "Active")
    await reserved.node_group.occupy(here, cpu="3000m")
    await reserved.reservations.wait_for_phase(first, "Active", "less is free than is held: cpu lacks 1100m")
    second = await reserved.reservations.hold(there, {"cpu": "1"}, jobName="ours")
    await reserved.reservations.wait_for_phase(second, "Active", "held for the same target: ")
    nowhere = await reserved.reservations.hold("nowhere", {"cpu": "1"}, taskId=7)
    await reserved.reservations.wait_for_phase(nowhere, "NodeMissing", "there is no node nowhere")
    brief = await reserved.reservations.hold(there, {"cpu": "1"}, taskId=8, seconds=1)
    await reserved.reservations.wait_for_phase(brief, "Expired", "its time was over, at 20")
    await reserved.node_group.occupy(there, cpu="100m", meta=TARGET_META)
    await reserved.reservations.wait_for_phase(first, "Landed", f"its Pod is on node {there}")
    await reserved.reservations.wait_for_phase(second, "Landed", f"its Pod is on node {there}")
    late = await reserved.reservations.hold(there, {"cpu": "1"}, jobName="ours")
    await reserved.reservations.wait_for_phase(late, "Landed", "its Pod was on a node already")


@pytest.mark.slow
@pytest.mark.fault(61)
async def test_restart_forgets_no_landing(reserved: ReservedNodes, extender_kubeconfig: Path) -> None:
    """The Pod that landed is gone by then; only the status of the reservation tells of it."""
    here, there = await reserved.node_group.nodes(2, cpu="3900m")
    name = await reserved.reservations.hold(here, {"cpu": "3900m"}, jobName="ours")
    pod = await reserved.node_group.occupy(there, cpu="100m", meta=TARGET_META)
    await reserved.reservations.wait_for_phase(name, "Landed")
    await reserved.node_group.delete_pod(pod)
    await reserved.node_group.gone(pod)
    async with OwnExtender(extender_kubeconfig) as another:
        await another.ready()
        assert not await is_held(another, here, {"cpu": "1m"})
        assert await reserved.reservations.status(name) == ("Landed", f"its Pod is on node {there}")


async def test_daemons_and_critical_pods_pass_a_hold(reserved: ReservedNodes) -> None:
    (node,) = await reserved.node_group.nodes(1, cpu="3900m")
    await reserved.reservations.hold(node, {"cpu": "3900m"}, jobName="ours")
    await reserved.wait_until_held(node)
    await reserved.node_group.daemon(reserved.scheduler)
    await wait_for(lambda: reserved.node_group.is_bound_by("DaemonSet"), "the daemon's Pod is bound")
    critical = await reserved.pod(priorityClassName="system-cluster-critical")
    assert await reserved.node_group.bound(critical) == [node]
    assert await reserved.node_group.held(await reserved.pod(), "Unschedulable", CPU)


async def test_extender_passes_no_pod_before_it_has_listed_reservations(
    reserved: ReservedNodes, extender_kubeconfig: Path
) -> None:
    """kube-scheduler asks again, and no room is given away meanwhile."""
    reserved.node_group.plane.pause()
    try:
        async with OwnExtender(extender_kubeconfig) as young:

            async def answers() -> bool:
                with suppress(aiohttp.ClientConnectionError):
                    status, answer = await young.post("filter", {"Pod": {}, "NodeNames": ["a"]})
                    assert status == 503
                    assert answer["Error"].startswith("reservations, nodes and Pods are not all listed yet: nodes: ")
                    return True
                return False

            await wait_for(answers, "the extender answers", check=young.check)
    finally:
        reserved.node_group.plane.resume()
        await reserved.own_extender.ready()
