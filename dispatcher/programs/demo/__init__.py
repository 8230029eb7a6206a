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

from dispatcher.model.errors import DispatcherError
from dispatcher.runtime.logs import configure_logs

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
OWN_FILES = 0o077
"""The umask of the demo and of all that it starts: other accounts of this machine get nothing of them."""
LAST_SECONDS = 1
"""For what is under way when it is stopped."""
MISSING = "{} is missing: pip install 'pg-job-dispatcher[demo]'"


def run(asked: Mapping[str, Any]) -> int:
    """The exit status: 0 shown to its end; 128 and the signal if stopped before. DispatcherError: it cannot be."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # nothing is begun before `perform` listens
    try:
        from dispatcher.programs.demo.run import DemoRun, Options, Terminal  # needs an extra
    except ModuleNotFoundError as fault:
        raise DispatcherError(MISSING.format(fault.name)) from fault
    configure_logs("error")
    os.umask(OWN_FILES)
    try:
        return asyncio.run(perform(DemoRun(Options(**asked), Terminal())))
    except BrokenPipeError:  # whoever read has seen enough
        return 128 + signal.SIGPIPE
    finally:
        end_output()


async def perform(play: Any) -> int:
    loop, stop, heard = asyncio.get_running_loop(), asyncio.Event(), list[int]()

    def hear(number: int) -> None:
        heard.append(number)
        stop.set()

    for number in SIGNALS:
        loop.add_signal_handler(number, hear, number)
    playing, stopped = asyncio.create_task(play.run(stop)), asyncio.create_task(stop.wait())
    await asyncio.wait([playing, stopped], return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        await asyncio.wait([playing], timeout=LAST_SECONDS)
        playing.cancel()  # it was about something that takes longer
    stopped.cancel()
    await asyncio.wait([playing])
    for number in SIGNALS:  # nothing is left that could be ended
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    return 128 + heard[0] if playing.cancelled() or not playing.result() else 0


def end_output() -> None:
    """What nobody takes any more is no fault of ours."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
