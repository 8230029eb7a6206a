"""`dispatcher demo`: the whole system on one machine, for a first look.

    environment (servers, programs, nodes)  ─▶  samples or your own rows  ─▶  observe  ─▶  view  ─▶  picture, summary

Everything is real except the cluster, which is in memory, and its nodes, which run processes of this machine.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from dispatcher.model.errors import DispatcherError
from dispatcher.runtime.logs import configure_logs

__version__ = "0.1.0"
"""The version of the dispatcher."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
OWN_FILES = 0o077
"""Umask of the demo and of everything that it starts: other accounts of the machine cannot read their files."""
LAST_SECONDS = 1
"""Seconds for work that is under way when the demo is stopped."""
END_SECONDS = 15
"""Seconds from the stop to the end. After that the guard ends what is left, as after `kill -9`. The removal of Jobs
from a user's cluster may take ten of these seconds (`environment.LEAVE_SECONDS`).
"""
HEARD_SECONDS = 0.5
LATE = f"Something did not end within {END_SECONDS} s. The guard of the demo ends it.\n"
MISSING = "{} is missing: pip install pg-job-dispatcher-demo"


def run_demo(asked: Mapping[str, Any]) -> int:
    """Runs a demo. Returns 0 after a complete run, 128 + signal after a stop. DispatcherError: it cannot run."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # nothing is started before `run_until_signal`
    try:
        from dispatcher_demo.run import DemoRun, Terminal  # needs an extra
        from dispatcher_demo.samples import Options
    except ModuleNotFoundError as fault:
        raise DispatcherError(MISSING.format(fault.name)) from fault
    configure_logs("error")
    os.umask(OWN_FILES)
    try:
        return asyncio.run(run_until_signal(DemoRun(Options(**asked), Terminal())))
    except BrokenPipeError:  # the reader has closed the pipe
        return 128 + signal.SIGPIPE
    finally:
        end_output()


def connect(arguments: Sequence[str]) -> int:
    """Becomes psql on the running demo, and so never returns. Raises DispatcherError if that is not possible."""
    from dispatcher_demo.psql import run as become_psql  # with the programs of Postgres

    return become_psql(arguments)


async def run_until_signal(demo: Any) -> int:
    """Runs a DemoRun until its end or a signal. Returns the exit status."""
    loop, stop, signals = asyncio.get_running_loop(), asyncio.Event(), list[int]()

    def take_signal(number: int) -> None:
        if not signals:
            give_up_later(128 + number)
        signals.append(number)
        stop.set()

    for number in SIGNALS:
        loop.add_signal_handler(number, take_signal, number)
    running, stopped = asyncio.create_task(demo.run(stop)), asyncio.create_task(stop.wait())
    await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        await asyncio.wait([running], timeout=LAST_SECONDS)
        running.cancel()  # its step takes longer
    stopped.cancel()
    await asyncio.wait([running])
    for number in SIGNALS:  # nothing is left to end
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
    return exit_status(running, signals)


def give_up_later(status: int) -> None:
    """Ends this process if it still lives after END_SECONDS. A thread does it: the loop may be what is stuck."""

    def give_up() -> None:
        writer = threading.Thread(target=os.write, args=[2, LATE.encode()], daemon=True)
        writer.start()
        writer.join(HEARD_SECONDS)  # a terminal that shows nothing at the moment must not prevent the end
        os._exit(status)

    timer = threading.Timer(END_SECONDS, give_up)
    timer.daemon = True
    timer.start()


def exit_status(ended: asyncio.Task[bool], signals: Sequence[int]) -> int:
    """The exit status of a demo that has ended. A stop by a signal gives its status, whatever failed after that."""
    fault = None if ended.cancelled() else ended.exception()
    if fault is not None and signals and isinstance(fault, DispatcherError):
        sys.stderr.write(f"{fault}\n")
    elif fault is not None:
        raise fault
    return 0 if fault is None and not ended.cancelled() and ended.result() else 128 + signals[0]


def end_output() -> None:
    """Flushes the output. A closed reader is not a fault."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
