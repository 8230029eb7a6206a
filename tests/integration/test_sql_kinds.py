"""Rows that are judged alike have one digest, their kind. Rows that may be judged differently have different ones."""

from typing import Any

import pytest

from tests.rig.postgres import Database

KNOWN = "INSERT INTO dispatch_private.templates (name) VALUES ('default'), ('other') ON CONFLICT DO NOTHING"
"""Rows of an unknown template are not judged at a glance."""
PLAIN: dict[str, Any] = {"env": {"A": "1", "B": "2"}}
LONG = "x" * 300
"""Longer than the values that an INSERT judges at a glance."""


async def kind_of(database: Database, **columns: Any) -> bytes:
    admin = await database.session("admin")
    await admin.execute(KNOWN)
    id_ = await database.insert_task("team_a", **columns)
    found: bytes = await admin.fetchval("SELECT kind FROM dispatch.tasks WHERE id = $1", id_)
    return found


@pytest.mark.parametrize(
    "alike",
    [
        {"env": {"B": "other", "A": ": {"}},
        {"payload": {"n": 1}, "priority": 7, "cache_key": "k", "batch": "b"},
    ],
    ids=str,
)
async def test_values_and_marks_make_no_other_kind(database: Database, alike: dict[str, Any]) -> None:
    assert await kind_of(database, **PLAIN) == await kind_of(database, **(PLAIN | alike))


async def test_kind_of_a_plain_row_is_a_part_of_the_statement_that_inserts_it(database: Database) -> None:
    """A call of the function would be a sixth of an INSERT of many rows."""
    rows = "SELECT dispatch_private.plain_kind(row, row) FROM unnest(ARRAY['a', 'b']) AS row"
    plan = await (await database.session("admin")).fetch(f"EXPLAIN (VERBOSE, COSTS false) {rows}")
    assert [line[0] for line in plan if "plain_kind" in line[0]] == []


async def test_long_values_are_of_one_kind_too(database: Database) -> None:
    first, second = ({"env": {"A": f"{LONG}{end}", "B": "2"}} for end in "ab")
    assert await kind_of(database, **first) == await kind_of(database, **second)


@pytest.mark.parametrize(
    "other",
    [
        {"env": {"A": "1"}},
        {"env": {"A": "1", "B": "2", "C": "3"}},
        {"env": {"AB": "1"}},
        {"env": {}},
        {"template": "other"},
        {"timeout_seconds": 60},
        {"spec": {"args": ["a"]}},
        {"env": {"A": LONG}},
        {"env": {"A": LONG, "C": "2"}},
    ],
    ids=lambda other: str(other)[:60],
)
async def test_other_names_another_template_and_other_fields_make_another_kind(
    database: Database, other: dict[str, Any]
) -> None:
    assert await kind_of(database, **PLAIN) != await kind_of(database, **(PLAIN | other))
