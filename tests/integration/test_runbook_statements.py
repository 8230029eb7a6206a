"""The statements of the runbooks run as they are pasted, with the login of an operator."""

import asyncio
import os

import pytest

from tests.pages import RUNBOOKS, lines_for_a_cluster
from tests.postgres import Database
from tests.postgres_process import binaries

PASTED = "psql work "
STATEMENTS = [line for line in lines_for_a_cluster(*RUNBOOKS) if line.startswith(PASTED)]


@pytest.mark.parametrize("line", STATEMENTS)
async def test_statement_of_a_runbook_runs_for_an_operator(line: str, own_database: Database) -> None:
    await own_database.insert_task()
    command = line.replace(PASTED, f"psql -XqAt -v ON_ERROR_STOP=1 '{own_database.url('operator')}' ", 1)
    child = await asyncio.create_subprocess_shell(
        command, env={"PATH": f"{binaries()}:{os.environ['PATH']}"},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(30):
        _, faults = await child.communicate()
    assert (child.returncode, faults.decode()) == (0, "")


def test_every_line_of_a_runbook_is_a_command_that_a_test_runs() -> None:
    lines = lines_for_a_cluster(*RUNBOOKS)
    assert [line for line in lines if not line.startswith((PASTED, "kubectl "))] == []
    assert STATEMENTS
