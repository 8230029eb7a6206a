"""`dispatcher demo`: the whole thing on one machine, for whoever wants to see it work.

    stage (servers, programs, nodes)  ─▶  samples or your own rows  ─▶  look  ─▶  scene (pure)  ─▶  picture, summary

Everything is real but the cluster, which is in memory, and its nodes, which run processes of this machine.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from dispatcher.errors import DispatcherError
from dispatcher.logs import configure_logs

MISSING = "{} is missing: pip install 'pg-job-dispatcher[demo]'"


def run(asked: Mapping[str, Any]) -> int:
    """The exit status: 0 shown to its end; 128 and the signal if stopped before. DispatcherError: it cannot be."""
    try:
        from rich.console import Console  # an extra

        from dispatcher.programs.demo.play import Options, Play  # needs it
    except ModuleNotFoundError as fault:
        raise DispatcherError(MISSING.format(fault.name)) from fault
    configure_logs("error")
    play = Play(Options(**asked), Console())
    try:
        return asyncio.run(perform(play))
    except BrokenPipeError:  # whoever read has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


async def perform(play: Any) -> int:
    stop, heard = asyncio.Event(), list[int]()

    def hear(number: int) -> None:
        heard.append(number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, hear, number)
    is_over = await play.run(stop)
    return 0 if is_over else 128 + heard[0]
