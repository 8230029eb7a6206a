"""Pages of the dashboard as a browser reads them: their text, their elements, and nothing of what is hidden."""

from html.parser import HTMLParser

import aiohttp

from tests.rig.dispatching import Dispatcher


class Shown(HTMLParser):
    """One page.

    html: as it was served.
    elements: each element with its attributes, in order.
    words: its whole text.
    """

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.html = html
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._parts: list[str] = []
        self.feed(html)
        self.close()
        self.words = " ".join("".join(self._parts).split())

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
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
        session.get(f"http://127.0.0.1:{dispatcher.api_port}{path}") as answer,
    ):
        return answer.status, Shown(await answer.text())
