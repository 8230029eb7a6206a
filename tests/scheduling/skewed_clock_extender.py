"""Our extender with a wrong wall clock. The first argument is the error in seconds.

python -m tests.scheduling.skewed_clock_extender 300 extender
"""

import sys
from datetime import datetime, timedelta, tzinfo
from typing import Self

from dispatcher import cli
from dispatcher.kube import client

WRONG_BY = timedelta(seconds=float(sys.argv.pop(1)))


class WrongTime(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) + WRONG_BY


if __name__ == "__main__":
    vars(client)["datetime"] = WrongTime  # the only place where a wall clock is read
    cli.main()
