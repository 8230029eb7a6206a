"""Reservations through the real kube-scheduler: others never have what is held, its target does.

Numbers are those of the extender's list of tests.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import permutations
from pathlib import Path

import pytest
import pytest_asyncio

from tests.controlplane.api import Json
from tests.controlplane.waiting import wait_for
from tests.scheduling.ground import GPU, Ground
from tests.scheduling.kube_scheduler import KubeScheduler
from tests.scheduling.ours import OurExtender
from tests.scheduling.reserving import CPU, Reserving

pytest_plugins = ["tests.scheduling.fixtures"]
pytestmark = pytest.mark.usefixtures("reservations")


@dataclass(frozen=True, slots=True)
class Place:
    """Nodes of a test's own, a scheduler that asks our extender, and reservations."""

    ground: Ground
    ours: OurExtender
    scheduler: KubeScheduler
    reserving: Reserving


@pytest_asyncio.fixture(loop_scope="session")
async def place(ground: Ground, ours: OurExtender) -> Place:
    return Place(ground, ours, ground.scheduler_of(await ours.printed()), Reserving(ground))


def task(number: int) -> Json:
    """Metadata of a Pod of that row."""
    return {"labels": {"dispatcher.internal/task-id": str(number)}}


WHOLE = {"cpu": "3900m"}
SECOND = timedelta(seconds=1)


async def is_held(ours: OurExtender, node: str, asks: Json = WHOLE) -> bool:
    """Whether a stranger who asks for so much is refused the node, asked directly."""
    meta = {"name": "probe", "namespace": "elsewhere", "uid": "probe"}
    spec = {"containers": [{"name": "x", "resources": {"requests": asks}}]}
    _, answer = await ours.post("filter", {"Pod": {"metadata": meta, "spec": spec}, "NodeNames": [node]})
    return bool(answer["FailedAndUnresolvableNodes"])


async def becomes_held(ours: OurExtender, node: str, asks: Json = WHOLE) -> None:
    await wait_for(lambda: is_held(ours, node, asks), f"{node} is held")


async def becomes_free(ours: OurExtender, node: str) -> None:
    async def is_free() -> bool:
        return not await is_held(ours, node, {"cpu": "1m"})

    await wait_for(is_free, f"{node} is free")


AMOUNTS = {
    "cpu": ("2000m", "3000m", "2000m", "1500m"),
    "memory": ("2Gi", "3Gi", "2Gi", "1500Mi"),
    GPU: ("4", "6", "4", "3"),
}
"""What is held; what fillers, the owner, and a Pod that fits beside it ask for: of 3900m, 4Gi, 8."""


def asking(resource: str, amount: str) -> Json:
    """Of that resource so much, and hardly anything else."""
    asked: Json = {"cpu": "1m", "memory": "1Mi"}
    return asked | ({resource: amount} if resource in asked else {"also": {resource: amount}})


@pytest.mark.parametrize("order", [*permutations(("owner", "later", "filler"))], ids="-".join)
@pytest.mark.parametrize("resource", AMOUNTS)
async def test_19_a_hold_is_kept_for_its_owner_in_whatever_order_pods_come(
    place: Place, resource: str, order: tuple[str, ...]
) -> None:
    """Two fillers go to the other nodes, and a third waits, whenever it comes."""
    ground, scheduler = place.ground, place.scheduler
    held, filler, owner, later = AMOUNTS[resource]
    asks = {who: asking(resource, amount) for who, amount in (("filler", filler), ("owner", owner), ("later", later))}
    nodes = await ground.nodes(3, cpu="3900m", memory="4Gi", gpu="8")
    await place.reserving.hold(nodes[0], {resource: held}, taskId=7)
    await becomes_held(place.ours, nodes[0], {resource: filler})
    first = [await ground.pod(scheduler, **asks["filler"]) for _ in range(2)]
    assert set(await ground.bound(*first)) == set(nodes[1:])
    for who in order:
        pod = await ground.pod(scheduler, meta=task(7) if who == "owner" else None, **asks[who])
        if who == "filler":
            await ground.held(pod, "Unschedulable", " nodes are available: ")
        else:
            assert await ground.bound(pod) == [nodes[0]], who


async def test_19_who_waits_for_a_hold_is_told_so(place: Place) -> None:
    (node,) = await place.ground.nodes(1, cpu="3900m")
    await place.reserving.hold(node, {"cpu": "2000m"}, jobName="ours")
    await becomes_held(place.ours, node)
    pod = await place.ground.pod(place.scheduler, cpu="3000m")
    assert await place.ground.held(pod, "Unschedulable", f"1 {CPU}")


async def test_20_a_burst_beside_holds_never_has_what_is_held(place: Place) -> None:
    """A hundred Pods at once, holds of half a node on every second one; looked at all the while."""
    ground = place.ground
    nodes = await ground.nodes(10, cpu="4", pods=200)
    held = nodes[::2]
    for number, node in enumerate(held, start=1):
        await place.reserving.hold(node, {"cpu": "2"}, taskId=number)
    for node in held:
        await becomes_held(place.ours, node)
    await asyncio.gather(*(ground.pod(place.scheduler, cpu="300m") for _ in range(100)))

    async def are_settled() -> bool:
        used = Counter(pod["spec"].get("nodeName", "") for pod in (await ground.pods()).values())
        assert all(300 * used[node] <= 2000 for node in held), used
        return all(used[node] == 13 for node in nodes if node not in held) and used[""] <= 5

    await wait_for(are_settled, "what fits is bound", 60)
    owners = [await ground.pod(place.scheduler, cpu="2", meta=task(number + 1)) for number in range(len(held))]
    assert await ground.bound(*owners, seconds=30) == held


async def test_21_an_owner_that_lands_elsewhere_gives_its_room_back(place: Place) -> None:
    here, there = await place.ground.nodes(2, cpu="3900m")
    await place.reserving.hold(here, {"cpu": "3900m"}, jobName="ours")
    await becomes_held(place.ours, here)
    await place.ground.occupy(there, cpu="1000m", meta={"labels": {"batch.kubernetes.io/job-name": "ours"}})
    await becomes_free(place.ours, here)
    assert await place.ground.bound(await place.ground.pod(place.scheduler, cpu="3900m")) == [here]


ENDS = ("deleted", "expired", "smaller", "landed")


async def end(place: Place, hold: str, how: str, elsewhere: str) -> None:
    """Of a hold for the Job `ours`."""
    if how == "deleted":
        await place.reserving.release(hold)
    if how == "smaller":
        await place.reserving.change(hold, resources={"cpu": "1"})
    if how == "expired":
        await place.reserving.change(hold, ttlSeconds=None, expiresAt=(datetime.now(UTC) + SECOND).isoformat())
    if how == "landed":
        await place.ground.occupy(elsewhere, cpu="100m", meta={"labels": {"batch.kubernetes.io/job-name": "ours"}})


@pytest.mark.parametrize("how", ENDS)
async def test_a_hold_that_ends_is_over_at_once(place: Place, how: str) -> None:
    here, there = await place.ground.nodes(2, cpu="3900m")
    hold = await place.reserving.hold(here, {"cpu": "3900m"}, jobName="ours")
    await becomes_held(place.ours, here)
    await end(place, hold, how, there)

    async def is_over() -> bool:
        return not await is_held(place.ours, here, {"cpu": "2900m"})

    await wait_for(is_over, "the hold is over", 5)


@pytest.mark.parametrize("how", ENDS)
async def test_17_who_was_turned_away_is_bound_soon_after_the_end(place: Place, how: str) -> None:
    """Nothing else happens in the cluster that would have kube-scheduler ask again, which it would after minutes."""
    here, there = await place.ground.nodes(2, cpu="3900m")
    await place.ground.occupy(there, cpu="3000m")
    hold = await place.reserving.hold(here, {"cpu": "3900m"}, jobName="ours")
    await becomes_held(place.ours, here)
    pod = await place.ground.pod(place.scheduler, cpu="2000m")
    await place.ground.held(pod, "Unschedulable", CPU)
    await end(place, hold, how, there)
    assert await place.ground.bound(pod, seconds=10) == [here]


async def test_its_status_tells_what_becomes_of_it(place: Place) -> None:
    here, there = await place.ground.nodes(2, cpu="3900m")
    first = await place.reserving.hold(here, {"cpu": "2"}, jobName="ours")
    await place.reserving.becomes(first, "Active")
    await place.ground.occupy(here, cpu="3000m")
    await place.reserving.becomes(first, "Active", "less is free than is held: cpu lacks 1100m")
    second = await place.reserving.hold(there, {"cpu": "1"}, jobName="ours")
    await place.reserving.becomes(second, "Active", "held for the same target: ")
    nowhere = await place.reserving.hold("nowhere", {"cpu": "1"}, taskId=7)
    await place.reserving.becomes(nowhere, "NodeMissing", "there is no node nowhere")
    brief = await place.reserving.hold(there, {"cpu": "1"}, taskId=8, seconds=1)
    await place.reserving.becomes(brief, "Expired", "its time was over, at 20")
    await place.ground.occupy(there, cpu="100m", meta={"labels": {"batch.kubernetes.io/job-name": "ours"}})
    await place.reserving.becomes(first, "Landed", f"its Pod is on node {there}")
    await place.reserving.becomes(second, "Landed", f"its Pod is on node {there}")
    late = await place.reserving.hold(there, {"cpu": "1"}, jobName="ours")
    await place.reserving.becomes(late, "Landed", "before it was made")


async def test_a_restart_forgets_no_landing(place: Place, look_only: Path) -> None:
    """The Pod that landed is gone by then, and its status alone knows."""
    here, there = await place.ground.nodes(2, cpu="3900m")
    name = await place.reserving.hold(here, {"cpu": "3900m"}, jobName="ours")
    pod = await place.ground.occupy(there, cpu="100m", meta={"labels": {"batch.kubernetes.io/job-name": "ours"}})
    await place.reserving.becomes(name, "Landed")
    await place.ground.delete_pod(pod)
    await place.ground.gone(pod)
    async with OurExtender(look_only) as another:
        await another.ready()
        assert not await is_held(another, here, {"cpu": "1m"})
        assert await place.reserving.status(name) == ("Landed", f"its Pod is on node {there}")


async def test_34_daemons_and_critical_pods_pass(place: Place) -> None:
    (node,) = await place.ground.nodes(1, cpu="3900m")
    await place.reserving.hold(node, {"cpu": "3900m"}, jobName="ours")
    await becomes_held(place.ours, node)
    await place.ground.daemon(place.scheduler)
    await wait_for(lambda: place.ground.is_bound_by("DaemonSet"), "the daemon's Pod is bound")
    critical = await place.ground.pod(place.scheduler, priorityClassName="system-cluster-critical")
    assert await place.ground.bound(critical) == [node]
    assert await place.ground.held(await place.ground.pod(place.scheduler), "Unschedulable", CPU)


async def test_before_it_knows_what_is_held_it_lets_nobody_through(place: Place, look_only: Path) -> None:
    """kube-scheduler asks again; nothing is given away meanwhile."""
    place.ground.plane.pause()
    try:
        async with OurExtender(look_only) as young:

            async def answers() -> bool:
                return (await young.get("/healthz"))[0] == 200

            await wait_for(answers, "it answers", check=young.check)
            status, answer = await young.post("filter", {"Pod": {}, "NodeNames": ["a"]})
            assert (status, answer) == (503, {"Error": "reservations, nodes and Pods are not listed yet"})
    finally:
        place.ground.plane.resume()
