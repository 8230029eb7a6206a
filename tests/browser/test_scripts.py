"""What a page does with scripts: keys, refresh, sorted tables, and the way back."""

from functools import partial

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.browser.clocks import LONG_MILLISECONDS, refreshes, with_a_clock
from tests.browser.showing import shown
from tests.browser.world import World
from tests.controlplane.waiting import wait_for

MOST_TABS = 60
TABLES = {"overview": 2, "tasks": 2}
"""Pages with tables that can be sorted, and so many rows at least."""


async def test_slash_goes_to_the_search(browser: Browser, world: World) -> None:
    async with shown(browser, f"{world.origin}/") as (page, _):
        await page.keyboard.press("/")
        await expect(page.locator("#search")).to_be_focused()
        assert await page.locator("#search").input_value() == ""
        await page.keyboard.type("4?2/")
        assert await page.locator("#search").input_value() == "4?2/", "keys are letters where somebody types"
        await expect(page.locator("dialog#keys")).to_be_hidden()


async def test_question_mark_opens_the_list_of_keys(browser: Browser, world: World) -> None:
    async with shown(browser, f"{world.origin}/") as (page, _):
        keys = page.locator("dialog#keys")
        await expect(keys).to_be_hidden()
        await page.keyboard.press("?")
        await expect(keys).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(keys).to_be_hidden()


async def test_pages_are_reached_by_their_keys(browser: Browser, world: World) -> None:
    async with shown(browser, f"{world.origin}/") as (page, _):
        await page.keyboard.press("g")
        await page.keyboard.press("t")
        await page.wait_for_url(f"{world.origin}/tasks")
        await page.keyboard.press("g")
        await page.keyboard.press("o")
        await page.wait_for_url(f"{world.origin}/")


async def test_every_key_of_the_list_does_what_it_says(browser: Browser, world: World) -> None:
    async with shown(browser, f"{world.origin}/about") as (page, _):
        listed = await page.locator("dialog#keys dl div").evaluate_all(
            "all => all.map(one => [[...one.querySelectorAll('kbd')].map(key => key.innerText || key.textContent),"
            " one.querySelector('dd').textContent])"
        )
        places = {named.capitalize(): keys for keys, named in listed if keys[0] == "g"}
        links = await page.locator("nav a").evaluate_all("all => all.map(one => [one.textContent, one.href])")
        assert places.keys() == {name for name, _ in links}
        for name, address in links:
            for key in places[name]:
                await page.keyboard.press(key)
            await page.wait_for_url(address)
        assert {keys[0] for keys, _ in listed} == {"/", "g", "p", "?", "Esc"}, "the others have tests of their own"


async def test_keyboard_alone_reaches_a_page_and_a_row(browser: Browser, world: World) -> None:
    async with shown(browser, f"{world.origin}/about") as (page, _):
        await page.keyboard.press("Tab")
        await expect(page.locator(".skip")).to_be_focused()
        await expect(page.locator(".skip")).to_be_in_viewport()
        await page.keyboard.press("Enter")
        await expect(page.locator("#main")).to_be_focused()
        await page.reload()
        await tabs_to(page, "Tasks")
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"{world.origin}/tasks")
        row = str(world.rows["failed"])
        await page.keyboard.press("/")
        await page.keyboard.type(row)
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"{world.origin}/tasks?id={row}")
        await tabs_to(page, row)
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"{world.origin}/tasks/{row}")
        await expect(page.locator("h1")).to_contain_text(f"Task {row}")


async def tabs_to(page: Page, words: str) -> None:
    """Presses Tab until the link of these words has the focus."""
    focused = ""
    for _ in range(MOST_TABS):
        await page.keyboard.press("Tab")
        focused = await page.evaluate("document.activeElement.innerText")
        if focused == words:
            return
    raise AssertionError(f"{words!r} is not reached; the last one was {focused!r}")


async def test_copy_button_writes_the_clipboard(browser: Browser, world: World) -> None:
    async with shown(browser, world.address("failed task")) as (page, _):
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=world.origin)
        buttons = await page.locator("[data-copy^=command]").all()
        for button in buttons:
            command = await page.locator(f"#{await button.get_attribute('data-copy')}").inner_text()
            await button.press("Enter")
            await wait_for(partial(copied, page, command), f"{command!r} is copied", 20)
        assert len(buttons) > 3


async def copied(page: Page, text: str) -> bool:
    return bool(await page.evaluate("navigator.clipboard.readText()") == text)


async def test_page_asks_for_itself_every_two_seconds(browser: Browser, world: World) -> None:
    async with with_a_clock(browser, f"{world.origin}/") as (page, _):
        asked = list[str]()
        page.on("request", lambda one: asked.append(one.url) if one.resource_type == "fetch" else None)
        for number in range(1, 4):
            await page.clock.run_for(1900)
            assert len(asked) == number - 1
            await page.evaluate("delete document.querySelector('main').dataset.told")
            await page.clock.run_for(200)
            await wait_for(lambda: has_shown(page), "the answer is shown", 20)
            assert asked == [page.url] * number


async def has_shown(page: Page) -> bool:
    return bool(await page.evaluate("'told' in document.querySelector('main').dataset"))


async def test_pause_stops_the_refresh_until_it_is_pressed_again(browser: Browser, world: World) -> None:
    async with with_a_clock(browser, f"{world.origin}/") as (page, visit):
        pause = page.locator("#pause")
        await refreshes(page, visit)
        await expect(pause).to_have_attribute("aria-pressed", "false")
        await pause.click()
        await expect(pause).to_have_attribute("aria-pressed", "true")
        before = len(visit.answers)
        for _ in range(5):
            await page.clock.fast_forward(LONG_MILLISECONDS)
        assert len(visit.answers) == before
        await page.keyboard.press("p")
        await expect(pause).to_have_attribute("aria-pressed", "false")
        await refreshes(page, visit)


async def test_refresh_shows_what_is_new(browser: Browser, world: World) -> None:
    async with with_a_clock(browser, f"{world.origin}/tasks") as (page, visit):
        new = await world.place.database.insert_task("team_b", queue="narrow")
        row = page.locator("main").get_by_role("link", name=str(new), exact=True)
        await expect(row).to_have_count(0)
        await refreshes(page, visit)
        await expect(row).to_have_count(1)


@pytest.mark.parametrize(("name", "least"), TABLES.items())
async def test_header_sorts_its_table_both_ways(browser: Browser, world: World, name: str, least: int) -> None:
    async with shown(browser, world.address(name)) as (page, _):
        await page.locator("#pause").click()  # a refresh would tell other times
        table = page.locator("main table").first
        heads = table.locator("th[aria-sort]")
        for column in range(await heads.count()):
            head = heads.nth(column)
            await head.locator("button").click()
            await expect(head).to_have_attribute("aria-sort", "ascending")
            assert await table.locator("th[aria-sort]:not([aria-sort=none])").count() == 1
            rising = await texts(table, column)
            await head.locator("button").click()
            await expect(head).to_have_attribute("aria-sort", "descending")
            assert await texts(table, column) == rising[::-1]
            assert len(rising) >= least
        assert await heads.count() > 1


async def test_numbers_are_sorted_as_numbers(browser: Browser, world: World) -> None:
    async with with_a_clock(browser, f"{world.origin}/tasks") as (page, _):
        table = page.locator("main table").first
        await table.locator("th[aria-sort] button").first.click()
        ids = [int(text) for text in await texts(table, 0)]
        assert ids == sorted(ids)
        assert len(ids) > 10


async def test_refresh_keeps_the_order_of_a_table(browser: Browser, world: World) -> None:
    async with with_a_clock(browser, f"{world.origin}/tasks") as (page, visit):
        table, head = page.locator("main table").first, page.locator("main th[aria-sort]").first
        await head.locator("button").click()
        await world.place.database.insert_task("team_b", queue="narrow")
        rows = len(await texts(table, 0))
        await refreshes(page, visit)
        await expect(table.locator("tbody tr")).to_have_count(rows + 1)
        await expect(head).to_have_attribute("aria-sort", "ascending")
        ids = [int(text) for text in await texts(table, 0)]
        assert ids == sorted(ids)


async def test_way_back_keeps_the_filter(browser: Browser, world: World) -> None:
    async with shown(browser, f"{world.origin}/tasks") as (page, _):
        queue = page.locator("main form [name=queue]")
        await queue.fill("quiet")
        await queue.press("Enter")
        await page.wait_for_url("**/tasks?*queue=quiet*")
        await expect(page.locator("main tbody tr")).to_have_count(1)
        await page.locator("nav a").first.click()
        await page.wait_for_url(f"{world.origin}/")
        await page.go_back()
        await expect(queue).to_have_value("quiet")
        await expect(page.locator("main tbody tr")).to_have_count(1)


async def texts(table: Locator, column: int) -> list[str]:
    """What the cells of a column show, from the top."""
    found: list[str] = await table.evaluate(
        "(table, column) => [...table.tBodies[0].rows].map(row => row.cells[column].innerText.trim())", column
    )
    return found
