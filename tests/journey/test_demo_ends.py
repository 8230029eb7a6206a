"""However `dispatcher demo` ends, and whenever: nothing of it is left. Each block around a run fails with what is."""

import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.controlplane.waiting import wait_for
from tests.demoing import CTRL_C, ITS_LAST_WORDS, Demo, demo, shows

QUIET = ("--tasks", 9, "--plain")
SOON = 15
"""Seconds from Ctrl-C to the end, on a machine with other work; what is awaited instead would take a minute."""


async def is_made(shown: Demo) -> None:
    """Postgres' files are being made, by a server that has shared memory already."""
    remains = shown.remains
    at_work = ("--boot", "--single")
    await shown.until(
        lambda: any(phase in words for words in remains.living().values() for phase in at_work), "initdb is at work"
    )


async def starts(shown: Demo) -> None:
    """Some of its programs are there, and some not yet."""
    await shown.until(lambda: shown.pid("janitor"), "programs start")


async def works(shown: Demo) -> None:
    """One container waits to be cancelled, another works, and there is everything that can be left behind."""
    await shown.says("task 1 (builds) runs on")
    remains = shown.remains
    await shown.until(lambda: remains.segments and remains.shared and len(remains.ports) >= 4, "all is seen")
    await shown.until(lambda: sum("containers/" in words for words in remains.living().values()) >= 2, "containers run")


UNHEARD = 120
"""As Python ends when its last words cannot be written."""
Moment = Callable[[Demo], Awaitable[None]]


@pytest.mark.parametrize(
    ("moment", "number", "status"),
    [
        (is_made, signal.SIGTERM, 143),
        (is_made, signal.SIGKILL, -9),
        (starts, signal.SIGKILL, -9),
        (works, signal.SIGTERM, 143),
        (works, signal.SIGKILL, -9),
    ],
    ids=lambda given: given.__name__ if callable(given) else str(given),
)
async def test_ended_from_outside_it_leaves_nothing(moment: Moment, number: signal.Signals, status: int) -> None:
    async with demo(*QUIET) as shown:
        await moment(shown)
        shown.signal(number)
        assert await shown.ends(SOON + 5) == status


async def test_ctrl_c_is_heard_while_it_starts() -> None:
    async with demo(*QUIET, terminal=(80, 24)) as shown:
        await is_made(shown)
        shown.press(CTRL_C)
        assert await shown.ends(SOON) == 130
        assert "Ready after" not in shown.said


async def test_ctrl_c_once_or_more_often_ends_the_picture_and_clears_everything_away() -> None:
    async with demo("--tasks", 9, terminal=(100, 30)) as shown:
        await works(shown)

        def has_ended() -> bool:
            if not shown.output.is_over:
                shown.press(CTRL_C)
            return shown.process.returncode is not None

        await wait_for(has_ended, "it ends", SOON)
        assert await shown.ends() in {130, -signal.SIGINT}
        assert shown.screen.is_cursor_shown


async def test_ctrl_c_at_once_is_no_fault_of_python() -> None:
    async with demo(*QUIET, terminal=(100, 30)) as shown:
        await shown.until(lambda: "_ssl" in mapped(shown), "modules are loaded")
        shown.press(CTRL_C)
        assert await shown.ends(SOON) in {-signal.SIGINT, 130}


def mapped(shown: Demo) -> str:
    """The libraries that it has loaded so far."""
    return Path(f"/proc/{shown.process.pid}/maps").read_text()


async def test_kept_it_leaves_nothing_either_when_it_is_killed() -> None:
    async with demo("--keep", "--tasks", 1) as shown:
        await shown.says(ITS_LAST_WORDS)
        shown.signal(signal.SIGKILL)
        assert await shown.ends(SOON) == -9


@pytest.mark.parametrize("options", [(), ("--plain",)])
async def test_a_terminal_that_goes_away_ends_it(options: tuple[str, ...]) -> None:
    async with demo("--tasks", 9, *options, terminal=(100, 30)) as shown:
        await works(shown)
        shown.hang_up()
        assert await shown.ends(SOON) in {129, UNHEARD}


async def test_ctrl_c_is_heard_while_ones_own_statements_run(tmp_path: Path) -> None:
    (tmp_path / "slow.sql").write_text("SELECT pg_sleep(600)")
    async with demo("--plain", "--sql", tmp_path / "slow.sql") as shown:
        await shown.says("Ready after")
        shown.signal(signal.SIGINT)
        assert await shown.ends(SOON) == 130


async def test_an_end_by_a_fault_leaves_nothing_either(tmp_path: Path) -> None:
    """The cluster cannot be reached while Postgres' files are still being made."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("nothing of the kind")
    status, said = await shows("--kubeconfig", kubeconfig)
    assert (status, str(kubeconfig) in said) == (2, True)


@pytest.mark.parametrize(
    ("moment", "number", "status"),
    [(is_made, signal.SIGINT, 130), (starts, signal.SIGHUP, 129), (works, signal.SIGINT, 130)],
    ids=lambda given: given.__name__ if callable(given) else str(given),
)
async def test_a_guard_that_somebody_killed_has_a_successor(
    moment: Moment, number: signal.Signals, status: int
) -> None:
    async with demo(*QUIET) as shown:
        await moment(shown)
        await loses_its_guard(shown)
        shown.signal(number)
        assert await shown.ends(SOON + 5) == status


async def test_without_its_guard_it_goes_on_to_its_end_and_still_leaves_nothing() -> None:
    async with demo(*QUIET) as shown:
        await works(shown)
        await loses_its_guard(shown)
        await shown.kills("janitor")  # what is begun after that is ended as well
        assert await shown.ends() == 0


async def loses_its_guard(shown: Demo) -> None:
    """To whoever kills it."""
    guards = [pid for pid, words in shown.remains.living().items() if "guard.py" in words]
    assert len(guards) == 1, shown.remains.living()
    os.kill(guards[0], signal.SIGKILL)
    await shown.until(lambda: guards[0] not in shown.remains.living(), "the guard is gone")
