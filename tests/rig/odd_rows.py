"""Values that no function writes, and that the type of a column allows nevertheless. Its owner can write them.

Each value is an SQL expression. Rows are written with `session_replication_role = replica`: without triggers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import asyncpg
import pytest
from _pytest.mark import ParameterSet

from tests.rig.postgres import Connection, Database

T = TypeVar("T", bound=tuple[Any, ...])
Values = Mapping[str, str]
"""SQL expressions by name."""


def nested(opening: str, inner: str, closing: str, depth: int) -> str:
    return f"(repeat('{opening}', {depth}) || '{inner}' || repeat('{closing}', {depth}))::jsonb"


TIMES: Final[Values] = {
    "infinity": "'infinity'",
    "-infinity": "'-infinity'",
    "year 294276": "'294276-12-31 23:59:59.999999 UTC'",
    "4713 BC": "'4713-01-01 UTC BC'",
    "year 10000": "'10000-01-01 UTC'",
    "year 9999": "'9999-12-31 23:59:59.999999 UTC'",
    "year 1": "'0001-01-01 UTC'",
}
SMALL: Final[Values] = {"smallest": "-32768", "-1": "-1", "0": "0", "largest": "32767"}
INTEGERS: Final[Values] = {"smallest": "-2147483648", "-1": "-1", "0": "0", "largest": "2147483647"}
IDS: Final[Values] = {"smallest": "-9223372036854775808", "0": "0", "largest": "9223372036854775807"}
TEXTS: Final[Values] = {
    "empty": "''",
    "1 MiB": "repeat('x', 1048576)",
    "controls": r"E'a\n\r\t\x01\x1b[31m\x7f\u0085\u2028'",
    "beyond ASCII": r"U&'\202E\FEFF\FFFE\+10FFFF'",
    "markup": "'<script>\"&''{{ x }}%s$(A)../'",
}
KEYS: Final[Values] = {**TEXTS, "1 MiB": "repeat('x', 100000)"}
"""Texts of an indexed column: compressed, an entry of an index has a third of a page at most."""
BYTES: Final[Values] = {"empty": r"'\x'", "one byte": r"'\x00'", "2000 bytes": "decode(repeat('ab', 2000), 'hex')"}
REALS: Final[Values] = {
    "NaN": "'NaN'", "Infinity": "'Infinity'", "-Infinity": "'-Infinity'", "huge": "3.4e38", "tiny": "1e-45", "-1": "-1",
}  # fmt: skip
NO_OBJECTS: Final[Values] = {
    "null": "'null'",
    "array": "'[]'",
    "array of pairs": """'[["A", "b"]]'""",
    "string": """'"x"'""",
    "number": "'1e400'",
    "true": "'true'",
    "deep array": nested("[", "", "]", 3000),
}
LARGE_NUMBERS: Final[Values] = {
    "1e131071": """'{"A": 1e131071}'""",
    "1e400 and a half": """('{"A": 1' || repeat('0', 400) || '.5}')::jsonb""",
}
DEEP: Final[Values] = {
    "deep object": nested('{"A": ', "1", "}", 3000),
    "deep value": """('{"A": ' || repeat('[', 3000) || repeat(']', 3000) || '}')::jsonb""",
}
OBJECTS: Final[Values] = {
    "nulls": """'{"A": null}'""",
    "1e400": """'{"A": 1e400}'""",
    "1e-16383": """'{"A": 1e-16383}'""",
    "2**64": """'{"A": 18446744073709551616}'""",
    "objects": """'{"A": {"B": [1, {"C": null}]}}'""",
    "names of numbers": """'{"A": "NaN", "B": "-Infinity", "C": "1e999999999"}'""",
    "empty name": """'{"": ""}'""",
    "1 MiB": "jsonb_build_object('A', repeat('x', 1048576))",
    "10,000 names": "(SELECT jsonb_object_agg('K' || n, 'x') FROM generate_series(1, 10000) AS n)",
    "controls": r"""'{"A": "\u0001\u007f\u2028\ud83d\ude00", "\u0001": "x"}'""",
    "300 levels": """('{"A": ' || repeat('[', 300) || repeat(']', 300) || '}')::jsonb""",
}
JSON: Final[Values] = {**NO_OBJECTS, **LARGE_NUMBERS, **DEEP, **OBJECTS}
SPECS: Final[Values] = {
    **JSON,
    "image of a number": """'{"image": 5}'""",
    "image of an object": """'{"image": {"A": 1}}'""",
    "1 MiB image": "jsonb_build_object('image', repeat('x', 1048576))",
    "command of a text": """'{"command": "run"}'""",
    "command of a number": """'{"command": 7}'""",
    "command of null": """'{"command": null}'""",
    "args of numbers": """'{"args": [1, null, {}]}'""",
    "args of an object": """'{"args": {"A": 1}}'""",
    "cpu of a number": """'{"cpu": 1e400}'""",
    "cpu NaN": """'{"cpu": "NaN"}'""",
    "cpu of 100,000 digits": "jsonb_build_object('cpu', repeat('9', 100000))",
    "memory inf": """'{"memory": "inf"}'""",
    "memory of a large exponent": """'{"memory": "1e999999"}'""",
    "machine of a list": """'{"private_machine": ["a"]}'""",
}

COLUMNS: Final[Mapping[str, Values]] = {
    "id": IDS,
    "queue": {**KEYS, "undeclared": "'nobodys'", "of defaults": "'*'"},
    "priority": SMALL,
    "run_at": TIMES,
    "timeout_seconds": INTEGERS,
    "max_failures": SMALL,
    "template": {**TEXTS, "unknown": "'nobodys'"},
    "env": JSON,
    "spec": SPECS,
    "payload": JSON,
    "cache_key": KEYS,
    "dedupe_key": KEYS,
    "status": {**KEYS, "1 MiB": "repeat('x', 50000)", "of capitals": "'WAITING'", "unknown": "'unknown'"},
    "attempt": SMALL,
    "launch": SMALL,
    "failures": SMALL,
    "job_uid": TEXTS,
    "submitted_by": KEYS,
    "created_at": TIMES,
    "started_at": TIMES,
    "heartbeat_at": TIMES,
    "finished_at": TIMES,
    "cancel_requested_at": TIMES,
    "node_name": KEYS,
    "pod_name": TEXTS,
    "error": TEXTS,
    "result": JSON,
    "kind": BYTES,
    "run_digest": BYTES,
    "batch": KEYS,
    "labels": JSON,
    "progress": REALS,
    "note": TEXTS,
}
NULLABLE: Final = frozenset({
    "run_at", "timeout_seconds", "payload", "cache_key", "job_uid", "started_at", "heartbeat_at", "finished_at",
    "cancel_requested_at", "node_name", "pod_name", "error", "result", "run_digest", "batch", "progress", "note",
})  # fmt: skip
"""Columns that may be NULL. NULL is an odd value of a column that the state of the row fills."""

BEGUN: Final = {
    "launch": "1", "job_uid": "'job-1'", "started_at": "now() - interval '10 min'", "node_name": "'node-1'",
    "pod_name": "'pod-1'",
}  # fmt: skip
ENDED: Final = {**BEGUN, "finished_at": "now() - interval '1 min'"}
STATES: Final[Mapping[str, Mapping[str, str]]] = {
    "waiting": {},
    "processing": {
        **BEGUN, "status": "'processing'", "heartbeat_at": "now() - interval '10 min'",
        "run_digest": "sha256(random()::text::bytea)",
    },
    "succeeded": {**ENDED, "status": "'succeeded'"},
    "failed": {**ENDED, "status": "'failed'", "error": "'no such file'"},
}  # fmt: skip
OF_CONTAINERS: Final = (
    "attempt", "launch", "failures", "job_uid", "created_at", "started_at", "node_name", "pod_name", "error",
    "progress", "note",
)  # fmt: skip
"""Columns that only containers fill, or that are read of rows that a container holds or held."""
COLUMNS_OF: Final[Mapping[str, Iterable[str]]] = {
    "waiting": COLUMNS,
    "processing": (*OF_CONTAINERS, "max_failures", "heartbeat_at", "cancel_requested_at", "run_digest"),
    "succeeded": (*OF_CONTAINERS, "finished_at", "run_at", "cache_key", "result"),
    "failed": ("error", "finished_at", "template", "spec", "kind", "batch", "submitted_by"),
}
"""The columns whose odd values stand in a row of each state."""


class Odd(NamedTuple):
    """One odd value in a row of this state. `value`: its name."""

    state: str
    column: str
    value: str

    @property
    def expression(self) -> str:
        return "NULL" if self.value == "NULL" else COLUMNS[self.column][self.value]

    def __str__(self) -> str:
        return f"{self.state}-{self.column}-{self.value}"


def every_odd() -> list[Odd]:
    """Every odd value, column by column."""
    found = []
    for state, columns in COLUMNS_OF.items():
        for column in columns:
            nothing = ["NULL"] if column in NULLABLE and column in STATES[state] else []
            found += [Odd(state, column, value) for value in (*COLUMNS[column], *nothing)]
    return found


def together(places: Iterable[T]) -> list[ParameterSet]:
    """The odd values of each state of a row, or of each table, as one parameter."""
    groups: dict[str, list[T]] = {}
    for one in places:
        groups.setdefault(one[0], []).append(one)
    return [pytest.param(values, id=name) for name, values in groups.items()]


INSERTED: Final = """
INSERT INTO dispatch_private.tasks (env, cache_key, batch, labels, submitted_by, kind)
SELECT jsonb_build_object($1::text, 'x'), 'warm', 'april', '{"a": "b"}', 'team_a',
       dispatch_private.plain_kind('default', jsonb_build_object($1::text, 'x')::text)
RETURNING id
"""
LAUNCHED: Final = """
INSERT INTO dispatch_private.task_launches (task_id, attempt, launch, job_uid, started_at, queue)
SELECT id, attempt, launch, 'job-1', now() - interval '10 min', 'default' FROM dispatch_private.tasks
WHERE id = $1 AND launch > 0 ON CONFLICT DO NOTHING
"""


async def owner_of(database: Database) -> Connection:
    """A session of the owner of the tables, past all triggers. It can also choose the id of a row."""
    owner = await database.connect("admin")
    await owner.execute("SET session_replication_role = replica")
    await owner.execute("ALTER TABLE dispatch_private.tasks ALTER id SET GENERATED BY DEFAULT")
    return owner


async def write(owner: Connection, name: str, state: str, values: Mapping[str, str]) -> int:
    """Inserts a row of this state, then changes these columns of it.

    name: of its one variable. Rows with the same name are of one kind.
    values: SQL expressions by column.
    """
    id_: int = await owner.fetchval(INSERTED, name)
    if STATES[state]:
        await set_columns(owner, id_, STATES[state])
        await owner.execute(LAUNCHED, id_)
    return await set_columns(owner, id_, values) if values else id_


async def set_columns(owner: Connection, id_: int, values: Mapping[str, str]) -> int:
    """Changes the columns past all checks, and returns the id. Postgres refuses what no row can hold."""
    written = ", ".join(f"{column} = {expression}" for column, expression in values.items())
    found: int = await owner.fetchval(f"UPDATE dispatch_private.tasks SET {written} WHERE id = $1 RETURNING id", id_)
    return found


async def refusal_of(owner: Connection, expression: str) -> str:
    """The SQLSTATE with which Postgres refuses the value; empty: a row can hold it."""
    try:
        await owner.fetchval(f"SELECT pg_typeof({expression})::text")
    except asyncpg.PostgresError as refused:
        return refused.sqlstate or "?"
    return ""
