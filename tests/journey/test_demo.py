"""`dispatcher demo` as its user sees it, in terminals and in a pipe. Its words are compared with the database."""

import asyncio
import json
import re
import shutil
import signal
import sys
from pathlib import Path
from typing import TypeAlias

import asyncpg
import pytest

from tests.controlplane.waiting import wait_for
from tests.demoing import Demo, check_end, demo, rows_of, table

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


def pictures(shown: Demo) -> list[str]:
    """All pictures, the last one included."""
    screen = shown.screen
    frames = [
        frame[next(n for n, line in enumerate(frame) if line.startswith("tasks ended")) :] for frame in screen.frames
    ]
    return ["\n".join(line.rstrip() for line in frame).rstrip() for frame in frames]


def widest(pictures: list[str]) -> int:
    return max(len(line) for picture in pictures for line in picture.splitlines())


async def test_picture_fits_its_terminal_while_another_demo_runs() -> None:
    twelve = "--tasks", 12
    async with demo(*twelve, terminal=(80, 24)) as narrow, demo(*twelve, terminal=(200, 50)) as wide:
        assert [await narrow.ends(), await wide.ends()] == [0, 0]
        for shown, columns in ((narrow, 80), (wide, 200)):
            drawn = pictures(shown)
            assert len(drawn) > 5
            assert widest(drawn) == columns
            assert shown.screen.is_cursor_shown
            assert all(words in drawn[-1] for words in ("rows", "nodes", "what happens", "east", "west", "builds"))
            assert [any("0/12" in picture for picture in drawn), "11/12" in drawn[-1]] == [True, True]
            assert any("NoRoomNow" in picture for picture in drawn)
            assert "1 PolicyDenied" in drawn[-1]
            assert any("█" in picture and " running" in picture for picture in drawn)
            assert shown.said.count("Next page:") == 1
        assert [" wait " in pictures(narrow)[-1], " waiting " in pictures(wide)[-1]] == [True, True]
        beside = re.compile("─ nodes ─.*─ what happens ─")
        assert [bool(beside.search(pictures(shown)[-1])) for shown in (narrow, wide)] == [False, True]


async def test_summary_stands_below_the_last_picture() -> None:
    async with demo("--tasks", 3, terminal=(40, 20)) as shown:
        assert await shown.ends() == 0
        assert widest(pictures(shown)) <= 40
        end = "\n".join(shown.screen.lines)
        assert [end.count(words) for words in ("tasks ended", "3 tasks in", "Next page:")] == [1, 1, 1]
        assert end.index("tasks ended") < end.index("3 tasks in")


@pytest.mark.parametrize(("arguments", "terminal"), [(("--plain",), "xterm-256color"), ((), "dumb")])
async def test_plain_demo_prints_lines_as_things_happen(arguments: tuple[str, ...], terminal: str) -> None:
    async with demo("--tasks", 3, *arguments, terminal=(80, 24), TERM=terminal) as shown:
        await shown.says("Starting Postgres")
        await shown.says("task 1 (builds) runs on ")
        assert await shown.ends() == 0
        assert ("\x1b" in shown.said, " nodes " in shown.said) == (False, False), "colours at most"
        for words in ("task 2 (default) cancelled", "3 tasks in", "Next page:"):
            assert words in shown.said


def check_story(rows: list[asyncpg.Record]) -> None:
    """One row fails and runs again, one is cancelled, one is parked. The cache gets warm."""
    known = {row["id"]: row for row in rows}
    caches = [json.loads(row["result"])["cache"] for row in rows if row["queue"] == "builds"]
    assert (caches[0], caches.count("warm")) == ("cold", len(caches) - 2)
    assert known[2]["status"] == "cancelled"
    assert (known[3]["status"], known[3]["attempt"]) == ("succeeded", 2)
    assert known[5]["status"] == "waiting"


async def succeeds(connection: Connection, statement: str) -> asyncpg.Record:
    """Runs an INSERT, and waits until its row has succeeded."""
    task_id = await connection.fetchval(statement)

    async def row() -> list[asyncpg.Record]:
        return await connection.fetch(
            "SELECT id, result FROM dispatch.tasks WHERE id = $1 AND status = 'succeeded'", task_id
        )

    return (await wait_for(row, f"task {task_id} succeeded", 20))[0]


async def explain(*arguments: str) -> str:
    """The output of `dispatcher explain`."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dispatcher", "explain", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    return (await child.communicate())[0].decode()


async def test_kept_demo_prints_a_true_summary_and_runs_further_rows_and_templates() -> None:
    async with demo("--keep", COLUMNS="200") as shown:
        await shown.says("Next page:")
        rows = await rows_of(shown.database_url)
        check_story(rows)
        check_end(shown.said, rows)
        assert "the nodes are full: rows in queue default wait (NoRoomNow)" in shown.said
        assert "PolicyDenied: spec.memory 64Gi is over the template's bound" in table(shown.said)[4]["what it shows"]

        (asked,) = re.findall(r"^  \S.* explain (--url http://\S+ 5)$", shown.said, re.MULTILINE)
        told = await explain(*asked.split())
        assert "PolicyDenied: its template does not allow what it asks for: spec.memory 64Gi" in told
        assert "submitter's turn: cancel the row" in told

        (statement,) = re.findall(r"^  (INSERT .*);$", shown.said, re.MULTILINE)
        (folder,) = re.findall(r"^Templates, .*: (/.*)$", shown.said, re.MULTILINE)
        connection = await asyncpg.connect(shown.database_url)
        row = await succeeds(connection, statement)
        assert json.loads(row["result"]) == {"up_to": 1_000_000, "primes": 78_498}
        await shown.says(f"task {row['id']} (default) succeeded")
        shutil.copy(Path(folder, "default.yaml"), Path(folder, "mine.yaml"))
        await succeeds(connection, "INSERT INTO dispatch.tasks (template) VALUES ('mine') RETURNING id")
        await connection.close()
        shown.signal(signal.SIGINT)
        assert await shown.ends() == 0
