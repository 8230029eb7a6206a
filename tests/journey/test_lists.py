"""The pages of tasks, batches and failures beside SQL: the same numbers as JSON and as HTML, whatever the texts are."""

import html
import json
import re
from collections.abc import AsyncIterator
from datetime import datetime
from urllib.parse import urlencode

import pytest
import pytest_asyncio

from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.showing import json_and_page, shown
from tests.rig.steps import insert, looks_again

LONG = "x" * 8000
HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"'`;--&amp;{{ 7*7 }}",
    "\u202eevil\u2066",
    "\U0001f469\u200d\U0001f467" * 50,
    LONG,
]
FAIL = """
UPDATE dispatch_private.tasks SET
    status = 'failed', finished_at = now(), error = $2, note = left($2, 200), progress = 0.5
WHERE id = $1
"""


@pytest_asyncio.fixture(loop_scope="session")
async def dispatcher(place: Place) -> AsyncIterator[Dispatcher]:
    async with Dispatcher(place, CHECK_ROOM="false") as made:
        await made.ready()
        yield made


async def fail(place: Place, id_: int, error: str) -> None:
    admin = await place.database.session("admin")
    await admin.execute("SET session_replication_role = replica")
    await admin.execute(FAIL, id_, error)


async def now(place: Place) -> datetime:
    """The time of the database's clock."""
    admin = await place.database.session("admin")
    found: datetime = await admin.fetchval("SELECT clock_timestamp()")
    return found


@pytest.mark.slow
async def test_tasks_are_found_by_each_filter_and_in_pages(place: Place, dispatcher: Dispatcher) -> None:
    held = {"template": "nowhere", "batch": "april"}
    rows = [await place.database.insert_task("team_a", **held, labels={"month": str(n)}) for n in range(5)]
    (other,) = await insert(place, 1, template="nowhere2")
    await fail(place, rows[0], "no such file")
    await looks_again(dispatcher, 2)
    for question, ids in (
        ("batch=april", rows[::-1]),
        ("batch=april&submitted_by=team_a&queue=default&status=waiting", rows[:0:-1]),
        ("label=month%3D3", [rows[3]]),
        ("template=nowhere2", [other]),
        ("template=nowhere&status=failed", [rows[0]]),
        ("reason=UnknownTemplate&template=nowhere", rows[:0:-1]),
        (f"id={rows[2]}", [rows[2]]),
        ("label=month%3D99", []),
        ("queue=a%3Cb", []),
    ):
        found, page = await json_and_page(dispatcher, f"tasks?{question}")
        assert (question, [row["task"] for row in found["tasks"]]) == (question, ids)
        assert (found["matching"], found["more_match"], found["looked_to"]) == (len(ids), False, None)
        assert f"{len(ids)} row{'' if len(ids) == 1 else 's'} match" in page.words
    _, first = await shown(dispatcher, "/tasks?batch=april&limit=2")
    (link,) = re.findall(r'rel="next" href="([^"]+)"', first.html)
    assert html.unescape(link) == f"/tasks?batch=april&limit=2&after={rows[3]}"
    _, second = await shown(dispatcher, html.unescape(link))
    assert 'rel="first" href="/tasks?batch=april&amp;limit=2"' in second.html
    assert "From here on 3 rows match" in second.words


async def test_batch_is_shown_as_its_view_counts_it(place: Place, dispatcher: Dispatcher) -> None:
    rows = [await place.database.insert_task("team_a", template="nowhere", batch="april") for _ in range(4)]
    for number, id_ in enumerate(rows[:2]):
        await fail(place, id_, f"no file {number}")
    began = await now(place)
    found, page = await json_and_page(dispatcher, "batches?batch=april")
    assert began <= datetime.fromisoformat(found["as_of"]) <= await now(place), (
        "rows are counted when they are asked for"
    )
    (one,), admin = found["batches"], await place.database.session("admin")
    view = await admin.fetchrow("SELECT * FROM dispatch.batch_status WHERE batch = 'april'")
    assert view is not None
    assert one["by_status"] == {"waiting": view["waiting"], "failed": view["failed"]} == {"waiting": 2, "failed": 2}
    assert (one["tasks"], one["queue"], one["submitted_by"]) == (4, "default", "team_a")
    assert [(group["message"], group["count"]) for group in found["failures"]] == [("no file <number>", 2)]
    for words in ("waiting 2", "failed 2", "50% ended", "no file <number>"):
        assert words in page.words
    await place.database.insert_task("team_b", template="nowhere", batch="april")
    found, page = await json_and_page(dispatcher, "batches?batch=april")
    assert [one["submitted_by"] for one in found["batches"]] == ["team_a", "team_b"]
    assert "2 batches have this name" in page.words
    found, _ = await json_and_page(dispatcher, "batches?batch=april&submitted_by=team_b&queue=default")
    assert [one["tasks"] for one in found["batches"]] == [1]
    for question, words in (("", "Write the name of a batch"), ("?batch=may", "There is no row of this batch")):
        found, page = await json_and_page(dispatcher, f"batches{question}")
        assert (found["batches"], words in page.words) == ([], True)
    assert (await dispatcher.api("batches?bath=x"))[0] == 400


@pytest.mark.slow
async def test_failures_are_grouped_with_parked_rows(place: Place, dispatcher: Dispatcher) -> None:
    rows = await insert(place, 5, template="nowhere")
    for number, id_ in enumerate(rows[:3]):
        await fail(place, id_, f"Traceback\n  line {number}\nValueError: no file {number}")

    async def are_told() -> bool:
        return bool((await dispatcher.api("status"))[1]["parked"] == 2)

    await looks_again(dispatcher, 2)
    found, page = await json_and_page(dispatcher, "failures")
    by_status = {group["status"]: group for group in found["groups"]}
    failed, parked = by_status["failed"], by_status["parked"]
    assert (failed["count"], failed["message"], failed["template"]) == (3, "ValueError: no file <number>", "nowhere")
    assert (failed["tasks"], failed["by_hour"][-1], len(failed["by_hour"])) == (rows[2::-1], 3, 24)
    assert (parked["count"], parked["reason"], parked["tasks"]) == (2, "UnknownTemplate", rows[:2:-1])
    assert (found["failed"], found["parked"], found["groups_left_out"]) == (3, 2, 0)
    for words in ("3 rows failed", "2 rows are parked", "ValueError: no file <number>", "parked UnknownTemplate"):
        assert words in page.words
    links = [html.unescape(link) for link in re.findall(r'href="/(tasks\?[^"]+)"', page.html)]
    found_by_link = [[row["task"] for row in (await json_and_page(dispatcher, link))[0]["tasks"]] for link in links]
    assert found_by_link == [rows[2::-1], rows[:2:-1]]
    await wait_for(are_told, "the status counts the parked rows", 40, check=dispatcher.check)


async def linked(dispatcher: Dispatcher, path: str) -> dict[str, list[int]]:
    """The rows to which each group of failures on a page leads, by its message. The link is followed page by page."""
    found, page = await json_and_page(dispatcher, path)
    links = [html.unescape(one) for one in re.findall(r'href="/(tasks\?[^"]*group=[^"]+)"', page.html)]
    assert max(map(len, links)) < 2000
    by_message = dict[str, list[int]]()
    for group, link in zip(found.get("groups", found.get("failures")), links, strict=True):
        ids, address = list[int](), f"{link}&limit=2"
        while address:
            listed, _ = await json_and_page(dispatcher, address)
            ids += [row["task"] for row in listed["tasks"]]
            address = f"{link}&limit=2&after={listed['next_after']}" if listed["next_after"] else ""
        by_message[group["message"]] = ids
        assert len(ids) == group["count"]
    return by_message


@pytest.mark.slow
async def test_group_of_failures_leads_to_its_rows_alone(place: Place, dispatcher: Dispatcher) -> None:
    """One template has three groups: by message, and by image."""
    groups = {"no file <number>": 5, "no disk <number>": 3, "no file of another image": 1}
    rows = dict[str, list[int]]()
    for message, count in groups.items():
        spec = {"image": "other:2"} if "image" in message else {}
        marks = {"template": "nowhere", "batch": "april", "spec": spec}
        rows[message] = [await place.database.insert_task("team_a", **marks) for _ in range(count)][::-1]
        for number, id_ in enumerate(rows[message]):
            await fail(place, id_, message.replace("<number>", str(number)))
    other = await place.database.insert_task("team_a", template="nowhere", batch="may")
    await fail(place, other, "no file 77")
    await looks_again(dispatcher, 2)  # no row is told as parked any more
    everywhere = {**rows, "no file <number>": [other, *rows["no file <number>"]]}
    assert await linked(dispatcher, "failures") == everywhere
    assert await linked(dispatcher, "batches?batch=april") == rows
    listed, page = await json_and_page(dispatcher, f"tasks?group={'0' * 32}")
    assert (listed["tasks"], "No row matches" in page.words) == ([], True)
    assert (await dispatcher.api("tasks?group=odd"))[0] == 400


@pytest.mark.slow
async def test_group_and_other_filters_hold_together(place: Place, dispatcher: Dispatcher) -> None:
    parked, failed = await insert(place, 2, template="nowhere"), await insert(place, 2, template="nowhere")
    for id_ in failed:
        await fail(place, id_, "no file")
    await looks_again(dispatcher, 2)
    found, _ = await json_and_page(dispatcher, "failures")
    keys = {group["status"]: group["key"] for group in found["groups"]}
    for question, ids in (
        (f"group={keys['parked']}&reason=UnknownTemplate", parked[::-1]),
        (f"group={keys['failed']}&reason=UnknownTemplate", []),
        (f"group={keys['failed']}&status=failed", failed[::-1]),
        (f"group={keys['failed']}&template=nowhere2", []),
    ):
        listed, _ = await json_and_page(dispatcher, f"tasks?{question}")
        assert (question, [row["task"] for row in listed["tasks"]]) == (question, ids)


def named(text: str) -> str:
    """A name of a label. One with a sign = cannot be asked for."""
    return text[:63].replace("=", "")


@pytest.mark.slow
async def test_hostile_texts_are_shown_as_texts(place: Place, dispatcher: Dispatcher) -> None:
    admin = await place.database.session("admin")
    for text in HOSTILE:
        labels = {named(text): text[:200]}
        id_ = await place.database.insert_task("team_a", batch=text[:200], labels=labels, template="nowhere")
        await admin.execute("SET session_replication_role = replica")
        await admin.execute("UPDATE dispatch_private.tasks SET template = $2 WHERE id = $1", id_, text[:63])
        await fail(place, id_, text)
    addresses = ["tasks", "failures"]
    for text in HOSTILE:
        addresses += [f"batches?{urlencode({'batch': text[:200]})}", f"tasks?{urlencode({'batch': text[:200]})}"]
        addresses.append("tasks?" + urlencode({"label": f"{named(text)}={text[:200]}", "template": text[:63]}))
    for address in addresses:
        found, page = await json_and_page(dispatcher, address)
        assert found.get("tasks") or found.get("batches") or found.get("groups"), address
        tags = [tag for tag, _ in page.elements]
        assert (tags.count("script"), "img" in tags) == (1, False), "the script is that of the layout"
        assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
        assert max(map(len, re.findall(r"<bdi>([^<]*)</bdi>", page.html))) < 2000, "no text is as long as it was"
    _, tasks = await json_and_page(dispatcher, "tasks")
    assert [text for text in HOSTILE[:4] if text not in tasks.words] == []
    assert "\u202e" not in json.dumps((await dispatcher.api("failures"))[1]["groups"][0]["message"], ensure_ascii=False)
