"""Lists of rows and nodes over HTTP, and the description of the API."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.rig.commands import command
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.pools import CORE, a_pool, in_pool
from tests.rig.reasons import reason
from tests.rig.steps import insert, looks_again

SECRET = "planted-secret-5d21"


def ids(page: Any) -> list[int]:
    return [row["task"] for row in page["tasks"]]


@pytest.mark.slow
async def test_rows_are_listed_by_filters_in_pages_and_hold_nothing_of_their_own(place: Place) -> None:
    admin = await place.database.session("admin")
    await admin.execute("INSERT INTO dispatch.queues (name, paused_until) VALUES ('quiet', 'infinity')")
    async with Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        rows = await insert(place, 5, template="nowhere", env={"PASSWORD": SECRET}, payload={"x": SECRET})
        (quiet,) = await insert(place, 1, queue="quiet")
        (not_due,) = await insert(place, 1, run_at=datetime(2100, 1, 1, tzinfo=UTC))
        await reason(dispatcher, rows[4], "UnknownTemplate")
        await looks_again(dispatcher, 2)
        _, first = await dispatcher.api("tasks?queue=default&limit=3")
        assert (ids(first), first["next_after"]) == ([not_due, rows[4], rows[3]], rows[3])
        _, last = await dispatcher.api(f"tasks?queue=default&limit=4&after={rows[3]}")
        assert (ids(last), last["next_after"]) == (rows[2::-1], None)
        by_id = {row["task"]: row["reason"] for row in first["tasks"]}
        assert by_id == {not_due: "NotDue", rows[4]: "UnknownTemplate", rows[3]: "UnknownTemplate"}
        for question, found in (
            ("reason=UnknownTemplate&limit=2", [rows[4], rows[3]]),
            ("queue=quiet", [quiet]),
            ("status=succeeded", []),
            ("submitted_by=team_b", []),
            (f"submitted_by=team_a&after={rows[1]}", [rows[0]]),
        ):
            status, page = await dispatcher.api(f"tasks?{question}")
            assert (question, status, ids(page)) == (question, 200, found)
        assert SECRET not in str(first) + str(last)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("question", "words"),
    [("quee=a", "unknown field `quee`"), ("status=odd", "$.status"), ("limit=0", "$.limit"), ("after=x", "$.after")],
)
async def test_question_that_cannot_be_read_names_its_fault_and_the_filters(
    place: Place, question: str, words: str
) -> None:
    async with Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        status, fault = await dispatcher.api(f"tasks?{question}")
        assert status == 400
        assert words in fault["error"]
        assert (
            "the filters are queue, status, reason, submitted_by, batch, label, template, id, group, after, limit"
            in fault["error"]
        )


@pytest.mark.slow
async def test_nodes_are_listed_with_their_free_room_and_grouped_for_a_row(place: Place) -> None:
    async with a_pool(place, 1), place.playing(), in_pool(place, MAX_PENDING=0) as dispatcher:
        await dispatcher.ready()
        rows = await insert(place, 6, **{**CORE, "env": {"PLAY": "hang"}})
        explained = await reason(dispatcher, rows[5], "NoRoomNow")
        full = [group for group in explained["nodes"] if group["why"].startswith("full: cpu ")]
        assert [group["count"] for group in full] == [1]
        _, nodes = await dispatcher.api("nodes?limit=500")
        found = {node["name"]: node for node in nodes["nodes"]}
        (name,) = full[0]["examples"]
        assert (found[name]["ready"], found[name]["free"]["cpu"] < found[name]["size"]["cpu"]) == (True, True)
        _, said = await command(dispatcher, "explain", rows[5])
        told = f"nodes: 1 {full[0]['why']} ({name}); run limits free one of them by about "
        assert told in said, "the run limit of its Pods is known"


@pytest.mark.slow
async def test_api_describes_itself(place: Place) -> None:
    async with Dispatcher(place, CHECK_ROOM="false") as dispatcher:
        await dispatcher.ready()
        await looks_again(dispatcher, 1)
        _, found = await dispatcher.api("openapi.json")
        assert found["openapi"] == "3.1.0"
        for path in found["paths"]:
            status, answer = await dispatcher.api(path.removeprefix("/api/v1/").format(name="default", id=1))
            told = found["paths"][path]["get"]["responses"][str(status)]["content"]["application/json"]["schema"]
            assert status == 200 or (told == {"$ref": "#/components/schemas/ApiRefusal"} and list(answer) == ["error"])
