"""What the server sends, without a browser: headers, and no secret on any page or in any JSON."""

import pytest

from dispatcher.views.answers import ADDRESSES, API
from tests.browser.pages import PAGES, REFUSED
from tests.browser.world import World, asked

STATIC = ("/static/page.css", "/static/page.js", "/static/icon.svg")
WRONG = {"/nowhere": 404, "/tasks?limit=0": 400, "/api/v1/tasks/0/explain": 400}
PATHS = {**{path: REFUSED.get(name, 200) for name, path in PAGES.items()}, **dict.fromkeys(STATIC, 200), **WRONG}
"""Paths, and the status of each."""


@pytest.mark.parametrize(("path", "status"), PATHS.items())
async def test_every_answer_has_the_headers_that_keep_others_out(world: World, path: str, status: int) -> None:
    got, headers, _ = await asked(world, path)
    policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
    assert got == status
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert {source for sources in policy.values() for source in sources.split()} <= {"'none'", "'self'"}
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "set-cookie" not in headers
    assert "access-control-allow-origin" not in headers


async def test_no_secret_is_on_a_page_or_in_json(world: World) -> None:
    """Of all rows, also of those that no other test looks at."""
    secrets, shown = await world.secrets(), []
    for path in [*PAGES.values(), *addresses(world)]:
        _, headers, body = await asked(world, path)
        shown += [f"{name} at {path}" for name, value in secrets.items() if value in body + str(headers)]
    assert shown == []


def addresses(world: World) -> list[str]:
    """Every address of the API, and every page, of every row and every queue."""
    forms = [API + path for path in ADDRESSES] + [address.page for address in ADDRESSES.values() if address.page]
    names = {"{id}": [str(id_) for id_ in world.rows.values()], "{name}": ["default", "quiet", "narrow", "mine"]}
    found = [f"{API}/openapi.json"]
    for form in forms:
        (key,) = [key for key in names if key in form] or [""]
        found += [form.replace(key, name) for name in names[key]] if key else [form]
    return found


async def test_a_secret_in_an_answer_is_found(world: World) -> None:
    """The rows themselves hold them: a page that showed a row with every column would be found."""
    admin = await world.place.database.session("admin")
    rows = str(await admin.fetch("SELECT t.*, dispatch_private.start_keys(id, created_at) FROM dispatch.tasks AS t"))
    found = {name.partition(" of ")[0] for name, value in (await world.secrets()).items() if value in rows}
    assert {"a planted value", "start key"} <= found
