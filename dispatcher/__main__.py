"""`python -m dispatcher`, and the command `dispatcher`."""

import os
import signal
import sys


def main() -> None:
    """Runs a command. `exec` runs in images of other teams, once for each task, so it loads only what it needs."""
    if sys.version_info < (3, 11):  # noqa: UP036  # a start from a checkout ends with a message, not with a trace
        sys.exit("dispatcher needs Python 3.11 or later; this is " + sys.version.split()[0])
    if sys.argv[1:2] == ["exec"]:
        from dispatcher.container.isolated import start_isolated

        # PID 1 has no default action for SIGTERM, and the driver takes a while to load. While modules are loaded,
        # SystemExit may be raised in a callback of the interpreter and get lost.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
        start_isolated()
        from dispatcher.container.exec import main as run_command

        sys.exit(run_command(sys.argv[2:]))
    # KeyboardInterrupt may get lost in the same way.
    interrupted = signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from dispatcher.cli import main as run_cli

    try:
        run_cli(lambda: signal.signal(signal.SIGINT, interrupted))
    except KeyboardInterrupt:  # before the event loop handles the signal
        sys.exit(130)


if __name__ == "__main__":
    main()
