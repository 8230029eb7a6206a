"""The exit status of a demo, by how it ended."""

import asyncio
from collections.abc import Sequence

import pytest

from dispatcher.model.errors import DispatcherError
from dispatcher_demo import exit_status


async def status(outcome: bool | BaseException, signals: Sequence[int]) -> int:
    """The status of a demo whose run returned or raised so, after these signals."""

    async def run() -> bool:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    running = asyncio.create_task(run())
    await asyncio.wait([running])
    return exit_status(running, signals)


@pytest.mark.parametrize(
    ("outcome", "signals", "expected"),
    [
        (True, [], 0),
        (True, [2], 0),  # it was complete before the signal
        (False, [2, 15], 130),
        (asyncio.CancelledError(), [15], 143),
        (DispatcherError("it could not be started"), [2], 130),
    ],
)
async def test_stopped_demo_has_the_status_of_the_signal(
    outcome: bool | BaseException, signals: Sequence[int], expected: int
) -> None:
    assert await status(outcome, signals) == expected


async def test_fault_after_a_signal_is_still_told(capsys: pytest.CaptureFixture[str]) -> None:
    await status(DispatcherError("no room on the disk"), [2])
    assert capsys.readouterr().err == "no room on the disk\n"


@pytest.mark.parametrize(("fault", "signals"), [(DispatcherError("no"), []), (RuntimeError("a bug"), [2])])
async def test_fault_of_a_demo_that_nobody_stopped_and_every_bug_is_raised(
    fault: Exception, signals: Sequence[int]
) -> None:
    with pytest.raises(type(fault)):
        await status(fault, signals)
