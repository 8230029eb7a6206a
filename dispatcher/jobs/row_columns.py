"""The columns that a submitter may set, as JSON, without a database: `dispatcher render --file F --row JSON`.

INSERT refuses what is refused here; tests/integration/test_row_columns.py compares both. INSERT refuses more, because
it knows the queues, the rows that are there, and the sizes of values (UNCHECKED).
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

UNCHECKED: Final = (
    "whether the queue is declared and open to you, whether a dedupe_key is free, how many rows you may have, "
    "and the sizes of env, spec, labels and payload"
)
Key = Annotated[str, Meta(min_length=1, max_length=200)]
Words = Annotated[list[str], Meta(max_length=1000)]
Machine = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")]
Amount = Annotated[str, Meta(pattern=r"^[0-9]{1,18}(\.[0-9]{1,9})?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?\Z")]
COLUMNS: Final[Mapping[str, Any]] = {
    "queue": str,
    "priority": Annotated[int, Meta(ge=0, le=1000)],
    "run_at": datetime | None,
    "timeout_seconds": Annotated[int, Meta(ge=1, le=604800)] | None,
    "max_failures": Annotated[int, Meta(ge=1, le=100)],
    "template": str,
    "env": Annotated[dict[str, Any], Meta(max_length=64)],
    "spec": dict[str, Any],
    "payload": Any,
    "cache_key": Key | None,
    "dedupe_key": Key | None,
    "batch": Key | None,
    "labels": Annotated[dict[Annotated[str, Meta(min_length=1, max_length=63)], Any], Meta(max_length=16)],
}  # fmt: skip
SPEC: Final[Mapping[str, Any]] = {
    "image": Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*\Z", max_length=512)],
    "command": Words,
    "args": Words,
    "cpu": Amount,
    "memory": Amount,
    "private_machine": Machine,
    "special_machine": Machine,
}
KEPT: Final = frozenset({
    "id", "status", "attempt", "launch", "failures", "job_uid", "submitted_by", "created_at", "started_at",
    "heartbeat_at", "finished_at", "cancel_requested_at", "node_name", "pod_name", "error", "result", "progress",
    "note", "run_digest", "kind",
})  # fmt: skip


def column_faults(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(name, what is wrong) for each column that INSERT would refuse."""
    yield from faults_of(row, COLUMNS, "the columns that a row may set")
    spec, env, labels = (
        found if isinstance(found := row.get(name), dict) else {} for name in ("spec", "env", "labels")
    )
    inner = {
        "spec": faults_of(spec, SPEC, "the keys of spec"),
        "env": faults_of(env, dict.fromkeys(env, str), ""),
        "labels": faults_of(labels, dict.fromkeys(labels, Annotated[str, Meta(max_length=200)]), ""),
    }
    for column, faults in inner.items():
        yield from ((f"{column}.{name}", words) for name, words in faults)


def faults_of(given: Mapping[str, Any], types: Mapping[str, Any], whose: str) -> Iterator[tuple[str, str]]:
    for name, value in given.items():
        if name not in types:
            yield name, unknown(name, types, whose)
            continue
        try:
            msgspec.convert(value, types[name], strict=True)
        except msgspec.ValidationError as fault:
            yield name, re.sub(r" - at `\$(.*)`$", r" (at \1)", str(fault))


def unknown(name: str, types: Mapping[str, Any], whose: str) -> str:
    if name in KEPT and types is COLUMNS:
        return "the functions of the database keep this column; a submitter may not set it"
    near = difflib.get_close_matches(name, types, 1, 0.5)
    return f"not among {whose}; " + (f"did you mean {near[0]}?" if near else f"they are {', '.join(types)}")
