"""The costs of `dispatcher exec` for every container: loaded modules, start of the command, memory."""

import asyncio
import sys
import time
from collections.abc import Sequence
from statistics import median

import pytest

from tests.rig.execing import DONE, PROGRAM, execute, sh
from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import insert_row

database = one_database

MOST_PEAK_KIB = 40 << 10
ROUNDS, MOST_ROUNDS = 5, 40
MOST_TIMES_THE_DRIVER = 1.35
OURS = {
    "dispatcher", "dispatcher.__main__",
    "dispatcher.container.asking", "dispatcher.container.contract", "dispatcher.container.dial",
    "dispatcher.container", "dispatcher.container.exec", "dispatcher.container.isolated", "dispatcher.container.row",
}  # fmt: skip


def loaded(told: str) -> set[str]:
    """The modules in the output of `-X importtime`."""
    lines = [line for line in told.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines} - {"imported package"}


async def test_exec_loads_only_the_driver_the_library_and_itself(database: Database) -> None:
    row = await insert_row(database)
    timed = (PROGRAM[0], "-I", "-X", "importtime", *PROGRAM[1:])  # as it restarts itself
    ended = await execute(row, "true", program=timed)
    bare = await asyncio.create_subprocess_exec(
        sys.executable, "-X", "importtime", "-c", "pass", stderr=asyncio.subprocess.PIPE
    )
    _, told = await bare.communicate()
    modules = loaded(ended.said) - loaded(told.decode())
    assert (ended.status, await row.status()) == (DONE, "succeeded")
    assert {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names) == {"asyncpg", "dispatcher"}
    assert {name for name in modules if name.partition(".")[0] == "dispatcher"} <= OURS


async def test_peak_memory_of_exec_is_small(database: Database) -> None:
    row = await insert_row(database)
    await execute(row, *sh("""awk '/VmHWM/ {print $2}' /proc/$PPID/status > "$TASK_RESULT_FILE" """))
    assert 0 < (await row.now())["result"] < MOST_PEAK_KIB


@pytest.mark.slow
async def test_command_starts_soon_after_exec(database: Database) -> None:
    """Compared with a bare start of the driver, in turns. A machine whose speed changes needs more rounds."""
    rounds: list[tuple[int, int]] = []
    while len(rounds) < MOST_ROUNDS and not (len(rounds) >= ROUNDS and relation(rounds) < MOST_TIMES_THE_DRIVER):
        rounds.append((await time_of_exec(database), await time_of_the_driver()))
    assert relation(rounds) < MOST_TIMES_THE_DRIVER


def relation(rounds: Sequence[tuple[int, int]]) -> float:
    """Time of exec over time of the driver: by the best time of each, or in the median round. The smaller one."""
    best = min(ours for ours, _ in rounds) / min(driver for _, driver in rounds)
    return min(best, median(ours / driver for ours, driver in rounds))


async def time_of_exec(database: Database) -> int:
    """Nanoseconds until the command runs."""
    row = await insert_row(database)
    began = time.time_ns()
    return int((await execute(row, "date", "+%s%N")).out) - began


async def time_of_the_driver() -> int:
    """Nanoseconds that a start of the driver takes."""
    began = time.time_ns()
    driver = await asyncio.create_subprocess_exec(sys.executable, "-c", "import asyncpg")
    await driver.wait()
    return time.time_ns() - began
