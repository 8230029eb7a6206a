"""The statements of the runbooks run as they are pasted, with the login of an operator."""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.rig.pages import RUNBOOKS, lines_for_a_cluster
from tests.rig.postgres import Database
from tests.rig.postgres_process import binaries

PASTED = "psql work "
STATEMENTS = [line for line in lines_for_a_cluster(*RUNBOOKS) if line.startswith(PASTED)]


@pytest.mark.parametrize("line", STATEMENTS)
async def test_statement_of_a_runbook_runs_for_an_operator(line: str, own_database: Database) -> None:
    await own_database.insert_task()
    await pasted(line, own_database)


async def test_row_of_the_reason_gets_another_attempt_and_no_other_row_does(own_database: Database) -> None:
    ids = [await own_database.insert_task(login) for login in ("team_a", "team_b", "team_a")]
    admin = await own_database.session("admin")
    told = "INSERT INTO dispatch_private.task_reasons VALUES ($1, $2, $3, 'words', now())"
    await admin.executemany(told, [(ids[0], 1, "Poison"), (ids[1], 1, "InLine"), (ids[2], 2, "Poison")])
    (retry,) = [line for line in STATEMENTS if "task_retry" in line]
    assert await pasted(retry, own_database) == f"{ids[0]}|waiting\n", "the last one was told of another attempt"
    assert [(await own_database.task(one))["attempt"] for one in ids] == [2, 1, 1]
    assert await pasted(retry, own_database) == ""


async def test_oldest_waiting_rows_of_a_queue_are_explained_in_their_order(own_database: Database) -> None:
    ids = [await own_database.insert_task() for _ in range(12)]
    await (await own_database.session("team_a")).execute("SELECT dispatch.task_cancel($1)", ids[0])
    (oldest,) = [line for line in STATEMENTS if "FROM dispatch.task_explain" in line and "task_retry" not in line]
    told = (await pasted(oldest, own_database)).splitlines()
    assert [line.split("|")[:2] for line in told] == [[str(one), "Unjudged"] for one in ids[1:11]]


async def pasted(line: str, database: Database) -> str:
    """What the statement prints for an operator. It must succeed."""
    command = line.replace(PASTED, f"psql -XqAt -v ON_ERROR_STOP=1 '{database.url('operator')}' ", 1)
    child = await asyncio.create_subprocess_shell(
        command, env={"PATH": f"{binaries()}:{os.environ['PATH']}"},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(30):
        said, faults = await child.communicate()
    assert (child.returncode, faults.decode()) == (0, "")
    return said.decode()


def test_every_line_of_a_runbook_is_a_command_that_a_test_runs() -> None:
    lines = lines_for_a_cluster(*RUNBOOKS)
    assert [line for line in lines if not line.startswith((PASTED, "kubectl "))] == []
    assert STATEMENTS
