"""Rows under way while something breaks, and what became of them."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import asyncpg

from tests.node.breaking import only
from tests.node.install import JOBS, OURS, SECONDS_OF_LEASE, states
from tests.node.installation import ENDED, Installation
from tests.node.node import Node

Holds: TypeAlias = Callable[[], Awaitable[bool]]
LONGEST_STALL: Final = SECONDS_OF_LEASE + 2
"""Seconds in which another replica leads, if the leader has not given the lease up."""
SECONDS: Final = 150
"""Longest time from a fault to the end of all rows."""
STALL: Final = """
SELECT max(gap) FROM (SELECT at - lag(at) OVER (ORDER BY at) AS gap FROM public.trace WHERE task_id = ANY ($1)) AS gaps
"""


class Outcome(NamedTuple):
    """The end of all rows.

    rows: their number.
    lost: rows that did not succeed.
    doubles: rows whose work was done twice, or that began more often than they were launched.
    again: rows that were launched again.
    stall_seconds: longest time in which no task began or ended.
    """

    rows: int
    lost: int
    doubles: int
    again: int
    stall_seconds: float


class Load:
    """So many rows, each of which works for so many seconds. With `during`, so many are unfinished at any time."""

    def __init__(self, there: Installation, count: int, seconds: float = 1) -> None:
        self.there = there
        self._count = count
        self._seconds = seconds
        self.ids: list[int] = []

    async def start(self, began: int = 4) -> None:
        """Inserts the rows. Returns when so many of them have begun their work."""
        self.ids = [await self._insert() for _ in range(self._count)]

        async def are_running() -> bool:
            return sum(one["start"] for one in (await self.there.traces(self.ids)).values()) >= began

        await self._until(are_running, f"{began} tasks run")

    async def start_on(self, node: Node) -> None:
        """Inserts the rows while Pods can be placed on this node alone. Returns when all have begun their work."""
        async with only(self.there.site, node):
            await self.start(self._count)

    async def _insert(self) -> int:
        return await self.there.insert("sleep", self._seconds)

    async def during(self, work: Coroutine[None, None, None]) -> None:
        """Does the work while rows come, so that some of them wait from its start to its end."""
        await self.start()
        working = asyncio.create_task(work)

        async def is_done() -> bool:
            for _ in range(self._count - await self.unfinished()):
                self.ids.append(await self._insert())
            return working.done()

        await self._until(is_done, "the end of the work")
        await working

    async def ended(self, more_seconds: float = 0) -> Outcome:
        """Returns when every row has ended. `more_seconds`: that a launch may wait for its start."""
        await self._until(self._are_over, "the end of all rows", SECONDS + more_seconds)
        admin = await self.there.database.session("admin")
        rows = [await self.there.database.task(task_id) for task_id in self.ids]
        traces = await self.there.traces(self.ids)
        launches = dict(zip(self.ids, map(len, await self.histories()), strict=True))
        return Outcome(
            rows=len(rows),
            lost=sum(row["status"] != "succeeded" for row in rows),
            doubles=sum(one["end"] > 1 or one["start"] > launches[task_id] for task_id, one in traces.items()),
            again=sum(count > 1 for count in launches.values()),
            stall_seconds=(await admin.fetchval(STALL, self.ids)).total_seconds(),
        )

    async def histories(self) -> list[list[dict[str, Any]]]:
        """The launches of each row."""
        return [await self.there.history(task_id) for task_id in self.ids]

    async def launched_again(self) -> list[list[dict[str, Any]]]:
        """The launches of the rows that were launched more than once, for the message of a test."""
        return [launches for launches in await self.histories() if len(launches) > 1]

    async def _are_over(self) -> bool:
        try:
            return await self.unfinished() == 0
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False  # the database is what was stopped

    async def unfinished(self) -> int:
        admin = await self.there.database.session("admin")
        query = "SELECT count(*) FROM dispatch.tasks WHERE id = ANY ($1) AND NOT status = ANY ($2)"
        found: int = await admin.fetchval(query, self.ids, list(ENDED))
        return found

    async def _until(self, holds: Holds, what: str, seconds: float = SECONDS) -> None:
        site = self.there.site
        try:
            await site.plane.wait_for(holds, what, seconds)
        except TimeoutError as late:
            late.add_note(await self._rows())
            for namespace in (JOBS, OURS):
                late.add_note(await states(site, namespace))
            raise

    async def _rows(self) -> str:
        admin = await self.there.database.session("admin")
        query = """SELECT t.id, t.status, t.attempt, t.launch, e.reason, e.message
                     FROM dispatch.tasks AS t LEFT JOIN dispatch.task_explain AS e USING (id)
                    WHERE t.id = ANY ($1) AND NOT t.status = ANY ($2)"""
        rows: Sequence[asyncpg.Record] = await admin.fetch(query, self.ids, list(ENDED))
        return "\n".join(str(dict(row)) for row in rows)


class Held(Load):
    """Rows that work until they are released. Their Pods leave an unreachable node at once."""

    async def _insert(self) -> int:
        return await self.there.insert("hold", template="leaving")

    async def release(self) -> None:
        admin = await self.there.database.session("admin")
        await admin.execute("INSERT INTO public.released SELECT unnest($1::bigint[])", self.ids)

    async def are_told(self, reason: str) -> None:
        """Returns when every row is explained by this reason."""
        admin = await self.there.database.session("admin")
        query = "SELECT reason FROM dispatch.task_explain WHERE id = ANY ($1)"

        async def is_told() -> bool:
            return [row["reason"] for row in await admin.fetch(query, self.ids)] == [reason] * self._count

        await self._until(is_told, f"every row is told as {reason}")
