"""The statements on the pages, run by psql and by drivers as a reader of the page would run them."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest_asyncio

from dispatcher.local.postgres import SUPERUSER
from tests.house.tree import ROOT
from tests.pages import OPERATOR, SUBMITTER, find_block, read_page
from tests.postgres import Database, connect
from tests.postgres_process import Folder, Postmaster, binaries
from tests.rows import insert_row

TASK = 42
"""The id of the row on all pages."""
PASSWORD = "…"
"""The password of every login on the operator's page."""


async def run(*command: str, given: str = "", **environ: str) -> str:
    """Runs a command in the checkout. Returns its output. It must end with 0 and print no fault."""
    env = {"PATH": f"{binaries()}:{os.environ['PATH']}", "PGCLIENTENCODING": "UTF8", **environ}
    child = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=env, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    async with asyncio.timeout(30):
        out, err = await child.communicate(given.encode())
    assert (child.returncode, err.decode()) == (0, ""), out.decode()
    return out.decode()


async def psql(url: str, statements: str) -> list[str]:
    """Lines of the answers of psql; columns are separated by `|`."""
    return (await run("psql", "-XqAt", "-v", "ON_ERROR_STOP=1", url, given=statements)).splitlines()


def statements_of(page: str, beginning: str) -> list[str]:
    """The statements within the sentences of a page that begin with these words."""
    return re.findall(rf"`({beginning}\b[^`;]*);?`", read_page(page))


@pytest_asyncio.fixture(loop_scope="session")
async def told(database: Database) -> Database:
    """A database whose next row has the id of the pages, and a queue that they name."""
    admin = await database.session("admin")
    await admin.execute(f"ALTER TABLE dispatch.tasks ALTER COLUMN id RESTART WITH {TASK}")
    await admin.execute("INSERT INTO dispatch.queues (name) VALUES ('reports')")
    return database


async def test_statements_of_the_readme_insert_and_show_a_row(told: Database) -> None:
    assert await psql(told.url("team_a"), find_block("README.md", "INSERT")) == [str(TASK), "waiting|1|"]
    row = await told.task(TASK)
    assert (row["queue"], row["env"], row["payload"]) == ("default", {"REGION": "eu"}, {"rows": [1, 2, 3]})


async def test_calls_of_the_readme_run_a_row(told: Database) -> None:
    start, heartbeat, finish = re.findall(r"^SELECT [^;]+", find_block("README.md", "SELECT"), re.MULTILINE)
    task_id, task = await told.insert_task(payload=17), await told.session("task")
    key = await told.start_key(task_id)
    (row,) = await task.fetch(start, task_id, key, 1, 1, "a-job", "a-node", "a-pod")
    assert row["payload"] == 17
    assert await task.fetchval(heartbeat, row["run_token"]) == "continue"
    assert await task.fetchval(finish, row["run_token"]) == "succeeded"
    assert await task.fetch(start, task_id, key, 1, 2, "another-job", "a-node", "another-pod") == []


async def test_statements_of_the_submitters_page_work_on_a_row(told: Database) -> None:
    team = told.url("team_a")
    assert await psql(team, find_block(SUBMITTER, "INSERT")) == [str(TASK)]
    row = await told.task(TASK)
    assert (row["queue"], row["spec"], row["dedupe_key"]) == (
        "reports",
        {"cpu": "2", "memory": "4Gi"},
        "report-2026-10",
    )
    _, _, look, cancel, retry = statements_of(SUBMITTER, "SELECT")
    (shown,) = await psql(team, look)
    assert shown.startswith(f"{TASK}|reports|")
    assert [await psql(team, cancel), await psql(team, cancel)] == [["cancelled"], ["cancelled"]]
    assert len(await psql(team, retry)) == 1
    assert ((await told.task(TASK))["status"], (await told.task(TASK))["attempt"]) == ("waiting", 2)


async def test_submitter_asks_why_a_row_waits(told: Database) -> None:
    assert await told.insert_task() == TASK
    (line,) = await psql(told.url("team_a"), find_block(SUBMITTER, "SELECT reason"))
    assert line.startswith("InLine|nobody|the dispatcher has not reported yet; other rows come first|1|1|")
    next_step, queues, *_ = statements_of(SUBMITTER, "SELECT")
    assert await psql(told.url("team_a"), next_step) == [
        "nothing until a Job of the queue ends, or raise queues.max_jobs"
    ]
    assert await psql(told.url("team_a"), queues) == [], "the dispatcher tells of queues"


async def test_submitter_asks_what_became_of_the_launches_of_a_row(told: Database) -> None:
    row = await insert_row(told)
    await row.finish(await row.started(), "failed", error="no disk")
    assert row.id == TASK
    assert await psql(told.url("team_a"), find_block(SUBMITTER, "SELECT attempt")) == ["1|1|failed|||no disk"]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def installed() -> AsyncIterator[Postmaster]:
    """A server with the database `work`, after the first block of the operator's page and `dispatcher migrate`.

    The server is not that of other tests: the page creates logins, and logins belong to the whole server.
    """
    folder = Folder()
    server = Postmaster(folder, "installed")
    try:
        await server.initialise()
        await server.start()
        await psql(server.admin_url, "CREATE DATABASE work")
        connected = {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": SUPERUSER}
        await run("sh", "-euc", find_block(OPERATOR, "psql"), PGPASSWORD=server.home.password, **connected)
        await dispatcher(server, "dispatcher_migrate", "migrate")
        yield server
    finally:
        await server.stop(immediately=True)
        folder.close()


def url_of(server: Postmaster, login: str) -> str:
    account = f"{SUPERUSER}:{server.home.password}" if login == SUPERUSER else f"{login}:{quote(PASSWORD)}"
    return f"postgresql://{account}@127.0.0.1:{server.port}/work"


async def dispatcher(server: Postmaster, login: str, *arguments: str) -> str:
    settings = {
        "DISPATCHER_DATABASE_URL": url_of(server, login),
        "DISPATCHER_IMAGE": "x",
        "DISPATCHER_LOG_LEVEL": "error",
    }
    return await run(sys.executable, "-m", "dispatcher", *arguments, **settings)


async def ask(server: Postmaster, login: str, query: str, *parameters: object) -> Any:
    connection = await connect(url_of(server, login))
    try:
        return await connection.fetchval(query, *parameters)
    finally:
        await connection.close()


async def test_logins_of_the_operators_page_do_their_work(installed: Postmaster) -> None:
    task_id = await ask(installed, "team_a", "INSERT INTO dispatch.tasks DEFAULT VALUES RETURNING id")
    assert "kind: Job" in await dispatcher(installed, "dispatcher", "render", str(task_id))
    key = await ask(installed, SUPERUSER, "SELECT dispatch.start_keys(id, created_at) FROM dispatch.tasks")
    start = "SELECT run_token FROM dispatch.task_start($1, $2, 1, 1, 'a-job', 'a-node', 'a-pod')"
    token = await ask(installed, "task", start, task_id, key)
    assert await ask(installed, "task", "SELECT dispatch.task_finish($1, 'succeeded')", token) == "succeeded"
    assert await ask(installed, "dispatcher_janitor", "SELECT status FROM dispatch.tasks") == "succeeded"


async def test_statements_of_the_operators_page_change_roles_and_queues(installed: Postmaster) -> None:
    admin = url_of(installed, SUPERUSER)
    (declare,) = statements_of(OPERATOR, "INSERT")
    (pause,) = statements_of(OPERATOR, "UPDATE")
    (rotate,) = statements_of(OPERATOR, "SELECT")
    moving = re.findall(r'^psql work -c "(.*)"$', read_page(OPERATOR), re.MULTILINE)
    assert len(moving) == 2
    block = find_block(OPERATOR, "REVOKE")
    for statement in (declare, block, pause, moving[0], find_block(OPERATOR, "UPDATE")):
        await psql(admin, statement)
    queues = """SELECT name, submit_role, max_waiting_per_submitter, paused_until, weight, fair_submitters
                FROM dispatch.queues ORDER BY name"""
    assert await psql(admin, queues) == [
        "*||100000|infinity|1|f", "default||||1|f", "reports|team_a||infinity|3|t"
    ]  # fmt: skip
    await psql(admin, moving[1])
    assert (await psql(admin, queues))[0] == "*||100000||1|f"
    assert await psql(admin, "SELECT rolconnlimit FROM pg_roles WHERE rolname = 'team_a'") == ["20"]
    assert await ask(installed, "task_team_a", "SELECT current_user") == "task_team_a"
    await psql(url_of(installed, "dispatcher_migrate"), rotate)
