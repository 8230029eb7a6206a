"""Full nodes are shared by the weights of the queues, however many rows one of them has."""

import asyncio
from collections import Counter
from collections.abc import Mapping

import pytest

from tests.controlplane.player import Player
from tests.controlplane.programs import TaskCalls
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.pools import CORE, a_pool, in_pool
from tests.rig.steps import insert, looks_again

QUEUES = "INSERT INTO dispatch.queues (name, weight) VALUES ('noisy', 1), ('heavy', 2), ('quiet', 1)"
MORE = """
INSERT INTO dispatch_private.tasks (queue, submitted_by, priority, template, spec, env, kind)
SELECT queue, submitted_by, priority, template, spec, env, kind
FROM dispatch.tasks, generate_series(1, 100000) WHERE id = $1
"""


async def shared(place: Place, dispatcher: Dispatcher, expected: Mapping[str, int]) -> None:
    """Waits until so many rows of each queue run."""
    seen: list[Counter[object]] = []

    async def are_running() -> bool:
        seen[:] = [Counter(row["queue"] for row in await place.rows("status = 'processing'"))]
        return seen == [expected]

    try:
        await wait_for(are_running, f"rows run: {expected}", 30, check=dispatcher.check)
    except TimeoutError as fault:
        raise AssertionError(f"{fault}; seen {seen}") from None


@pytest.mark.slow
async def test_quiet_queue_gets_its_share_of_full_nodes_beside_100_000_rows(place: Place) -> None:
    ended = asyncio.Event()

    async def work(env: Mapping[str, str], calls: TaskCalls) -> int:
        await calls.start(env)
        await (ended if int(env["TASK_ID"]) in first else asyncio.Event()).wait()
        await calls.finish("succeeded")
        return 0

    admin = await place.database.session("admin")
    await admin.execute(QUEUES)
    async with (
        a_pool(place, 3),
        Player(place.control_plane, place.namespace, place.database.url("task"), work),
        in_pool(place, MAX_PENDING=0) as dispatcher,
    ):
        first = await insert(place, 12, queue="noisy", priority=0, **CORE)
        await admin.execute("ALTER TABLE dispatch_private.tasks DISABLE TRIGGER USER")
        await admin.execute(MORE, first[0])
        await admin.execute("ALTER TABLE dispatch_private.tasks ENABLE TRIGGER USER")
        await shared(place, dispatcher, {"noisy": 12})
        await insert(place, 10, queue="quiet", priority=900, **CORE)
        await insert(place, 30, queue="heavy", priority=500, **CORE)
        await looks_again(dispatcher, 4)
        ended.set()
        await shared(place, dispatcher, {"noisy": 3, "heavy": 6, "quiet": 3})
        await looks_again(dispatcher, 4)
        await shared(place, dispatcher, {"noisy": 3, "heavy": 6, "quiet": 3})
