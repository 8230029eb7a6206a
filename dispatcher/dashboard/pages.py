"""Writes pages from answers. Every text of a row is escaped by the templates."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from msgspec import Struct

from dispatcher.dashboard import words
from dispatcher.dashboard.addresses import API
from dispatcher.dashboard.answers import Asked, Refusal
from dispatcher.explain.caches import binary
from dispatcher.explain.reasons import ADVICE
from dispatcher.explain.status import Installation
from dispatcher.model.history import MOST_FAILED

FOLDER: Final = Path(__file__).parent
WORDS: Final = (
    "duration", "relative", "exact", "number", "percent", "query", "stacked", "columns", "steps", "highest", "drawn",
    "as_yaml", "beginning", "brief", "end", "some", "amount", "resources", "free_part", "filled",
)  # fmt: skip
FILTERS: Final = {name: getattr(words, name) for name in WORDS} | {"binary": binary}
KINDS: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class StaticFile(Struct, frozen=True):
    """A file that pages name. `kind`: its media type."""

    body: bytes
    kind: str


STATIC: Final[Mapping[str, StaticFile]] = {
    path.name: StaticFile(path.read_bytes(), KINDS[path.suffix]) for path in sorted((FOLDER / "static").iterdir())
}


MOST_BYTES: Final = 100_000 - sum(len(file.body) for file in STATIC.values())
"""Of the text of a page. With its style and its script it has less than 100 kB."""
FRAME_BYTES: Final = 10_000
"""Of a page without rows, about."""
LEAST_SHARE: Final = 0.001


class Pages:
    """The pages of one replica. `prefix`: the path under which a proxy shows them.

    A page that would be too large has a share of its rows, and tells how many are left out. JSON has all of them.
    """

    def __init__(self, installation: Installation, prefix: str) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(FOLDER / "templates"), autoescape=True, undefined=StrictUndefined,
            trim_blocks=True, lstrip_blocks=True, auto_reload=False,
        )  # fmt: skip
        self._environment.filters |= FILTERS
        self._environment.globals |= {"site": installation, "prefix": prefix, "api": API, "advice": ADVICE}
        self._environment.globals["most_failed"] = MOST_FAILED

    def write(self, template: str, answer: Any, asked: Asked, twin: str) -> str:
        """One page. `twin`: address of the same as JSON, below the prefix."""
        now = datetime.now(UTC)
        page = partial(
            self._environment.get_template(template).render, answer=answer, asked=asked, twin=twin, now=now,
            as_of=getattr(answer, "as_of", now), status=answer.status if isinstance(answer, Refusal) else 200,
        )  # fmt: skip
        share, text = 1.0, page(share=1.0)
        while (size := len(text.encode())) > MOST_BYTES and share > LEAST_SHARE:
            share *= min(0.95, (0.95 * MOST_BYTES - FRAME_BYTES) / (size - FRAME_BYTES))
            text = page(share=share)
        return text
