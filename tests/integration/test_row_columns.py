"""What `render --row` refuses, INSERT refuses, too; what INSERT takes is not refused."""

from typing import Any, Final

import asyncpg
import pytest

from dispatcher.jobs.row_check import COLUMNS, KEPT, column_faults
from tests.integration.columns import SUBMITTED
from tests.rig.postgres import Connection, Database
from tests.rig.postgres_fixtures import one_database

database = one_database
GOOD: Final[list[dict[str, Any]]] = [
    {"priority": 0}, {"priority": 1000}, {"timeout_seconds": None}, {"timeout_seconds": 604800}, {"max_failures": 100},
    {"max_failures": None},
    {"env": {"A": "", "_b": "x"}}, {"env": {f"N{n}": "x" for n in range(64)}}, {"cache_key": "k" * 200},
    {"cache_key": None},
    {"batch": "b", "labels": {"n" * 63: "v" * 200}}, {"labels": {str(n): "" for n in range(16)}}, {"payload": None},
    {"payload": [1, {"a": "b"}]}, {"template": "a-1"}, {"run_at": "2030-01-01T00:00:00Z"}, {"dedupe_key": "d"},
    {"spec": {"image": "r/a:1@x", "command": [], "args": ["$A"], "cpu": "0.5", "memory": "1Gi"}},
    {"spec": {"special_machine": "A_1", "private_machine": "a"}},
]  # fmt: skip
BAD: Final[list[dict[str, Any]]] = [
    {"priority": -1}, {"priority": 1001}, {"priority": None}, {"timeout_seconds": 0}, {"timeout_seconds": 604801},
    {"max_failures": 0}, {"max_failures": 101}, {"env": {"A": 1}}, {"env": {"A": None}}, {"env": ["A"]}, {"env": None},
    {"env": {f"N{n}": "x" for n in range(65)}}, {"cache_key": ""}, {"cache_key": "k" * 201}, {"dedupe_key": ""},
    {"batch": ""}, {"batch": "b" * 201}, {"labels": []}, {"labels": {"": "x"}}, {"labels": {"a": 1}},
    {"labels": {"a" * 64: "x"}}, {"labels": {"a": "x" * 201}}, {"labels": {str(n): "" for n in range(17)}},
    {"spec": None}, {"spec": []}, {"spec": {"foo": 1}}, {"spec": {"image": ""}}, {"spec": {"image": "a b"}},
    {"spec": {"image": "a\n"}}, {"spec": {"image": "a" * 513}}, {"spec": {"command": "a"}}, {"spec": {"args": [1]}},
    {"spec": {"args": ["x"] * 1001}}, {"spec": {"cpu": 1}}, {"spec": {"cpu": "1e3"}}, {"spec": {"cpu": "-1"}},
    {"spec": {"cpu": "1\n"}}, {"spec": {"memory": "1GB"}}, {"spec": {"private_machine": "a/b"}},
    {"spec": {"special_machine": "-a"}}, {"spec": {"private_machine": "a" * 64}}, {"spec": {"private_machine": "a\n"}},
    {"status": "waiting"}, {"id": 1}, {"no_such": 1}, {"template": None}, {"queue": None},
]  # fmt: skip


@pytest.mark.parametrize("row", GOOD, ids=str)
async def test_row_that_insert_takes_has_no_fault(database: Database, row: dict[str, Any]) -> None:
    assert list(column_faults(row)) == []
    assert await refusal(await database.session("team_a"), row) == ""


@pytest.mark.parametrize("row", BAD, ids=str)
async def test_row_with_a_fault_is_refused_by_insert(database: Database, row: dict[str, Any]) -> None:
    assert list(column_faults(row))
    assert await refusal(await database.session("team_a"), row)


async def refusal(team: Connection, row: dict[str, Any]) -> str:
    """Postgres reads the columns of the JSON itself, with the types of the table."""
    names = ", ".join(row)
    values = f"SELECT {names} FROM jsonb_populate_record(NULL::dispatch.tasks, $1::jsonb)"
    insert = f"INSERT INTO dispatch.tasks ({names}) {values}"
    try:
        await team.execute(insert, row)
    except asyncpg.PostgresError as fault:
        return str(fault)
    return ""


async def test_columns_of_the_view_are_those_that_a_row_may_set_and_those_that_functions_keep(
    database: Database,
) -> None:
    admin = await database.session("admin")
    columns = await admin.fetch(
        "SELECT attname::text AS name FROM pg_attribute "
        "WHERE attrelid = 'dispatch.tasks'::regclass AND attnum > 0 AND NOT attisdropped"
    )
    assert {column["name"] for column in columns} == COLUMNS.keys() | KEPT
    assert set(COLUMNS) == SUBMITTED
