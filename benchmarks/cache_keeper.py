"""Promise: a cache keeper costs its node little. A round over 10,000 directories in which nothing changed takes at most
2 s of CPU, and its process at most 40 MiB. The removal of a directory with 10^6 files takes at most 60 MiB, and leaves
a writer on the same disk 0.8 of its rate.

The rounds are those of the program, on a real file system, beside a cluster without Pods (`keeping_alone`). The writer
makes and removes files of 4 KiB. It is measured in turns: the keeper's process is stopped (SIGSTOP) in every other one.
"""

import asyncio
import itertools
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from benchmarks.figures import Figure, run, tell
from benchmarks.keeping_alone import Told
from benchmarks.machine import slowness
from dispatcher import __version__

DIRECTORIES, FILES_EACH = 10_000, 3
FOLDERS, FILES = 1_000, 1_000
"""The large directory: together a million files."""
TURN_SECONDS = 2
ROUND_SECONDS, MEMORY_MIB, REMOVAL_MIB, LEAST_RATE = 2, 40, 60, 0.8


def name(number: int) -> str:
    return f"{number:040x}"


def make_many(root: Path) -> None:
    for number in range(DIRECTORIES):
        cache = root / name(number)
        cache.mkdir(parents=True)
        for at in range(FILES_EACH):
            (cache / f"file-{at}").write_bytes(b"x" * 100)


def make_large(root: Path) -> None:
    for number in range(FOLDERS):
        folder = root / name(1) / f"folder-{number}"
        folder.mkdir(parents=True)
        for at in range(FILES):
            os.close(os.open(folder / f"file-{at}", os.O_CREAT | os.O_WRONLY))


async def keeper(what: str, root: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.keeping_alone", what, str(root), stdout=asyncio.subprocess.PIPE
    )


async def told_by(child: asyncio.subprocess.Process) -> Told:
    out, _ = await child.communicate()
    assert child.returncode == 0, out
    return msgspec.json.decode(out.splitlines()[-1], type=Told)


def write_for(folder: Path, seconds: float) -> float:
    """Files that were made and removed again, a second."""
    began = time.perf_counter()
    for number in itertools.count(1):
        path = folder / f"written-{number}"
        path.write_bytes(b"x" * 4096)
        path.unlink()
        if (passed := time.perf_counter() - began) >= seconds:
            return number / passed
    raise AssertionError


async def rates(child: asyncio.subprocess.Process, folder: Path) -> tuple[list[float], list[float]]:
    """The writer's rates alone and beside the removal, in turns, until the removal has ended."""
    alone, beside = list[float](), list[float]()
    while child.returncode is None:
        child.send_signal(signal.SIGSTOP)
        alone.append(await asyncio.to_thread(write_for, folder, TURN_SECONDS))
        child.send_signal(signal.SIGCONT)
        found = await asyncio.to_thread(write_for, folder, TURN_SECONDS)
        await asyncio.sleep(0)  # the end of the child is heard
        if child.returncode is None:
            beside.append(found)
    return alone, beside


async def main() -> int:
    before = slowness()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as made:
        many, large, written = (Path(made) / one for one in ("many", "large", "written"))
        written.mkdir()
        await asyncio.to_thread(make_many, many)
        quiet = await told_by(await keeper("quiet", many))
        await asyncio.to_thread(make_large, large)
        began = time.perf_counter()
        child = await keeper("drop", large)
        alone, beside = await rates(child, written)
        took, drop = time.perf_counter() - began, await told_by(child)
    assert (quiet.directories, drop.directories) == (DIRECTORIES, 0)
    assert len(beside) >= 3, "the removal was too quick for a comparison"
    slow = (before + slowness()) / 2
    rate_alone, rate_beside = (sum(one) / len(one) for one in (alone, beside))
    figures = [
        Figure("quiet round over 10,000 directories, s CPU", quiet.cpu_seconds, ROUND_SECONDS * slow),
        Figure("memory with 10,000 directories, MiB", quiet.memory_mib, MEMORY_MIB),
        Figure("memory of the removal of 10^6 files, MiB", drop.most_mib, REMOVAL_MIB),
        Figure("writer beside the removal / alone", rate_beside / rate_alone, LEAST_RATE, at_least=True),
    ]
    context = {
        "most memory with 10,000 directories, MiB": quiet.most_mib, "writer alone, files a second": rate_alone,
        "seconds from begin to end, half of them stopped": took, "turns beside the removal": float(len(beside)),
        "slowness of the machine": slow,
    }  # fmt: skip
    return tell("cache_keeper", figures, context, {"dispatcher": __version__})


if __name__ == "__main__":
    run(main)
