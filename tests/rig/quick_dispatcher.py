"""`python -m tests.rig.quick_dispatcher run`: `dispatcher run` with shorter pauses, so that a test waits less.

The first backoff is 2 s instead of 10. A refused Pod ends its launch after 3 s instead of 60. A row rests for 4 s at
most instead of 30. A missing row is looked for each second instead of each ten. A report may come up to 5 s after its
container's end instead of 60. The least START_DEADLINE_SECONDS is 2 s instead of 10. It tells quickly, too, see
`tests.rig.quick_telling`. Everything else is the program itself. Unit tests test its own pauses.
"""

from datetime import timedelta

from msgspec.structs import replace

from dispatcher import app, cli
from dispatcher.jobs import outcome, picture
from dispatcher.jobs import outcome as unstarted
from dispatcher.jobs.observed import Rules
from dispatcher.settings.definition import JobSettings
from dispatcher.startup import rules_of
from dispatcher.sweep import plan
from tests.rig.quick_telling import tell_quickly

LEAST_START_DEADLINE = 10


def shorten() -> None:
    vars(outcome)["FIRST_BACKOFF_SECONDS"] = 2
    vars(outcome)["REPORT_GRACE"] = timedelta(seconds=5)
    vars(unstarted)["POD_REFUSED"] = timedelta(seconds=3)
    vars(picture)["REST_SECONDS"] = 4
    vars(plan)["CONFIRM_EVERY"] = timedelta(seconds=1)
    vars(app)["rules_of"] = quick_rules_of


def quick_rules_of(jobs: JobSettings) -> Rules:
    rules = rules_of(jobs)
    return replace(rules, start_deadline_seconds=2) if rules.start_deadline_seconds == LEAST_START_DEADLINE else rules


if __name__ == "__main__":
    shorten()
    tell_quickly()
    cli.main()
