"""`python -m dispatcher`, and the command `dispatcher`."""

import os
import signal
import sys


def main() -> None:
    """`exec` stands in other people's images and starts with each of their tasks: it loads only what it needs."""
    if sys.version_info < (3, 11):  # noqa: UP036  # whoever starts us from a checkout is told, not shown a trace
        sys.exit("dispatcher needs Python 3.11 or later; this is " + sys.version.split()[0])
    if sys.argv[1:2] == ["exec"]:
        from dispatcher.programs.exec_isolated import start_isolated

        # PID 1 has no default; the driver takes a while to load
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        start_isolated()
        from dispatcher.programs.exec import main as run_command

        sys.exit(run_command(sys.argv[2:]))
    # While modules are loaded an exception may get lost, in a callback of the interpreter's own.
    interrupted = signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from dispatcher.cli import main as run_cli

    signal.signal(signal.SIGINT, interrupted)
    try:
        run_cli()
    except KeyboardInterrupt:  # before anybody listens for it
        sys.exit(130)


if __name__ == "__main__":
    main()
