"""A call through asyncpg, in a thread without a running event loop."""

import socket
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from dispatcher.container import dial
from dispatcher.container.contract import NewestServer, OldPrimary, WrongEnvironment
from dispatcher.task.body import DatabaseFault


class LoopWithoutThreads(dial.Loop):
    """Looks names up without a thread. A program whose main thread has ended can start none, and has to report."""

    async def getaddrinfo(self, host: Any, port: Any, **how: Any) -> Any:
        return socket.getaddrinfo(host, port, **how)


def ask(url: str, newest: NewestServer, statement: str, parameters: Sequence[object]) -> tuple[Any, ...] | None:
    """The first row of the answer. `newest`: the newest server that this task saw."""
    try:
        asked = dial.ask_once(url, "dispatcher/task", newest, statement, parameters)
        with closing(asked), closing(LoopWithoutThreads()) as loop:  # the body may have set another policy
            row = loop.run_until_complete(asked)
        return None if row is None else tuple(row)
    except (*dial.FAULTS, OldPrimary) as fault:
        raise DatabaseFault(fault, getattr(fault, "sqlstate", None)) from fault
    except dial.UnreadableUrl as fault:
        raise WrongEnvironment(f"TASK_DATABASE_URL cannot be used: {fault}") from None
    except Exception as fault:  # whatever it is, the report may arrive later: with gevent one loop runs at a time
        raise DatabaseFault(fault, None) from fault
