"""What the suite needs of a machine: Chromium with fonts, npm, and axe-core, which finds what keeps people from a page.

Chromium is any that is on the PATH, else Debian's. axe-core comes by npm, with the version and the digest of
tools/package-lock.json, into the cache folder of the account.

    python -m tests.browser.installed     installs what is missing
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.node.cache import cached, digest_of
from tests.rig import debian
from tests.rig.debian import CannotRun

TOOLS: Final = Path(__file__).parent / "tools"
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM: Final = (
    "chromium",
    "fonts-dejavu-core",  # Hebrew and Arabic, too
    "fonts-liberation",  # the widths that most readers see
    "fonts-noto-color-emoji",
)
NPM: Final = ("npm",)


def install() -> None:
    """Installs what is missing. CannotRun: that needs root and apt-get, or a program failed."""
    if (wanted := lacking()) and not (debian.has_apt() and os.geteuid() == 0):
        raise CannotRun(f"the pages are shown in a browser: install {' '.join(wanted)}, or run `make browser` as root")
    debian.install(wanted)
    axe()


def lacking() -> tuple[str, ...]:
    """The Debian packages of programs that this machine has not."""
    return (CHROMIUM if chromium() is None else ()) + (NPM if shutil.which("npm") is None else ())


def chromium() -> str | None:
    """The path of a browser."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def axe() -> Path:
    """The script of axe-core. CannotRun: npm failed, with its words."""
    sources = (TOOLS / "package.json", TOOLS / "package-lock.json")
    return cached("axe", digest_of(map(Path.read_bytes, sources)), fetch) / "node_modules" / "axe-core" / "axe.min.js"


def fetch(folder: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(TOOLS / name, folder)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotRun(f"`{' '.join(command)}` ended with {done.returncode}:\n{done.stderr[-2000:]}")


if __name__ == "__main__":
    try:
        install()
    except CannotRun as reason:
        sys.exit(str(reason))
