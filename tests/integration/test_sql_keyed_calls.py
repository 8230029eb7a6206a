"""Calls for one row, one batch, pages and newest rows, by every kind of login."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from tests.integration.queues import declare
from tests.rig.postgres import Database, PostgresServer, Record
from tests.rig.postgres_fixtures import made
from tests.rig.rows import Row, insert_row

LARGEST = 2**63 - 1
WHOLE = "SELECT * FROM dispatch.tasks ORDER BY id"
SEEN = {
    "team_a": ["a in default", "a in owned", "more of a"],
    "team_b": ["a in owned", "b in owned", "b in default"],
    "operator": ["a in default", "a in owned", "b in owned", "b in default", "more of a"],
    "observer": ["a in default", "a in owned", "b in owned", "b in default", "more of a"],
}
"""The rows that each login may see. team_b owns the queue `owned`, and is a stranger in the queue `default`."""
HIDDEN: dict[str, None] = {"payload": None, "run_digest": None}


class World:
    """Five rows of two teams in two queues, all of one batch name and with a payload; one of them runs."""

    def __init__(self, database: Database, rows: dict[str, Row]) -> None:
        self.database, self.rows = database, rows

    def seen(self, login: str) -> list[int]:
        return [self.rows[name].id for name in SEEN[login]]

    async def fetch(self, login: str, call: str, *values: object) -> list[Record]:
        places = ", ".join(f"${number}" for number in range(1, len(values) + 1))
        return await (await self.database.session(login)).fetch(f"SELECT * FROM dispatch.{call}({places})", *values)

    async def ids(self, login: str, call: str, *values: object) -> list[int]:
        return [row["id"] for row in await self.fetch(login, call, *values)]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def world(postgres: PostgresServer) -> AsyncIterator[World]:
    async with made(postgres) as database:
        await declare(database, "owned", owner_role="team_b", submit_role="dispatch_submitter")
        columns: dict[str, Any] = {"batch": "b", "payload": {"a": [1]}}
        rows = {
            "a in default": await insert_row(database, **columns),
            "a in owned": await insert_row(database, queue="owned", **columns),
            "b in owned": await insert_row(database, "team_b", queue="owned", **columns),
            "b in default": await insert_row(database, "team_b", **columns),
            "more of a": await insert_row(database, **columns),
        }
        await rows["a in owned"].started()
        yield World(database, rows)


everybody = pytest.mark.parametrize("login", SEEN)


# One row


@everybody
async def test_row_is_told_to_whoever_may_see_it(world: World, login: str) -> None:
    told = [name for name, row in world.rows.items() if await world.ids(login, "task", row.id) == [row.id]]
    assert told == SEEN[login]


@everybody
@pytest.mark.parametrize("id_", [0, -1, LARGEST, -(2**63), None])
@pytest.mark.parametrize("call", ["task", "task_explain", "task_history"])
async def test_unknown_id_has_no_row(world: World, login: str, call: str, id_: int | None) -> None:
    assert await world.fetch(login, call, id_) == []


@everybody
@pytest.mark.parametrize(("call", "key"), [("task_explain", "id"), ("task_history", "task_id")])
async def test_calls_by_id_return_the_rows_of_their_view(world: World, login: str, call: str, key: str) -> None:
    view = await (await world.database.session(login)).fetch(f"SELECT * FROM dispatch.{call} ORDER BY 1, 2, 3")
    told = {row.id: await world.fetch(login, call, row.id) for row in world.rows.values()}
    assert {id_ for id_ in told if told[id_]} == {row[key] for row in view}
    assert [row for id_ in sorted(told) for row in told[id_]] == view
    assert any(row[key] == world.rows["a in owned"].id for row in view)


@everybody
async def test_calls_tell_the_rows_of_the_view(world: World, login: str) -> None:
    """Every column, with the same types."""
    whole = await (await world.database.session(login)).fetch(WHOLE)
    assert await world.fetch(login, "tasks_after", 0) == whole
    assert sorted(await world.fetch(login, "tasks_since", whole[0]["created_at"]), key=lambda row: row["id"]) == whole
    assert [row for one in whole for row in await world.fetch(login, "task", one["id"])] == whole
    queues = {row["queue"] for row in whole}
    batches = [row for queue in sorted(queues) for row in await world.fetch(login, "tasks_of_batch", queue, "b")]
    assert sorted(batches, key=lambda row: row["id"]) == whole


@pytest.mark.parametrize(
    ("call", "values"),
    [("task", ["id"]), ("tasks_after", [0]), ("tasks_since", ["created_at"]), ("tasks_of_batch", ["queue", "batch"])],
)
async def test_observer_is_told_no_payload_and_no_run_digest(world: World, call: str, values: list[Any]) -> None:
    row = await world.rows["a in owned"].now()
    asked = [row[value] if isinstance(value, str) else value for value in values]
    for login, hidden in (("observer", HIDDEN), ("operator", {}), ("team_a", {}), ("team_b", {})):
        (found,) = [dict(one) for one in await world.fetch(login, call, *asked) if one["id"] == row["id"]]
        assert found == {name: row[name] for name in found} | hidden


# A batch


@pytest.mark.parametrize(
    ("login", "queue", "names"),
    [
        ("team_a", "default", ["a in default", "more of a"]),
        ("team_a", "owned", ["a in owned"]),
        ("team_b", "default", ["b in default"]),
        ("team_b", "owned", ["a in owned", "b in owned"]),
        ("operator", "default", ["a in default", "b in default", "more of a"]),
        ("observer", "owned", ["a in owned", "b in owned"]),
    ],
)
async def test_batch_has_the_visible_rows_by_their_ids(world: World, login: str, queue: str, names: list[str]) -> None:
    ids = [world.rows[name].id for name in names]
    assert await world.ids(login, "tasks_of_batch", queue, "b") == ids
    assert await world.ids(login, "tasks_of_batch", queue, "b", 1) == ids[:1]


@everybody
@pytest.mark.parametrize("queue", ["default", "owned"])
async def test_numbers_of_a_batch_are_those_of_the_view(world: World, login: str, queue: str) -> None:
    view = await (await world.database.session(login)).fetch(
        "SELECT * FROM dispatch.batch_status WHERE queue = $1 AND batch = 'b' ORDER BY submitted_by", queue
    )
    assert view
    assert sorted(await world.fetch(login, "batch", queue, "b"), key=lambda row: row["submitted_by"]) == view


@everybody
@pytest.mark.parametrize(
    ("queue", "batch"), [("default", "c"), ("none", "b"), ("", ""), (None, "b"), ("default", None), (None, None)]
)
async def test_unknown_batch_has_no_row(world: World, login: str, queue: str | None, batch: str | None) -> None:
    assert await world.fetch(login, "tasks_of_batch", queue, batch) == []
    assert await world.fetch(login, "batch", queue, batch) == []


# Pages


@everybody
@pytest.mark.parametrize("size", [1, 2, 100])
async def test_pages_show_every_row_once_until_the_end(world: World, login: str, size: int) -> None:
    """Also a row of its own in a queue that it owns."""
    shown: list[int] = []
    while page := await world.ids(login, "tasks_after", shown[-1] if shown else 0, size):
        assert len(page) <= size
        shown += page
    assert shown == world.seen(login)


@everybody
async def test_page_begins_behind_its_id(world: World, login: str) -> None:
    ids = world.seen(login)
    assert await world.ids(login, "tasks_after", -(2**63)) == ids
    assert await world.ids(login, "tasks_after", ids[0]) == ids[1:]
    for end in (ids[-1], LARGEST - 1, LARGEST, None):
        assert await world.ids(login, "tasks_after", end) == []


@everybody
async def test_rows_since_a_time_come_the_newest_first(world: World, login: str) -> None:
    ids = world.seen(login)
    times = [(await world.database.task(id_))["created_at"] for id_ in ids]
    assert await world.ids(login, "tasks_since", times[0]) == ids[::-1]
    assert await world.ids(login, "tasks_since", times[1]) == ids[:0:-1]
    assert await world.ids(login, "tasks_since", times[0], 2) == ids[:-3:-1]
    assert await world.ids(login, "tasks_since", times[-1] + timedelta(microseconds=1)) == []
    assert await world.ids(login, "tasks_since", None) == []


CALLS: dict[str, tuple[object, ...]] = {
    "tasks_after": (0,), "tasks_since": (None,), "tasks_of_batch": ("owned", "b"),
}  # fmt: skip


@everybody
@pytest.mark.parametrize("call", CALLS)
async def test_number_of_rows_may_be_none_or_all_and_is_never_negative(world: World, login: str, call: str) -> None:
    key = (await world.rows["a in default"].now())["created_at"]
    values = tuple(key if value is None else value for value in CALLS[call])
    assert await world.ids(login, call, *values, 0) == []
    assert await world.ids(login, call, *values, None) == await world.ids(login, call, *values)
    with pytest.raises(asyncpg.InvalidRowCountInLimitClauseError):
        await world.fetch(login, call, *values, -1)


# Code of others


ALL = """
SELECT (SELECT count(*) FROM dispatch.task(2)), (SELECT count(*) FROM dispatch.tasks_of_batch('owned', 'b')),
       (SELECT count(*) FROM dispatch.batch('owned', 'b')), (SELECT count(*) FROM dispatch.tasks_after(0)),
       (SELECT count(*) FROM dispatch.tasks_since('-infinity')), (SELECT count(*) FROM dispatch.task_explain(2)),
       (SELECT count(*) FROM dispatch.task_history(2))
"""
"""Each tells rows to team_a and to team_b."""
CODE_OF_TEAM_A = f"""
CREATE FUNCTION public.looks() RETURNS SETOF record LANGUAGE plpgsql SECURITY DEFINER AS
$$BEGIN RETURN QUERY {ALL}; END$$;
ALTER FUNCTION public.looks() OWNER TO team_a
"""
LOOK = "SELECT * FROM public.looks() AS t (a bigint, b bigint, c bigint, d bigint, e bigint, f bigint, g bigint)"


async def test_login_that_sets_another_role_is_told_no_row(world: World) -> None:
    """A right needs session_user and current_user."""
    team = await world.database.connect("team_b")
    assert all(await team.fetchrow(ALL) or [])
    await team.execute("SET ROLE dispatch_submitter")
    assert set(await team.fetchrow(ALL) or []) == {0}


async def test_code_of_another_login_is_told_no_row(world: World) -> None:
    """Such code reads neither the rows of its owner nor those of its caller."""
    await (await world.database.session("admin")).execute(CODE_OF_TEAM_A)
    team_a, team_b = await world.database.session("team_a"), await world.database.session("team_b")
    assert all(await team_a.fetchrow(LOOK) or [])
    assert set(await team_b.fetchrow(LOOK) or []) == {0}
