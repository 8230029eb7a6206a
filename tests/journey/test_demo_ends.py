"""`dispatcher demo` leaves nothing, at any end and any moment. The block around each run fails with its remains."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from dispatcher_demo import LATE
from tests.controlplane.waiting import wait_for
from tests.house.tree import ROOT
from tests.rig.demoing import CTRL_C, ITS_LAST_WORDS, Demo, demo, shows

QUIET = ("--tasks", 9, "--plain")
SOON = 20
"""Seconds from Ctrl-C to the end, on a busy machine. Without Ctrl-C the demo would go on for a minute."""


async def is_made(shown: Demo) -> None:
    """Waits until initdb works, with a server that has shared memory. A busy test may see a later moment instead."""
    remains = shown.remains
    at_work = ("--boot", "--single")

    def has_begun() -> bool:
        is_at_work = any(phase in words for words in remains.living().values() for phase in at_work)
        return is_at_work or bool(shown.pid("janitor"))

    await shown.until(has_begun, "initdb is at work")


async def starts(shown: Demo) -> None:
    """Waits until some of its programs run, and others do not yet."""
    await shown.until(lambda: shown.pid("janitor"), "programs start")


async def works(shown: Demo) -> None:
    """Waits until containers run, and all kinds of remains exist: segments, shared memory, ports."""
    await shown.says("task 1 (builds) runs on")
    remains = shown.remains
    await shown.until(lambda: remains.segments and remains.shared and len(remains.ports) >= 4, "all is seen")
    await shown.until(lambda: sum("containers/" in words for words in remains.living().values()) >= 2, "containers run")


UNHEARD = 120
"""Exit status of Python if its last output cannot be written."""
Moment = Callable[[Demo], Awaitable[None]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "guard", "number", "status"),
    [
        (is_made, "guarded", signal.SIGTERM, 143),
        (is_made, "guarded", signal.SIGKILL, -9),
        (starts, "guarded", signal.SIGKILL, -9),
        (works, "guarded", signal.SIGTERM, 143),
        (works, "guarded", signal.SIGKILL, -9),
        (is_made, "guard killed", signal.SIGINT, 130),
        (starts, "guard killed", signal.SIGHUP, 129),
        (works, "guard killed", signal.SIGINT, 130),
    ],
    ids=lambda given: given.__name__ if callable(given) else str(given),
)
async def test_demo_ended_by_a_signal_leaves_nothing(
    moment: Moment, guard: str, number: signal.Signals, status: int
) -> None:
    """A killed guard has a successor."""
    async with demo(*QUIET) as shown:
        await moment(shown)
        if guard == "guard killed":
            await loses_its_guard(shown)
        shown.signal(number)
        assert await shown.ends(SOON + 5) == status


@pytest.mark.slow
async def test_ctrl_c_ends_a_starting_demo() -> None:
    async with demo(*QUIET, terminal=(80, 24)) as shown:
        await is_made(shown)
        shown.press(CTRL_C)
        assert await shown.ends(SOON) == 130
        assert "Ready after" not in shown.said


@pytest.mark.slow
async def test_repeated_ctrl_c_ends_the_picture_and_leaves_nothing() -> None:
    async with demo("--tasks", 9, terminal=(100, 30)) as shown:
        await works(shown)

        def has_ended() -> bool:
            if not shown.output.is_over:
                shown.press(CTRL_C)
            return shown.process.returncode is not None

        await wait_for(has_ended, "it ends", SOON)
        assert await shown.ends() in {130, -signal.SIGINT}
        assert shown.screen.is_cursor_shown


async def test_ctrl_c_during_imports_prints_no_traceback() -> None:
    async with demo(*QUIET, terminal=(100, 30)) as shown:
        await shown.until(lambda: "_ssl" in mapped(shown), "modules are loaded")
        shown.press(CTRL_C)
        assert await shown.ends(SOON) in {-signal.SIGINT, 130}


def mapped(shown: Demo) -> str:
    """The libraries that the demo has loaded so far."""
    return Path(f"/proc/{shown.process.pid}/maps").read_text()


@pytest.mark.slow
async def test_killed_kept_demo_leaves_nothing() -> None:
    async with demo("--keep", "--tasks", 1) as shown:
        await shown.says(ITS_LAST_WORDS)
        shown.signal(signal.SIGKILL)
        assert await shown.ends(SOON) == -9


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--plain",)])
async def test_demo_ends_when_its_terminal_goes_away(options: tuple[str, ...]) -> None:
    async with demo("--tasks", 9, *options, terminal=(100, 30)) as shown:
        await works(shown)
        shown.hang_up()
        assert await shown.ends(SOON) in {129, UNHEARD}


@pytest.mark.slow
async def test_ctrl_c_ends_a_demo_that_runs_own_statements(tmp_path: Path) -> None:
    (tmp_path / "slow.sql").write_text("SELECT pg_sleep(600)")
    async with demo("--plain", "--sql", tmp_path / "slow.sql") as shown:
        await shown.says("Ready after")
        shown.signal(signal.SIGINT)
        assert await shown.ends(SOON) == 130


@pytest.mark.slow
async def test_demo_ended_by_a_fault_leaves_nothing(tmp_path: Path) -> None:
    """The cluster fails while initdb still works."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("nothing of the kind")
    status, said = await shows("--kubeconfig", kubeconfig)
    assert (status, str(kubeconfig) in said) == (2, True)


@pytest.mark.slow
async def test_demo_without_its_guard_completes_and_leaves_nothing() -> None:
    async with demo(*QUIET) as shown:
        await works(shown)
        await loses_its_guard(shown)
        await shown.kills("janitor")  # later processes end as well
        assert await shown.ends() == 0


async def loses_its_guard(shown: Demo) -> None:
    """Kills its guard."""
    guards = [pid for pid, words in shown.remains.living().items() if "guard.py" in words]
    assert len(guards) == 1, shown.remains.living()
    os.kill(guards[0], signal.SIGKILL)
    await shown.until(lambda: guards[0] not in shown.remains.living(), "the guard is gone")


STUCK = """
import asyncio, sys, time
import dispatcher_demo as demo
demo.END_SECONDS = 0.5

class Stuck:
    async def run(self, stop):
        print("runs", flush=True)
        await stop.wait()
        {stuck}

sys.exit(asyncio.run(demo.run_until_signal(Stuck())))
"""
DEAF = """
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                pass
"""


@pytest.mark.parametrize("stuck", [DEAF, "time.sleep(600)"], ids=["deaf to the cancellation", "the loop stands still"])
async def test_demo_that_does_not_end_is_left_to_its_guard(stuck: str) -> None:
    """A step of the end that hangs."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STUCK.format(stuck=stuck), cwd=ROOT, stdout=PIPE, stderr=PIPE
    )
    assert child.stdout is not None
    assert await child.stdout.readline() == b"runs\n"
    child.terminate()
    async with asyncio.timeout(SOON):
        _, said = await child.communicate()
    assert (child.returncode, said.decode()) == (143, LATE)
