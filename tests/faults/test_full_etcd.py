"""A full etcd refuses writes: readiness names it, nothing is lost, and work resumes once there is room."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from tests.controlplane.api import Json, KubeFault
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.postgres import Database
from tests.rig.steps import core_path, has_jobs, held, insert, looks_again, succeeded

QUOTA_BYTES = 24 << 20
PIECE = "x" * 900_000


@pytest_asyncio.fixture(loop_scope="session")
async def small_place(monkeypatch: pytest.MonkeyPatch, database: Database, tmp_path: Path) -> AsyncIterator[Place]:
    """A place on a control plane of its own, with an etcd of 24 MiB."""
    async with place_with(QUOTA_BYTES, monkeypatch, database, tmp_path) as place:
        yield place


@asynccontextmanager
async def place_with(
    quota: int, monkeypatch: pytest.MonkeyPatch, database: Database, folder: Path
) -> AsyncIterator[Place]:
    monkeypatch.setenv("ETCD_QUOTA_BACKEND_BYTES", str(quota))
    async with ControlPlane() as plane:
        await plane.add_nodes(1)
        place = Place(plane, await plane.create_namespace(), database, folder)
        await place.prepare()
        yield place


async def fill(place: Place) -> int:
    """Creates large ConfigMaps until etcd refuses one, and returns their number."""
    for number in range(100):
        body = {"metadata": {"name": f"big-{number}"}, "data": {"a": PIECE}}
        try:
            await place.control_plane.admin("POST", core_path(place, "configmaps"), body)
        except KubeFault as fault:
            if "space exceeded" not in str(fault):
                raise
            return number
    raise AssertionError("etcd took everything")


async def make_room(place: Place) -> None:
    """Frees space as etcd's documentation says: delete, compact, defragment, disarm the alarm."""
    for item in (await place.control_plane.admin("GET", core_path(place, "configmaps")))["items"]:
        if item["metadata"]["name"].startswith("big-"):
            await place.control_plane.admin("DELETE", core_path(place, "configmaps", item["metadata"]["name"]))
    async with aiohttp.ClientSession() as session:
        state = await etcd(place, session, "maintenance/status")
        revision = {"revision": state["header"]["revision"], "physical": True}
        await etcd(place, session, "kv/compaction", revision)
        await etcd(place, session, "maintenance/defragment")
        member = {"memberID": state["header"]["member_id"], "action": "DEACTIVATE", "alarm": "NOSPACE"}
        await etcd(place, session, "maintenance/alarm", member)


async def etcd(place: Place, session: aiohttp.ClientSession, what: str, body: Json | None = None) -> Json:
    address = f"http://127.0.0.1:{place.control_plane._layout.etcd_port}/v3/{what}"
    async with session.post(address, json=body or {}) as answer:
        assert answer.status == 200, await answer.text()
        told: Json = await answer.json()
        return told


@pytest.mark.slow
@pytest.mark.fault(21)
async def test_full_etcd_stops_writes_until_there_is_room(small_place: Place) -> None:
    place = small_place
    async with place.playing() as player, Dispatcher(place, TOMBSTONE_SECONDS=0) as dispatcher:
        await insert(place, 1, env={"PLAY": "hang"})
        await has_jobs(place, dispatcher, 1)
        # kwok drops a Pod that it cannot tell of, so etcd has room until the Pod runs.
        await wait_for(lambda: len(player.runs) == 1, "its container runs", 30, check=dispatcher.check)
        assert await fill(place) > 5
        await insert(place, 3)
        body = await dispatcher.unready("space exceeded")
        assert "leader" in body
        await looks_again(dispatcher)
        assert len(await place.jobs()) == 1
        assert (await dispatcher.get("/healthz"))[0] == 200
        await make_room(place)
        await dispatcher.ready()
        await succeeded(place, dispatcher, 3, 60)

        async def is_alone() -> bool:
            return len(await place.jobs()) == 1

        await wait_for(is_alone, "what is over is swept", 30, check=dispatcher.check)
    assert len(player.runs) == 4


@pytest.mark.slow
@pytest.mark.fault(21)
async def test_rows_with_much_text_leave_etcd_room_for_everybody(
    monkeypatch: pytest.MonkeyPatch, database: Database, tmp_path: Path
) -> None:
    """All of them at once take 35 MB of etcd, which has 28. They go out in their turn, and others go on."""
    async with (
        place_with(28 << 20, monkeypatch, database, tmp_path) as place,
        place.playing(),
        Dispatcher(place, KUBE_WRITES_PER_SECOND=10, CPU_REQUEST="1m", MEMORY_REQUEST="1Mi") as dispatcher,
    ):
        await insert(place, 2, env={"A": "x" * 17_000})
        await insert(place, 150, env={"A": "x" * 16_000})
        await held(dispatcher, "PolicyDenied", 2)
        await wait_for(lambda: waits(dispatcher), "the others wait their turn", 60, check=dispatcher.check)
        plain = [await place.database.insert_task("team_b") for _ in range(30)]
        await wait_for(lambda: are_over(place, plain), "rows of another team end", 60, check=dispatcher.check)
        body = {"metadata": {"name": "of-somebody"}, "data": {"a": PIECE}}
        await place.control_plane.admin("POST", core_path(place, "configmaps"), body)


async def waits(dispatcher: Dispatcher) -> bool:
    return await dispatcher.metric("dispatcher_waiting_tasks", reason="SubmitterCap") > 80


async def are_over(place: Place, rows: list[int]) -> bool:
    admin = await place.database.session("admin")
    left = "SELECT count(*) FROM dispatch_private.tasks WHERE id = ANY ($1) AND status <> 'succeeded'"
    return bool(await admin.fetchval(left, rows) == 0)
