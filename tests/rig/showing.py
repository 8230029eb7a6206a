"""Pages of the dashboard as a browser reads them: their text, their elements, and nothing of what is hidden."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import Dispatcher


class Shown(HTMLParser):
    """One page.

    html: as it was served.
    elements: each element with its attributes, in order.
    words: its whole text, with a space between elements.
    """

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.html = html
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._parts: list[str] = []
        self.feed(html)
        self.close()
        self.words = " ".join(" ".join(self._parts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self._parts.append(data)

    def tags(self) -> set[str]:
        return {tag for tag, _ in self.elements}

    def copied(self) -> set[str]:
        """The ids that its buttons copy."""
        return {str(attributes["data-copy"]) for _, attributes in self.elements if "data-copy" in attributes}

    def ids(self) -> list[str]:
        return [str(attributes["id"]) for _, attributes in self.elements if "id" in attributes]


async def shown(dispatcher: Dispatcher, path: str) -> tuple[int, Shown]:
    """Status and content of a page."""
    status, _, text = await dispatcher.page(path)
    return status, Shown(text)


async def json_and_page(dispatcher: Dispatcher, path: str) -> tuple[Any, Shown]:
    """The same answer as JSON and as a page."""
    (status, found), (page_status, page) = await dispatcher.api(path), await shown(dispatcher, f"/{path}")
    assert (status, page_status, len(page.html.encode()) < 100_000) == (200, 200, True)
    return found, page


async def first_page_shows(dispatcher: Dispatcher, words: str) -> None:
    """Waits until the first page shows these words."""

    async def is_shown() -> bool:
        return words in (await shown(dispatcher, "/"))[1].words

    await wait_for(is_shown, f"the page shows {words!r}", 60, check=dispatcher.check)
