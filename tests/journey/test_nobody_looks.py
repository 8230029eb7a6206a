"""A dashboard at which nobody looks costs nothing: no session of the database, no query and no thread."""

from pathlib import Path

import pytest

from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.postgres import Record
from tests.rig.steps import held, insert, looks_again

SESSIONS = """
SELECT pid, state, query_start, state_change FROM pg_stat_activity
WHERE datname = current_database() AND usename = 'reader' AND backend_type = 'client backend'
"""
PAGES = ("/", "/queues/default", "/tasks", "/tasks/{row}", "/batches?batch=april", "/failures", "/nodes", "/about")


def threads_of(dispatcher: Dispatcher) -> int:
    return len(list(Path(f"/proc/{dispatcher.process.pid}/task").iterdir()))


async def sessions_of(place: Place) -> dict[int, Record]:
    """The sessions of the dispatcher, by the ids of their server processes."""
    admin = await place.database.session("admin")
    return {row["pid"]: row for row in await admin.fetch(SESSIONS)}


@pytest.mark.slow
async def test_pages_take_one_session_and_no_thread_and_leave_it_idle(place: Place) -> None:
    """The session stays open: a look after an hour is as quick as the next one. It is idle, and asks for nothing."""
    (row,) = await insert(place, 1, template="nowhere", batch="april")
    async with Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        await held(dispatcher, "UnknownTemplate")  # the rows were counted, over a session of their own
        before, threads = await sessions_of(place), threads_of(dispatcher)
        await looks_again(dispatcher, 5)
        assert (await sessions_of(place)).keys() == before.keys(), "no session comes and goes"
        for path in PAGES:
            assert (await dispatcher.page(path.format(row=row)))[0] == 200
        after = await sessions_of(place)
        (asked,) = after.keys() - before.keys()
        assert before.keys() < after.keys(), "the sessions of the cycles and of the counts go on"

        async def is_idle() -> bool:
            return bool((await sessions_of(place))[asked]["state"] == "idle")

        await wait_for(is_idle, "the session of the pages is idle", 10, check=dispatcher.check)
        rests = (await sessions_of(place))[asked]
        await looks_again(dispatcher, 12)
        assert (await sessions_of(place))[asked] == rests, "nobody has asked for anything since then"
        assert (await sessions_of(place)).keys() == after.keys()
        assert threads_of(dispatcher) == threads
