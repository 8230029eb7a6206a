"""What a page of the dashboard shows."""

from __future__ import annotations

import html
import re
from typing import Any

import aiohttp

from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher


def text_of(page: str) -> str:
    """The text of a page, as a browser shows it."""
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page)))


async def shows(dispatcher: Dispatcher, words: str) -> None:
    """Waits until the first page shows these words."""

    async def is_shown() -> bool:
        return words in text_of((await dispatcher.page("/"))[2])

    await wait_for(is_shown, f"the page shows {words!r}", 60, check=dispatcher.check)


async def page(dispatcher: Dispatcher, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
        session.get(f"http://127.0.0.1:{dispatcher.api_port}/{path}") as answer,
    ):
        return answer.status, await answer.text()


def shown(text: str) -> str:
    """What a browser shows of a page: its text without elements, on one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


async def both(dispatcher: Dispatcher, path: str) -> tuple[Any, str]:
    """The answer as JSON, and what its page shows."""
    status, found = await dispatcher.api(path)
    page_status, text = await page(dispatcher, path)
    assert (status, page_status, len(text.encode()) < 100_000) == (200, 200, True)
    return found, shown(text)
