"""A root of caches on a real file system, with a tree of witnesses beside it that nobody may touch."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

from dispatcher.keeper.folder import ASIDE, CONDEMNED, CacheFolder, Root
from dispatcher.keeper.removal import TreeSize

A, B = "a" * 40, "b" * 40
SEED = "the words of a witness"


class Place:
    """A root of caches, and beside it a tree of witnesses."""

    def __init__(self, folder: Path) -> None:
        self.root, self.witnesses = folder / "root", folder / "witnesses"
        self.root.mkdir()
        (self.witnesses / "deep").mkdir(parents=True)
        for name in ("file", "deep/file"):
            (self.witnesses / name).write_text(SEED)
        self.state = self.look()

    def look(self) -> dict[str, object]:
        """Everything that somebody could see of the witnesses, except access times and numbers of links."""
        return {str(path): (path.lstat().st_mode, path.lstat().st_ino, path.is_file() and path.read_text())
                for path in sorted(self.witnesses.rglob("*"))}  # fmt: skip

    def check(self) -> None:
        assert self.look() == self.state, "a witness was touched"

    def cache(self, name: str = A) -> Path:
        path = self.root / name
        path.mkdir()
        return path


def remove(root: Path, name: str = A) -> dict[str, str]:
    """Removes a directory. Returns what was refused."""
    with closing(CacheFolder(str(root))) as folder:
        folder.set_aside(name)
        folder.condemn(name)
        return go_on(folder)


def go_on(folder: CacheFolder) -> dict[str, str]:
    """Goes on with what is condemned. Returns what was refused."""
    while left := [one for one in folder.condemned() if one not in folder.removing.refused]:
        for _ in folder.removing.steps(left[0]):
            pass
    return folder.removing.refused


def of_ours(root: Path) -> list[str]:
    """The names of what the keeper has set aside or condemned."""
    return sorted(path.name for path in root.iterdir() if path.name.startswith((ASIDE, CONDEMNED)))


def is_gone(root: Path) -> bool:
    return of_ours(root) == [] and not (root / A).exists()


def measured(root: Path, name: str = A) -> TreeSize:
    with closing(Root(str(root))) as opened:
        *_, last = opened.measuring(name)
        return last


def in_namespace(code: str, *arguments: object) -> str:
    """Runs Python in a mount namespace of its own, in which it may mount. Returns its output."""
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
