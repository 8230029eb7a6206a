"""How the calls of a container are repeated, and what is said meanwhile. For exec, the library and `try`."""

import contextlib
import os
import random
import threading
from collections.abc import Iterator
from typing import Final

LONGEST_PAUSE_SECONDS: Final = 10


def pauses() -> Iterator[float]:
    """Seconds before each repetition of a call. They grow, and differ: a thousand tasks ask the same database."""
    pause = 0.2
    while True:
        yield pause * random.uniform(0.5, 1)  # noqa: S311  # keeps no secret
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


HEARD_SECONDS: Final = 0.5


def say(who: str, words: str) -> None:
    """Writes one line to stderr. Neither a stderr that is not read nor a limit of processes may stop heartbeats."""
    line = f"{who}: {words}\n".encode(errors="backslashreplace")
    writer = threading.Thread(target=write_line, args=[line], daemon=True)
    with contextlib.suppress(RuntimeError):  # no thread can be started now
        writer.start()
        writer.join(HEARD_SECONDS)


def write_line(line: bytes) -> None:
    with contextlib.suppress(OSError):  # stderr is closed
        os.write(2, line)
