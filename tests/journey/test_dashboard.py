"""The pages of the dashboard tell what SQL and the cluster tell."""

import asyncio
import re
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import aiohttp
import pytest

from dispatcher.views.server import MOST_CONNECTIONS
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.showing import Shown, first_page_shows
from tests.rig.steps import insert

HOSTILE = "<script>alert(1)</script>\u202eevil" + "x" * 200
QUEUES = "INSERT INTO dispatch.queues (name, max_jobs, weight, note) VALUES ('full', 1, 3, $1)"
WAITING = "SELECT queue, count(*)::int FROM dispatch.tasks WHERE status = 'waiting' GROUP BY queue"


async def settled(place: Place, dispatcher: Dispatcher) -> tuple[str, dict[str, Any]]:
    """The first page and its JSON, at a moment at which both tell what SQL tells."""
    admin = await place.database.session("admin")

    async def agree() -> tuple[str, dict[str, Any]] | None:
        status, _, page = await dispatcher.page("/")
        _, told = await dispatcher.api("status")
        rows = {row["queue"]: row["count"] for row in await admin.fetch(WAITING)}
        if status != 200 or {one["queue"]: one["waiting"] for one in told["queues"] if one["waiting"]} != rows:
            return None
        jobs = len(await place.jobs())  # the page and its JSON are of different cycles, if something moves
        is_same = told["in_flight"] == jobs and f"{jobs} of {told['max_jobs']} Jobs" in Shown(page).words
        return (page, told) if is_same and "QueueCap" in page else None

    found: tuple[str, dict[str, Any]] | None = await wait_for(agree, "the page tells it", 60, check=dispatcher.check)
    assert found is not None
    return found


@pytest.mark.slow
async def test_first_page_tells_what_sql_and_the_cluster_tell(place: Place) -> None:
    admin = await place.database.session("admin")
    await admin.execute(QUEUES, HOSTILE)
    async with Dispatcher(place, MAX_JOBS=3) as dispatcher:
        await dispatcher.ready()
        await insert(place, 7, queue="full")
        await insert(place, 4)
        page, told = await settled(place, dispatcher)
        text = Shown(page).words
        assert "full" in text
        assert HOSTILE in text
        assert "<script>alert" not in page
        assert len(page) < 100_000
        assert sum(cell["count"] for cell in told["nodes"]) == await nodes_of(place)
        at, later = moment_of(page), datetime.fromisoformat(told["as_of"])
        assert timedelta(0) <= later - at < timedelta(seconds=30), "the page was asked for just before the JSON"
        assert told["counted_since"]
        assert len(told["hours"]["full"]["starts"]) == 60


async def nodes_of(place: Place) -> int:
    return len((await place.control_plane.admin("GET", "/api/v1/nodes"))["items"])


async def test_problems_come_first_and_name_the_next_step(place: Place) -> None:
    async with Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        await first_page_shows(dispatcher, "No problems")
        await insert(place, 2, template="nowhere")
        await first_page_shows(dispatcher, "2 rows wait until somebody mends the row or its template")


def moment_of(page: str) -> datetime:
    """The moment that a page tells the state of."""
    found = re.search(r'<time datetime="([^"]+)"', page)
    assert found is not None
    return datetime.fromisoformat(found[1])


async def test_proxy_shows_the_dashboard_under_a_path_and_a_name_of_its_own(place: Place) -> None:
    async with Dispatcher(place, DASHBOARD_PREFIX="/batch", DASHBOARD_HOSTS="ops.example.org") as dispatcher:
        await dispatcher.ready()
        await first_page_shows(dispatcher, "No problems")
        for path in ("/batch/", "/"):  # some proxies cut the path off
            status, _, page = await dispatcher.page(path, Host="ops.example.org")
            assert status == 200
            links = set(re.findall(r'(?:href|src|action)="([^"]*)"', page))
            assert [link for link in links if not link.startswith(("/batch/", "#"))] == []
        assert (await dispatcher.page("/batch/api/v1/status"))[0] == 200


@pytest.mark.slow
@pytest.mark.fault(62)
async def test_flood_of_requests_is_answered_or_refused_and_launches_go_on(place: Place) -> None:
    async with Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        await first_page_shows(dispatcher, "No problems")
        silent = [await asyncio.open_connection("127.0.0.1", dispatcher.api_port) for _ in range(MOST_CONNECTIONS)]
        asked = [asyncio.create_task(dispatcher.page("/", seconds=60)) for _ in range(600)]
        (row,) = await insert(place, 1)

        async def has_job() -> bool:
            return len(await place.jobs()) == 1

        await wait_for(has_job, f"row {row} has a Job", 10, check=dispatcher.check)
        outcomes = [outcome(one) for one in await asyncio.gather(*asked, return_exceptions=True)]
        assert {200} <= {*outcomes} <= {200, 429, "closed"}
        reader, _ = silent[0]
        async with asyncio.timeout(20):
            with suppress(ConnectionResetError):
                assert await reader.read() == b"", "the oldest of more connections than the server keeps"
        for _, writer in silent:
            writer.close()
        assert (await dispatcher.readiness())[0] == 200


def outcome(told: object) -> object:
    """The status of an answer, or that the connection was closed."""
    if isinstance(told, aiohttp.ClientConnectionError):
        return "closed"
    return told[0] if isinstance(told, tuple) else told
