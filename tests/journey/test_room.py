"""A full cluster: rows wait without Jobs, one probe waits for an autoscaler, and room that comes is used at once."""

import asyncio
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dispatcher.commands.render import preview_row, tell_room
from dispatcher.settings.loading import load
from tests.controlplane.api import Json
from tests.controlplane.waiting import one_within, wait_for
from tests.rig.dispatching import Place
from tests.rig.pools import CORE, POOL, a_pool, in_pool, quick_in_pool
from tests.rig.steps import core_path, held, insert, looks_again, reaches


def task_of(thing: Json) -> int:
    return int(thing["metadata"]["labels"]["dispatcher.internal/task-id"])


@pytest.mark.promise
@pytest.mark.fault(41)
async def test_full_cluster_gets_one_probe_and_a_new_node_is_filled_at_once(place: Place) -> None:
    async with a_pool(place, 2) as pool, place.playing(), in_pool(place) as dispatcher:
        await insert(place, 30, **CORE)
        await pool.stay(dispatcher, 8, 1)
        await held(dispatcher, "NoRoomNow", 21)
        full = count(12, 4)

        async def trial() -> float:
            """Seconds from a new node until it is full."""
            await pool.add()
            began = asyncio.get_running_loop().time()
            await pool.have(dispatcher, next(full), 1)
            return asyncio.get_running_loop().time() - began

        await one_within(4, trial)  # 2 s, and as much for kube-scheduler and slow machines
        running = next(full) - 4
        await pool.stay(dispatcher, running, 1)
        await held(dispatcher, "NoRoomNow", 29 - running)


@pytest.mark.promise
async def test_place_that_waits_goes_to_the_row_that_comes_first(place: Place) -> None:
    """A row of a better priority, then one of a queue that has less. Nothing else is taken back."""
    admin = await place.database.session("admin")
    await admin.execute("INSERT INTO dispatch.queues (name) VALUES ('other')")
    async with a_pool(place, 1) as pool, place.playing(), quick_in_pool(place) as dispatcher:
        await insert(place, 6, **CORE)
        await pool.have(dispatcher, 4, 1)
        (urgent,) = await insert(place, 1, **{**CORE, "priority": 1})

        async def waits(wanted: int) -> bool:
            pods = (await pool.plane.admin("GET", core_path(place, "pods")))["items"]
            staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
            return [wanted] == [task_of(pod) for pod in staying if not pod["spec"].get("nodeName")]

        await wait_for(lambda: waits(urgent), "the Pod of the better row waits", 20, check=dispatcher.check)
        (poor,) = await insert(place, 1, **CORE, queue="other")
        await wait_for(lambda: waits(poor), "the Pod of the other queue waits", 20, check=dispatcher.check)
        await looks_again(dispatcher, 10)
        assert await waits(poor)
        assert (await pool.pods())[0] == 4, "no Pod that runs was touched"
        await pool.add()

        async def all_have_nodes() -> bool:
            return await pool.pods() == (8, 0)

        await wait_for(all_have_nodes, "all rows run", 20, check=dispatcher.check)


@pytest.mark.slow
async def test_room_that_somebody_else_takes_is_not_counted_until_it_is_free_again(place: Place) -> None:
    async with a_pool(place, 1) as pool, place.playing(), in_pool(place, MAX_PENDING=0) as dispatcher:
        foreign = await pool.occupy(pool.names[0])
        await dispatcher.ready()
        await insert(place, 6, **CORE)
        await held(dispatcher, "NoRoomNow", 6)
        await pool.stay(dispatcher, 0, 0)
        await pool.vacate(foreign)
        await pool.stay(dispatcher, 4, 0)
        await held(dispatcher, "NoRoomNow", 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("refuse", "allow"),
    [
        ({"unschedulable": True}, {"unschedulable": None}),
        ({"taints": [{"key": "team", "value": "x", "effect": "NoSchedule"}]}, {"taints": None}),
    ],
    ids=["cordon", "taint"],
)
async def test_node_that_pods_may_not_have_gets_none(place: Place, refuse: Json, allow: Json) -> None:
    async with a_pool(place, 1) as pool, place.playing(), in_pool(place, MAX_PENDING=0) as dispatcher:
        await pool.change(pool.names[0], refuse)
        await dispatcher.ready()
        await insert(place, 2, **CORE)
        await held(dispatcher, "NoRoomNow", 2)
        await pool.stay(dispatcher, 0, 0)
        await pool.change(pool.names[0], allow)
        await pool.have(dispatcher, 2, 0)


@pytest.mark.slow
@pytest.mark.fault(41)
async def test_shape_that_fits_is_launched_behind_two_that_do_not(place: Place) -> None:
    async with a_pool(place, 1) as pool, place.playing(), in_pool(place) as dispatcher:
        await pool.occupy(pool.names[0], "3")
        await dispatcher.ready()
        await insert(place, 300, priority=1, **{**CORE, "spec": {"cpu": "2"}})
        await insert(place, 300, priority=2, **{**CORE, "spec": {"cpu": "5"}})
        (small,) = await insert(place, 1, priority=900, **CORE)
        await reaches(place, dispatcher, small, "processing")
        await pool.stay(dispatcher, 1, 2)
        await held(dispatcher, "NoRoomNow", 299)
        await held(dispatcher, "NeverFits", 299)


async def test_render_of_a_row_tells_whether_a_node_has_room_for_it_now(place: Place) -> None:
    async with a_pool(place, 1) as pool:
        environment = place.environment(NODE_SELECTOR=f"{POOL}={place.namespace}")
        settings = load(environment, lambda path: Path(path).read_text()).settings

        async def told(cpu: str, **changes: Any) -> str:
            (row,) = await insert(place, 1, **{**CORE, "spec": {"cpu": cpu}})
            changed = replace(settings, kube=replace(settings.kube, **changes))
            return await tell_room(await preview_row(row, settings), changed)

        assert await told("2") == f"room: node {pool.names[0]} has room now"
        foreign = await pool.occupy(pool.names[0], "3")
        assert "room: NoRoomNow: no node has room for cpu 2" in await told("2")
        assert "room: NeverFits: no node is large enough for cpu 9" in await told("9")
        await pool.vacate(foreign)
        assert "not judged" in await told("2", check_room=False)
        assert "room: not known: " in await told("2", kubeconfig=str(place.folder / "no-such-file"))
