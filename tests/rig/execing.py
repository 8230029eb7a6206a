"""`dispatcher exec -- CMD…` under test: the real program in a process of its own, with the environment of a container.

A mark in its environment finds all its processes. Those that are left at the end of a test are killed.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest_asyncio

from dispatcher.container.isolated import KEPT
from tests.controlplane.waiting import wait_for
from tests.faults.postgres_proxy import PostgresProxy
from tests.rig.postgres import Database, PostgresServer
from tests.rig.rows import FIRST, Pod, Row, insert_row

PYTHON = (sys.executable, "-I", "-S", "-c")
PROGRAM = (sys.executable, "-m", "dispatcher", "exec", "--")
DONE, COULD_NOT, WRONG, UNAVAILABLE, PUT_OFF, TERMINATED = 0, 1, 2, 69, 75, 143
FOR_EVER = "sleep 600"
UNTIL_TOLD = "echo begun; read -r go"


def sh(script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script)


class Ended(NamedTuple):
    status: int
    out: bytes
    err: bytes

    @property
    def said(self) -> str:
        return self.err.decode(errors="replace")


class Wrapper:
    """One process of the program. `wrapped` makes it."""

    def __init__(self, process: asyncio.subprocess.Process, mark: str) -> None:
        self.process, self.mark = process, mark
        self.out, self.err = bytearray(), bytearray()
        streams = (process.stdout, self.out), (process.stderr, self.err)
        self._reading = [asyncio.create_task(collect(stream, into)) for stream, into in streams if stream]

    async def says(self, words: str, count: int = 1) -> None:
        """Waits until the command has written the words to stdout `count` times."""
        await wait_for(lambda: self.out.count(words.encode()) >= count, f"{words!r} is said", 30, check=self.check)

    def go(self, words: str = "go") -> None:
        """Writes a line to the stdin of the command."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{words}\n".encode())

    async def has_ended(self, seconds: float = 30, *, is_traced: bool = False) -> Ended:
        """Closes its stdin, and waits for its end. `is_traced`: it may end with a traceback."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        async with asyncio.timeout(seconds):
            await asyncio.shield(asyncio.gather(self.process.wait(), *self._reading))
        assert self.process.returncode is not None
        assert is_traced or b"Traceback" not in self.err, self.err.decode(errors="replace")
        return Ended(self.process.returncode, bytes(self.out), bytes(self.err))

    def check(self) -> None:
        """Fails if it has ended with an error, and all its words were read."""
        is_read = all(reading.done() for reading in self._reading)
        assert not (self.process.returncode and is_read), f"{self.process.returncode}: {self.said}"

    @property
    def said(self) -> str:
        return self.err.decode(errors="replace")

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def living(self) -> list[int]:
        """Pids of the program and of all descendants of its command."""
        return bearing(self.mark)

    async def is_gone(self, seconds: float = 30) -> int:
        """Waits for its end. Returns the exit status, even while another process holds its streams."""
        await wait_for(lambda: self.process.returncode is not None, "it has ended", seconds)
        assert self.process.returncode is not None
        return self.process.returncode

    async def close(self) -> None:
        """Kills all of its processes, and waits until none is left."""

        def is_empty() -> bool:
            left = self.living()
            for pid in left:
                with contextlib.suppress(ProcessLookupError):  # it has ended
                    os.kill(pid, signal.SIGKILL)
            return not left

        await wait_for(is_empty, "no process bears the mark")
        assert self.process.stdin is not None
        self.process.stdin.close()
        await asyncio.gather(self.process.wait(), *self._reading)


@pytest_asyncio.fixture(loop_scope="session")
async def one_proxy(postgres: PostgresServer) -> AsyncIterator[PostgresProxy]:
    async with PostgresProxy(postgres.admin_url) as proxy:
        yield proxy
    assert proxy.faults == []


def contract(row: Row, *, attempt: int = 1, launch: int = 1, pod: Pod = FIRST) -> dict[str, object]:
    """The environment of the container of a launch, with the URL that a Secret sets."""
    return {
        "PATH": os.environ["PATH"],
        "TASK_DATABASE_URL": row.database.url("task"),
        "TASK_ID": row.id,
        "TASK_QUEUE": "default",
        "TASK_ATTEMPT": attempt,
        "TASK_LAUNCH": launch,
        "TASK_START_KEY": row.start_key,
        "TASK_TIMEOUT_SECONDS": 3600,
        "TASK_CACHE_DIR": "",
        "NODE_NAME": pod.node,
        "POD_NAME": pod.name,
        "POD_NAMESPACE": "default",
        "JOB_UID": pod.job_uid,
    }


@asynccontextmanager
async def wrapped(
    row: Row,
    *command: str,
    program: tuple[str, ...] = PROGRAM,
    launch: int = 1,
    pod: Pod = FIRST,
    given: bytes = b"",
    stderr: int = asyncio.subprocess.PIPE,
    **environ: object,
) -> AsyncIterator[Wrapper]:
    """Runs the program for the row. `given`: its stdin. A variable that is None is not set."""
    settings = contract(row, launch=launch, pod=pod) | environ
    async with started((*program, *command), settings, given, stderr) as wrapper:
        yield wrapper


@asynccontextmanager
async def started(
    argv: tuple[str, ...], environ: Mapping[str, object], given: bytes = b"", stderr: int = asyncio.subprocess.PIPE
) -> AsyncIterator[Wrapper]:
    """Runs a program with exactly these variables. One that is None is not set."""
    mark = f"EXECING_MARK={secrets.token_hex(8)}"
    process = await asyncio.create_subprocess_exec(
        *argv,
        env={name: str(one) for name, one in environ.items() if one is not None} | dict([mark.split("=")]),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
    )
    wrapper = Wrapper(process, mark)
    try:
        assert process.stdin is not None
        process.stdin.write(given)
        yield wrapper
    finally:
        await wrapper.close()


async def execute(row: Row, *command: str, **how: object) -> Ended:
    """Runs the program to its end."""
    async with wrapped(row, *command, **how) as wrapper:  # type: ignore[arg-type]  # handed through as it came
        return await wrapper.has_ended()


async def each(database: Database, commands: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[Row, Ended]]:
    """Runs all commands at once, each for a row of its own."""
    rows = [await insert_row(database) for _ in commands]
    ended = await asyncio.gather(*(execute(row, *one) for row, one in zip(rows, commands.values(), strict=True)))
    return dict(zip(commands, zip(rows, ended, strict=True), strict=True))


async def error_of(row: Row) -> str:
    return str((await row.now())["error"])


async def collect(stream: asyncio.StreamReader, into: bytearray) -> None:
    while piece := await stream.read(1 << 16):
        into += piece


def bearing(mark: str) -> list[int]:
    """Pids of processes with the mark in their environment. Zombies have no environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            has_it = not {mark.encode(), f"{KEPT}{mark}".encode()}.isdisjoint(variables)  # the wrapper sets it aside
        except OSError:
            continue  # it has ended, or has another account
        found += [int(folder.name)] if has_it else []
    return found
