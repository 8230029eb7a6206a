"""The tutorial, step by step: its files are written into a folder, and its commands are pasted there."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import msgspec
import pytest

from dispatcher.jobs.offered import offered_templates
from dispatcher.jobs.templates import parse_template
from tests.integration.installing import TASK, psql
from tests.rig.pages import blocks_of, find_block, read_page
from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database

database = one_database
PAGE = "docs/tutorial.md"


def file_of(language: str) -> str:
    """The text of the page's one block in this language."""
    (found,) = [block.text for block in blocks_of(PAGE, read_page(PAGE)) if block.language == language]
    return found


@pytest.fixture(name="folder")
def make_folder(tmp_path: Path) -> Path:
    (tmp_path / "report.py").write_text(file_of("python"))
    (tmp_path / "report.yaml").write_text(file_of("yaml"))
    return tmp_path


async def pasted(folder: Path, beginning: str) -> tuple[int, str]:
    """Exit status and output of a block of the page in a shell."""
    env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(folder)}
    child = await asyncio.create_subprocess_exec(
        *("sh", "-ec", find_block(PAGE, beginning)), cwd=folder, env=env,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await child.communicate()
    return child.returncode or 0, said.decode()


async def test_task_of_the_tutorial_is_tried(folder: Path) -> None:
    status, said = await pasted(folder, "dispatcher try")
    assert status == 0
    assert "making the report of 2026-10" in said
    assert 'succeeded, with the result {"rows": 3, "month": "2026-10"}' in said


async def test_template_of_the_tutorial_becomes_a_job(folder: Path) -> None:
    status, said = await pasted(folder, "dispatcher render")
    assert status == 0, said
    assert "registry.example/team/report:1" in said
    assert "1Gi" in said


async def test_mistake_in_the_template_is_told_with_its_line(folder: Path) -> None:
    file = folder / "report.yaml"
    file.write_text(file.read_text().replace("  template:\n    spec:", "  backoffLimit: 3\n  template:\n    spec:"))
    line = file.read_text().splitlines().index("  backoffLimit: 3") + 1
    status, said = await pasted(folder, "dispatcher render")
    assert (status, f"report.yaml:{line}: " in said) == (1, True), said


async def test_row_of_the_tutorial_is_inserted_and_explained(database: Database) -> None:
    admin, janitor = await database.session("admin"), await database.session("janitor")
    await admin.execute(f"ALTER TABLE dispatch_private.tasks ALTER COLUMN id RESTART WITH {TASK}")
    offered = offered_templates({"report": parse_template("report", file_of("yaml"))}, ())
    await janitor.execute("SELECT dispatch_private.janitor_templates($1, true)", msgspec.to_builtins(offered))
    said = await psql(database.url("team_a"), find_block(PAGE, "SELECT name"))
    assert said[0].startswith("report|{env.REGION,memory}|Makes the report of a month, which the payload names.")
    assert said[1:3] == [str(TASK), "waiting||"]
    assert said[3].startswith("Unjudged|nobody|")
