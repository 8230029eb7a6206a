"""The pages of a queue and of nodes: their JSON and HTML agree with SQL and with the cluster."""

from typing import Any

import pytest

from dispatcher.model.resources import milli_of
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.pools import CORE, a_pool, in_pool
from tests.rig.reasons import reason
from tests.rig.steps import insert, looks_again, reaches

NOTE = "<img src=x onerror=alert(1)>\u202e\U0001f600" + "n" * 400
SECRET = "planted-secret-9c41"


@pytest.mark.slow
async def test_page_of_a_queue_agrees_with_sql_and_with_explain(place: Place) -> None:
    admin = await place.database.session("admin")
    await admin.execute("INSERT INTO dispatch.queues (name, weight, note) VALUES ('nightly', 3, $1)", NOTE)
    await admin.execute("UPDATE dispatch.queues SET max_jobs_per_submitter = 50 WHERE name = '*'")
    async with place.playing(), Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        done = await insert(place, 3, queue="nightly")
        for row in done:
            await reaches(place, dispatcher, row, "succeeded", 40)
        kept: dict[str, Any] = {"queue": "nightly", "template": "nowhere", "cache_key": SECRET}
        last = await insert(place, 2, **kept, env={"PASSWORD": SECRET}, payload={"x": SECRET})
        (first,) = await insert(place, 1, **kept, priority=5)
        await reason(dispatcher, last[1], "UnknownTemplate")
        await looks_again(dispatcher, 2)
        _, found = await dispatcher.api("queues/nightly")
        assert [row["task"] for row in found["next"]] == [first, *last]
        for row in found["next"]:
            _, told = await dispatcher.explain(row["task"])
            names = ("reason", "message", "since", "whose_turn", "estimate", "attempt")
            assert {name: row[name] for name in names} == {name: told[name] for name in names}
            assert row["place"] == told["position"]
        ended = await admin.fetch(
            "SELECT id, node_name, finished_at - started_at AS ran FROM dispatch.tasks WHERE status = 'succeeded' "
            "ORDER BY finished_at DESC"
        )
        assert [(row["task"], row["outcome"], row["node"], row["run_seconds"]) for row in found["ended"]] == [
            (row["id"], "succeeded", row["node_name"], row["ran"].total_seconds()) for row in ended
        ]
        assert (found["times"]["of"], found["times"]["run"]["count"], found["times"]["wait"]["count"]) == (1000, 3, 3)
        assert found["times"]["run"]["p99"] == max(row["ran"].total_seconds() for row in ended)
        settings = found["settings"]
        assert (settings["weight"], settings["note"], settings["max_jobs_per_submitter"]) == (3, NOTE, 50)
        assert settings["inherited"] == ["max_jobs_per_submitter"]
        status, _, text = await dispatcher.page("/queues/nightly")
        assert (status, "<img" in text, "&lt;img src=x onerror=alert(1)&gt;" in text) == (200, False, True)
        for row in (first, *last, *done):
            assert f'<a href="/tasks/{row}">{row}</a>' in text
        assert SECRET not in text + str(found)


@pytest.mark.slow
async def test_queue_that_was_just_declared_has_a_page_and_a_wrong_name_is_told_the_nearest(place: Place) -> None:
    admin = await place.database.session("admin")
    async with Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        await looks_again(dispatcher, 1)
        await dispatcher.api("queues/default")  # the rows are counted now, and not again for 30 s
        await admin.execute("INSERT INTO dispatch.queues (name) VALUES ('fresh')")
        (row,) = await insert(place, 1, queue="fresh", template="nowhere")
        await looks_again(dispatcher, 2)
        status, found = await dispatcher.api("queues/fresh")
        assert (status, [one["task"] for one in found["next"]]) == (200, [row])
        assert (found["waiting"], found["reasons"]) == (1, {"UnknownTemplate": 1})
        assert await dispatcher.api("queues/defualt") == (404, {"error": (
            "there is no queue 'defualt' in dispatch.queues: the nearest name is 'default'; "
            "/api/v1/queues lists all, and an operator declares a queue by an INSERT"
        )})  # fmt: skip
        status, fault = await dispatcher.api("queues/*")
        assert (status, "holds the defaults" in fault["error"]) == (404, True)
        status, _, text = await dispatcher.page("/queues/%3Cscript%3E")
        assert (status, "<script>" in text.replace("<script src=", ""), "&lt;script&gt;" in text) == (404, False, True)
        await admin.execute("DELETE FROM dispatch_private.tasks")
        await admin.execute("DELETE FROM dispatch.queues WHERE name = 'fresh'")
        assert (await dispatcher.api("queues/fresh"))[0] == 404


@pytest.mark.slow
async def test_nodes_tell_what_others_and_ours_ask_for_and_how_many_pods_fit(place: Place) -> None:
    async with a_pool(place, 2) as pool, place.playing(), in_pool(place, MAX_PENDING=0) as dispatcher:
        busy, shut = sorted(pool.names)
        await pool.change(shut, {"unschedulable": True})
        await pool.occupy(busy, "1500m")
        await dispatcher.ready()
        await insert(place, 1, **CORE)
        await pool.have(dispatcher, 1, 0)

        async def is_seen() -> Any:
            _, told = await dispatcher.api("nodes?limit=500&cpu=1500m")
            by_name = {node["name"]: node for node in told["nodes"]}
            return (told, by_name) if by_name[busy]["ours"].get("cpu") == "1" else None

        told, by_name = await wait_for(is_seen, "our Pod has its node", 20, check=dispatcher.check)
        node = by_name[busy]
        assert (node["size"]["cpu"], node["others"]["cpu"], node["free"]["cpu"]) == ("4", "1500m", "1500m")
        assert (node["coming"], node["reserved"], node["fits"]) == ({}, {}, 1)
        assert (by_name[shut]["cordoned"], by_name[shut]["free"]["cpu"], by_name[shut]["fits"]) == (True, "4", 0)
        every = (await place.control_plane.admin("GET", "/api/v1/nodes"))["items"]
        assert told["total"] == len(every) == len(told["nodes"])
        assert told["fits"]["pods"] == sum(one["fits"] for one in told["nodes"])
        assert sum(group["count"] for group in told["fits"]["answers"]) == told["total"]
        for one in every:
            sizes = {name: milli_of(size) for name, size in by_name[one["metadata"]["name"]]["size"].items()}
            assert sizes == {name: milli_of(str(size)) for name, size in one["status"]["allocatable"].items()}
        names: list[str] = []
        part: Any = {"next_after": ""}
        while part["next_after"] is not None:
            _, part = await dispatcher.api(f"nodes?limit=1&after={part['next_after']}")
            names += [one["name"] for one in part["nodes"]]
        assert names == sorted(by_name)
        status, _, text = await dispatcher.page("/nodes?limit=500&cpu=1500m")
        assert (status, f"<bdi>{busy}</bdi>" in text, "fit now, on" in text) == (200, True, True)
        assert "others 1.5 · ours 1" in text


async def test_nodes_are_told_while_the_database_is_away(place: Place) -> None:
    async with a_pool(place, 1) as pool, in_pool(place) as dispatcher:
        await dispatcher.ready()
        await looks_again(dispatcher, 1)
        admin = await place.database.session("admin")
        await admin.execute("REVOKE SELECT ON dispatch_private.tasks FROM dispatch_reader")
        status, told = await dispatcher.api("nodes?limit=500")
        assert (status, told["warm_ends"], pool.names[0] in {one["name"] for one in told["nodes"]}) == (200, None, True)
        assert "Warm cache keys are not known now" in (await dispatcher.page("/nodes"))[2]


@pytest.mark.slow
async def test_nodes_that_are_not_watched_are_refused_with_the_setting(place: Place) -> None:
    async with Dispatcher(place, CHECK_ROOM="false") as dispatcher:
        await dispatcher.ready()
        await looks_again(dispatcher, 1)
        status, _, text = await dispatcher.page("/nodes")
        assert (status, "CHECK_ROOM is false" in text) == (404, True)
