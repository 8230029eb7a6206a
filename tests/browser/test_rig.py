"""The rig finds what it is there for: each fault is planted in a good page, and named."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from playwright.async_api import Browser, Page

from tests.browser.looks import DARK, LIGHT, LOOKS, PHONE, WITHOUT_SCRIPTS, Look
from tests.browser.measuring import barriers, beyond_the_screen, load_milliseconds, shifts
from tests.browser.showing import screenshot, shown
from tests.house.tree import ROOT

POLICY = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'"
ICON = '<svg xmlns="http://www.w3.org/2000/svg"/>'
STYLE = """
:root { color-scheme: light dark }
body { color: #111; background: #fff }
@media (prefers-color-scheme: dark) { body { color: #eee; background: #111 } .faint { color: #222 } }
"""
GOOD = """<!doctype html><html lang="en"><head><title>A page</title>
<meta name="viewport" content="width=device-width">
<link rel="icon" href="/icon.svg"><link rel="stylesheet" href="/style.css"></head>
<body><main><h1>A page</h1>HERE</main></body></html>"""
SHOVE = """
requestAnimationFrame(() => requestAnimationFrame(() => {
    const bar = document.createElement('div');
    bar.style.height = '200px';
    document.querySelector('h1').before(bar);
}));
"""
FAULTY = {
    "<script>window.x = 1</script>": "the console says: .*inline script.*Content Security Policy",
    "<p style='color: red'>Red</p>": "the console says: .*inline style.*Content Security Policy",
    "<img src='http://192.0.2.1/a.png' alt='a'>": "it asks another origin: http://192.0.2.1/a.png",
    "<img src='/gone.png' alt='a'>": "the console says: Failed to load resource: .*404",
    "<script src='/fails.js'></script>": "a script failed: oh dear",
    "<script src='/logs.js'></script>": "the console says: oh no",
    "<script src='/alerts.js'></script>": "it opened a dialog: hello",
    "<script src='/breaks-off.js'></script>": "it did not get .*/breaks-off.js",
}
"""Parts of a page, and how the fault of each is told."""


@asynccontextmanager
async def site(part: str = "") -> AsyncIterator[str]:
    """The address of a page with this part."""
    text = {
        "/": ("text/html", GOOD.replace("HERE", part)),
        "/style.css": ("text/css", STYLE),
        "/icon.svg": ("image/svg+xml", ICON),
        "/renames.js": ("text/javascript", "document.title = 'Another name'"),
        "/fails.js": ("text/javascript", "throw new Error('oh dear')"),
        "/logs.js": ("text/javascript", "console.error('oh no')"),
        "/alerts.js": ("text/javascript", "alert('hello')"),
        "/shoves.js": ("text/javascript", SHOVE),
    }

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/breaks-off.js":
            assert request.transport is not None
            request.transport.close()
        if request.path not in text:
            return web.Response(status=404, text="not here")
        kind, body = text[request.path]
        return web.Response(text=body, content_type=kind, headers={"Content-Security-Policy": POLICY})

    app = web.Application()
    app.add_routes([web.get("/{path:.*}", answer)])
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


@pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.name)
async def test_good_page_passes_every_check(browser: Browser, axe: str, look: Look) -> None:
    async with site("<p>Some words.</p>") as address, shown(browser, address, look) as (page, visit):
        assert not look.runs_scripts or await barriers(page, axe) == []
        assert await beyond_the_screen(page) == []
        assert not look.runs_scripts or await shifts(page) == []
        assert 0 < await load_milliseconds(page) < 5000
        expected = len(STYLE) + len(GOOD) - len("HERE") + len("<p>Some words.</p>")
        assert await visit.size() - expected in (0, len(ICON)), "a browser asks for the icon when it likes"


@pytest.mark.parametrize(("part", "told"), FAULTY.items())
async def test_fault_of_a_page_fails_the_visit(browser: Browser, part: str, told: str) -> None:
    async with site(part) as address:
        with pytest.raises(AssertionError, match=told):
            async with shown(browser, address):
                pass


async def test_page_that_is_not_there_fails_the_visit(browser: Browser) -> None:
    async with site() as address:
        with pytest.raises(AssertionError, match="answers 404"):
            async with shown(browser, f"{address}nowhere"):
                pass


@pytest.mark.parametrize(("look", "title"), [(LIGHT, "Another name"), (WITHOUT_SCRIPTS, "A page")])
async def test_page_without_scripts_runs_none(browser: Browser, look: Look, title: str) -> None:
    async with site("<script src='/renames.js'></script>") as address, shown(browser, address, look) as (page, _):
        assert await page.title() == title


@pytest.mark.parametrize(
    ("look", "part", "told"),
    [
        (LIGHT, "<img src='/style.css'>", "image-alt (critical)"),
        (LIGHT, "<p class='faint'>Faint</p>", ""),
        (DARK, "<p class='faint'>Faint</p>", "color-contrast (serious)"),
        (PHONE, "<button></button>", "button-name (critical)"),
    ],
)
async def test_barrier_is_found_where_it_is(browser: Browser, axe: str, look: Look, part: str, told: str) -> None:
    async with site(part) as address, shown(browser, address, look) as (page, _):
        found = await barriers(page, axe)
    assert [line.partition(":")[0] for line in found] == [told] * bool(told)


Check = Callable[[Page], Awaitable[list[str]]]


@pytest.mark.parametrize(
    ("check", "look", "part", "told"),
    [
        (beyond_the_screen, PHONE, f"<p>{'x' * 300}</p>", "the screen 390"),
        (shifts, LIGHT, "<script src='/shoves.js'></script>", "BODY"),
    ],
)
async def test_fault_of_the_layout_is_found(browser: Browser, check: Check, look: Look, part: str, told: str) -> None:
    async with site(part) as address, shown(browser, address, look) as (page, _):
        assert told in str(await check(page))


async def test_screenshot_is_a_picture_of_the_whole_page(browser: Browser) -> None:
    async with site("<p>Words</p>" * 100) as address, shown(browser, address, PHONE) as (page, _):
        path = await screenshot(page, "rig")
    content = path.read_bytes()
    path.unlink()
    assert path.parent == ROOT / "build" / "browser"
    assert content.startswith(b"\x89PNG")
    assert int.from_bytes(content[20:24]) > PHONE.options["viewport"]["height"]
