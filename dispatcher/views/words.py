"""Numbers and times as people read them, for the templates. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate, takewhile
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import msgspec
import yaml
from msgspec import Struct

from dispatcher.model.resources import milli_of
from dispatcher.views.launches import NOTHING, duration
from dispatcher.views.node_room import NodeRoom
from dispatcher.views.row_page import Span, TimeKind

T = TypeVar("T")
Dumper: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""The C dumper is faster. PyYAML has it if libyaml was there when PyYAML was built."""
ESCAPED: Final = frozenset("&<>\"'")
LONGEST_CHARACTER: Final = len("&amp;")
MOST_ROWS: Final = 100
"""Rows of a list on one page, at most. JSON may have more."""
PIXELS: Final = 100
"""Width of a bar, and height of the tallest column of a sparkline, in the units of its drawing."""


def relative(moment: datetime, now: datetime) -> str:
    """A time from now: `5 min ago`, `in 2 h`, `now`."""
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    told = duration(abs(round(seconds)))
    return f"{told} ago" if seconds > 0 else f"in {told}"


def exact(moment: datetime) -> str:
    """The time with seconds and the zone, which is always UTC."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def instant(moment: datetime) -> str:
    """The time for `datetime` of a <time>: HTML knows no more than three digits of a second."""
    return moment.isoformat(timespec="milliseconds")


def number(value: float | None) -> str:
    """A whole number is exact, with separators; other numbers have one decimal."""
    if value is None:
        return NOTHING
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}".removesuffix(".0")


BYTES: Final = {"memory", "ephemeral-storage"}
BINARY: Final = ((2**50, "Pi"), (2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"))


def amount(quantity: str | None, resource: str) -> str:
    """A quantity of a resource, rounded: `1.5` of cpu, `15.32Gi` of memory; None: 0."""
    value = milli_of(quantity or "0") / 1000
    if resource in BYTES or resource.startswith("hugepages-"):
        size, unit = next(((size, unit) for size, unit in BINARY if value >= size), (1, ""))
        return f"{value / size:,.2f}".rstrip("0").rstrip(".") + unit
    return f"{value:,.3f}".rstrip("0").rstrip(".")


def percent(part: float | None) -> str:
    """A rounded percentage. Only nothing is 0%, and only the whole is 100%."""
    if part is None:
        return NOTHING
    if 0 < part < 0.01:
        return "< 1%"
    return "> 99%" if 0.99 < part < 1 else f"{part:.0%}"


def query(wanted: Struct | Mapping[str, Any], **changed: Any) -> str:
    """The query of an address with these parameters, some of them changed. Those that are None are left out."""
    given = (
        wanted if isinstance(wanted, Mapping) else {name: getattr(wanted, name) for name in wanted.__struct_fields__}
    )
    kept = {name: value for name, value in {**given, **changed}.items() if value is not None and value != ""}
    return "?" + urlencode(kept) if kept else ""


def resources(size: Mapping[str, str]) -> list[str]:
    """The resources that a node has, besides those with a column of their own."""
    return sorted(name for name, quantity in size.items() if name not in {"cpu", "memory"} and milli_of(quantity))


def free_part(node: NodeRoom, resource: str) -> float:
    size = milli_of(node.size.get(resource, "0"))
    return round(milli_of(node.free.get(resource, "0")) / size, 3) if size else 0.0


class BarPart(Struct, frozen=True):
    """One part of a stacked bar. `start`, `width`: in PIXELS."""

    name: str
    count: int
    start: float
    width: float


def stacked(counts: Mapping[str, int]) -> list[BarPart]:
    """The parts of a bar, the largest first."""
    total, start, parts = sum(counts.values()), 0.0, list[BarPart]()
    for name, count in sorted(counts.items(), key=lambda one: (-one[1], one[0])):
        width = PIXELS * count / total if total else 0.0
        parts.append(BarPart(name, count, round(start, 2), round(width, 2)))
        start += width
    return parts


def drawn(spans: Sequence[Span]) -> Iterator[tuple[TimeKind, float, float]]:
    """(step, start, width) of the parts of a bar of time, in PIXELS."""
    total, start = sum(span.seconds for span in spans), 0.0
    for span in spans:
        width = PIXELS * span.seconds / total if total else 0.0
        yield span.step, round(start, 2), round(width, 2)
        start += width


def as_yaml(value: Any) -> str:
    """YAML in ASCII: marks of writing direction, and invisible characters, are written as escapes."""
    text: str = yaml.dump(msgspec.to_builtins(value), Dumper=Dumper, sort_keys=False, width=100)
    return text


def beginning(text: str, most: int) -> str:
    """As many of the first characters as have `most` bytes on a page."""
    kept = fitting(text, most)
    return text if kept == len(text) else f"{text[:kept]}\n… {len(text) - kept:,} more characters, in the JSON"


def end(text: str, most: int) -> str:
    """As many of the last characters as have `most` bytes on a page."""
    left_out = len(text) - fitting(text[::-1], most)
    return text if not left_out else f"{left_out:,} more characters, in the JSON …\n{text[left_out:]}"


def some(rows: Sequence[T], share: float) -> Sequence[T]:
    """The first rows: this share of them, at least one, and no more than a page shows."""
    return rows[: max(1, int(share * min(len(rows), MOST_ROWS)))]


def brief(text: str, most: int) -> str:
    """As many of the first characters as have `most` bytes on a page, on one line."""
    kept = fitting(text, most)
    return text if kept == len(text) else f"{text[:kept]}…"


def fitting(text: str, most: int) -> int:
    """Number of first characters that have `most` bytes on a page. Those of HTML are escaped."""
    if len(text) * LONGEST_CHARACTER <= most:
        return len(text)
    sizes = accumulate(LONGEST_CHARACTER if one in ESCAPED else len(one.encode(errors="replace")) for one in text)
    return sum(1 for _ in takewhile(lambda size: size <= most, sizes))


def filled(node: NodeRoom, resource: str) -> list[BarPart]:
    """The parts of a bar of one resource of a node: the parts of others, of ours and of holds."""
    size, start, parts = milli_of(node.size.get(resource, "0")), 0.0, list[BarPart]()
    held = (node.coming, node.reserved)
    for name, amounts in (("others", (node.others,)), ("ours", (node.ours,)), ("held", held)):
        taken = sum(milli_of(one.get(resource, "0")) for one in amounts)
        width = min(PIXELS * taken / size, PIXELS - start) if size else 0.0
        if width > 0:
            parts.append(BarPart(name, taken, round(start, 2), round(width, 2)))
            start += width
    return parts


def columns(values: Sequence[float | None], most: float | None = None) -> str:
    """The columns of a sparkline as one path, in PIXELS; minutes that nobody counted have none.

    most: the value of the highest column; None: the highest value.
    """
    heights = heights_of(values, most)
    return f"M0 {PIXELS}" + "".join(f"V{PIXELS - (height or 0)}h1" for height in heights) + f"V{PIXELS}z"


def steps(values: Sequence[float | None], most: float | None = None) -> str:
    """A line over the same columns; minutes that nobody counted are gaps."""
    parts, is_drawn = list[str](), False
    for place, height in enumerate(heights_of(values, most)):
        if height is not None:
            parts.append(f"{'V' if is_drawn else f'M{place} '}{PIXELS - height}h1")
        is_drawn = height is not None
    return "".join(parts)


def heights_of(values: Sequence[float | None], most: float | None) -> list[int | None]:
    top = most or highest(values) or 1.0
    return [None if value is None else height_of(value / top) for value in values]


def height_of(part: float) -> int:
    """The height of a column, at least one unit, so that it can be seen."""
    return max(1, round(PIXELS * part)) if part else 0


def highest(*sequences: Sequence[float | None]) -> float:
    """The highest value of all sequences, so that they are drawn to one scale."""
    return max((value for values in sequences for value in values if value is not None), default=0.0)
