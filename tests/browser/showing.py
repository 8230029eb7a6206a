"""A page in a browser, and everything that goes wrong while it is shown.

A visit fails at its end if the page logged an error, broke its own Content-Security-Policy, asked another origin for
anything, or asked for something that it did not get. The browser resolves no name, so nothing leaves the machine.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    Response,
    WebError,
    async_playwright,
)

from tests.browser.installed import chromium
from tests.browser.looks import LIGHT, Look

PICTURES: Final = Path(__file__).parents[2] / "build" / "browser"
LEFT: Final = "net::ERR_ABORTED"
"""How a request ends whose page was left meanwhile."""
FLAGS: Final = ("--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",)
MOST_MILLISECONDS: Final = 20_000
"""How long a step in the browser may take."""
INLINE: Final = ("data:", "blob:", "about:")


class Visit:
    """One page that is shown.

    faults: what went wrong so far.
    answers: everything that it was made of.
    asked: what it has asked for and not got to the last byte yet.
    refused: the address whose answer is a refusal; empty: none is.
    """

    def __init__(self, origin: str, context: BrowserContext, refused: str) -> None:
        self.faults: list[str] = []
        self._refused = refused
        self.answers: list[Response] = []
        self.asked: set[Request] = set()
        self._origin = origin
        context.on("console", self._logged)
        context.on("weberror", self._raised)
        context.on("request", self._asked)
        context.on("requestfailed", self._failed)
        context.on("requestfinished", self._finished)
        context.on("response", self._answered)
        context.on("dialog", self._opened)

    async def size(self) -> int:
        """The bytes of everything that the page is made of, unpacked. A refresh of itself is no part of it."""
        parts = [answer for answer in self.answers if answer.request.resource_type != "fetch"]
        return sum([len(await part.body()) for part in parts])

    def check(self) -> None:
        """Fails with everything that went wrong."""
        assert not self.faults, "\n".join(self.faults)

    def _logged(self, message: ConsoleMessage) -> None:
        if message.type == "error" and message.location["url"] != self._refused:
            self.faults.append(f"the console says: {message.text}")

    def _raised(self, error: WebError) -> None:
        self.faults.append(f"a script failed: {error.error}")

    def _asked(self, request: Request) -> None:
        self.asked.add(request)
        if not request.url.startswith(INLINE) and origin_of(request.url) != self._origin:
            self.faults.append(f"it asks another origin: {request.url}")

    def _answered(self, answer: Response) -> None:
        self.answers.append(answer)

    def _finished(self, request: Request) -> None:
        self.asked.discard(request)

    def _failed(self, request: Request) -> None:
        self.asked.discard(request)
        if request.failure != LEFT:
            self.faults.append(f"it did not get {request.url}: {request.failure}")

    async def _opened(self, dialog: Dialog) -> None:
        self.faults.append(f"it opened a dialog: {dialog.message}")
        await dialog.dismiss()


def origin_of(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc}"


@asynccontextmanager
async def started() -> AsyncIterator[Browser]:
    """A browser without a window. Its sandbox needs an account other than root."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium(), chromium_sandbox=os.geteuid() != 0, args=list(FLAGS)
        )
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def shown(
    browser: Browser, address: str, look: Look = LIGHT, status: int = 200
) -> AsyncIterator[tuple[Page, Visit]]:
    """The page at the address, loaded. Fails at the end with everything that went wrong."""
    context = await browser.new_context(**look.options)
    context.set_default_timeout(MOST_MILLISECONDS)
    visit = Visit(origin_of(address), context, address if status != 200 else "")
    try:
        page = await context.new_page()
        answer = await page.goto(address)
        assert answer is not None
        assert answer.status == status, f"{address} answers {answer.status}: {await answer.text()}"
        yield page, visit
        visit.check()
    finally:
        await context.close()


async def screenshot(page: Page, name: str) -> Path:
    """Writes a picture of the whole page into build/browser."""
    path = PICTURES / f"{name}.png"
    await page.screenshot(path=path, full_page=True)
    return path
