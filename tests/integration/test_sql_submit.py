"""`submit`: an array of rows in one call. Its rows are those of as many INSERTs, all of them or none."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from dispatcher.jobs.row_check import KEPT
from tests.integration.bringing import TEMPLATES, bring, some_rows
from tests.integration.queues import declare
from tests.integration.queues import refusal as refusal_of_insert
from tests.rig.postgres import Connection, Database, PostgresServer
from tests.rig.postgres_fixtures import made
from tests.rig.rows import insert_row

SUBMIT = "SELECT dispatch.submit($1)"
COUNT = "SELECT count(*) FROM dispatch_private.tasks"
SECRET = "s3cret-marker"
UNJUDGED = "INSERT INTO dispatch_private.templates (name) VALUES ('default')"
"""A template with a fault: it refuses no row."""
LONG_AGO = "SELECT setval('dispatch_private.tasks_clock_' || n, 1) FROM generate_series(0, 15) AS n"
PLAIN: list[dict[str, Any]] = [
    {}, {"priority": 7}, {"env": {"A": "1"}, "payload": [1, {"b": None}]}, {"cache_key": "c", "batch": "b"},
    {"queue": "other", "max_failures": 1}, {"payload": "x" * 1000},
]  # fmt: skip
OTHERS: list[dict[str, Any]] = [
    {"spec": {"cpu": "1"}}, {"labels": {"a": "b"}}, {"timeout_seconds": 60}, {"env": {"A": "x" * 300}},
    {"env": {"PATH": "/bin"}}, {"dedupe_key": "k"}, {"labels": {"a": "b"}, "spec": {"args": ["x"]}, "priority": 0},
]  # fmt: skip
FAULTS: list[tuple[dict[str, Any], str, str]] = [
    ({"priority": 5000}, "DI004", "priority 5000 is out of range"),
    ({"priority": None}, "DI004", "priority NULL is out of range"),
    ({"max_failures": 2**31 - 1}, "DI004", f"max_failures {2**31 - 1} is out of range"),
    ({"timeout_seconds": 2**40}, "DI004", f"timeout_seconds {2**40} is out of range"),
    ({"run_at": "infinity"}, "DI004", "run_at infinity is out of range"),
    ({"run_at": "0001-01-01 00:00+00"}, "DI004", "run_at 0001-01-01 00:00:00+00 is out of range"),
    ({"queue": "othre"}, "DI003", 'queue "othre" is not declared'),
    ({"queue": "*"}, "DI003", "queue is not declared"),
    ({"queue": "closed"}, "DI003", 'you may not insert into the queue "closed"'),
    ({"env": {"TASK_ID": SECRET}}, "DI001", "env.TASK_ID is closed to rows"),
    ({"env": {"A": 5, "B": SECRET}}, "DI001", 'the value of "A" in env must be a string'),
    ({"env": None}, "DI001", "env must be a JSON object of strings, not NULL"),
    ({"env": '{"A": "1"}'}, "DI001", "env must be a JSON object of strings, not a JSON string (encoded twice?)"),
    ({"spec": []}, "DI002", "spec must be a JSON object, not a JSON array"),
    ({"labels": "{}"}, "DI008", "labels must be a JSON object of strings, not a JSON string (encoded twice?)"),
    ({"spec": {"imagee": SECRET}}, "DI002", 'spec has no field "imagee"'),
    ({"spec": {"cpu": 2}}, "DI002", "spec.cpu 2 is not usable"),
    ({"spec": {"cpu": "2x"}}, "DI002", 'spec.cpu "2x" is not usable'),
    ({"cache_key": SECRET.ljust(201)}, "DI005", "cache_key has 201 characters"),
    ({"dedupe_key": ""}, "DI005", "dedupe_key has 0 characters"),
    ({"template": "Odd"}, "DI006", 'template "Odd" is not the name of a template'),
    ({"payload": SECRET.ljust(2**20)}, "DI007", "payload is larger than 1 MiB"),
    ({"batch": ""}, "DI008", "batch has 0 characters"),
    ({"labels": {"a": 1}}, "DI008", 'the value of "a" in labels must be a string'),
]


@pytest_asyncio.fixture(
    scope="module", loop_scope="session", params=["SELECT", UNJUDGED], ids=["no templates", "known templates"]
)
async def database(postgres: PostgresServer, request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    """Plain rows of known templates are inserted by one statement, others one by one."""
    async with made(postgres) as created:
        await (await created.session("admin")).execute(request.param)
        await declare(created, "other")
        await declare(created, "closed", submit_role="team_b")
        yield created


async def submit(database: Database, rows: object, login: str = "team_a") -> list[int]:
    return [row[0] for row in await (await database.session(login)).fetch(SUBMIT, rows)]


async def refusal(database: Database, rows: object) -> asyncpg.PostgresError:
    """The refusal; fails if it leaves a row behind."""
    admin = await database.session("admin")
    before = await admin.fetchval(COUNT)
    with pytest.raises(asyncpg.PostgresError) as refused:
        await submit(database, rows)
    assert await admin.fetchval(COUNT) == before
    return refused.value


# What comes of an array


ARRAYS = [PLAIN, OTHERS, [*PLAIN, *OTHERS], [*OTHERS, *PLAIN], *([{}, columns] for columns in OTHERS)]


@pytest.mark.parametrize("rows", ARRAYS, ids=lambda rows: str(rows)[:80])
async def test_rows_of_an_array_are_those_of_as_many_inserts(database: Database, rows: list[dict[str, Any]]) -> None:
    rows = [columns | dict.fromkeys(columns.keys() & {"dedupe_key"}, secrets.token_hex(4)) for columns in rows]
    ids = await submit(database, rows)
    assert ids == sorted(set(ids))
    for id_, columns in zip(ids, rows, strict=True):
        submitted = dict(await database.task(id_))
        inserted = dict(await database.task((await insert_row(database, "team_b", **columns)).id))
        assert {name for name in submitted if submitted[name] != inserted[name]} == {"id", "created_at", "submitted_by"}
        assert submitted["submitted_by"] == "team_a"
        assert {name: submitted[name] for name in columns} == columns


async def test_a_time_is_read_as_json_writes_it(database: Database) -> None:
    (id_,) = await submit(database, [{"run_at": "2030-01-02T03:04:05.678901+02:00"}])
    assert (await database.task(id_))["run_at"].isoformat() == "2030-01-02T01:04:05.678901+00:00"


@pytest.mark.parametrize("more", [{}, {"labels": {"a": "b"}}], ids=["plain", "other"])
async def test_ids_come_in_the_order_of_the_array(database: Database, more: dict[str, Any]) -> None:
    """Neither by priority nor by anything else that an index has."""
    priorities = [(n * 7919) % 1001 for n in range(500)]
    ids = await submit(database, [{"priority": priority, **more} for priority in priorities])
    assert [(await database.task(id_))["priority"] for id_ in ids[::25]] == priorities[::25]
    assert ids == sorted(set(ids))


async def test_array_without_a_row_has_no_ids(database: Database) -> None:
    assert await submit(database, []) == []


async def test_rows_of_a_live_dedupe_key_are_one_row(database: Database) -> None:
    first, second, other = await submit(database, [{"dedupe_key": "one"}, {"dedupe_key": "one", "priority": 1}, {}])
    assert (first, (await database.task(first))["priority"]) == (second, 100)
    assert other != first
    again, new = await submit(database, [{"dedupe_key": "one"}, {}])
    assert (again, new > other) == (first, True)


async def test_row_belongs_to_the_login_and_runs(database: Database) -> None:
    (id_,) = await submit(database, [{"payload": {"month": 7}}], "team_b")
    task, team = await database.task(id_), await database.session("team_b")
    assert task["submitted_by"] == "team_b"
    assert await team.fetchval("SELECT payload FROM dispatch.task($1)", id_) == {"month": 7}
    assert await (await database.session("team_a")).fetch("SELECT * FROM dispatch.task($1)", id_) == []


# What is refused


@pytest.mark.parametrize(("columns", "code", "message"), FAULTS)
async def test_fault_is_told_with_the_place_of_its_row_and_no_row_is_inserted(
    database: Database, postgres: PostgresServer, columns: dict[str, Any], code: str, message: str
) -> None:
    logged = postgres.log()
    for place, rows in ((1, [columns]), (3, [{"priority": 1}, {"labels": {"a": "b"}}, columns, {}])):
        error = await refusal(database, rows)
        assert (error.sqlstate, error.message) == (code, f"element {place} of tasks: {message}")
        assert (error.column_name, error.table_name) == (next(iter(columns)), "tasks")
        assert error.hint
        assert SECRET not in str(error.as_dict())
    assert SECRET not in postgres.log().removeprefix(logged)


async def test_submit_refuses_what_insert_refuses(own_database: Database) -> None:
    """With the same words behind the place of the row. A row is submitted alone, and behind one that is plain."""
    await bring(own_database, TEMPLATES)
    team = await own_database.session("team_a")
    for row in some_rows(300, seed=23):
        error = await refusal_of_insert(own_database, "team_a", **row)
        for rows in ([row], [{}, row]):
            told = await refusal_of_submit(team, rows)
            assert (told is None) == (error is None), (row, told, error)
            if told and error:
                assert told.message == f"element {len(rows)} of tasks: {error.message}"
                assert (told.sqlstate, told.column_name, told.hint) == (error.sqlstate, error.column_name, error.hint)


async def refusal_of_submit(team: Connection, rows: list[dict[str, Any]]) -> asyncpg.PostgresError | None:
    try:
        await team.fetch("SELECT dispatch.submit($1)", rows)
    except asyncpg.PostgresError as error:
        return error
    return None


@pytest.mark.parametrize("field", sorted(KEPT))
@pytest.mark.parametrize("value", ["1", None], ids=["a value", "null"])
async def test_field_that_the_functions_keep_is_refused(database: Database, field: str, value: object) -> None:
    error = await refusal(database, [{}, {field: value}])
    assert error.sqlstate == "DI010"
    assert f'"{field}"' in str(error)
    assert "queue, priority, run_at" in (error.hint or "")


async def test_unknown_field_is_refused_with_the_nearest_name(database: Database) -> None:
    error = await refusal(database, [{"priorty": 1}])
    assert (error.sqlstate, error.message) == ("DI010", 'element 1 of tasks: a task has no field "priorty" to set')
    assert 'nearest name is "priority"' in (error.hint or "")
    error = await refusal(database, [{f"{SECRET} is no name": 1}])
    assert SECRET not in str(error.as_dict())


@pytest.mark.parametrize(
    "nonsense", [{}, {"queue": "default"}, "x", 1, True, [1], [[]], [None], [{}, "x"], ["{}"]], ids=str
)
async def test_anything_but_an_array_of_objects_is_refused(database: Database, nonsense: object) -> None:
    error = await refusal(database, nonsense)
    assert (error.sqlstate, bool(error.hint)) == ("22023", True)
    if nonsense == "nonsense":
        assert error.message == "tasks are a JSON array of objects, not a JSON string (encoded twice?)"
    if nonsense == [{}, "x"]:
        assert error.message == "element 2 of tasks is no object"


@pytest.mark.parametrize("nothing", ["NULL", "'null'"])
async def test_null_is_refused(database: Database, nothing: str) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError):
        await (await database.session("team_a")).fetch(f"SELECT dispatch.submit({nothing}::jsonb)")


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        ({"priority": "high"}, "integer"),
        ({"priority": 10**12}, "integer"),
        ({"max_failures": 1.5}, "integer"),
        ({"run_at": "soon"}, "timestamp with time zone"),
        ({"timeout_seconds": {}}, "bigint"),
    ],
    ids=str,
)
async def test_value_of_another_type_leaves_no_row(database: Database, columns: dict[str, Any], kind: str) -> None:
    error = await refusal(database, [{}, columns])
    told = f"element 2 of tasks: {next(iter(columns))} is not of the type {kind}"
    assert (error.sqlstate, error.message) == ("22023", told)


# Bounds and wake-ups


async def bounded_queue(database: Database, most: int) -> str:
    """The name of a new queue in which a submitter may have so many waiting rows."""
    name = f"bounded-{secrets.token_hex(4)}"
    await declare(database, name, max_waiting_per_submitter=most)
    return name


async def test_array_beyond_the_bound_of_a_queue_is_refused_as_a_whole(database: Database) -> None:
    large, small = await bounded_queue(database, 3), await bounded_queue(database, 1)
    full = [*[{"queue": large}] * 3, {}, {"queue": small}]
    for rows in ([{"queue": large}] * 4, [*full, {"queue": small}]):
        error = await refusal(database, rows)
        assert (error.sqlstate, error.column_name) == ("DI009", "queue")
        assert "max_waiting_per_submitter" in (error.hint or "")
    assert len(await submit(database, full)) == 5
    assert (await refusal(database, [{}, {"queue": large}])).sqlstate == "DI009"
    assert len(await submit(database, full, "team_b")) == 5, "the rows of others do not count"


async def test_row_of_a_live_key_does_not_count_against_the_bound(database: Database) -> None:
    row = {"queue": await bounded_queue(database, 1), "dedupe_key": "k"}
    (id_,) = await submit(database, [row])
    assert await submit(database, [row, row]) == [id_, id_]


@pytest_asyncio.fixture(loop_scope="session")
async def heard(database: Database) -> AsyncIterator[asyncio.Queue[str]]:
    """The channels that were notified."""
    told: asyncio.Queue[str] = asyncio.Queue()
    connection = await database.connect("reader")
    await connection.add_listener("dispatch_tasks", lambda *one: told.put_nowait(one[2]))
    yield told
    connection.terminate()


@pytest.mark.parametrize("rows", [[{}] * 20, [{"labels": {"a": "b"}}] * 20], ids=["plain", "other"])
async def test_array_wakes_the_dispatcher_once_when_it_is_committed(
    database: Database, heard: asyncio.Queue[str], rows: list[dict[str, Any]]
) -> None:
    await (await database.session("admin")).execute(LONG_AGO)
    team: Connection = await database.session("team_a")
    async with team.transaction():
        await team.fetch(SUBMIT, rows)
        assert heard.empty()
    async with asyncio.timeout(5):
        assert await heard.get() == "dispatch_tasks"
    await (await database.session("admin")).execute(LONG_AGO)
    await team.fetch("SELECT 1")
    assert heard.empty()
