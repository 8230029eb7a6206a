"""SIGTERM and SIGINT stop our programs."""

import asyncio
import os
import signal
import threading
from typing import Final

LAST_SECONDS: Final = 27


def stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end_soon, stop)
    return stop


def end_soon(stop: asyncio.Event) -> None:
    """Begins a graceful stop. After LAST_SECONDS the process ends even if a call hangs, such as a DNS lookup."""
    stop.set()
    last = threading.Timer(LAST_SECONDS, os._exit, (0,))
    last.daemon = True
    last.start()
