"""The first page is there at once."""

import statistics

from playwright.async_api import Browser

from tests.browser.measuring import load_milliseconds
from tests.browser.showing import shown
from tests.browser.world import World

MOST_MILLISECONDS = 300
VISITS = 5
ROUNDS = 6
"""Other suites may keep the machine busy for a while. A page that is slow by itself is slow in every round."""


async def test_first_page_is_complete_at_once(browser: Browser, world: World) -> None:
    medians: list[float] = []
    while not medians or (min(medians) >= MOST_MILLISECONDS and len(medians) < ROUNDS):
        medians.append(await median_of_visits(browser, f"{world.origin}/"))
    assert min(medians) < MOST_MILLISECONDS, medians


async def median_of_visits(browser: Browser, address: str) -> float:
    """Of somebody whose browser has seen no page of ours: each visit has a cache of its own."""
    taken = []
    for _ in range(VISITS):
        async with shown(browser, address) as (page, _visit):
            taken.append(await load_milliseconds(page))
    return statistics.median(taken)
