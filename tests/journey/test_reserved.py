"""A reservation keeps room for a row, against a Pod that wants the same node, until the row runs there."""

import pytest

from tests.controlplane.api import Json
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Place
from tests.rig.steps import reaches
from tests.rig.warm_pools import POOL, deployed, pools
from tests.scheduling.reservations import CPU, Reservations

pytest_plugins = ["tests.scheduling.fixtures"]
pytestmark = pytest.mark.usefixtures("reservations")


@pytest.mark.slow
async def test_room_reserved_for_a_row_is_free_when_its_job_is_created(place: Place) -> None:
    plane, pods = place.control_plane, f"/api/v1/namespaces/{place.namespace}/pods"
    operator = await place.database.connect("operator")
    await operator.execute("INSERT INTO dispatch.queues (name, paused_until) VALUES ('night', 'infinity')")
    async with (
        deployed(place) as (scheduler, _),
        pools(place, 2, SCHEDULER_NAME=scheduler.name) as (pool, (held, other)),
    ):
        await plane.admin("PATCH", f"/api/v1/nodes/{other}", {"spec": {"unschedulable": True}})
        task_id = await place.database.insert_task(queue="night")
        reservations = Reservations(plane, place.namespace)
        hold = await reservations.hold(held, {"cpu": "8"}, taskId=task_id)
        await reservations.wait_for_phase(hold, "Active")
        await plane.admin("POST", pods, a_stranger(place, scheduler.name))
        told = await reservations.wait_for_event(
            "Pod", "stranger", "Refused", f"{CPU}: by NodeReservation ", seconds=30
        )
        assert told["message"].endswith(f"{place.namespace}/{hold} on node {held}")
        await operator.execute("UPDATE dispatch.queues SET paused_until = NULL WHERE name = 'night'")
        row = await reaches(place, pool.dispatcher, task_id, "succeeded", 30)
        assert row["node_name"] == held
        await reservations.wait_for_phase(hold, "Landed", f"its Pod is on node {held}")

        async def is_bound() -> bool:
            return bool((await plane.admin("GET", f"{pods}/stranger"))["spec"].get("nodeName") == held)

        await wait_for(is_bound, "the stranger has the node now", 30)


def a_stranger(place: Place, scheduler: str) -> Json:
    asked = {"requests": {"cpu": "1"}}
    spec = {
        "schedulerName": scheduler, "nodeSelector": {POOL: place.namespace}, "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "task", "image": "registry.example/x:1", "resources": asked}],
    }  # fmt: skip
    return {"metadata": {"name": "stranger"}, "spec": spec}
