"""What the tests of the demo count as left behind."""

import asyncio
from pathlib import Path

import pytest

from tests import remains
from tests.remains import Remains


async def marked(folder: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec("sleep", "600", cwd=folder)


async def test_segment_of_a_living_process_is_its_own_until_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Remains(tmp_path)
    process = await marked(tmp_path)
    segment = ("7", str(process.pid))
    monkeypatch.setattr(remains, "segments", lambda: {segment})
    found.look()
    process.kill()
    await process.wait()
    assert found.left() == [f"System V segment {segment}"]
    monkeypatch.setattr(remains, "segments", set)
    assert found.left() == []


async def test_segment_of_somebody_who_got_the_pid_of_an_ended_process_is_not_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Remains(tmp_path)
    process = await marked(tmp_path)
    found.look()
    process.kill()
    await process.wait()
    monkeypatch.setattr(remains, "segments", lambda: {("7", str(process.pid))})
    found.look()
    assert found.left() == []
