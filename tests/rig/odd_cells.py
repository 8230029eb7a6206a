"""Odd values in the tables beside `tasks`: launches, reasons, reports, templates, queues and old keys. CHECKs hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tests.rig.odd_rows import BYTES, IDS, INTEGERS, JSON, REALS, SMALL, TEXTS, TIMES, Values, write
from tests.rig.postgres import Connection

NAMES: Final[Values] = {
    "empty": "''", "63 letters": "repeat('x', 63)", "markup": "'<b>{{ x }}'", "beyond ASCII": r"U&'\202E'",
}  # fmt: skip
"""Texts of a column of type name."""
COUNTS: Final[Values] = {"0": "0", "largest": "2147483647"}
LISTS: Final[Values] = {
    "NULL in it": "ARRAY[NULL, 'a']",
    "two dimensions": "ARRAY[ARRAY['a', 'b'], ARRAY['c', 'd']]",
    "1 MiB": "ARRAY[repeat('x', 1048576)]",
    "from 0": "'[0:1]={a,b}'::text[]",
    "no patterns": r"ARRAY['[', '(*', '\', '', '<b>']",
}
TABLES: Final[Mapping[str, Mapping[str, Values]]] = {
    "task_launches": {
        "attempt": SMALL, "launch": SMALL, "job_uid": TEXTS, "node_name": TEXTS, "pod_name": TEXTS, "started_at": TIMES,
        "ended_at": TIMES, "error": TEXTS, "run_digest": BYTES, "exit_code": INTEGERS, "reason": TEXTS, "queue": NAMES,
    },
    "task_reasons": {"task_id": IDS, "attempt": INTEGERS, "reason": TEXTS, "message": TEXTS, "since": TIMES},
    "queue_reasons": {
        "waiting": INTEGERS, "in_flight": INTEGERS, "max_jobs": INTEGERS, "weight": INTEGERS, "share": REALS,
        "paused_until": TIMES, "oldest": TIMES, "reasons": JSON, "behind": JSON,
    },
    "reported": {"as_of": TIMES},
    "templates": {
        "row_may_set": LISTS, "bounds": JSON, "images": LISTS, "machines": LISTS, "sets": LISTS, "note": TEXTS,
    },
    "queues": {
        "weight": {"1": "1", "1000": "1000"}, "max_jobs": COUNTS, "max_jobs_per_submitter": COUNTS,
        "max_pending": COUNTS, "max_waiting_per_submitter": COUNTS, "paused_until": TIMES, "owner_role": NAMES,
        "submit_role": NAMES, "note": TEXTS,
    },
    "earlier_start_keys": {"digest": BYTES, "task_id": IDS},
}  # fmt: skip
ROWS: Final[Mapping[str, str]] = {
    "task_reasons": """
        INSERT INTO dispatch_private.task_reasons (task_id, attempt, reason, message, since)
        VALUES ($1, 1, 'InLine', 'others come first', now())
    """,
    "queue_reasons": """
        INSERT INTO dispatch_private.queue_reasons (queue, waiting, in_flight, weight, share, reasons)
        VALUES ('odd-' || $1::bigint, 1, 0, 1, 0, '{"InLine": 1}')
    """,
    "reported": """
        INSERT INTO dispatch_private.reported (as_of) SELECT now() WHERE $1::bigint > 0 ON CONFLICT DO NOTHING
    """,
    "templates": "INSERT INTO dispatch_private.templates (name) VALUES ('odd-' || $1::bigint)",
    "queues": "INSERT INTO dispatch_private.queues (name) VALUES ('odd-' || $1::bigint)",
    "earlier_start_keys": "INSERT INTO dispatch_private.earlier_start_keys (task_id, digest) VALUES ($1, sha256('x'))",
}
"""A good row of each table. $1: id of a row of `tasks`. The rows of `task_launches` come with their rows of `tasks`."""
KEYS: Final = {
    "task_launches": "task_id = $1", "task_reasons": "task_id = $1", "earlier_start_keys": "task_id = $1",
    "queue_reasons": "queue = 'odd-' || $1::bigint", "templates": "name = 'odd-' || $1::bigint",
    "queues": "name = 'odd-' || $1::bigint", "reported": "is_only AND $1::bigint > 0",
}  # fmt: skip
WITH: Final = {"ended_at": ", outcome = 'failed'"}
"""What a CHECK wants beside a column."""


class Cell(NamedTuple):
    """One odd value in a row of this table. `value`: its name."""

    table: str
    column: str
    value: str

    def __str__(self) -> str:
        return f"{self.table}-{self.column}-{self.value}"


def every_cell() -> list[Cell]:
    return [
        Cell(table, column, value)
        for table, columns in TABLES.items()
        for column, values in columns.items()
        for value in values
    ]


async def write_cell(owner: Connection, cell: Cell) -> int:
    """Writes a row with the odd value. Returns the id of the row of `tasks` that it belongs to."""
    id_ = await write(owner, "FIRST", "processing" if cell.table == "task_launches" else "waiting", {})
    if cell.table in ROWS:
        await owner.execute(ROWS[cell.table], id_)
    change = f"{cell.column} = {TABLES[cell.table][cell.column][cell.value]}{WITH.get(cell.column, '')}"
    changed = await owner.execute(f"UPDATE dispatch_private.{cell.table} SET {change} WHERE {KEYS[cell.table]}", id_)
    assert changed == "UPDATE 1"
    return id_
