"""How the calls of a container are repeated, and what is said meanwhile. For exec, the library and `try`."""

import contextlib
import os
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Final, TypeVar

T = TypeVar("T")
LONGEST_PAUSE_SECONDS: Final = 10
NEXT_ADDRESS_SECONDS: Final = 0.25
"""After it the next address of a name is tried, too."""


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


def in_thread(work: Callable[[], T]) -> Future[T]:
    """The work in a new thread, which does not keep the process alive. RuntimeError: no thread can be started."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # whoever gives up waiting must not cancel what is under way

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as fault:  # noqa: BLE001  # the one who waits for it gets it
            future.set_exception(fault)

    threading.Thread(target=run, daemon=True).start()
    return future
