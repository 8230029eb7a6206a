"""Containers share a login. None makes the server tell the keys, tokens or rows of another one (THREAT_MODEL.md).

What a container's own SQL sends is planned with its constants, and the settings of the shared role may bring that into
the server's log. So our programs switch these settings off for their sessions. The SQL of an author has to do the same.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias
from uuid import UUID

import pytest
import pytest_asyncio

from dispatcher.container.contract import LaunchContract, NewestServer
from dispatcher.container.row import FAULTS, ExecReport
from dispatcher.container.row import RowConnection as ExecRow
from dispatcher.task import by_asyncpg, by_psycopg
from dispatcher.task.body import DatabaseFault
from dispatcher.task.run import SQL
from tests.integration.wall_attackers import CLOSED, SECRET, Prey, holds, prey
from tests.integration.wall_calls import KEYS, calls
from tests.integration.wall_seats import Seat, Statement
from tests.integration.wall_settings import LOUD, chosen
from tests.rig.postgres import PostgresServer
from tests.rig.rows import Row, insert_row

Asked: TypeAlias = Callable[..., Awaitable[object]]
RESULT = "a secret result"
RUNNING = "SELECT * FROM dispatch.task_start('{}', '{}', 1, 1, 'job-1', 'node-1', 'pod-1')"
"""All of it is true but the key."""
START = "SELECT run_token FROM dispatch.task_start('{}', '{}', 1, 2, 'job-2', 'node-2', 'pod-2')"


@pytest_asyncio.fixture(loop_scope="session")
async def a(postgres: PostgresServer) -> AsyncIterator[Prey]:
    async with prey(postgres) as made:
        yield made


def told(seat: Seat, statements: list[Statement]) -> str:
    """Everything that the server says while the login makes the statements with all debugging on."""
    assert all(seat.do(f"SET {setting}") for setting in LOUD)
    text = str([seat.look(one)["messages"] for one in statements])
    assert "PLANNEDSTMT" in text
    return text


async def wrong_keys(a: Prey) -> list[str]:
    """A key of nothing, and one with the true time of the row that runs."""
    return ["0" * 32, await (await a.database.session("admin")).fetchval(KEYS, a.rows[1].id)]


@pytest.mark.parametrize("login", ["team_b", "task"])
async def test_debugging_a_call_with_a_wrong_key_tells_nothing_of_the_row(a: Prey, login: str) -> None:
    seat = Seat(a.database.url(login))
    every = chosen(await calls(a.database, login, replace(a.guesses(), queues=["default"])))
    every += [Statement(RUNNING.format(a.rows[1].id, key), "call") for key in await wrong_keys(a)]
    text = told(seat, [one for one in every if one.kind != "call submit"])
    seat.close()
    secrets: list[UUID | str] = [a.token, *(row.start_key for row in a.rows), CLOSED, SECRET, "team_a"]
    assert [secret for secret in secrets if holds(text, secret)] == []


async def test_debugging_a_call_with_the_right_key_tells_no_token(a: Prey) -> None:
    seat, row = Seat(a.database.url("task")), a.rows[1]
    start = Statement(START.format(row.id, row.start_key), "call")
    assert all(seat.do(f"SET {setting}") for setting in LOUD)
    seen = seat.look(start)
    seat.close()
    answer, messages = seen["answer"], str(seen["messages"])
    assert isinstance(answer, tuple)
    token = UUID(answer[1][0])
    assert holds(messages, row.start_key), "the caller's own statement is told"
    assert [one for one in (token, a.token, CLOSED, SECRET, "team_a") if holds(messages, one)] == []


async def by_exec(row: Row, name: str, *parameters: object) -> object:
    me = row.id, str(row.start_key), 1, 1, "job-1", "node-1", "pod-1"
    contract = LaunchContract(row.database.url("task"), 60, me)
    its = ExecRow(contract)
    if name == "start":
        return await its.start()
    if name == "heartbeat":
        return await its.heartbeat(str(parameters[0]))
    return await its.finish(str(parameters[0]), ExecReport("succeeded", 0, None, json.dumps(RESULT)))


def by_library(driver: Callable[..., object]) -> Asked:
    async def asked(row: Row, name: str, *parameters: object) -> object:
        given = {
            "start": (row.id, str(row.start_key), 1, 1, "job-1", "node-1", "pod-1", "run-1"),
            "heartbeat": (*parameters, None, None),
            "finish": (*parameters, "succeeded", None, json.dumps(RESULT)),
        }[name]
        statement = (SQL / f"{name}.sql").read_text(encoding="utf-8").partition("\n")[2]
        return await asyncio.to_thread(driver, row.database.url("task"), NewestServer(), statement, given)

    return asked


BY = {"exec": by_exec, "asyncpg": by_library(by_asyncpg.ask), "psycopg": by_library(by_psycopg.ask)}
PRINTS = [f"debug_print_{what} = on" for what in ("parse", "rewritten", "plan")]
FAILS = ["log_parameter_max_length_on_error = -1", "default_transaction_read_only = on"]


async def run(row: Row, ask: Asked) -> str | None:
    """The whole run, as far as it goes. Its token."""
    with suppress(*FAULTS, DatabaseFault):
        started = await ask(row, "start")
        assert isinstance(started, tuple)
        await ask(row, "heartbeat", started[0])
        await ask(row, "finish", started[0])
        return str(started[0])
    return None


@pytest.mark.parametrize("settings", [PRINTS, FAILS], ids=["prints", "fails"])
@pytest.mark.parametrize("way", BY)
async def test_settings_of_the_shared_login_bring_no_key_into_the_log(
    a: Prey, postgres: PostgresServer, way: str, settings: list[str]
) -> None:
    postgres._owned()  # otherwise its log is out of reach
    row, admin = await insert_row(a.database, "team_a"), await a.database.session("admin")
    container = await a.database.connect("task")
    try:
        for setting in settings:
            await container.execute(f"ALTER ROLE task SET {setting}")
        start = len(postgres.log())
        token = await run(row, BY[way])
        log = postgres.log()[start:]
    finally:
        await admin.execute("ALTER ROLE task RESET ALL")
    assert (token is None) == (settings is FAILS)
    secrets: list[UUID | str] = [row.start_key, RESULT, *([UUID(token)] if token else [])]
    assert [secret for secret in secrets if holds(log, secret)] == []


async def test_own_sql_of_a_container_is_open_to_settings_of_the_shared_login(
    a: Prey, postgres: PostgresServer
) -> None:
    """The test above can fail; and an author who writes SQL has to switch the settings off."""
    postgres._owned()
    row, admin = await insert_row(a.database, "team_a"), await a.database.session("admin")
    try:
        await (await a.database.connect("task")).execute("ALTER ROLE task SET debug_print_plan = on")
        start = len(postgres.log())
        await row.start(by=await a.database.connect("task"))
        assert holds(postgres.log()[start:], row.start_key)
    finally:
        await admin.execute("ALTER ROLE task RESET ALL")
