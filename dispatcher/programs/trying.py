"""`dispatcher try -- CMD…`: runs CMD as `dispatcher exec` does in a container, without a database and a cluster.

`exec` itself runs CMD, judges its end and writes its files. Only the row and the kubelet are ours: the row is in memory
(`trying_row`), and `Kubelet` sends SIGTERM at the run limit and SIGKILL after the grace.

Not guaranteed: that a container has what this machine has: programs, variables, rights, memory.
"""

import asyncio
import contextlib
import signal
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import click
import msgspec

from dispatcher.model.errors import DispatcherError
from dispatcher.model.texts import printable
from dispatcher.programs.exec import GRACE_SECONDS, TERMINATED, Run, Work
from dispatcher.programs.exec_codes import Codes, WrongOption, read_options
from dispatcher.programs.exec_row import describe, say
from dispatcher.programs.trying_options import closed_by_default, env_of_cmd, read_env, read_payload
from dispatcher.programs.trying_row import TriedRow
from dispatcher.programs.trying_words import Ended, Stop, as_told, in_words

HEARTBEAT_SECONDS: Final = 1
KILLED: Final = 128 + signal.SIGKILL
STDERR: Final = 2


class Asked(NamedTuple):
    """What is tried.

    cmd: CMD and its arguments.
    codes: the statuses after which no second try helps.
    payload: the payload, as the row keeps it.
    env: the variables that the row sets.
    limit_seconds: the run limit.
    attempt: the attempt of the row.
    cancel_after: seconds after which a heartbeat answers `cancel`; None: none does.
    as_json: whether the end is told as JSON.
    """

    cmd: Sequence[str]
    codes: Codes
    payload: str
    env: dict[str, str]
    limit_seconds: int
    attempt: int = 1
    cancel_after: float | None = None
    as_json: bool = False


def asked_of(cmd: Sequence[str], final: Sequence[str], retry: Sequence[str], **given: Any) -> Asked:
    """What the options of the command line ask for. UsageError names what is wrong with them."""
    if not cmd:
        raise click.UsageError("CMD is missing: dispatcher try [OPTIONS] -- CMD [ARG…]")
    options = [*(f"--final={one}" for one in final), *(f"--retry={one}" for one in retry)]
    try:
        codes, _ = read_options([*options, "--", *cmd])
        payload, env = read_payload(given["payload"]), read_env(given["env"])
    except WrongOption as wrong:
        raise click.UsageError(str(wrong)) from wrong
    return Asked(cmd, codes, payload, env, given["timeout"], given["attempt"], given["cancel_after"], given["as_json"])


class Kubelet:
    """Stops a run as kubelet stops a container. A second signal ends the grace.

    stop: what it did last.
    has_killed: whether it had to kill CMD.
    """

    def __init__(self, run: Run, limit_seconds: float, grace_seconds: float = GRACE_SECONDS) -> None:
        self._run = run
        self._limit_seconds = limit_seconds
        self._grace_seconds = grace_seconds
        self.stop = Stop.SIGTERM
        self.has_killed = False

    async def watch(self) -> None:
        try:
            async with asyncio.timeout(self._limit_seconds):
                await self._run.stopped.wait()
        except TimeoutError:
            tell(f"the run limit of {self._limit_seconds:g} s is over")
            self.stop = Stop.LIMIT
            self._run.stopped.set()
        tell(f"CMD gets SIGTERM, and SIGKILL after {self._grace_seconds:g} s or at a second signal")
        again = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, again.set)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._grace_seconds):
                await again.wait()
        self._kill()

    def _kill(self) -> None:
        tell("CMD gets SIGKILL")
        self.has_killed = True
        self.stop = Stop.KILLED_AT_LIMIT if self.stop.is_limit else Stop.KILLED
        if self._run.command is not None:
            self._run.command.signal(signal.SIGKILL)


def try_command(asked: Asked) -> int:
    """Runs CMD, and tells what would be reported. Returns the exit status."""
    for closed in closed_by_default(asked.env):
        tell(f"note: {closed}")
    try:
        ended = asyncio.run(run_command(asked))
    except OSError as fault:  # no folder for the files
        raise DispatcherError(f"not started: {describe(fault)}") from fault
    tell(in_words(ended))
    if asked.as_json:
        print(printable(msgspec.json.encode(as_told(ended)).decode()))  # noqa: T201  # the output is the purpose
    return ended.status


async def run_command(asked: Asked, grace_seconds: float = GRACE_SECONDS) -> Ended:
    env = env_of_cmd(asked.env, asked.attempt, asked.limit_seconds)
    stdout = STDERR if asked.as_json else None
    work = Work(asked.cmd, env, asked.codes, asked.limit_seconds, HEARTBEAT_SECONDS, stdout)
    row = TriedRow(asked.payload, asked.cancel_after, tell)
    run = Run(row, work)
    kubelet = Kubelet(run, asked.limit_seconds, grace_seconds)
    watching = asyncio.create_task(kubelet.watch())
    try:
        status = await run.go()
    finally:
        watching.cancel()
    if row.report is None and kubelet.has_killed and status == TERMINATED:
        status = KILLED  # kubelet kills the whole container, so `exec` ends like CMD
    return Ended(status, row, kubelet.stop, asked.attempt)


def tell(words: str) -> None:
    say(words, "dispatcher try")
