"""For programs of task authors: takes the row of the container, sends heartbeats while the body runs, and reports.

    with task() as t:  # or: async with task() as t
        rows = t.payload["rows"]
        t.progress(0.4, "reading month 5")
        if t.cancelled: ...
        t.finish({"rows": 3})

It behaves as `dispatcher exec` does (docs/author.md), and needs asyncpg or psycopg 3, and nothing else of this package.
"""

import os

from dispatcher.container.contract import WrongEnvironment, read_contract
from dispatcher.task.body import DatabaseFault, Failed
from dispatcher.task.run import ContainerTask as Task

__all__ = ["DatabaseFault", "Failed", "Task", "WrongEnvironment", "task"]


def task() -> Task:
    """The task of this container, for one `with`. WrongEnvironment: this is no container of a task."""
    return Task(read_contract(os.environ, "call what the body calls: `exec` and `try` run no program with `task()`"))
