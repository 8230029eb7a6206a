"""Tables: numbers stand below each other, and every column can be sorted."""

import re
from itertools import pairwise
from typing import Any

from playwright.async_api import Browser, Page

from tests.browser.pages import PAGES, REFUSED
from tests.browser.showing import shown
from tests.browser.world import World

NUMBER = re.compile(
    r"[\d.,]+(?:%|[KMGTPE]i)?(?: of [\d.,]+(?:[KMGTPE]i)?)?|[\d.,]+ (?:d|h|min|s)(?: \d+ (?:h|min|s))?|< 1%"
)
NOTHING = ("", "—")
COLUMNS = """
() => [...document.querySelectorAll('main table thead th')].map(head => {
    const column = head.cellIndex, table = head.closest('table');
    const cells = [...table.tBodies[0].rows].map(row => row.cells[column]).filter(Boolean);
    return [head.innerText.replace(/ [↑↓]$/, ''), [head, ...cells].map(cell => {
        const copy = cell.cloneNode(true), style = getComputedStyle(cell);
        copy.querySelectorAll('small, svg, time').forEach(part => part.remove());
        return [copy.textContent.trim().replace(/\\s+/g, ' '), style.textAlign, style.fontVariantNumeric];
    })];
})
"""
SORT = """
table => [...table.tHead.rows[0].cells].map((head, column) => {
    const button = head.querySelector('button'), name = head.innerText;
    const value = cell => cell.dataset.value ?? cell.textContent.trim();
    const values = () => [...table.tBodies[0].rows].map(row => value(row.cells[column]));
    button.click();
    const rising = [head.getAttribute('aria-sort'), values()];
    button.click();
    return [name, rising, [head.getAttribute('aria-sort'), values()]];
})
"""
ALIGNED = {
    ("overview", "Oldest wait"), ("overview", "Waiting"), ("tasks", "Task"), ("tasks", "Attempt"), ("failures", "Rows"),
    ("queue", "Place"), ("nodes", "CPU, free"), ("nodes", "Memory, free"), ("nodes", "Warm keys"),
    ("nodes that a Pod fits", "Fit"), ("batch", "Rows"),
}  # fmt: skip
"""Some columns of numbers."""
SORTED = {
    ("overview", "Waiting"), ("tasks", "Task"), ("tasks", "Created"), ("failures", "Last"), ("queue", "Place"),
    ("nodes", "Memory, free"), ("about", "Stale after"),
}  # fmt: skip
"""Some columns that are sorted as numbers."""


async def test_numbers_of_a_column_stand_below_each_other(browser: Browser, world: World) -> None:
    found, faults = set[tuple[str, str]](), list[str]()
    for name in PAGES:
        async with shown(browser, world.address(name), status=REFUSED.get(name, 200)) as (page, _):
            for head, cells in await page.evaluate(COLUMNS):
                texts = [text for text, _, _ in cells[1:] if text not in NOTHING]
                if texts and all(map(NUMBER.fullmatch, texts)):
                    found.add((name, head))
                    styles = {(align, figures) for _, align, figures in cells}
                    faults += [f"{name}: {head}: {styles}"] * (styles != {("right", "tabular-nums")})
    assert faults == []
    assert ALIGNED - found == set()


async def test_amounts_of_nodes_stand_below_each_other(browser: Browser, world: World) -> None:
    async with shown(browser, world.address("nodes")) as (page, _):
        columns = dict(await page.evaluate(COLUMNS))
        assert {align for _, align, _ in columns["Others, free"]} == {"right"}
        assert {align for _, align, _ in columns["Node"]} == {"left"}


async def test_every_column_of_every_table_can_be_sorted(browser: Browser, world: World) -> None:
    found = set[tuple[str, str]]()
    for name in PAGES:
        async with shown(browser, world.address(name), status=REFUSED.get(name, 200)) as (page, _):
            found |= {(name, head) for head in await sorted_as_numbers(page)}
    assert SORTED - found == set()


async def sorted_as_numbers(page: Page) -> list[str]:
    """Sorts by each column of each table, both ways. Returns the heads of those with different numbers."""
    found = list[str]()
    for table in await page.locator("main table[data-sortable]").all():
        columns: list[Any] = await table.evaluate(SORT)
        for head, (up, rising), (down, falling) in columns:
            assert (up, down) == ("ascending", "descending"), head
            assert falling == rising[::-1], head
            numbers = [number for text in rising if (number := number_of(text)) is not None]
            if len(numbers) == len(rising) and len(set(numbers)) > 1:
                assert all(one <= other for one, other in pairwise(numbers)), (head, rising)
                found.append(head)
        assert columns
    return found


def number_of(text: str) -> float | None:
    try:
        return float(text.replace(",", "").removesuffix("%"))
    except ValueError:
        return None
