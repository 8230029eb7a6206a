"""One launch of one task: its start, its heartbeats while the body runs, and its report.

Failure story: if the process is killed, at any moment, the row stays `processing`, and the next launch takes it over.

`StopSignals`: after SIGTERM from outside, such as the drain of a node, the body unwinds, as after an exception. It gets
SIGINT and SIGQUIT as always, and is not done if it ends after them: some images name one to be stopped (STOPSIGNAL).
Programs use the other signals for purposes of their own, such as a reload, and go on. So these tell of no stop.

The three calls of a container: each opens a connection of its own, in a thread that waits for nothing else.
"""

import _signal  # type: ignore[import-not-found]  # typeshed has only what stands above it
import asyncio
import json
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

from dispatcher.container import asking
from dispatcher.container.contract import (
    PUT_OFF,
    START_SECONDS,
    TAKEN,
    UNREPORTED,
    LaunchContract,
    NewestServer,
    WrongEnvironment,
    is_final,
)
from dispatcher.task.body import DatabaseFault, Failed, TaskReport, as_note, as_progress, as_result, is_success, judge

try:
    from dispatcher.task.by_asyncpg import ask
except ImportError:
    try:
        from dispatcher.task.by_psycopg import ask
    except ImportError as fault:
        raise ImportError("dispatcher.task needs asyncpg or psycopg 3: install one of them") from fault

T = TypeVar("T")
SQL: Final = Path(__file__).parents[1] / "sql" / "exec"
STATEMENTS: Final = {
    name: (SQL / f"{name}.sql").read_text(encoding="utf-8").partition("\n")[2]  # the first line is a comment
    for name in ("start", "heartbeat", "finish")
}
"""The statements. They are read now, because the body may use up all descriptors."""
say: Final = partial(asking.say, "dispatcher.task")


class TaskDatabase(NamedTuple):
    """The database of the calls. `newest`: the newest server that answered one of them."""

    url: str
    newest: NewestServer


def call(database: TaskDatabase, name: str, *parameters: object) -> tuple[Any, ...] | None:
    """The first row of the answer. Raises DatabaseFault or WrongEnvironment if there is none."""
    return ask(*database, STATEMENTS[name], parameters)


def ask_until(
    deadline: float, over: threading.Event, database: TaskDatabase, name: str, *parameters: object
) -> tuple[Any, ...] | None:
    """Repeats the call, with growing pauses. Gives up after a final fault, at the deadline, or when `over` is set."""
    pause = asking.pauses()
    while True:
        try:
            return call(database, name, *parameters)
        except (DatabaseFault, WrongEnvironment) as fault:
            if is_final(name, fault) or time.monotonic() >= deadline or over.is_set():
                raise
            say(f"task_{name}: {fault}; asked again")
            if over.wait(next(pause)):
                raise


def in_thread_or_here(work: Callable[[], T]) -> Future[T]:
    """Runs the work in a new thread. If none can be started, it runs here: a report must not be lost.

    A pool of the body may have used up all threads, and the main thread may have ended.
    """
    try:
        return asking.in_thread(work)
    except RuntimeError:
        future: Future[T] = Future()
        try:
            future.set_result(work())
        except Exception as fault:  # noqa: BLE001  # the one who waits for it gets it
            future.set_exception(fault)
        return future


async def settled(future: Future[T]) -> T:
    """Waits for the end of the work even if the waiting task is cancelled. It then passes the cancellation on."""
    waiting, cancelled = asyncio.wrap_future(future), None
    while not waiting.done():
        try:
            await asyncio.wait([waiting])
        except asyncio.CancelledError as fault:
            cancelled = fault
    if cancelled is not None:
        raise cancelled
    return waiting.result()


TERMINATED: Final = 128 + signal.SIGTERM
STOPS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
SET: Final[Callable[[int, Any], Any]] = _signal.signal
"""The function that all others call, `signal.signal` among them, however they were imported."""


class StopSignals:
    """SIGTERM raises SystemExit(143) in the main thread. A task in another thread has no handler.

    came: it has raised, or a handler of the body was called. It raises once: a second SIGTERM does not disturb the
    cleaning up.
    is_ignored: the body has ended, so its report is not disturbed, nor by a handler that the body has left.
    """

    def __init__(self) -> None:
        self.came = self.is_ignored = self._has_raised = False
        self._before: dict[int, Any] = {}

    def catch(self) -> None:
        os.register_at_fork(after_in_child=self._leave_to_child)
        if threading.current_thread() is threading.main_thread():
            self._before[signal.SIGTERM] = SET(signal.SIGTERM, self._raise) or int(signal.SIG_DFL)  # no enum
            for number in STOPS[1:]:  # KeyboardInterrupt, and what the program has set before
                if callable(handler := signal.getsignal(number)):
                    self._before[number] = self._set(number, handler)
            _signal.signal = self._set

    def restore(self) -> None:
        if self._before:
            _signal.signal = SET
            for number, handler in self._before.items():
                SET(number, handler)
        self.is_ignored = False

    def _set(self, number: int, handler: Any) -> Any:
        """Replaces `_signal.signal` while the body runs. A handler of the body hides no stop signal from us.

        asyncio and uvloop set their handlers through it, too.
        """
        if number == signal.SIGTERM and handler == signal.SIG_DFL:
            handler = self._raise  # an event loop that ends sets it, and PID 1 would ignore SIGTERM then
        if number not in STOPS or not callable(handler) or handler == self._raise:
            return SET(number, handler)

        def told(number: int, frame: object) -> None:
            if not self.is_ignored:
                self.came = True
                handler(number, frame)

        return SET(number, told)

    def _leave_to_child(self) -> None:
        """In a child that was forked in the body. SIGTERM ends it at once, also in the midst of code in C."""
        _signal.signal = SET
        if signal.getsignal(signal.SIGTERM) == self._raise:
            SET(signal.SIGTERM, self._before[signal.SIGTERM])

    def _raise(self, *_: object) -> None:
        if not self._has_raised and not self.is_ignored:
            self.came = self._has_raised = True
            raise SystemExit(TERMINATED)


def begin_beating(beat: Callable[[], None]) -> None:
    """Starts the thread of the heartbeats. It starts before the row, which is not taken without heartbeats."""
    try:
        threading.Thread(target=beat, daemon=True).start()
    except RuntimeError as fault:
        say(f"not started: {fault}")
        raise SystemExit(PUT_OFF) from fault


class ContainerTask:
    """The task of this container. Use it once, with `with` or `async with`.

    * The body ends: `succeeded`.
    * The body raises: `retry`, with the end of the traceback.
    * The body raises Failed, or exits with a status of `contract.FINAL`: `failed`.
    * SIGTERM raises SystemExit(143) in the body, once, and nothing is reported. That works only in the main thread.
    * A body with its own handler that ends after SIGTERM, SIGINT or SIGQUIT is not done, unless it called `finish`.
    """

    def __init__(self, contract: LaunchContract, heartbeat_seconds: float = 15) -> None:
        self._database = TaskDatabase(contract.database_url, NewestServer())
        self._me = (*contract.me, os.urandom(16).hex())
        self._heartbeat_seconds = heartbeat_seconds
        self._deadline = time.monotonic() + contract.limit_seconds
        self._owner = 0
        self._over = threading.Event()
        self._stops = StopSignals()
        self._token: object = None
        self._heard = self._row_says = ""  # cancel or lost: what the end goes by, and what the body is told
        self._said: tuple[float | None, str | None] = (None, None)
        self._finished: TaskReport | None = None

    @cached_property
    def payload(self) -> Any:
        """The payload of the row. None: it has none."""
        try:
            return json.loads(self._payload)
        except (ValueError, RecursionError) as fault:  # JSON for Postgres: a number of 5,000 digits, or 1,000 levels
            raise Failed(f"the payload cannot be read: {fault}") from fault

    @property
    def cancelled(self) -> bool:
        """True: stop. Finished work may still be reported by `finish`."""
        return self._row_says != ""

    @property
    def lost(self) -> bool:
        """True: another container has the task. Stop, and publish nothing."""
        return self._row_says == "lost"

    def progress(self, done: float | None = None, note: str | None = None) -> None:
        """Says how far the body is, from 0 to 1, and what it does. The next heartbeat sends both."""
        before, words = self._said
        self._said = before if done is None else as_progress(done), words if note is None else as_note(note)

    def finish(self, result: object = None) -> None:
        """Sets the result: JSON of at most 64 KiB. It is reported when the body ends."""
        self._finished = TaskReport("succeeded", result=None if result is None else as_result(result))

    def __enter__(self) -> Self:
        with self._starting() as started:
            return self._begin(started.result())

    async def __aenter__(self) -> Self:
        with self._starting() as started:
            return self._begin(await asyncio.wrap_future(started))

    def __exit__(self, _: object, fault: BaseException | None, __: object) -> None:
        if os.getpid() == self._owner:  # or else a child that was forked in the body
            with self._ending(fault) as reported:
                reported.result()

    async def __aexit__(self, _: object, fault: BaseException | None, __: object) -> None:
        if os.getpid() == self._owner:
            with self._ending(fault) as reported:
                await settled(reported)

    @contextmanager
    def _starting(self) -> Iterator[Future[tuple[Any, ...] | None]]:
        self._owner = os.getpid()
        self._stops.catch()
        os.environ[TAKEN] = str(self._owner)
        try:
            deadline = min(self._deadline, time.monotonic() + START_SECONDS)
            begin_beating(self._beat)
            yield in_thread_or_here(lambda: ask_until(deadline, self._over, self._database, "start", *self._me))
        except BaseException as fault:  # whatever ends the start, nobody asks any more
            self._over.set()
            self._stops.restore()
            os.environ.pop(TAKEN, None)
            if isinstance(fault, DatabaseFault) and not fault.is_of_values:
                say(f"not started: {fault}")
                raise SystemExit(PUT_OFF) from fault
            raise

    def _begin(self, row: tuple[Any, ...] | None) -> Self:
        if row is None:
            say("the row is not this launch's, or not any more: nothing to do")
            raise SystemExit(0)
        self._token, self._payload = row
        return self

    def _beat(self) -> None:
        """Sends heartbeats until the body ends. An unreachable database is no reason to stop."""
        while not self.lost and not self._over.wait(self._heartbeat_seconds):
            if self._token is None:  # the row is not ours yet
                continue
            try:
                row = call(self._database, "heartbeat", self._token, *self._said)
            except Exception as fault:  # noqa: BLE001  # whatever it is, the next heartbeat may arrive
                if not self._over.is_set():
                    say(f"task_heartbeat: {fault}")
                continue
            if (answer := row[0] if row else "lost") not in {"continue", self._row_says} and not self._over.is_set():
                self._heard = answer  # first: whoever reads the words may send SIGTERM at once
                say(f"the row says {answer}")
                self._row_says = answer  # last: the body may end the process at once

    @contextmanager
    def _ending(self, fault: BaseException | None) -> Iterator[Future[int]]:
        self._stops.is_ignored = True
        self._over.set()
        report = judge(fault, self._heard, is_stopped=self._stops.came, finished=self._finished)
        is_left = report is None and is_success(fault) and self._finished is None
        if is_left and not self._heard:
            say("the body ended after a signal to stop, and without `finish`: not reported, the next launch takes over")
        reported = in_thread_or_here(lambda: TERMINATED if is_left else self._send(report))
        try:
            yield reported
        finally:
            self._stops.restore()
            os.environ.pop(TAKEN, None)
            if reported.done() and (status := reported.result()):
                if fault is not None:
                    traceback.print_exception(fault)  # it goes no further
                raise SystemExit(status)

    def _send(self, report: TaskReport | None) -> int:
        """Reports. Returns the exit status. 0: the body's own end stays."""
        if report is None:
            return 0
        try:
            answer = ask_until(self._deadline, threading.Event(), self._database, "finish", self._token, *report)
        except (DatabaseFault, WrongEnvironment) as fault:
            if report.result is not None and isinstance(fault, DatabaseFault) and fault.is_of_values:
                return self._send(TaskReport("failed", f"the result cannot be stored: {fault}")) or 1
            say(f"{report.outcome} could not be reported: {fault}")
            return UNREPORTED
        if answer is None or answer[0] is None:
            say(f"{report.outcome} was not accepted: the row is somebody else's by now")
        return 0
