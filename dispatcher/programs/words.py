"""Times, durations and colours for people."""

import re
from datetime import datetime
from typing import Final

import click

from dispatcher.explain.reasons import Turn

COLOURS: Final = {
    Turn.SUBMITTER: "cyan", Turn.AUTHOR: "magenta", Turn.OPERATOR: "red", Turn.CLUSTER: "yellow", Turn.NOBODY: "green",
}  # fmt: skip
TURNS: Final = re.compile(rf"^ *({'|'.join(Turn)})'s turn\b", re.MULTILINE)


def coloured(told: str) -> str:
    """The text with a colour for whose turn it is. click takes the colours away where nobody would see them."""
    return TURNS.sub(lambda found: click.style(found[0], fg=COLOURS[Turn(found[1])], bold=True), told)


def at(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M:%S %Z}"


def span(seconds: float) -> str:
    """A duration in its largest whole unit: `2 h`."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"
