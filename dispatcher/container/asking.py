"""How the calls of a container are repeated, and its messages meanwhile. For exec, the library and `try`."""

import contextlib
import os
import random
import select
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Final, TypeVar

T = TypeVar("T")
LONGEST_PAUSE_SECONDS: Final = 10
"""The longest pause before a call is repeated."""
NEXT_ADDRESS_SECONDS: Final = 0.25
"""Seconds after which the next address of a name is tried, too."""


def pauses() -> Iterator[float]:
    """Seconds before each repetition of a call. They grow, and differ: a thousand tasks ask the same database."""
    pause = 0.2
    while True:
        yield pause * random.uniform(0.5, 1)  # noqa: S311  # keeps no secret
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


HEARD_SECONDS: Final = 0.5
"""Seconds for which a message waits for a slow stderr."""


def say(who: str, words: str) -> None:
    """Writes one line to stderr. Neither a stderr that is not read nor a limit of processes may stop heartbeats."""
    line = f"{who}: {words}\n".encode(errors="backslashreplace")
    writer = threading.Thread(target=write_words, args=[line], daemon=True)
    with contextlib.suppress(RuntimeError):  # no thread can be started now
        writer.start()
        writer.join(HEARD_SECONDS)


def write_words(words: bytes) -> None:
    """Writes all of them to stderr, unless it is closed. A program that shares it may have made it non-blocking."""
    with contextlib.suppress(OSError):
        while words:
            try:
                words = words[os.write(2, words) :]
            except BlockingIOError:
                select.select([], [2], [])


def in_thread(work: Callable[[], T]) -> Future[T]:
    """Runs the work in a new thread, which keeps no process alive. Raises RuntimeError if none can be started."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # whoever gives up waiting must not cancel what is under way

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as fault:  # noqa: BLE001  # the one who waits for it gets it
            future.set_exception(fault)

    threading.Thread(target=run, daemon=True).start()
    return future
