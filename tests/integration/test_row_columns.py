"""What `render --row` and `stored_json` refuse, INSERT refuses, too; what Postgres takes is not refused."""

import json
import random
from typing import Any, Final

import asyncpg
import pytest

from dispatcher.jobs.row_check import COLUMNS, KEPT, column_faults
from dispatcher.model.stored_json import NotStoredJson, stored_json
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
    {"run_at": "2030-01-01 03:00+02"}, {"run_at": "2030-01-01"}, {"run_at": "tomorrow"}, {"run_at": None},
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
    {"spec": {"cpu": "1\n"}}, {"spec": {"memory": "1GB"}}, {"spec": {"memory": "512m"}},
    {"spec": {"private_machine": "a/b"}}, {"spec": {"special_machine": "-a"}}, {"spec": {"private_machine": "a" * 64}},
    {"spec": {"private_machine": "a\n"}}, {"run_at": 5}, {"status": "waiting"}, {"id": 1}, {"no_such": 1},
    {"template": None}, {"queue": None},
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


async def test_columns_of_the_view_may_be_set_or_are_kept_by_functions(
    database: Database,
) -> None:
    admin = await database.session("admin")
    columns = await admin.fetch(
        "SELECT attname::text AS name FROM pg_attribute "
        "WHERE attrelid = 'dispatch.tasks'::regclass AND attnum > 0 AND NOT attisdropped"
    )
    assert {column["name"] for column in columns} == COLUMNS.keys() | KEPT
    assert set(COLUMNS) == SUBMITTED


TEXTS: Final = [
    "null", "true", " 1 ", "\t\n\r[]", '{"b": 1, "aa": 2, "a": 3, "b": 4}', '{"\u00e9": 1, "z": 2, "zz": 3}',
    '"\\u00e9\\n\\/\\u0007\x7f"', '"\\ud83d\\ude00"', '{"a": {"b": [1, {"c": []}, {}]}}',
    "-0", "-0.0", "0.00", "1.50", "1.5e1", "1.50e1", "15e-1", "1E+2", "0e5", "0.0e5", "0e-3", "-1e-7",
    "12345678901234567890123", "1e400", "1e131071", "1e131072", "1e999999", "1e9999999", "1e-16383", "1e-16384",
    "0e-16384", "1" * 9000,
    "", " ", "nul", "truex", "1a", "01", "+1", "1.", ".5", "1e", "-", "NaN", "[NaN]", "Infinity", "-Infinity",
    "{", "[", "]", "}", "[1,]", "[,1]", "[1 2]", "[1}", '{"a"}', '{"a":}', '{"a":1,}', '{"a" 1}', "{1: 2}",
    "{'a': 1}", "\ufeff1", '{,"a":1}', "{} {}", "1 2", '"a',
    '"\\x"', '"\\u12"', '"\\ud800"', '"\\ude00"', '"\\ud800\\ud800"', '"\t"', '"a\nb"',
    "\u00a01", '"\\u0000"', '{"\\u0000": 1}', '"a\0b"', ":", ",", '{"a": 1, "a"}', '{"a"::1}', "[[1]",
    '{"a":[}', '"\\"', '[1,,2]', "/**/1",
]  # fmt: skip
MARKS: Final = [*'{}[],: x\\"\n', '"a"', '"b\\n"', "1", "-2.50e1", "true", "null"]


async def of_postgres(connection: Connection, text: str) -> str:
    try:
        return str(await connection.fetchval("SELECT $1::text::jsonb::text", text))
    except (asyncpg.DataError, asyncpg.exceptions.ProgramLimitExceededError) as fault:
        return f"refused: {fault.args[0]}"


def of_ours(text: str) -> str:
    try:
        return stored_json(text)
    except NotStoredJson as fault:
        return f"refused: {fault.rule}"


async def test_texts_are_stored_and_refused_as_postgres_does(database: Database) -> None:
    connection = await database.connect()
    assert {text: of_ours(text) for text in TEXTS} == {text: await of_postgres(connection, text) for text in TEXTS}


async def test_random_texts_are_stored_and_refused_as_postgres_does(database: Database) -> None:
    connection = await database.connect()
    chance = random.Random(20)
    texts = ["".join(chance.choices(MARKS, k=chance.randint(1, 7))) for _ in range(3000)]
    told = [(text, of_ours(text), await of_postgres(connection, text)) for text in texts]
    assert [one for one in told if one[1] != one[2]] == []
    assert sum(not ours.startswith("refused") for _, ours, _ in told) > 50


async def test_every_plain_character_is_written_as_postgres_writes_it(database: Database) -> None:
    connection = await database.connect()
    text = json.dumps("".join(map(chr, (*range(1, 0x3000), 0xFFFD, 0x1F600))))
    assert of_ours(text) == await of_postgres(connection, text)


async def test_depth_that_is_stored_is_stored_by_postgres(database: Database) -> None:
    """Ours is the lower bound: its last depth is stored by Postgres, and a depth that Postgres refuses is refused."""
    connection = await database.connect()
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        deep = opening * 5000 + "1" + closing * 5000
        assert of_ours(deep) == await of_postgres(connection, deep)
        deeper = opening * 30000 + "1" + closing * 30000
        assert of_ours(deeper) == await of_postgres(connection, deeper) == "refused: stack depth limit exceeded"
