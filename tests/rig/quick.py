"""Programs with shorter pauses, so that a test waits less. Everything else is as it is. Unit tests test the own pauses.

* `python -m tests.rig.quick run`: the first backoff is 2 s instead of 10. A refused Pod ends its launch after 3 s
  instead of 60. A row rests for 4 s at most instead of 30. A missing row is looked for each second instead of each ten.
  A report may come up to 5 s after its container's end instead of 60. The least START_DEADLINE_SECONDS is 2 s instead
  of 10. It tells quickly, too.
* `python -m tests.rig.quick telling run`: `dispatcher run` counts waiting rows, writes its ConfigMaps, and compares
  templates, each 2 s instead of each 30.
* `python -m tests.rig.quick janitor`: a round each second instead of each ten. Lists may take half of the time instead
  of a twentieth, because lists of a busy machine are slow.
"""

import sys
from dataclasses import replace
from datetime import timedelta

from dispatcher import app
from dispatcher.commands.options import load_settings, turn
from dispatcher.janitor import janitor
from dispatcher.janitor.janitor import JanitorPace
from dispatcher.jobs.observed import Rules
from dispatcher.settings.definition import Settings
from dispatcher.views.counting import SurfacePace

TELLING = app.RunPace(
    surfaces=SurfacePace(count_seconds=2, status_seconds=2, alive_seconds=2, compare_seconds=2),
)
QUICK = app.RunPace(
    rules=Rules(
        first_backoff_seconds=2,
        report_grace=timedelta(seconds=5),
        refused_for=timedelta(seconds=3),
        rest_seconds=4,
    ),
    apart=timedelta(seconds=1),
    surfaces=TELLING.surfaces,
)
QUICK_JANITOR = JanitorPace(every_seconds=1, share=2)
LEAST_START_DEADLINE = 10


def starts_early(settings: Settings) -> Settings:
    """The settings, with a start deadline of 2 s where it is the least one that can be set."""
    jobs = settings.jobs
    early = replace(jobs, start_deadline_seconds=2) if jobs.start_deadline_seconds == LEAST_START_DEADLINE else jobs
    return replace(settings, jobs=early)


def main() -> None:
    loaded = load_settings()
    if "janitor" in sys.argv:
        turn(janitor.run(loaded.settings, dry_run="--dry-run" in sys.argv, pace=QUICK_JANITOR))
    elif "telling" in sys.argv:
        turn(app.run(loaded.settings, loaded.sources, TELLING))
    else:
        turn(app.run(starts_early(loaded.settings), loaded.sources, QUICK))


if __name__ == "__main__":
    main()
