"""Our extender on an event loop whose clock a test can move forward: timers of minutes are due at once.

python -m tests.scheduling.fast_clock_extender extender    SIGUSR1 moves the clock forward, and logs a line
"""

import asyncio
import os
import signal
import sys

from dispatcher.extender import program
from dispatcher.settings.loading import load
from dispatcher.startup import read_text
from tests.controlplane.waiting import wait_for
from tests.scheduling.own_extender import OwnExtender

FORWARD_SECONDS = 290
SAID = "the clock is put forward"
PROGRAM = (sys.executable, "-m", "tests.scheduling.fast_clock_extender")


class FastClockLoop(asyncio.SelectorEventLoop):
    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead

    def forward(self) -> None:
        self.ahead += FORWARD_SECONDS
        sys.stderr.write(f"{SAID}\n")
        sys.stderr.flush()


async def move_clock_forward(own_extender: OwnExtender) -> None:
    """Moves the clock of an extender that runs as PROGRAM forward, and waits until that is done."""
    times = own_extender.log.count(SAID)
    own_extender.process.send_signal(signal.SIGUSR1)
    await wait_for(
        lambda: own_extender.log.count(SAID) > times, f"{FORWARD_SECONDS} s have gone", check=own_extender.check
    )


async def run(loop: FastClockLoop) -> None:
    loop.add_signal_handler(signal.SIGUSR1, loop.forward)
    await program.run(load(os.environ, read_text).settings)


if __name__ == "__main__":
    loop = FastClockLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(run(loop))
