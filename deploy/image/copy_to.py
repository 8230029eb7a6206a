"""Copies the folder of this file into a volume, so that a task image without Python can run `dispatcher exec`.

It is the entry point of the image `exec`, which runs as an init container (docs/author.md). The volume belongs to
root, and may hold an earlier copy: kubelet runs init containers again if a Pod loses its sandbox.
"""

import shutil
import sys
from pathlib import Path

OWN = Path(__file__)


def copy(source: Path, target: Path) -> None:
    """Copies contents and modes alone: SELinux forbids a container to set labels of files, as shutil.copytree does."""
    for path in source.iterdir():
        copied = target / path.name
        if path.is_symlink():
            copied.unlink(missing_ok=True)
            copied.symlink_to(path.readlink())
        elif path.is_dir():
            shutil.rmtree(copied, ignore_errors=True)
            copied.mkdir()
            copy(path, copied)
        elif path != OWN:
            shutil.copy(path, copied)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if not folder.is_dir():
        sys.exit(f"{folder} is no folder: mount an emptyDir there")
    try:
        copy(OWN.parent, folder)
    except OSError as fault:
        sys.exit(f"the copy into {folder} failed: {fault}")
