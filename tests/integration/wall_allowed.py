"""The differences between two databases that a login may see, and why. Any other difference is a fault of the product.

`ALLOWED` is the one table of what is told on purpose. `without_totals` is the one place that leaves out what tells how
many rows all teams have together. It is used where tables and indexes have other sizes.
"""

from __future__ import annotations

import re
from typing import Final

from tests.integration.wall_seats import Parts, without_pages

ALLOWED: Final = {
    # A login that knows the name of a queue is told whether there is one, and which role may use it.
    "name of a queue": frozenset({"answer", "plan", "planned", "touched"}),
    # The place in the line counts the waiting rows of a queue that the login may use, at that moment.
    "place in the line": frozenset({"answer", "messages", "plan", "planned", "touched"}),
    # What the dispatcher tells of a queue that the login may use: waiting rows, Jobs, reasons, what holds the next row.
    "state of an open queue": frozenset({"answer", "messages", "plan", "planned", "touched"}),
    # Sizes and counts of whole tables and indexes. Postgres shows them to everybody: pg_class, functions of sizes.
    "total of a table": frozenset({"answer", "messages", "plan"}),
}
"""Name of what is told → the parts of a statement that may differ by it."""

TOLD: Final = {
    ("task_explain", "position"): "place in the line",
    ("task_explain", "position_of"): "place in the line",
    ("task_explain", "reason"): "state of an open queue",
    ("task_explain", "whose_turn"): "state of an open queue",
    ("task_explain", "message"): "state of an open queue",
    ("task_explain", "since"): "state of an open queue",
    ("queue_status", "waiting"): "state of an open queue",
    ("queue_status", "in_flight"): "state of an open queue",
    ("queue_status", "share"): "state of an open queue",
    ("queue_status", "oldest_wait_seconds"): "state of an open queue",
    ("queue_status", "reasons"): "state of an open queue",
}
"""Columns that tell it."""

# Their readers see the number of queues or of templates: everybody may know how many there are.
COUNTED: Final = re.compile(r"dispatch_private\.(queues|queue_reasons|templates)(_pkey)?$")
SIZES: Final = re.compile(r"^ *(Buffers|WAL): .*")


def without_totals(parts: Parts, counters: list[str]) -> Parts:
    """Leaves out pages and WAL, and the number of queues and templates.

    How many pages are read, and which, depends on how large a table or an index is.
    """
    plan = parts.get("plan", ())
    assert isinstance(plan, tuple)
    return parts | {
        "plan": tuple(line for line in plan if not (isinstance(line, tuple) and SIZES.match(str(line[0])))),
        "planned": uncounted(parts["planned"]),
        "touched": uncounted(without_pages(parts["touched"], counters)),
    }


def uncounted(touched: object) -> dict[str, list[int]]:
    assert isinstance(touched, dict)
    return {name: numbers for name, numbers in touched.items() if not COUNTED.fullmatch(name)}
