"""What our functions answer does not depend on how a session reads texts, names, times and nulls."""

from __future__ import annotations

from collections.abc import Awaitable

import pytest

from dispatcher.pg.queries import query
from tests.rig.postgres import Connection, Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import CANCEL, FINISH, HEARTBEAT, RETRY, insert_row

database = one_database

SETTINGS = (
    "standard_conforming_strings = off", "backslash_quote = off", "transform_null_equals = on",
    "quote_all_identifiers = on", "DateStyle = 'German, DMY'", "IntervalStyle = sql_standard",
    "TimeZone = 'Pacific/Apia'", "bytea_output = escape", "extra_float_digits = -15", "array_nulls = off",
    "xmloption = document", "plpgsql.variable_conflict = use_variable",
)  # fmt: skip
CALLS = {
    "subdomain(one)": ["node-1", "a.b", "a\x1bc", "aXb", "a..b", "a\\.b"],
    "quantity(one)": ["1.5", "1x5", "500m", "1\\.5"],
    "matches_one(one, ARRAY['team_a/*', 'a!b?', 'c%'])": ["team_a/x", "teamXa/x", "a!bc", "a!b", "c%", "cc", "a\\bc"],
    "plain_note(one)": ["a\x1b[31mb", "c\u202ed", "x01-x1f", "u202e\\"],
    "is_plain_env(one)": [
        '{"A": "b"}', '{"A": "b\\\\c"}', '{"HTTP_PROXY": "x"}', '{"npm_config_x": "y"}', '{"a-b": "c"}', "{}",
    ],
    "is_trusted(one)": ["PATH", "path", "MONTH", "any_proxy", "PGHOST"],
}  # fmt: skip


async def answers(database: Database, setting: str = "") -> list[object]:
    """In a session of its own: the body of a function is read once in each."""
    connection = await database.connect("admin")
    if setting:
        await connection.execute(f"SET {setting}")
    return [
        await connection.fetchval(f"SELECT jsonb_agg(dispatch_private.{call}) FROM unnest($1::text[]) AS one", given)
        for call, given in CALLS.items()
    ]


@pytest.mark.parametrize("setting", SETTINGS)
async def test_answers_are_the_same_with_any_setting_of_the_session(database: Database, setting: str) -> None:
    assert await answers(database, setting) == await answers(database)


async def test_node_name_of_a_container_is_checked_whatever_its_session_sets(database: Database) -> None:
    connection = await database.connect("admin")
    await connection.execute("SET standard_conforming_strings = off")
    assert await connection.fetchval("SELECT dispatch_private.subdomain($1)", "a\x1bc") is None


async def test_state_that_somebody_is_told_is_on_disk_although_commits_need_not_wait(database: Database) -> None:
    """Without it a crash of the server takes back a start or a report, and the work runs twice. A heartbeat may go."""
    task, team, janitor = [await database.connect(login) for login in ("task", "team_a", "janitor")]
    for session in (task, team, janitor):
        await session.execute("SET synchronous_commit = off")

    async def commit_waits(session: Connection, call: Awaitable[object]) -> bool:
        async with session.transaction():
            await call
            return bool(await session.fetchval("SHOW synchronous_commit") == "local")

    row = await insert_row(database)
    started = await row.start()
    assert started is not None
    other = await insert_row(database)
    assert await commit_waits(task, other.start(by=task))
    assert not await commit_waits(task, task.fetch(HEARTBEAT, started.run_token))
    assert await commit_waits(task, task.fetch(FINISH, started.run_token, "failed", "no", None, None))
    assert await commit_waits(team, team.fetch(RETRY, row.id, None))
    assert await commit_waits(team, team.fetch(CANCEL, row.id, None))
    ended = await insert_row(database)
    assert await commit_waits(janitor, janitor.fetch(query("end", "janitor"), ended.id, 1, 0, None, "failed", "no"))
    assert await task.fetchval("SHOW synchronous_commit") == "off"
