"""Documents, times, durations and colours for people."""

import re
from datetime import datetime
from typing import Final

import click
import msgspec

from dispatcher.explain.reasons import Turn
from dispatcher.model.texts import printable

COLOURS: Final = {
    Turn.SUBMITTER: "cyan", Turn.AUTHOR: "magenta", Turn.OPERATOR: "red", Turn.CLUSTER: "yellow", Turn.NOBODY: "green",
}  # fmt: skip
TURNS: Final = re.compile(rf"^ *({'|'.join(Turn)})'s turn\b", re.MULTILINE)


def coloured(told: str) -> str:
    """The text with a colour for whose turn it is. click takes the colours away where nobody would see them."""
    return TURNS.sub(lambda found: click.style(found[0], fg=COLOURS[Turn(found[1])], bold=True), told)


def as_document(shown: object, as_json: bool) -> str:
    """As JSON, or as YAML."""
    written = msgspec.json.format(msgspec.json.encode(shown)) if as_json else msgspec.yaml.encode(shown)
    return written.decode().rstrip()


def at(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S %Z}"


def span(seconds: float) -> str:
    """A duration in its largest whole unit: `2 h`."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"


def to_json(shown: msgspec.Struct) -> str:
    """One object for a terminal. JSON escapes only some of the control characters."""
    return printable(msgspec.json.encode(shown).decode())
