"""Compares the dispatcher's templates with those of the janitor, by which INSERT judges rows.

Both read files of their own. While the files differ, INSERT refuses rows that could run, or accepts rows that wait.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import structlog

from dispatcher.jobs.offered import differences
from dispatcher.model.templates import OfferedTemplate

EVERY_SECONDS: Final = 30
log = structlog.get_logger(component="dashboard.comparing")


class Table(Protocol):
    """The janitor's templates in one snapshot of the database."""

    async def templates(self) -> list[OfferedTemplate]: ...


class Comparing:
    """One comparison a round. A difference is told when two rounds have seen it: files reach Pods at different times.

    tables: opens a snapshot of the database.
    offered: the dispatcher's templates.
    tell: takes the differences.
    every_seconds: pause between two comparisons.
    """

    def __init__(
        self,
        tables: Callable[[], AbstractAsyncContextManager[Table]],
        offered: Callable[[], Sequence[OfferedTemplate]],
        tell: Callable[[Sequence[str]], None],
        every_seconds: float = EVERY_SECONDS,
    ) -> None:
        self._tables = tables
        self._offered = offered
        self._tell = tell
        self._every_seconds = every_seconds
        self._seen: Sequence[str] = ()
        self._told: Sequence[str] = ()

    async def run_once(self) -> float:
        """Returns the seconds until the next comparison. Raises DatabaseError."""
        async with self._tables() as table:
            found = differences(self._offered(), await table.templates())
        lasting = [one for one in found if one in self._seen]
        if lasting != self._told:
            log.warning("the janitor has other templates" if lasting else "the templates agree again", differ=lasting)
        self._seen, self._told = found, lasting
        self._tell(lasting)
        return self._every_seconds
