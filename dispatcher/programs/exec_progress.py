"""The progress file of a task: `0.42 reading month 5`. CMD writes it, and each heartbeat of `exec` tells it."""

import math
import os
import stat
from pathlib import Path
from typing import Final, NamedTuple

FILE_BYTES: Final = 4096
"""So much of the end of the file is read."""


class Progress(NamedTuple):
    """`done`: from 0 to 1. None: CMD has not said it."""

    done: float | None = None
    note: str | None = None


NOTHING: Final = Progress()


def read_progress(path: Path) -> Progress:
    """What CMD has written last. A file that cannot be read says nothing. A pipe is not waited for."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG((told := os.fstat(file.fileno())).st_mode):
                return NOTHING
            file.seek(max(told.st_size - FILE_BYTES, 0))
            return parse_progress(file.read(FILE_BYTES).decode(errors="replace"))
    except OSError:
        return NOTHING


def parse_progress(text: str) -> Progress:
    """The last line that is not empty: a number from 0 to 1, a note, or both. Other numbers are part of the note."""
    lines = [line for line in text.replace("\0", "").splitlines() if line.strip()]
    first, _, rest = lines[-1].strip().partition(" ") if lines else ("", "", "")
    try:
        done = float(first)
    except ValueError:
        done = math.nan
    if 0 <= done <= 1:
        return Progress(done, rest.strip() or None)
    return Progress(None, f"{first} {rest}".strip() or None)
