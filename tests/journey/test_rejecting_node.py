"""A node whose kubelet rejects every Pod, and which is therefore always empty, beside healthy ones."""

from typing import Any

import pytest

from dispatcher.admission.claims import REJECTIONS
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Place
from tests.rig.pools import a_pool, quick_in_pool
from tests.rig.steps import core_path, insert, shows, succeeded

ROWS = 20


async def rejected(place: Place) -> list[dict[str, Any]]:
    found = (await place.control_plane.admin("GET", core_path(place, "pods")))["items"]
    return [pod for pod in found if pod["status"].get("reason") == "UnexpectedAdmissionError"]


@pytest.mark.slow
async def test_rejections_cost_the_rows_nothing_and_the_node_is_avoided(place: Place) -> None:
    async with a_pool(place, 3) as pool, place.playing(), quick_in_pool(place, MAX_LAUNCHES=1) as dispatcher:
        bad = (await pool.add(1, cpu="64", prefix="rejecting"))[0]
        await dispatcher.ready()
        await insert(place, ROWS, template="open", spec={"cpu": "1"}, max_failures=1)
        await shows(dispatcher, "dispatcher_rejecting_nodes", 1, 60)
        await succeeded(place, dispatcher, ROWS, 180)
        assert REJECTIONS <= len(seen := await rejected(place)) < 2 * ROWS
        assert await dispatcher.metric("dispatcher_node_rejections_total", node=bad) == len(seen)
        _, rows = await dispatcher.api("nodes")
        (told,) = [node for node in rows["nodes"] if node["name"] == bad]
        assert told["rejects"].startswith("UnexpectedAdmissionError (")
        admin = await place.database.session("admin")
        assert await admin.fetchval("SELECT max(failures) FROM dispatch_private.tasks") == 0

        async def is_tried_again() -> bool:
            return await dispatcher.metric("dispatcher_rejecting_nodes") == 0

        for job in await place.jobs():
            name: str = job["metadata"]["name"]  # type: ignore[index]  # JSON
            await place.control_plane.admin("DELETE", f"/apis/batch/v1/namespaces/{place.namespace}/jobs/{name}",
                                            {"propagationPolicy": "Background"})  # fmt: skip
        await wait_for(is_tried_again, "the node is forgotten with its Pods", 60, check=dispatcher.check)
