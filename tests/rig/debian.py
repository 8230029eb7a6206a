"""Debian packages that a suite needs: which are missing, and their installation."""

import os
import shutil
import subprocess
from collections.abc import Sequence


class CannotRun(Exception):
    """This machine cannot run a suite. The message says what is missing."""


def has_apt() -> bool:
    return shutil.which("apt-get") is not None and shutil.which("dpkg-query") is not None


def missing(names: Sequence[str]) -> list[str]:
    """Those of the packages that are not installed."""
    asked = ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n", *names]
    told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.splitlines()
    return [name for name in names if f"{name} installed" not in told]


def install(names: Sequence[str]) -> None:
    """Installs the missing ones of the packages. CannotRun: apt-get failed, with its words."""
    if not (wanted := missing(names)):
        return
    environ = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *wanted]):
        done = subprocess.run(
            ["apt-get", "--quiet=2", *command], capture_output=True, text=True, check=False, env=environ
        )
        if done.returncode:
            raise CannotRun(f"`apt-get {' '.join(command)}` ended with {done.returncode}:\n{done.stderr[-2000:]}")
