"""NodeReservations and the dispatcher: it makes no Job for room that is reserved, and claims become reservations."""

import pytest

from dispatcher.kube.reservations import PATH
from tests.controlplane.api import Json
from tests.controlplane.waiting import wait_for
from tests.rig.deployed import rendered
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.pools import CORE, a_pool, end_runs, has_waited, in_pool, pod_of_task
from tests.rig.steps import held, insert, reaches
from tests.scheduling.reservations import Reservations

pytest_plugins = ["tests.scheduling.fixtures"]
pytestmark = pytest.mark.usefixtures("reservations")


async def an_enforced(place: Place, **settings: object) -> Dispatcher:
    """A dispatcher that knows of an extender. The cluster's scheduler places the Pods, because nobody else needs to."""
    await place.control_plane.apply(rendered("everything", only="claims"), namespace=place.namespace)
    return in_pool(place, SCHEDULER_NAME="default-scheduler", **settings)


@pytest.mark.slow
async def test_room_that_is_reserved_for_others_gets_no_job_until_the_reservation_ends(place: Place) -> None:
    reservations = Reservations(place.control_plane, place.namespace)
    async with a_pool(place, 1) as pool, place.playing(), await an_enforced(place, MAX_PENDING=0) as dispatcher:
        other = await reservations.hold(pool.names[0], {"cpu": "3"}, podName="other")
        await dispatcher.ready()
        await insert(place, 6, **CORE)
        await pool.stay(dispatcher, 1, 0)
        await held(dispatcher, "NoRoomNow", 5)
        await reservations.release(other)
        await pool.stay(dispatcher, 4, 0)


@pytest.mark.slow
async def test_claim_is_a_reservation_until_its_row_runs(place: Place) -> None:
    path = PATH.replace("/nodereservations", f"/namespaces/{place.namespace}/nodereservations")

    async def claims() -> list[Json]:
        found: list[Json] = (await place.control_plane.admin("GET", path))["items"]
        return found

    async with a_pool(place, 1) as pool, place.playing():
        async with await an_enforced(place) as first:
            rows = await insert(place, 4, **CORE)
            await pool.have(first, 4, 0)
            (large,) = await insert(place, 1, **{**CORE, "spec": {"cpu": "4"}, "env": {}})
            await has_waited(pool, await pod_of_task(pool, large), 11)
            (claim,) = await wait_for(claims, "the node is claimed", 20, check=first.check)
            await first.kill()
        spec = claim["spec"]
        assert claim["metadata"]["name"] == f"dispatcher-claim-{large}"
        assert (spec["nodeName"], spec["target"], spec["resources"]["cpu"]) == (pool.names[0], {"taskId": large}, "4")
        await place.end_term()
        async with await an_enforced(place) as second:
            await second.ready()
            assert [one["metadata"]["uid"] for one in await claims()] == [claim["metadata"]["uid"]]
            await end_runs(place, rows)
            await reaches(place, second, large, "succeeded", 60)

            async def is_gone() -> bool:
                return not await claims()

            await wait_for(is_gone, "the claim is gone", 20, check=second.check)


@pytest.mark.slow
async def test_reservations_are_told_with_the_node_that_they_keep(place: Place) -> None:
    reservations = Reservations(place.control_plane, place.namespace)
    async with a_pool(place, 1) as pool, await an_enforced(place) as dispatcher:
        name = await reservations.hold(pool.names[0], {"cpu": "3"}, podName="other")
        await dispatcher.ready()

        async def is_told() -> Json:
            status, page = await dispatcher.api("nodes?limit=500&cpu=2")
            if status != 200:  # no cycle has ended yet
                return {}
            (node,) = [one for one in page["nodes"] if one["name"] == pool.names[0]]
            return dict(node) if node["reservations"] and page["reservations_are_watched"] else {}

        node = await wait_for(is_told, "the reservation is told", 20, check=dispatcher.check)
        (held,) = node["reservations"]
        assert (held["name"], held["target"]) == (f"{place.namespace}/{name}", f"podName {place.namespace}/other")
        assert (held["amounts"], node["reserved"], node["free"]["cpu"]) == ({"cpu": "3"}, {"cpu": "3"}, "1")
        assert node["fits"] == 0
