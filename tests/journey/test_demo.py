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

from dispatcher.model.verdicts import HoldReason
from tests.controlplane.waiting import wait_for
from tests.rig.demo_summary import check_end, rows_of, table
from tests.rig.demoing import Demo, demo

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


MISTAKE = "template reports: spec.backoffLimit is '3': must be 0: one launch = one Pod"
FAULTY = f"the file of its template is faulty: {MISTAKE}"
HEADLINE = re.compile(r"[\d,]+ of [\d,]+ ended")


def pictures(shown: Demo) -> list[str]:
    """All pictures, the last one included."""
    screen = shown.screen
    frames = [frame[next(n for n, line in enumerate(frame) if HEADLINE.match(line)) :] for frame in screen.frames]
    return ["\n".join(line.rstrip() for line in frame).rstrip() for frame in frames]


def widest(pictures: list[str]) -> int:
    return max(len(line) for picture in pictures for line in picture.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40)])
async def test_picture_shows_rows_as_they_move_in_its_terminal(columns: int, rows: int) -> None:
    async with demo("--tasks", 12, terminal=(columns, rows)) as shown:
        assert await shown.ends() == 0
        drawn = pictures(shown)
        assert len(drawn) > 5
        assert widest(drawn) <= columns
        assert max(len(picture.splitlines()) for picture in drawn) < rows
        assert shown.screen.is_cursor_shown
        told = "\n".join(drawn)
        for words in ("waiting", "starting", "running", "done", "cancelled", "needs you", "east", "west", " cpu, "):
            assert words in told, words
        assert ["0 of 12 ended" in told, drawn[-1].startswith("11 of 12 ended")] == [True, True]
        assert "spec.backoffLimit is '3'" in drawn[-1]
        assert ("k kill Postgres" in told, " what happens " in told) == (True, rows >= 30)
        check_words(told)
        assert "11 ended, 1 needs you: type " in shown.said
        assert re.search(r"Postgres was killed once .*: 12 of 12 rows are there, nothing is lost", shown.said)


def check_words(told: str) -> None:
    """No picture shows a code where a person wants words."""
    assert [str(reason) for reason in HoldReason if re.search(rf"\b{reason}\b(?!:)", told)] in ([], ["Launched"])


@pytest.mark.slow
async def test_summary_stands_below_the_last_picture() -> None:
    async with demo("--tasks", 3, terminal=(40, 20)) as shown:
        assert await shown.ends() == 0
        assert widest(pictures(shown)) <= 40
        end = "\n".join(shown.screen.lines)
        assert [end.count(words) for words in ("3 of 3 ended", "3 tasks in", "Next page:")] == [1, 1, 1]
        assert end.index("3 of 3 ended") < end.index("3 tasks in")


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "terminal"), [(("--plain",), "xterm-256color"), ((), "dumb")])
async def test_plain_demo_prints_lines_as_things_happen(arguments: tuple[str, ...], terminal: str) -> None:
    async with demo("--tasks", 3, *arguments, terminal=(80, 24), TERM=terminal) as shown:
        await shown.says("Starting Postgres")
        await shown.says("task 1 (builds) runs on ")
        assert await shown.ends() == 0
        assert ("\x1b" in shown.said, " cpu, " in shown.said) == (False, False), "colours at most"
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


@pytest.mark.slow
async def test_nodes_come_while_pods_wait_if_the_user_asks_for_it() -> None:
    async with demo("--plain", "--grows", "--tasks", 40) as shown:
        assert await shown.ends() == 0
        assert "a node has come because Pods waited: grown-1" in shown.said


async def explain(*arguments: str) -> str:
    """The output of `dispatcher explain`."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dispatcher", "explain", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    return (await child.communicate())[0].decode()


@pytest.mark.slow
async def test_kept_demo_prints_a_true_summary_and_runs_further_rows_and_templates() -> None:
    async with demo("--keep", COLUMNS="300") as shown:
        await shown.says("Next page:")
        rows = await rows_of(shown.database_url)
        check_story(rows)
        check_end(shown.said, rows)
        assert "the nodes are full: rows of queue default wait for room" in shown.said
        assert "task 3 (default) failed, and is tried again (attempt 2): the other side was not there" in shown.said
        assert FAULTY in table(shown.said)[4]["what it shows"]
        assert f"task 5 (reports) needs you: {FAULTY}" in shown.said
        assert "Postgres is killed now (kill -9), with 20 rows: " in shown.said
        assert "20 of 20 rows are there, nothing is lost" in shown.said

        (asked,) = re.findall(r"^  \S.* explain (--url http://\S+ 5)$", shown.said, re.MULTILINE)
        told = await explain(*asked.split())
        assert f"InvalidTemplate: {FAULTY}" in told
        assert "author's turn: correct the file of the template" in told

        (statement,) = re.findall(r"^  (INSERT .*);$", shown.said, re.MULTILINE)
        (folder,) = re.findall(r"^Templates, .*: (/.*)$", shown.said, re.MULTILINE)
        connection = await asyncpg.connect(shown.database_url)
        row = await succeeds(connection, statement)
        assert json.loads(row["result"]) == {"up_to": 1_000_000, "primes": 78_498}
        await shown.says(f"task {row['id']} (default) succeeded")
        shutil.copy(Path(folder, "default.yaml"), Path(folder, "mine.yaml"))
        known = "SELECT EXISTS (SELECT FROM dispatch.templates WHERE name = 'mine')"
        await wait_for(lambda: connection.fetchval(known), "INSERT knows the new template", 10)
        await succeeds(connection, "INSERT INTO dispatch.tasks (template) VALUES ('mine') RETURNING id")
        await connection.close()
        shown.signal(signal.SIGINT)
        assert await shown.ends() == 0
