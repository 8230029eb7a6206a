"""`dispatcher` with a wrong wall clock: `python -m tests.faults.odd_program CLOCK_OFF_SECONDS COMMAND`.

The wall clock is off by CLOCK_OFF_SECONDS. SIGUSR1 blocks the event loop for `BLOCK_SECONDS`, as heavy work would.
"""

import signal
import sys
import time
from datetime import datetime, timedelta, tzinfo
from typing import Final, Self

BLOCK_SECONDS: Final = 6
right_now = time.time


class OffClock(datetime):
    """`datetime` for the modules of the dispatcher that read the wall clock; off by `off`."""

    off = timedelta()

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) + cls.off


def main(off_seconds: float) -> None:
    OffClock.off = timedelta(seconds=off_seconds)
    time.time = lambda: right_now() + off_seconds
    from dispatcher import cli  # imported after the change of the clock
    from dispatcher.kube import client, lease

    for module in (client, lease):
        module.datetime = OffClock  # type: ignore[attr-defined]  # the only two modules that read the wall clock
    signal.signal(signal.SIGUSR1, lambda *_: time.sleep(BLOCK_SECONDS))
    cli.main()


if __name__ == "__main__":
    main(float(sys.argv.pop(1)))
