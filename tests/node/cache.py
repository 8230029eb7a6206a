"""The cache of what takes long to make: a folder by a digest of all that its content depends on.

Invariant: a folder that exists is whole. It is made in another place and moved in, by one process at a time.
"""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

KEPT = 4
"""So many versions of one thing are kept."""


def cache_folder() -> Path:
    """The same as that of the programs (tests/controlplane/binaries.py)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pg-job-dispatcher"


def digest_of(parts: Iterable[bytes | str]) -> str:
    found = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        found.update(len(content).to_bytes(8))
        found.update(content)
    return found.hexdigest()[:16]


def cached(name: str, digest: str, make: Callable[[Path], None]) -> Path:
    """The folder `NAME-DIGEST`. `make` fills it if it is missing."""
    folder = cache_folder() / f"{name}-{digest}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            made = folder.with_name(f".{folder.name}.made")
            shutil.rmtree(made, ignore_errors=True)  # left by a killed process
            made.mkdir()
            make(made)
            made.rename(folder)
            forget_old(folder)
        folder.touch()
    return folder


def forget_old(newest: Path) -> None:
    """Removes versions that were not used for long."""
    name = newest.name.rpartition("-")[0]
    others = sorted(newest.parent.glob(f"{name}-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in others[KEPT:]:
        shutil.rmtree(old)
