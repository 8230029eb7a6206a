"""`dispatcher exec` starts itself again before it loads anything: isolated, and only with the contract.

The wrapper holds the login of the containers. A row, or a cache that tasks share, must not choose what the wrapper
loads or trusts, by whatever variable. TASK_DATABASE_URL holds everything that the connection needs. CMD gets all
variables back.
"""

import os
import signal
import sys
from collections.abc import Mapping

KEPT = "DISPATCHER_KEPT_"
"""Prefix of the variables that CMD gets back. Rows and templates cannot set it."""
MARK = "DISPATCHER_ISOLATED"
"""The first process sets this variable, so that there is no third process."""
OF_THE_WRAPPER = ("TASK_", "DISPATCHER_", "LD_")
"""Prefixes of names that are closed to rows. The interpreter of an image may need LD_LIBRARY_PATH."""
LOCALE = "LC_CTYPE"
NAMES = frozenset({"NODE_NAME", "POD_NAME", "JOB_UID", "LANG"})


def start_isolated() -> None:
    """Starts the isolated process. Returns only in that process.

    The first interpreter has started with all variables by then, so an image whose template opens PYTHON* to rows needs
    `python -I -m dispatcher` as its entry point.
    """
    if sys.flags.isolated and MARK in os.environ:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # a SIGTERM during the start is delivered after it
    options = [f"-X{name}" if value is True else f"-X{name}={value}" for name, value in sys._xoptions.items()]  # noqa: SLF001  # documented so
    command = [sys.executable, "-I", *options, "-m", "dispatcher", *sys.argv[1:]]
    os.execve(sys.executable, command, set_aside(as_given(os.environ)) | {MARK: "1"})  # noqa: S606  # no shell: the same program


def as_given(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment that this process got. In the locale C, its interpreter has set LC_CTYPE to C.UTF-8 for itself.

    With that, grep in CMD would take Latin-1 for binary, and an image that lacks C.UTF-8 would complain.
    """
    try:
        with open("/proc/self/environ", "rb") as file:  # noqa: PTH123  # pathlib would be loaded for it alone
            given = dict(os.fsdecode(one).partition("=")[::2] for one in file.read().split(b"\0"))
    except OSError:
        return dict(environ)
    kept = {name: value for name, value in environ.items() if name != LOCALE}
    return kept | ({LOCALE: given[LOCALE]} if LOCALE in given else {})


def is_kept(name: str) -> bool:
    """Whether the wrapper keeps the variable under its name."""
    return name in NAMES or name.startswith(OF_THE_WRAPPER)


def set_aside(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the wrapper. Variables that it does not need get a prefix, so that no program reads them."""
    return {name if is_kept(name) else KEPT + name: value for name, value in environ.items()}


def restored(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of CMD, without variables that the second interpreter has added, such as LC_CTYPE."""
    names = (name for name in environ if name != MARK and (is_kept(name) or name.startswith(KEPT)))
    return {name.removeprefix(KEPT): environ[name] for name in names}
