"""The three calls of a container. Each opens a connection of its own, in a thread that waits for nothing else."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from dispatcher.container import asking
from dispatcher.container.contract import NewestServer, is_final
from dispatcher.task.body import DatabaseFault

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
        except DatabaseFault as fault:
            if is_final(name, fault.sqlstate) or time.monotonic() >= deadline or over.is_set():
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
