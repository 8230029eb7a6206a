"""What the tests of the demo count as left behind."""

import asyncio
import ctypes
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.rig import remains
from tests.rig.remains import Remains

PRIVATE, MODE, REMOVE = 0, 0o600, 0
ATTACHES = """
import ctypes, sys, time
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
id_ = int(sys.argv[1])
assert libc.shmat(id_, None, 0) != ctypes.c_void_p(-1).value
print(flush=True)
time.sleep(600)
"""


@pytest_asyncio.fixture(name="segment")
async def make_segment() -> AsyncIterator[int]:
    """A real segment of System V that this process has made. Its id."""
    libc = ctypes.CDLL(None)
    id_ = libc.shmget(PRIVATE, 4096, MODE)
    assert id_ >= 0
    yield id_
    libc.shmctl(id_, REMOVE, None)


async def a_postgres(folder: Path, segment: int) -> asyncio.subprocess.Process:
    """A process that looks like Postgres, works in the folder and has attached the segment."""
    (folder / "bin").mkdir()
    program = folder / "bin" / "postgres"
    shutil.copy(sys._base_executable, program)  # type: ignore[attr-defined]  # the Python of the venv
    process = await asyncio.create_subprocess_exec(
        program, "-S", "-c", ATTACHES, str(segment), cwd=folder, stdout=asyncio.subprocess.PIPE,
        env={"PYTHONHOME": sys.base_prefix},
    )  # fmt: skip
    assert process.stdout is not None
    assert await process.stdout.readline()
    return process


async def test_segment_that_its_postgres_has_attached_is_its_own_until_it_is_gone(
    tmp_path: Path, segment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Remains(tmp_path)
    process = await a_postgres(tmp_path, segment)
    found.look()
    process.kill()
    await process.wait()
    shutil.rmtree(tmp_path / "bin")
    assert found.left() == [f"System V segment {(str(segment), str(os.getpid()))}"]
    monkeypatch.setattr(remains, "segments", set)
    assert found.left() == []


async def test_segment_of_another_postgres_is_not_its_own_even_with_the_pid_of_one_of_its_processes(
    tmp_path: Path, segment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Remains(tmp_path)
    process = await a_postgres(tmp_path, segment)
    monkeypatch.setattr(remains, "segments", lambda: {("7", str(process.pid))})
    found.look()
    process.kill()
    await process.wait()
    shutil.rmtree(tmp_path / "bin")
    assert found.left() == []
