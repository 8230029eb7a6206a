"""The keys of a demo, while its input is a terminal in whose foreground it runs.

Keys come without Enter and are not shown. The state of the terminal is put back at every end. After `kill -9` the
guard does it.
"""

import asyncio
import json
import os
import signal
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from dispatcher.local.guard import plain

NAMES: Final = {
    "k": "kill Postgres", "n": "kill a node", "d": "kill dispatcher", "p": "pause", "i": "insert 10", "q": "quit"
}  # fmt: skip
"""What each key does, short enough for one line of 80 columns."""


def line(*, is_paused: bool) -> str:
    """The line that names the keys."""
    names = {**NAMES, "p": "resume"} if is_paused else NAMES
    return "  ".join(f"{key} {what}" for key, what in names.items())


def is_usable(stream: int) -> bool:
    """Whether keys come from there to this process: it is a terminal, and we are in its foreground."""
    try:
        return os.isatty(stream) and os.tcgetpgrp(stream) == os.getpgrp()
    except OSError:
        return False


@contextmanager
def pressed(stream: int, press: Callable[[str], None], note: Path) -> Iterator[bool]:
    """Calls `press` for each known key until the block ends. Yields whether there are keys at all.

    `note`: the file by which the guard puts the terminal's state back if this process is killed.
    """
    if not is_usable(stream):
        yield False
        return
    loop, before = asyncio.get_running_loop(), termios.tcgetattr(stream)

    def read() -> None:
        try:
            typed = os.read(stream, 64)
        except OSError:
            typed = b""
        if not typed:  # the terminal is gone; the signal for it comes, too
            loop.remove_reader(stream)
        for key in typed.decode("ascii", "ignore").lower():
            if key in NAMES:
                press(key)

    def take_keys() -> None:
        with suppress(termios.error):
            tty.setcbreak(stream, termios.TCSADRAIN)

    take_keys()
    note.write_text(json.dumps([os.ttyname(stream), plain(termios.tcgetattr(stream)), plain(before)]))
    loop.add_reader(stream, read)
    loop.add_signal_handler(signal.SIGCONT, take_keys)  # the shell has changed the terminal meanwhile
    try:
        yield True
    finally:
        loop.remove_signal_handler(signal.SIGCONT)
        loop.remove_reader(stream)
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(stream, termios.TCSAFLUSH, before)
        note.unlink(missing_ok=True)
