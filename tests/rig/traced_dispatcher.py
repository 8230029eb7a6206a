"""`python -m tests.rig.traced_dispatcher run`: `dispatcher run` that notes the lines which it executes.

SIGUSR1 makes it write them to the file TRACED_LINES: a JSON object of line numbers by file.
"""

import json
import os
import signal
from pathlib import Path

import coverage


def trace() -> None:
    tracer = coverage.Coverage(data_file=None, source_pkgs=["dispatcher"], config_file=False)
    to = Path(os.environ["TRACED_LINES"])

    def write(*_: object) -> None:
        noted = tracer.get_data()
        lines = {file: sorted(noted.lines(file) or ()) for file in noted.measured_files()}
        part = to.with_suffix(".part")
        part.write_text(json.dumps(lines))
        part.rename(to)

    signal.signal(signal.SIGUSR1, write)
    tracer.start()


if __name__ == "__main__":
    trace()
    from dispatcher import cli  # its lines are noted, too

    cli.main()
