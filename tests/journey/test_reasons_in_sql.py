"""A submitter who has nothing but SQL learns why a row waits, within half a minute. The dispatcher writes nothing."""

from typing import Any

import pytest

from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.janitoring import Janitor
from tests.rig.rows import insert_unjudged
from tests.rig.steps import insert, looks_again

WORDS = ("reason", "message", "whose_turn")
SECRET = "planted-secret-51ac"  # it must not be shown
QUEUES = (
    "INSERT INTO dispatch.queues (name, max_jobs, paused_until) VALUES ('full', 0, NULL), ('quiet', NULL, 'infinity')"
)


async def explained(place: Place, dispatcher: Dispatcher, id_: int, reason: str, words: str = "") -> dict[str, Any]:
    """The row of the view as its submitter sees it, once it has this reason and these words."""
    team = await place.database.session("team_a")

    async def has_it() -> dict[str, Any] | None:
        row = await team.fetchrow("SELECT * FROM dispatch.task_explain WHERE id = $1", id_)
        return dict(row) if row and row["reason"] == reason and row["as_of"] and words in row["message"] else None

    found: dict[str, Any] | None = await wait_for(has_it, f"SQL tells {reason} {words}", 90, check=dispatcher.check)
    assert found is not None
    return found


async def agrees(place: Place, dispatcher: Dispatcher, janitor: Janitor, id_: int, reason: str) -> None:
    """SQL tells this reason in the dispatcher's words. The row may move between the answers, so it is asked again."""

    async def same() -> bool:
        found = await explained(place, janitor, id_, reason)
        _, live = await dispatcher.explain(id_)
        return [found[name] for name in WORDS] == [live[name] for name in WORDS]

    await wait_for(same, f"SQL and the dispatcher agree about {reason}", 90, check=dispatcher.check)


@pytest.mark.slow
async def test_submitter_reads_reasons_in_sql(place: Place) -> None:
    await (await place.database.session("admin")).execute(QUEUES)
    columns: dict[str, Any] = {"env": {"PASSWORD": SECRET}, "payload": {"x": SECRET}, "cache_key": SECRET}
    async with Dispatcher(place, MAX_JOBS=1) as dispatcher, Janitor(place, PARK_SECONDS=3600) as janitor:
        await dispatcher.ready()
        parked = await insert_unjudged(place.database, template="nowhere", **columns)
        launched, waiting = await insert(place, 2, **columns)
        (capped,) = await insert(place, 1, queue="full", **columns)
        (paused,) = await insert(place, 1, queue="quiet", **columns)
        for id_, reason in ((parked, "UnknownTemplate"), (launched, "Launched"), (waiting, "JobCap")):
            await agrees(place, dispatcher, janitor, id_, reason)
        assert (await explained(place, janitor, paused, "Paused"))[
            "message"
        ] == "its queue is paused: until it is cleared"
        await explained(place, janitor, capped, "QueueCap", "0 of 0")
        team = await place.database.session("team_a")
        queues = {row["queue"]: row for row in await team.fetch("SELECT * FROM dispatch.queue_status")}
        assert queues["default"]["reasons"] == {"JobCap": 1, "Launched": 1, "UnknownTemplate": 1}
        assert (queues["full"]["max_jobs"], queues["full"]["in_flight"]) == (0, 0)
        tables = ("task_reasons", "queue_status")
        shown = [dict(row) for table in tables for row in await team.fetch(f"SELECT * FROM dispatch.{table}")]
        assert SECRET not in str(shown)
        place.template("nowhere")  # the next step
        await explained(place, janitor, parked, "JobCap")


@pytest.mark.slow
async def test_config_map_that_somebody_overwrites_changes_no_reason_in_sql(place: Place) -> None:
    """The janitor says so, and does its other work."""
    path = f"/api/v1/namespaces/{place.namespace}/configmaps/dispatcher-reasons"
    async with Janitor(place, PARK_SECONDS=3600) as janitor:
        async with Dispatcher(place) as dispatcher:
            await dispatcher.ready()
            parked = await insert_unjudged(place.database, template="nowhere")
            await explained(place, janitor, parked, "UnknownTemplate")
        junk = {"metadata": {"name": "dispatcher-reasons"}, "data": {"reasons.json": "nonsense"}}
        await place.control_plane.admin("PUT", path, junk)
        words = "a ConfigMap is not the dispatcher's"
        await wait_for(lambda: words in janitor.log, "the janitor says so", 20, check=janitor.check)
        told = await explained(place, janitor, parked, "UnknownTemplate")
        assert told["message"].startswith("there is no such template")
        assert (await janitor.get("/readyz"))[0] == 200
        async with Dispatcher(place) as again:
            await again.ready()
            await looks_again(again, 1)
            place.template("nowhere")
            await explained(place, janitor, parked, "Launched")


@pytest.mark.slow
async def test_janitor_without_the_right_to_read_reasons_still_ends_rows(place: Place) -> None:
    """The right may be missing after an upgrade."""
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place.namespace}/rolebindings/dispatcher-janitor-reasons"
    await place.control_plane.admin("DELETE", path)
    async with Dispatcher(place) as dispatcher, Janitor(place, PARK_SECONDS=1) as janitor:
        await dispatcher.ready()
        parked = await insert_unjudged(place.database, template="nowhere")

        async def is_ended() -> bool:
            return bool((await place.database.task(parked))["status"] == "failed")

        await wait_for(is_ended, "the parked row is ended", 60, check=janitor.check)
        assert await janitor.metric("dispatcher_faults_total", component="reasons") >= 1
        assert "configmaps" in janitor.log
        assert (await janitor.get("/readyz"))[0] == 200
