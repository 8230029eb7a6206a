"""A page whose clock is moved by the test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from playwright.async_api import Browser, Page

from tests.browser.showing import Visit, shown
from tests.controlplane.waiting import wait_for

LONG_MILLISECONDS: Final = 40_000
"""Longer than the longest pause between two refreshes."""
LATER_MILLISECONDS: Final = 3_600_000
"""The clock runs until it is stopped, and can be stopped only at a time to come."""


@asynccontextmanager
async def with_a_clock(browser: Browser, address: str, status: int = 200) -> AsyncIterator[tuple[Page, Visit]]:
    """A page whose clock stands still until the test moves it."""
    async with shown(browser, address, status=status) as (page, visit):
        await page.clock.install(time=0)
        await page.clock.pause_at(LATER_MILLISECONDS)
        await page.reload()
        yield page, visit


async def refreshes(page: Page, visit: Visit) -> None:
    """Lets time pass until the page has got itself once more.

    The clock of the page stands still while an answer is on its way: the page would give it up as too late.
    """
    before = len(visit.answers)

    async def has_got() -> bool:
        if visit.asked:
            return False
        if len(visit.answers) == before:
            await page.clock.fast_forward(LONG_MILLISECONDS)
        return len(visit.answers) > before and not visit.asked

    await wait_for(has_got, f"{page.url} is refreshed", 20)
