"""Room that our count does not see: kube-scheduler gives Pods nodes that they could not have by the estimate."""

import pytest

from tests.controlplane.waiting import wait_for
from tests.rig.devices import devices
from tests.rig.dispatching import TASK, Dispatcher, Place
from tests.rig.pools import a_pool, in_pool
from tests.rig.steps import insert, reaches

PLACES = 60
NOWHERE = 12
ASKING = 3
"""Shapes of one team that ask at a time. A shape without an answer has one Pod."""


def most_out(place: Place) -> int:
    """The most Jobs that had been made while their Pods were not bound, by the audit log."""
    out = most = 0
    for event in place.control_plane.audit(namespace=place.namespace, verb="create"):
        if event.code != 201:
            continue
        out += event.object_ref.resource == "jobs"
        out -= event.object_ref.resource == "pods" and event.object_ref.subresource == "binding"
        most = max(most, out)
    return most


@pytest.mark.slow
async def test_devices_of_a_driver_are_used_beside_shapes_that_fit_nowhere(place: Place) -> None:
    async with (
        a_pool(place, 1, cpu="64") as pool,
        devices(place, pool.names, PLACES) as device,
        place.playing(),
        in_pool(place) as dispatcher,
    ):
        asked = TASK.format(annotations="{}", steer="{}").replace("cpu: 10m", f"{device}: 1, cpu: 10m")
        (place.templates / "device.yaml").write_text(asked)
        for number in range(NOWHERE):
            await place.database.insert_task("team_b", template="open", spec={"cpu": str(100 + number)})
        await insert(place, PLACES, template="device", env={"PLAY": "hang"})

        async def all_run() -> bool:
            return (await pool.pods())[0] == PLACES

        await wait_for(all_run, f"{PLACES} Pods have the device", 60, check=dispatcher.check)
        assert most_out(place) > ASKING + 3, "they came one by one"


ALONE = """
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            - topologyKey: kubernetes.io/hostname
              labelSelector: {matchLabels: {dispatcher.internal/template: alone}}
      containers:"""


@pytest.mark.slow
async def test_pods_for_which_kube_scheduler_alone_finds_no_node_take_nothing_of_others(
    place: Place,
) -> None:
    """One Pod for a node, by affinity between Pods, which our count does not know."""
    async with a_pool(place, 2) as pool, place.playing(), in_pool(place, MAX_JOBS=8) as dispatcher:
        text = TASK.format(annotations="{}", steer="{}").replace("cpu: 10m", "cpu: 1")
        (place.templates / "alone.yaml").write_text(text.replace("\n      containers:", ALONE))
        rows = await insert(place, 12, template="alone", env={"PLAY": "hang"})

        async def one_waits() -> bool:
            return await pool.pods() == (2, 1)

        await wait_for(one_waits, "two Pods run and one waits", 60, check=dispatcher.check)
        assert "kube-scheduler finds no node for it, where our count has room" in await why(dispatcher, rows[-1])
        for _ in range(2):
            other = await place.database.insert_task("team_b", template="open", spec={"cpu": "3"})
            await reaches(place, dispatcher, other, "succeeded", 30)
        assert (await pool.pods())[1] == 1


async def why(dispatcher: Dispatcher, task_id: int) -> str:
    return str((await dispatcher.explain(task_id))[1]["message"])
