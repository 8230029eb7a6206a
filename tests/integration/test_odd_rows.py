"""A row that cannot be read is that row's fault: whatever rows hold, all programs go on without them.

The owner of the tables writes the rows, past all triggers. Each odd value of each column stands in a row of its own
beside good rows; then several in one row, and those of other tables.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import asyncpg
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dispatcher.runtime.metrics import WAITING_TASKS
from dispatcher.views.answers import ApiRequest
from tests.controlplane.waiting import wait_for
from tests.integration.odd_programs import Programs, programs
from tests.property.profiles import STORY
from tests.rig.odd_rows import (
    BYTES,
    IDS,
    INTEGERS,
    JSON,
    REALS,
    SMALL,
    STATES,
    TEXTS,
    TIMES,
    Odd,
    Values,
    every_odd,
    owner_of,
    refusal_of,
    together,
    write,
)
from tests.rig.postgres import Connection, Database
from tests.rig.postgres_fixtures import one_database

# Odd values in the tables beside `tasks`: launches, reasons, reports, templates, queues and old keys. CHECKs hold.

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


# Odd rows in good company: beside them stand rows that have to be launched, shown and ended.


database = one_database
OF_KIND: Final = frozenset({"template", "env", "spec", "timeout_seconds"})
"""Columns of which the kind of a row is made."""
OWN_KIND: Final = "sha256(random()::text::bytea)"
REFUSED: Final = {"template": "'nobodys'", "created_at": "now() - interval '1 hour'", "kind": OWN_KIND}
FORGET: Final = """
DELETE FROM dispatch_private.tasks; DELETE FROM dispatch_private.task_launches;
DELETE FROM dispatch_private.task_reasons; DELETE FROM dispatch_private.queue_reasons;
DELETE FROM dispatch_private.reported; DELETE FROM dispatch_private.templates;
DELETE FROM dispatch_private.earlier_start_keys;
DELETE FROM dispatch_private.queues WHERE name NOT IN ('*', 'default')
"""
COUNT: Final = "SELECT count(*) FROM dispatch_private.tasks WHERE status = 'waiting'"
STATUS: Final = "SELECT status FROM dispatch_private.tasks WHERE id = $1"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def owner(database: Database) -> Connection:
    return await owner_of(database)


class Company:
    """Good rows.

    second: has to be launched and shown.
    refused: has to be ended by the janitor.
    """

    def __init__(self, both: Programs, owner: Connection) -> None:
        self.both, self.owner = both, owner
        self.odd: list[int] = []
        self.second = self.refused = 0

    async def gather(self, odds: Sequence[Odd]) -> None:
        """Writes all rows. The first one is launched before the odd ones come: pages need a cycle that has ended."""
        await write(self.owner, "FIRST", "waiting", {})
        await self.both.cycles()
        for odd in odds:
            kind = {"kind": OWN_KIND} if odd.column in OF_KIND else {}
            self.odd.append(await write(self.owner, "FIRST", odd.state, {odd.column: odd.expression} | kind))
        self.second = await write(self.owner, "SECOND", "waiting", {})
        self.refused = await write(self.owner, "THIRD", "waiting", REFUSED)

    async def judge(self) -> list[str]:
        """What breaks the promise."""
        await self.launch()
        await self.show()
        await self.end()
        return self.both.complaints

    async def launch(self) -> None:
        await self.both.cycles()
        if self.second not in self.both.launched():
            self.both.complaints.append("cycle: the other row is not launched")
        await self.both.tell()
        waiting, told = await self.owner.fetchval(COUNT), counted()
        if told != waiting:
            self.both.complaints.append(f"metric: {told:g} of {waiting} waiting rows are counted")

    async def show(self) -> None:
        lists = await self.both.lists()
        page = lists.get("/tasks")
        if page is None or self.second not in {one.task for one in page.tasks}:
            self.both.complaints.append("/tasks: the other row is missing")
        await self.both.row(self.second)
        for id_ in self.odd:
            told = await self.both.row(id_)
            if id_ > 0 and (told is None or not (told.reason or told.message)):
                self.both.complaints.append(f"page of the row: it tells no reason: {told}")

    async def end(self) -> None:
        before = len(self.both.complaints)

        async def is_ended() -> bool:
            await self.both.janitor_round()
            return len(self.both.complaints) > before or await self.owner.fetchval(STATUS, self.refused) == "failed"

        try:
            await wait_for(is_ended, "the janitor ends the refused row", 5)
        except TimeoutError as fault:
            self.both.complaints.append(f"janitor: {fault}")


def counted() -> float:
    """Number of waiting rows that the metric tells."""
    return sum(sample.value for metric in WAITING_TASKS.collect() for sample in metric.samples)


async def complaints_about(database: Database, owner: Connection, folder: Path, odds: Sequence[Odd]) -> list[str]:
    """What breaks the promise if these values stand in the table, each in a row of its own."""
    await owner.execute(FORGET)
    async with programs(database, folder) as both:
        company = Company(both, owner)
        await company.gather(odds)
        return await company.judge()


NOWHERE: Final = {
    "NUL in a text": r"U&'a\0000'",
    "NUL as a character": "chr(0)",
    "NUL in JSON": r"""'"a\u0000"'::jsonb""",
    "half of a pair": "chr(55296)",
    "half of a pair in JSON": r"""'"\ud800"'::jsonb""",
    "other half of a pair in JSON": r"""'"\udc00"'::jsonb""",
    "no UTF-8": r"convert_from('\xff', 'UTF8')",
    "NaN in JSON": "'NaN'::jsonb",
    "Infinity in JSON": "'-Infinity'::jsonb",
    "too many digits": "'1e131072'::jsonb",
    "too deep": "repeat('[', 100000)::jsonb",
    "time after the last": "'294277-01-01'::timestamptz",
    "time before the first": "'4714-01-01 BC'::timestamptz",
    "large smallint": "32768::smallint",
}
"""Values that Postgres stores in no row."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # aiohttp's, for a Job of 1 MiB
@pytest.mark.parametrize("odds", together(every_odd()))
async def test_programs_go_on_without_odd_rows(
    database: Database, owner: Connection, tmp_path: Path, odds: Sequence[Odd]
) -> None:
    complaints = await complaints_about(database, owner, tmp_path, odds)
    assert complaints == []


@pytest.mark.parametrize("expression", NOWHERE.values(), ids=NOWHERE.keys())
async def test_value_that_no_row_can_hold_is_refused_by_postgres(owner: Connection, expression: str) -> None:
    assert await refusal_of(owner, expression)


BROUGHT: Final = "SELECT reason FROM dispatch_private.task_reasons WHERE task_id = $1"


async def complaints_of_cells(database: Database, owner: Connection, folder: Path, cells: Sequence[Cell]) -> list[str]:
    await owner.execute(FORGET)
    async with programs(database, folder) as both:
        company = Company(both, owner)
        await company.gather([])
        company.odd = [await write_cell(owner, cell) for cell in cells]
        await company.launch()
        await company.show()
        for cell, id_ in zip(cells, company.odd, strict=True):
            if cell.table == "queues":
                await both.ask("/queues/{name}", ApiRequest(f"odd-{id_}"))
        await bring(both, owner, company.refused)
        await company.end()
        return both.complaints


async def bring(both: Programs, owner: Connection, id_: int) -> None:
    """The reason of a parked row is brought into the database."""
    before = len(both.complaints)

    async def is_brought() -> Any:
        await both.beside_rounds()
        return len(both.complaints) > before or await owner.fetchval(BROUGHT, id_)

    try:
        await wait_for(is_brought, "the reason of the refused row is in the database", 5)
    except TimeoutError as fault:
        both.complaints.append(f"reasons: {fault}")


@pytest.mark.slow
@pytest.mark.parametrize("cells", together(every_cell()))
async def test_programs_go_on_without_odd_rows_of_other_tables(
    database: Database, owner: Connection, tmp_path: Path, cells: Sequence[Cell]
) -> None:
    assert await complaints_of_cells(database, owner, tmp_path, cells) == []


BY_STATE: Final = {state: [odd for odd in every_odd() if odd.state == state] for state in STATES}
FEW: Final = settings(
    STORY, max_examples=STORY.max_examples // 4,
    suppress_health_check=[*STORY.suppress_health_check, HealthCheck.function_scoped_fixture],
)  # fmt: skip
ROW: Final = st.sampled_from(list(STATES)).flatmap(
    lambda state: st.lists(st.sampled_from(BY_STATE[state]), min_size=1, max_size=8, unique_by=lambda odd: odd.column)
)
NOT_TAKEN: Final = (asyncpg.UniqueViolationError, asyncpg.ProgramLimitExceededError)
"""Two values may need the same place, or more of an index than it has."""
EDITS: Final[Mapping[str, str]] = {
    "template": "'nobodys'",
    "spec": """'{"cpu": "9999G"}'""",
    "timeout_seconds": "2147483647",
    "env": """'{"PATH": "/x"}'""",
}
"""Values that the template refuses, by column."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # aiohttp's, for a Job of 1 MiB
@FEW
@given(rows=st.lists(ROW, min_size=1, max_size=6))
async def test_programs_go_on_without_rows_of_many_odd_values(
    database: Database, owner: Connection, rows: Sequence[Sequence[Odd]]
) -> None:
    await owner.execute(FORGET)
    with tempfile.TemporaryDirectory() as folder:
        async with programs(database, Path(folder)) as both:
            company = Company(both, owner)
            await company.gather([])
            for odds in rows:
                with suppress(*NOT_TAKEN):
                    company.odd.append(await write(owner, "FIRST", odds[0].state, values_of(odds)))
            assert await company.judge() == []


def values_of(odds: Sequence[Odd]) -> dict[str, str]:
    """The values by column. A row that asks for something else than others is of another kind."""
    values = {odd.column: odd.expression for odd in odds}
    return {"kind": OWN_KIND, **values} if OF_KIND & values.keys() else values


@pytest.mark.parametrize("is_known", [False, True], ids=["new kind", "known kind"])
@pytest.mark.parametrize("column", EDITS)
async def test_row_that_the_owner_edits_changes_no_other_row_of_its_kind(
    database: Database, owner: Connection, tmp_path: Path, column: str, is_known: bool
) -> None:
    await owner.execute(FORGET)
    async with programs(database, tmp_path) as both:
        if is_known:
            await write(owner, "ALIKE", "waiting", {})
            await both.cycles()
        first, odd = [await write(owner, "ALIKE", "waiting", {}) for _ in range(2)]
        admin = await database.session("admin")
        await admin.execute(f"UPDATE dispatch_private.tasks SET {column} = {EDITS[column]} WHERE id = $1", odd)
        await both.cycles()
        later = await write(owner, "ALIKE", "waiting", {})
        await both.cycles()
        assert both.complaints == []
        assert {first, odd, later} & both.launched() == {first, later}
