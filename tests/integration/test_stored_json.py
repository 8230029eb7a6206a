"""`stored_json` beside Postgres: both store the same texts in the same form, and refuse the others alike."""

import json
import random
from typing import Final

import asyncpg

from dispatcher.model.stored_json import NotStoredJson, stored_json
from tests.rig.postgres import Connection, Database
from tests.rig.postgres_fixtures import one_database

database = one_database

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
