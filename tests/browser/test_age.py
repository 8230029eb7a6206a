"""How old a page is can always be read, also while it is paused and after the dispatcher has died."""

import re

import pytest
from playwright.async_api import Browser, Page, Route, expect

from tests.browser.clocks import LONG_MILLISECONDS, refreshes, with_a_clock
from tests.browser.looks import LIGHT, WITHOUT_SCRIPTS, Look
from tests.browser.pages import PAGES, REFUSED
from tests.browser.showing import shown
from tests.browser.world import World
from tests.controlplane.waiting import wait_for

AGE = ".age time"


async def falls_silent(page: Page) -> None:
    """From now on the page gets no answer."""
    await page.route("**/*", lambda route: route.abort())


async def answers_with(page: Page, *, body: str, status: int = 200) -> None:
    """From now on the page gets this answer."""

    async def answer(route: Route) -> None:
        await route.fulfill(status=status, body=body, content_type="text/html")

    await page.route("**/*", answer)


async def is_told(page: Page, words: str) -> str:
    """Lets time pass until the banner says these words. Returns all of it."""

    async def has_said() -> bool:
        await page.clock.fast_forward(LONG_MILLISECONDS)
        return words in (await page.locator("#away").text_content() or "")

    await wait_for(has_said, f"the banner says {words!r}", 20)
    return await page.locator("#away").inner_text()


@pytest.mark.parametrize("look", [LIGHT, WITHOUT_SCRIPTS], ids=lambda look: look.name)
@pytest.mark.parametrize("name", PAGES)
async def test_page_tells_its_age(browser: Browser, world: World, name: str, look: Look) -> None:
    async with shown(browser, world.address(name), look, REFUSED.get(name, 200)) as (page, _):
        await expect(page.locator(AGE)).to_be_visible()
        await expect(page.locator(AGE)).to_contain_text("now" if name in REFUSED else "")
        await expect(page.locator("#away")).to_be_hidden()


async def test_age_of_a_paused_page_grows(browser: Browser, world: World) -> None:
    async with with_a_clock(browser, f"{world.origin}/") as (page, _):
        await page.locator("#pause").click()
        for passed, told in (
            (70_000, r"^1 min \d+ s ago$"),
            (7_200_000, "^2 h 1 min ago$"),
            (86_400_000, "^1 d 2 h ago$"),
        ):
            await page.clock.fast_forward(passed)
            await expect(page.locator(AGE)).to_have_text(re.compile(told))


async def test_page_of_a_dead_dispatcher_tells_since_when_it_is_dead(browser: Browser, world: World) -> None:
    async with with_a_clock(browser, f"{world.origin}/") as (page, visit):
        await refreshes(page, visit)
        await expect(page.locator("#away")).to_be_hidden()
        await falls_silent(page)
        banner = await is_told(page, "does not answer since")
        await expect(page.locator("#away")).to_be_visible()
        await expect(page.locator("#away")).to_be_in_viewport()
        await page.clock.fast_forward(7_200_000)
        await expect(page.locator(AGE)).to_have_text(re.compile("^2 h"))
        assert await page.locator("#away").inner_text() == banner, "it began when it began"
        await page.unroute("**/*")
        await refreshes(page, visit)
        await expect(page.locator("#away")).to_be_hidden()
        await expect(page.locator(AGE)).not_to_have_text(re.compile("h"))
        visit.faults.clear()  # the requests that got no answer


async def test_age_is_right_at_once_after_an_answer_that_changes_nothing(browser: Browser, world: World) -> None:
    async with with_a_clock(browser, f"{world.origin}/") as (page, visit):
        told = await page.evaluate("fetch(location.href).then((answer) => answer.text())")
        await answers_with(page, body=told)
        await refreshes(page, visit)
        await falls_silent(page)
        await page.clock.fast_forward(7_200_000)
        await expect(page.locator(AGE)).to_have_text(re.compile("^2 h"))
        await answers_with(page, body=told)
        await refreshes(page, visit)
        await expect(page.locator(AGE)).not_to_have_text(re.compile("h"))
        visit.faults.clear()  # the requests that got no answer


async def test_status_of_a_refused_refresh_is_told(browser: Browser, world: World) -> None:
    async with with_a_clock(browser, f"{world.origin}/tasks") as (page, visit):
        await answers_with(page, status=503, body="no")
        await is_told(page, "answers with status 503 instead of this page since")
        await expect(page.locator("main table")).to_be_visible()
        visit.faults.clear()  # the refused requests


async def test_refused_page_is_refreshed_without_a_banner(browser: Browser, world: World) -> None:
    name = "task that is not there"
    async with with_a_clock(browser, world.address(name), REFUSED[name]) as (page, visit):
        await refreshes(page, visit)
        await refreshes(page, visit)
        await expect(page.locator("#away")).to_be_hidden()
