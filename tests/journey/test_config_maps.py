"""The leader keeps two ConfigMaps, for everybody with kubectl. Whatever becomes of them, the next write repairs it."""

import json
from typing import Any

import msgspec
import pytest

from dispatcher.views.status import InstallationStatus
from tests.controlplane.api import Json, KubeFault
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.steps import has_jobs, insert, looks_again

SECRET = "planted-secret-9b1c"  # it must not be shown


def path_of(place: Place, name: str = "") -> str:
    return f"/api/v1/namespaces/{place.namespace}/configmaps" + (f"/dispatcher-{name}" if name else "")


async def told(place: Place, dispatcher: Dispatcher, name: str, words: str, seconds: float = 40) -> dict[str, Any]:
    """What the ConfigMap says, once it has these words."""

    async def says_it() -> dict[str, Any] | None:
        try:
            found = await place.control_plane.admin("GET", path_of(place, name))
        except KubeFault:
            return None
        text = (found.get("data") or {}).get(f"{name}.json", "")
        return json.loads(text) if words in text and list(found["data"]) == [f"{name}.json"] else None

    found: dict[str, Any] | None = await wait_for(says_it, f"{name} tells {words}", seconds, check=dispatcher.check)
    assert found is not None
    return found


@pytest.mark.slow
async def test_status_and_reasons_are_in_config_maps_and_hold_no_secret(place: Place) -> None:
    columns: dict[str, Any] = {"env": {"PASSWORD": SECRET}, "payload": {"x": SECRET}, "cache_key": SECRET}
    async with Dispatcher(place, MAX_JOBS=1) as dispatcher:
        await dispatcher.ready()
        (parked,) = await insert(place, 1, template="nowhere", **columns)
        launched, waiting = await insert(place, 2, **columns)
        await has_jobs(place, dispatcher, 1)
        found = await told(place, dispatcher, "status", "JobCap")
        status = msgspec.convert(found, InstallationStatus)
        assert (status.installation, status.in_flight, status.parked) == ("dispatcher", 1, 1)
        assert status.queues[0].reasons == {"JobCap": 1, "Launched": 1, "UnknownTemplate": 1}
        reasons = await told(place, dispatcher, "reasons", "JobCap")
        rows = {row[0]: row for row in reasons["rows"]}
        assert [rows[id_][2] for id_ in (parked, launched, waiting)] == ["UnknownTemplate", "Launched", "JobCap"]
        assert reasons["messages"][rows[waiting][4]] == "there are as many Jobs as there may be: 1 of 1"
        assert SECRET not in json.dumps([found, reasons])


@pytest.mark.slow
async def test_config_maps_that_are_deleted_or_overwritten_are_written_again(place: Place) -> None:
    """Nothing else stops meanwhile, and times survive a restart."""
    admin = place.control_plane.admin
    async with Dispatcher(place) as first:
        await first.ready()
        (parked,) = await insert(place, 1, template="nowhere")
        before = await told(place, first, "reasons", "UnknownTemplate")
    junk: Json = {
        "metadata": {"name": "dispatcher-reasons"},
        "data": {"reasons.json": "nonsense", "more": "x" * 900_000},
    }
    async with Dispatcher(place) as second:
        await second.ready()
        after = await told(place, second, "reasons", "UnknownTemplate")
        assert after["rows"] == before["rows"], "the reason and its time"
        status, found = await second.explain(parked)
        assert (status, found["reason"]) == (200, "UnknownTemplate")
        await admin("DELETE", path_of(place, "status"))
        await admin("PUT", path_of(place, "reasons"), junk)
        await insert(place, 1)
        await has_jobs(place, second, 1)
        await told(place, second, "status", "UnknownTemplate")
        await told(place, second, "reasons", "UnknownTemplate")


@pytest.mark.slow
async def test_config_map_that_may_not_be_changed_stops_nothing_else(place: Place) -> None:
    frozen: Json = {"metadata": {"name": "dispatcher-status"}, "data": {"status.json": "mine"}, "immutable": True}
    await place.control_plane.admin("POST", path_of(place), frozen)
    async with Dispatcher(place) as dispatcher:
        await dispatcher.ready()

        async def is_told() -> bool:
            return "dispatcher-status" in dispatcher.log and "immutable" in dispatcher.log

        await wait_for(is_told, "the log names the ConfigMap", 20, check=dispatcher.check)
        await insert(place, 1)
        await has_jobs(place, dispatcher, 1)
        await looks_again(dispatcher, 1)
        assert await dispatcher.metric("dispatcher_faults_total", component="status") >= 1
        assert (await dispatcher.get("/readyz"))[0] == 200
        await place.control_plane.admin("DELETE", path_of(place, "status"))
        await told(place, dispatcher, "status", "Launched", 60)
