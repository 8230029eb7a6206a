"""Every page of the dashboard, in a real browser, in a world in which almost every reason is alive."""

import re
from contextlib import AbstractAsyncContextManager
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, Page, expect

from dispatcher.views.answers import ADDRESSES
from tests.browser.looks import DARK, LIGHT, LOOKS, Look
from tests.browser.measuring import barriers, beyond_the_screen, shifts
from tests.browser.pages import PAGES, REFUSED
from tests.browser.showing import Visit, screenshot, shown
from tests.browser.texts import LITERAL, MARK, OVERRIDE
from tests.browser.world import World

MOST_BYTES = 100_000
ISOLATED = """
sign => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
    while (texts.nextNode()) {
        const one = texts.currentNode, style = getComputedStyle(one.parentElement).unicodeBidi;
        if (one.data.includes(sign) && !['isolate', 'isolate-override', 'plaintext'].includes(style))
            found.push(`${one.parentElement.tagName} ${style}: ${one.data.trim().slice(0, 80)}`);
    }
    return found;
}
"""
BRIGHTNESS = """
() => ['backgroundColor', 'color'].map(name => {
    const parts = getComputedStyle(document.documentElement)[name].match(/[0-9.]+/g).slice(0, 3).map(Number);
    return parts.reduce((sum, one) => sum + one) / 3;
})
"""
each_page = pytest.mark.parametrize("name", PAGES)
each_look = pytest.mark.parametrize("look", LOOKS, ids=lambda look: look.name)


def opened(
    browser: Browser, world: World, name: str, look: Look = LIGHT
) -> AbstractAsyncContextManager[tuple[Page, Visit]]:
    """The page that is called so."""
    return shown(browser, world.address(name), look, REFUSED.get(name, 200))


def test_every_page_is_looked_at() -> None:
    paths = {urlsplit(path).path for path in PAGES.values()}
    served = {address.page: re.compile(re.sub(r"\{\w+\}", "[^/]+", address.page)) for address in ADDRESSES.values()}
    assert [page for page, form in served.items() if page and not any(form.fullmatch(path) for path in paths)] == []


@each_look
@each_page
async def test_page_is_whole_and_fits_the_screen(browser: Browser, world: World, name: str, look: Look) -> None:
    async with opened(browser, world, name, look) as (page, visit):
        assert await page.title()
        assert await page.locator("h1").count() == 1
        assert (await page.locator("h1").inner_text()).strip()
        assert await beyond_the_screen(page) == []
        assert await visit.size() < MOST_BYTES
        await screenshot(page, f"{name.replace(' ', '-')}-{look.name}")


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=lambda look: look.name)
@each_page
async def test_page_has_no_barriers(browser: Browser, world: World, axe: str, name: str, look: Look) -> None:
    async with opened(browser, world, name, look) as (page, _):
        assert await barriers(page, axe) == []


@each_page
async def test_page_moves_nothing_while_it_is_loaded(browser: Browser, world: World, name: str) -> None:
    async with opened(browser, world, name) as (page, _):
        assert await shifts(page) == []


@each_page
async def test_page_moves_nothing_when_it_is_refreshed(browser: Browser, world: World, name: str) -> None:
    async with opened(browser, world, name) as (page, _):
        await expect(page.locator("main[data-told]")).to_be_attached()
        assert await shifts(page) == []


@each_page
async def test_dark_screen_has_a_dark_page(browser: Browser, world: World, name: str) -> None:
    found = dict[str, tuple[float, float]]()
    for look in (LIGHT, DARK):
        async with opened(browser, world, name, look) as (page, _):
            found[look.name] = await page.evaluate(BRIGHTNESS)
    (light, ink), (dark, chalk) = found["light"], found["dark"]
    assert min(light, chalk) > 200
    assert max(dark, ink) < 55


@each_look
@each_page
async def test_hostile_text_is_shown_as_text(browser: Browser, world: World, name: str, look: Look) -> None:
    async with opened(browser, world, name, look) as (page, _):
        assert await made_of_text(page) == []
        assert await page.evaluate(ISOLATED, OVERRIDE) == []


async def test_hostile_text_is_on_the_pages(browser: Browser, world: World) -> None:
    """So that the test above has something to find."""
    seen = ""
    for name in PAGES:
        async with opened(browser, world, name) as (page, _):
            seen += await page.locator("main").inner_text()
    assert [text for text in (*LITERAL, OVERRIDE) if text not in seen] == []


async def made_of_text(page: Page) -> list[str]:
    """Elements and effects that only hostile text can have made."""
    elements: list[str] = await page.evaluate(
        "mark => [...document.querySelectorAll(`[${mark}], [onmouseover], [onerror], img[src='x']`)]"
        ".map(one => one.outerHTML.slice(0, 200))",
        MARK,
    )
    return elements + ["a script ran"] * bool(await page.evaluate("'hostile' in window"))
