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
"""Read now: the body may use up all descriptors."""
say: Final = partial(asking.say, "dispatcher.task")


class TaskDatabase(NamedTuple):
    """Where the calls go. `newest`: the newest server that answered one of them."""

    url: str
    newest: NewestServer


def call(database: TaskDatabase, name: str, *parameters: object) -> tuple[Any, ...] | None:
    """The first row of the answer. DatabaseFault, WrongEnvironment: there is none."""
    return ask(*database, STATEMENTS[name], parameters)


def ask_until(
    deadline: float, over: threading.Event, database: TaskDatabase, name: str, *parameters: object
) -> tuple[Any, ...] | None:
    """Repeats the call, with growing pauses. Gives up after a final fault, at the deadline, or if all is over."""
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


def in_thread(work: Callable[[], T]) -> Future[T]:
    """The work in a new thread, which does not keep the process alive."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # whoever gives up waiting must not cancel what is under way

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as fault:  # noqa: BLE001  # the one who waits for it gets it
            future.set_exception(fault)

    threading.Thread(target=run, daemon=True).start()
    return future


async def settled(future: Future[T]) -> T:
    """Waits for the end of the work also when the waiting task is cancelled. Passes the cancellation on then."""
    waiting, cancelled = asyncio.wrap_future(future), None
    while not waiting.done():
        try:
            await asyncio.wait([waiting])
        except asyncio.CancelledError as fault:
            cancelled = fault
    if cancelled is not None:
        raise cancelled
    return waiting.result()
