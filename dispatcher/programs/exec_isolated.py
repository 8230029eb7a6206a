"""`dispatcher exec` starts itself again before it loads anything: isolated, and without the variables that
interpreters, libraries and the driver act upon. CMD gets all of them back.

The wrapper holds the login of the containers. A row, or a cache that tasks share, must not choose what the wrapper
loads or trusts. TASK_DATABASE_URL holds all that the connection needs.
"""

import os
import signal
import sys
from collections.abc import Mapping

from dispatcher.jobs.trusted_env import is_trusted

KEPT = "DISPATCHER_KEPT_"
"""Prefix of the variables that CMD gets back. Rows and templates cannot set it."""


def start_isolated() -> None:
    """Returns only in the isolated process. The first interpreter has started with all variables by then, so an image
    whose template opens PYTHON* to rows needs `python -I -m dispatcher` as its entry point.
    """
    if sys.flags.isolated and not any(map(is_trusted, os.environ)):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # a SIGTERM during the start is delivered after it
    options = [f"-X{name}" if value is True else f"-X{name}={value}" for name, value in sys._xoptions.items()]  # noqa: SLF001  # documented so
    command = [sys.executable, "-I", *options, "-m", "dispatcher", *sys.argv[1:]]
    os.execve(sys.executable, command, set_aside(os.environ))  # noqa: S606  # no shell: the same program again


def set_aside(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the wrapper. A variable that names code or trust gets a prefix, so no program reads it."""
    return {KEPT + name if is_trusted(name) else name: value for name, value in environ.items()}


def restored(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of CMD."""
    return {name.removeprefix(KEPT): value for name, value in environ.items()}
