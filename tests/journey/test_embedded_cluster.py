"""The whole dispatcher on the embedded cluster. `benchmarks/trying_out.py` measures how long this takes."""

import pytest

from tests.controlplane.sides import EMBEDDED_SIDE
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.instant import instant_node
from tests.rig.steps import all_done

pytestmark = EMBEDDED_SIDE
ROWS = 300


@pytest.mark.slow
async def test_hundreds_of_rows_each_run_once(place: Place) -> None:
    plane, url = place.control_plane, place.database.url("task")
    settings = {"MAX_JOBS": 200, "TOMBSTONE_SECONDS": 0}
    async with instant_node(plane, place.namespace, url) as node, Dispatcher(place, **settings) as dispatcher:
        await dispatcher.ready()
        team = await place.database.connect("team_a")
        await team.execute(f"INSERT INTO dispatch.tasks (queue) SELECT 'default' FROM generate_series(1, {ROWS})")
        await all_done(place, 120, dispatcher.check)
    assert sorted(node.ran) == [row["id"] for row in await place.rows()]
