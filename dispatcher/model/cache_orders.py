"""Orders to remove cache directories: the data of a ConfigMap, `DIGEST` or `DIGEST.NODE` with the time of the order.

A keeper removes a directory that was first used before its order. Each order is an entry of its own, so two people who
order at the same time lose nothing. Pure.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

LASTS: Final = timedelta(days=7)
"""Keepers forget an order after this time. A directory that was in use all the time stays."""
DIGEST: Final = re.compile(r"[0-9a-f]{40}")


def order_entry(digest: str, node: str | None, now: datetime) -> tuple[str, str]:
    """Name and value of an order. `node`: None: every node."""
    return digest if node is None else f"{digest}.{node}", now.astimezone(UTC).isoformat(timespec="milliseconds")


def orders_for(node: str, entries: Mapping[str, str], now: datetime) -> dict[str, float]:
    """The times of the orders that are for a node, in Unix seconds, by directory. Others are passed over."""
    found = dict[str, float]()
    for name, value in entries.items():
        digest, _, of = name.partition(".")
        at = time_of(value)
        if DIGEST.fullmatch(digest) and of in {"", node} and at is not None and now - LASTS < at <= now:
            found[digest] = max(at.timestamp(), found.get(digest, 0))
    return found


def over(entries: Mapping[str, str], now: datetime) -> list[str]:
    """Names of the orders that keepers have forgotten, or never understood."""
    return [name for name, value in entries.items() if (at := time_of(value)) is None or at <= now - LASTS]


def time_of(value: str) -> datetime | None:
    """None: it is no time with a time zone."""
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    return at if at.tzinfo is not None else None
