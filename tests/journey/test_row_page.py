"""The page of one row, and the same as JSON: true to the database and the cluster, and silent about what is secret."""

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import pytest

from dispatcher.commands.render import preview_row
from dispatcher.settings.loading import load
from tests.rig.dispatching import Dispatcher, Place
from tests.rig.reasons import reason
from tests.rig.showing import Shown, shown
from tests.rig.steps import insert, looks_again, reaches

SECRET = "planted-secret-e04b"
HOSTILE = {
    "html": '</bdi></pre><script>alert(1)</script><img src=x onerror="alert(2)"> "&amp;\'',
    "direction": "\u202egpj.exe\u2066\u200f\u2069 \u0627\u0644\u0639",
    "emoji": "\U0001f469\u200d\U0001f680\U0001f1e9\U0001f1ea" * 9,
    "long": "x" * 8192,
    "binary": "".join(map(chr, range(1, 256))),
    "markup": "<" * 8192,
}
PLANT = """
UPDATE dispatch_private.tasks SET error = $2, note = left($2, 200), batch = left($2, 200), template = left($2, 63),
    progress = 0.5, labels = jsonb_build_object(left($2, 63), left($2, 200)),
    env = jsonb_build_object($2::text, $3::text), kind = 'odd'
WHERE id = $1
"""
LAUNCH = """
INSERT INTO dispatch_private.task_launches
    (task_id, attempt, launch, job_uid, pod_name, node_name, started_at, ended_at, outcome, error, reason)
SELECT $1, 1, n, n, left($2, 253), left($2, 253), now(), now(), 'lost', n || left($2, 8000), left($2, 500)
FROM generate_series(1, 25) AS n
"""


async def asked(dispatcher: Dispatcher, row: int) -> tuple[dict[str, Any], Shown]:
    """The JSON of a row, and its page."""
    status, found = await dispatcher.api(f"tasks/{row}")
    page_status, page = await shown(dispatcher, f"/tasks/{row}")
    assert (status, page_status) == (200, 200), found
    return found, page


def moment(written: str | None) -> datetime | None:
    return None if written is None else datetime.fromisoformat(written)


@pytest.mark.slow
async def test_row_that_runs_is_told_as_the_database_and_the_cluster_have_it(place: Place) -> None:
    place.template("default", row_may_set="env,args")
    async with place.playing(), Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        (row,) = await insert(
            place, 1, env={"PLAY": "hang"}, batch="july", labels={"month": "7"}, priority=7, cache_key="k",
            spec={"args": ["a b"]},
        )  # fmt: skip
        await reaches(place, dispatcher, row, "processing")
        await looks_again(dispatcher, 2)
        found, page = await asked(dispatcher, row)
        stored, (job,) = await place.database.task(row), await place.jobs()
        for name in ("queue", "status", "template", "submitted_by", "priority", "batch", "attempt", "failures", "note"):
            assert found[name] == stored[name], name
        for name in ("created_at", "run_at", "started_at", "finished_at"):
            assert moment(found[name]) == stored[name], name
        assert (found["labels"], found["launches_used"], found["max_launches"]) == ({"month": "7"}, stored["launch"], 3)
        cache: dict[str, Any] = {"message": "no node is known to have its cache", "nodes": [], "bytes": None}
        assert (found["explain"]["cache"], found["error"]) == (cache, None)
        assert [span["step"] for span in found["timeline"]][-1] == "running"
        assert found["explain"]["launches"] == (await dispatcher.explain(row))[1]["launches"]
        name = job["metadata"]["name"]  # type: ignore[index]  # a Job of the API server
        assert f"kubectl describe -n {place.namespace} job {name}" in [one["text"] for one in found["commands"]]
        rendered = await preview_row(row, load(place.environment(), str).settings)
        assert without_values(rendered) == without_values(found["preview"]["job"])
        for words in (
            f"Task {row}",
            "its container runs",
            "july",
            "month = 7",
            "team_a",
            name,
            "running",
            "Values of env are hidden",
        ):
            assert words in page.words, words
        assert page.copied() <= set(page.ids())
        assert len(page.ids()) == len(set(page.ids()))


def without_values(job: dict[str, Any]) -> Any:
    """The Job as it is compared: the page hides values, and the key of the cache."""
    (container,) = job["spec"]["template"]["spec"]["containers"]
    names = [{key: value for key, value in one.items() if key != "value"} for one in container["env"]]
    del job["spec"]["template"]["metadata"]["annotations"]["dispatcher.internal/cache-key"]
    return {
        **job,
        "spec": {**job["spec"], "template": {**job["spec"]["template"], "spec": {**container, "env": names}}},
    }


@pytest.mark.slow
async def test_row_that_waits_is_told_with_what_ends_the_wait(place: Place) -> None:
    async with Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        (row,) = await insert(place, 1, template="nowhere")
        await reason(dispatcher, row, "UnknownTemplate")
        found, page = await asked(dispatcher, row)
        assert found["preview"]["fault"].startswith("UnknownTemplate: ")
        assert [(span["step"], span["ended"]) for span in found["timeline"]][-1] == ("waiting", None)
        for words in ("UnknownTemplate", "Whose turn", "There is none: UnknownTemplate", "It has not been launched"):
            assert words in page.words, words
        (future,) = await insert(place, 1, run_at=datetime(2100, 1, 1, tzinfo=UTC))
        found, page = await asked(dispatcher, future)
        assert [span["step"] for span in found["timeline"]] == ["not due"]
        assert found["preview"]["job"]["kind"] == "Job"


@pytest.mark.slow
async def test_row_that_is_not_there_is_answered_with_what_to_do(place: Place) -> None:
    async with Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        await looks_again(dispatcher, 1)
        for path, status, words in (
            ("77", 404, "there is no row 77: no row ever had this id, or it was deleted after its retention; these"),
            ("nonsense", 400, "'nonsense' is no id of a row"),
            ("9" * 19, 400, "is no id of a row"),
            ("%3Cscript%3E", 400, "'<script>' is no id of a row"),
        ):
            found = await shown(dispatcher, f"/tasks/{path}")
            assert (found[0], words in found[1].words) == (status, True), path
            for address in (f"tasks/{path}", f"tasks/{path}/explain"):
                code, body = await dispatcher.api(address)
                assert (code, words in body["error"]) == (status, True), address


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE)
async def test_hostile_text_of_a_row_is_text(place: Place, kind: str) -> None:
    text, admin = HOSTILE[kind], await place.database.session("admin")
    async with Dispatcher(place) as dispatcher:
        await dispatcher.ready()
        (row,) = await insert(place, 1, run_at=datetime(2100, 1, 1, tzinfo=UTC))
        _, harmless = await asked(dispatcher, row)
        await admin.execute("SET session_replication_role = replica")
        await admin.execute(PLANT, row, text, SECRET)
        await admin.execute(LAUNCH, row, text)
        await admin.execute("SET session_replication_role = origin")
        found, page = await asked(dispatcher, row)
    assert (found["error"], found["note"], found["labels"]) == (text, text[:200], {text[:63]: text[:200]})
    assert " ".join(text.split())[:4500] in page.words
    assert page.tags() - harmless.tags() <= {"article", "h3", "bdi", "progress", "pre", "small"}, "text is no element"
    assert [one for one in page.elements if one[0] == "script"] == [
        one for one in harmless.elements if one[0] == "script"
    ]
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert page.copied() <= set(page.ids())
    assert len(page.html.encode()) < 100_000
    assert SECRET not in page.html + json.dumps(found)


@pytest.mark.slow
async def test_secrets_are_neither_on_a_page_nor_in_its_json(place: Place) -> None:
    place.template("default", row_may_set="env")
    (place.templates / "own.yaml").write_text(
        (place.templates / "default.yaml").read_text() + f"          env: [{{name: OWN, value: {SECRET}-own}}]\n"
    )
    url = place.database.url("reader")
    async with place.playing(), Dispatcher(place, PASS_ENV="PLANTED_*") as dispatcher:
        await dispatcher.ready()
        env = {"PLAY": "hang", "PASSWORD": f"{SECRET}-row"}
        (row,) = await insert(place, 1, env=env, template="own", payload={"x": f"{SECRET}-payload"})
        await reaches(place, dispatcher, row, "processing")
        await looks_again(dispatcher, 1)
        found, page = await asked(dispatcher, row)
        about, about_page = await dispatcher.api("about"), await shown(dispatcher, "/about")
        everything = json.dumps(found) + page.html + json.dumps(about) + about_page[1].html
        key = str(await place.database.start_key(row))
        stored = await place.database.task(row)
    names = [one["name"] for one in found["preview"]["job"]["spec"]["template"]["spec"]["containers"][0]["env"]]
    assert {"OWN", "PASSWORD", "TASK_START_KEY"} <= set(names), "names are shown"
    password = urlsplit(url).password
    hidden = [SECRET, key, url, stored["run_digest"].hex() if stored["run_digest"] else "", password or ""]
    assert [one for one in hidden if one and one in everything] == []
    assert about[0] == 200
