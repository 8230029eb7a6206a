"""A page as a tree of elements. A test finds a value by its heading, not by its place in the text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from html.parser import HTMLParser

VOID = frozenset({"br", "input", "link", "meta"})
INLINE = frozenset({"a", "b", "bdi", "kbd", "span", "svg", "time"})
"""Elements that end no word."""


class Element:
    """One element of a page. `parts`: its texts and elements, in order."""

    def __init__(self, name: str, attributes: Mapping[str, str]) -> None:
        self.name = name
        self.attributes = attributes
        self.parts: list[Element | str] = []

    @property
    def words(self) -> str:
        """Its whole text on one line."""
        return " ".join("".join(self._texts()).split())

    @property
    def moments(self) -> list[datetime]:
        """The exact times in it."""
        return [datetime.fromisoformat(one.attributes["datetime"]) for one in self.every("time")]

    @property
    def links(self) -> list[str]:
        return [one.attributes["href"] for one in self.every("a")]

    def every(self, name: str, /, **attributes: str) -> list[Element]:
        """All elements of this name in it, with these attributes."""
        return [one for one in self._below() if one.name == name and attributes.items() <= one.attributes.items()]

    def the(self, name: str, /, **attributes: str) -> Element:
        """The one element of this name."""
        (found,) = self.every(name, **attributes)
        return found

    def ids(self) -> set[str]:
        found = [one.attributes["id"] for one in self._below() if "id" in one.attributes]
        assert len(found) == len({*found}), "two elements have one id"
        return {*found}

    def section(self, name: str) -> Element:
        """The part of the page that the heading with this id begins."""
        return self.the("section", **{"aria-labelledby": name})

    def facts(self) -> dict[str, Element]:
        """The values of its lists of facts, by their names."""
        names, values = self.every("dt"), self.every("dd")
        return {name.words: value for name, value in zip(names, values, strict=True)}

    def rows(self) -> list[dict[str, Element]]:
        """The rows of its first table, by the headings of the columns."""
        table = self.every("table")[0]
        heads = [one.words for one in table.the("thead").every("th")]
        cells = [
            [one for one in row.parts if isinstance(one, Element)] for row in table.the("tbody").every("tr")
        ]  # fmt: skip
        return [dict(zip(heads, row, strict=True)) for row in cells]

    def _below(self) -> Iterator[Element]:
        for part in self.parts:
            if isinstance(part, Element):
                yield part
                yield from part._below()

    def _texts(self) -> Iterator[str]:
        for part in self.parts:
            if isinstance(part, str):
                yield part
            else:
                between = "" if part.name in INLINE else " "
                yield from (between, *part._texts(), between)


class Reader(HTMLParser):
    """Makes the tree. An element that is not closed where it belongs fails the test."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open = [Element("page", {})]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            added = self.open[-1].parts[-1]
            assert isinstance(added, Element)
            self.open.append(added)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open[-1].parts.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        closed = self.open.pop().name
        assert closed == tag, f"</{tag}> where <{closed}> is open"

    def handle_data(self, data: str) -> None:
        self.open[-1].parts.append(data)


def read(html: str) -> Element:
    """The tree of a page."""
    reader = Reader()
    reader.feed(html)
    reader.close()
    (page,) = reader.open
    return page
