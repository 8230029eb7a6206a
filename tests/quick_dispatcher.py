"""`python -m tests.quick_dispatcher run`: `dispatcher run` with shorter pauses, so that a test waits less.

The first backoff is 2 s instead of 10. A refused Pod ends its launch after 3 s instead of 60. A row rests for 4 s at
most instead of 30. A missing row is looked for each second instead of each ten. Everything else is the program itself.
Unit tests test its own pauses.
"""

from datetime import timedelta

from dispatcher import cli
from dispatcher.jobs import outcome, resting, unstarted
from dispatcher.sweep import plan


def shorten() -> None:
    vars(outcome)["FIRST_BACKOFF_SECONDS"] = 2
    vars(unstarted)["POD_REFUSED"] = timedelta(seconds=3)
    vars(resting)["REST_SECONDS"] = 4
    vars(plan)["CONFIRM_EVERY"] = timedelta(seconds=1)


if __name__ == "__main__":
    shorten()
    cli.main()
