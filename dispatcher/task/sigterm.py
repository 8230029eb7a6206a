"""SIGTERM from outside, such as the drain of a node: the body unwinds, as after an exception."""

import os
import signal
import threading
from typing import Any, Final

TERMINATED: Final = 128 + signal.SIGTERM


class Sigterm:
    """Raises SystemExit(143) in the main thread. A task in another thread has no handler.

    came: it has raised. A second SIGTERM does not disturb the body, which cleans up.
    is_ignored: the body has ended, so its report is not disturbed.
    """

    def __init__(self) -> None:
        self.came = self.is_ignored = False
        self._owner = os.getpid()
        self._before: Any = None

    def catch(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._raise) or signal.SIG_DFL

    def restore(self) -> None:
        if self._before is not None:
            signal.signal(signal.SIGTERM, self._before)

    def _raise(self, number: int, _: object) -> None:
        if os.getpid() != self._owner:  # a child that was forked in the body
            self.restore()
            signal.raise_signal(number)
        elif not self.came and not self.is_ignored:
            self.came = True
            raise SystemExit(TERMINATED)
