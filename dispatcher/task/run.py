"""One launch of one task: its start, its heartbeats while the body runs, and its report.

Failure story: if the process is killed, at any moment, the row stays `processing`, and the next launch takes it over.
"""

import asyncio
import json
import os
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final, Self

from dispatcher.task.calls import ask_until, call, in_thread, say, settled
from dispatcher.task.contract import TAKEN, Contract, DatabaseFault, WrongEnvironment
from dispatcher.task.report import Failed, Report, as_note, as_progress, as_result, judge
from dispatcher.task.sigterm import Sigterm

UNREPORTED: Final = 69
"""The exit status of a process that could not deliver its report. With 0 the row would be parked."""


class Task:
    """The task of this container. Use it once, with `with` or `async with`.

    The body ends: `succeeded`. It raises: `retry`, with the end of the traceback. It raises Failed, or
    exits with a status of `report.FINAL`: `failed`. SIGTERM raises SystemExit(143) in the body, once, and nothing is
    reported; that works in the main thread alone.
    """

    def __init__(self, contract: Contract, heartbeat_seconds: float = 15) -> None:
        self._url, self._me = contract.database_url, contract.me
        self._heartbeat_seconds = heartbeat_seconds
        self._deadline = time.monotonic() + contract.limit_seconds
        self._owner = os.getpid()
        self._over = threading.Event()
        self._sigterm = Sigterm()
        self._row_says = ""  # cancel or lost
        self._said: tuple[float | None, str | None] = (None, None)
        self._finished: Report | None = None

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
        """Says how far the body is, from 0 to 1, and what it does. The next heartbeat tells both."""
        before, words = self._said
        self._said = before if done is None else as_progress(done), words if note is None else as_note(note)

    def finish(self, result: object = None) -> None:
        """Sets the result: JSON of at most 64 KiB. It is reported when the body ends."""
        self._finished = Report("succeeded", result=None if result is None else as_result(result))

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
        self._sigterm.catch()
        os.environ[TAKEN] = str(self._owner)
        try:
            yield in_thread(lambda: ask_until(self._deadline, self._over, self._url, "start", *self._me))
        except BaseException:  # whatever ends the start, nobody asks any more
            self._over.set()
            self._sigterm.restore()
            os.environ.pop(TAKEN, None)
            raise

    def _begin(self, row: tuple[Any, ...] | None) -> Self:
        if row is None:
            say("the row is not this launch's, or not any more: nothing to do")
            raise SystemExit(0)
        self._token, self._payload = row
        threading.Thread(target=self._beat, daemon=True).start()
        return self

    def _beat(self) -> None:
        """Sends heartbeats until the body ends. An unreachable database is no reason to stop."""
        while not self.lost and not self._over.wait(self._heartbeat_seconds):
            try:
                row = call(self._url, "heartbeat", self._token, *self._said)
            except Exception as fault:  # noqa: BLE001  # whatever it is, the next heartbeat may arrive
                if not self._over.is_set():
                    say(f"task_heartbeat: {fault}")
                continue
            if (answer := row[0] if row else "lost") not in {"continue", self._row_says}:
                say(f"the row says {answer}")  # before the body hears it: the process may end then
                self._row_says = answer

    @contextmanager
    def _ending(self, fault: BaseException | None) -> Iterator[Future[int]]:
        self._sigterm.is_ignored = True
        self._over.set()
        report = judge(fault, self._row_says, is_stopped=self._sigterm.came, finished=self._finished)
        reported = in_thread(lambda: self._send(report))
        try:
            yield reported
        finally:
            self._sigterm.restore()
            os.environ.pop(TAKEN, None)
            if reported.done() and (status := reported.result()):
                if fault is not None:
                    traceback.print_exception(fault)  # it goes no further
                raise SystemExit(status)

    def _send(self, report: Report | None) -> int:
        """The exit status. 0: there is nothing to add to the end of the body."""
        if report is None:
            return 0
        try:
            answer = ask_until(self._deadline, threading.Event(), self._url, "finish", self._token, *report)
        except (DatabaseFault, WrongEnvironment) as fault:
            if report.result is not None and isinstance(fault, DatabaseFault) and fault.is_of_value:
                return self._send(Report("failed", f"the result cannot be stored: {fault}")) or 1
            say(f"{report.outcome} could not be reported: {fault}")
            return UNREPORTED
        if answer is None or answer[0] is None:
            say(f"{report.outcome} was not accepted: the row is somebody else's by now")
        return 0
