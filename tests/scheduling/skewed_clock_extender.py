"""Our extender on a machine whose wall clock is wrong. The first argument is the error in seconds.

python -m tests.scheduling.skewed_clock_extender 300 extender
"""

import sys
from datetime import UTC, datetime, timedelta

from dispatcher.commands.options import load_settings, turn
from dispatcher.extender import program
from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import log_in


async def run(wrong_by: timedelta) -> None:
    settings = load_settings().settings
    client = KubeClient(await log_in(settings.kube), now=datetime.now(UTC) + wrong_by)
    await program.serve(settings, client)


if __name__ == "__main__":
    turn(run(timedelta(seconds=float(sys.argv[1]))))
