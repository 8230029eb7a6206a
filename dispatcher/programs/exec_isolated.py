"""`dispatcher exec` starts itself anew before it loads anything: isolated, and without the variables that interpreters,
libraries and the driver would act upon. CMD gets all of them back.

The wrapper holds the login of its containers. A row, or a cache that tasks share, must not choose what it loads or whom
it trusts. What the connection needs stands in TASK_DATABASE_URL.
"""

import os
import signal
import sys
from collections.abc import Mapping

from dispatcher.jobs.trusted_env import is_trusted

KEPT = "DISPATCHER_KEPT_"
"""Prefix of what CMD gets back; rows and templates cannot set it."""


def start_isolated() -> None:
    """Returns in the isolated process only. What runs before it is the interpreter's own start: an image whose template
    opens PYTHON* to rows has `python -I -m dispatcher` as its entry point.
    """
    if sys.flags.isolated and not any(map(is_trusted, os.environ)):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # one that comes meanwhile is delivered afterwards
    options = [f"-X{name}" if value is True else f"-X{name}={value}" for name, value in sys._xoptions.items()]  # noqa: SLF001  # documented so
    command = [sys.executable, "-I", *options, "-m", "dispatcher", *sys.argv[1:]]
    os.execve(sys.executable, command, set_aside(os.environ))  # noqa: S606  # no shell: the same program again


def set_aside(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the wrapper: what is run or trusted stands there under names that nobody reads."""
    return {KEPT + name if is_trusted(name) else name: value for name, value in environ.items()}


def restored(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of CMD."""
    return {name.removeprefix(KEPT): value for name, value in environ.items()}
