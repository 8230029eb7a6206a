"""A call through asyncpg, in a thread without a running event loop."""

import asyncio
from collections.abc import Sequence
from typing import Any

from dispatcher.container import dial
from dispatcher.container.contract import NewestServer, OldPrimary, WrongEnvironment
from dispatcher.task.body import DatabaseFault


def ask(url: str, newest: NewestServer, statement: str, parameters: Sequence[object]) -> tuple[Any, ...] | None:
    """The first row of the answer. `newest`: the newest server that this task saw."""
    loop = asyncio.SelectorEventLoop()  # the body may have set another policy
    try:
        row = loop.run_until_complete(dial.ask_once(url, "dispatcher/task", newest, statement, parameters))
        return None if row is None else tuple(row)
    except (*dial.FAULTS, OldPrimary) as fault:
        raise DatabaseFault(fault, getattr(fault, "sqlstate", None)) from fault
    except dial.UnreadableUrl as fault:
        raise WrongEnvironment(f"TASK_DATABASE_URL cannot be used: {fault}") from None
    finally:
        loop.close()
