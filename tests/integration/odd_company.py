"""Odd rows in good company: beside them stand rows that have to be launched, shown and ended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest_asyncio

from dispatcher.runtime.metrics import WAITING_TASKS
from tests.controlplane.waiting import wait_for
from tests.integration.odd_programs import Programs, programs
from tests.rig.odd_rows import Odd, owner_of, write
from tests.rig.postgres import Connection, Database
from tests.rig.postgres_fixtures import one_database

database = one_database
OF_KIND: Final = frozenset({"template", "env", "spec", "timeout_seconds"})
"""Columns of which the kind of a row is made."""
OWN_KIND: Final = "sha256(random()::text::bytea)"
REFUSED: Final = {"template": "'nobodys'", "created_at": "now() - interval '1 hour'", "kind": OWN_KIND}
FORGET: Final = """
DELETE FROM dispatch_private.tasks; DELETE FROM dispatch_private.task_launches;
DELETE FROM dispatch_private.task_reasons; DELETE FROM dispatch_private.queue_reasons;
DELETE FROM dispatch_private.reported; DELETE FROM dispatch_private.templates;
DELETE FROM dispatch_private.earlier_start_keys;
DELETE FROM dispatch_private.queues WHERE name NOT IN ('*', 'default')
"""
COUNT: Final = "SELECT count(*) FROM dispatch_private.tasks WHERE status = 'waiting'"
STATUS: Final = "SELECT status FROM dispatch_private.tasks WHERE id = $1"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def owner(database: Database) -> Connection:
    return await owner_of(database)


class Company:
    """Good rows.

    second: has to be launched and shown.
    refused: has to be ended by the janitor.
    """

    def __init__(self, both: Programs, owner: Connection) -> None:
        self.both, self.owner = both, owner
        self.odd: list[int] = []
        self.second = self.refused = 0

    async def gather(self, odds: Sequence[Odd]) -> None:
        """Writes all rows. The first one is launched before the odd ones come: pages need a cycle that has ended."""
        await write(self.owner, "FIRST", "waiting", {})
        await self.both.cycles()
        for odd in odds:
            kind = {"kind": OWN_KIND} if odd.column in OF_KIND else {}
            self.odd.append(await write(self.owner, "FIRST", odd.state, {odd.column: odd.expression} | kind))
        self.second = await write(self.owner, "SECOND", "waiting", {})
        self.refused = await write(self.owner, "THIRD", "waiting", REFUSED)

    async def judge(self) -> list[str]:
        """What breaks the promise."""
        await self.launch()
        await self.show()
        await self.end()
        return self.both.complaints

    async def launch(self) -> None:
        await self.both.cycles()
        if self.second not in self.both.launched():
            self.both.complaints.append("cycle: the other row is not launched")
        await self.both.tell()
        waiting, told = await self.owner.fetchval(COUNT), counted()
        if told != waiting:
            self.both.complaints.append(f"metric: {told:g} of {waiting} waiting rows are counted")

    async def show(self) -> None:
        lists = await self.both.lists()
        page = lists.get("/tasks")
        if page is None or self.second not in {one.task for one in page.tasks}:
            self.both.complaints.append("/tasks: the other row is missing")
        await self.both.row(self.second)
        for id_ in self.odd:
            told = await self.both.row(id_)
            if id_ > 0 and (told is None or not (told.reason or told.message)):
                self.both.complaints.append(f"page of the row: it tells no reason: {told}")

    async def end(self) -> None:
        before = len(self.both.complaints)

        async def is_ended() -> bool:
            await self.both.janitor_round()
            return len(self.both.complaints) > before or await self.owner.fetchval(STATUS, self.refused) == "failed"

        try:
            await wait_for(is_ended, "the janitor ends the refused row", 5)
        except TimeoutError as fault:
            self.both.complaints.append(f"janitor: {fault}")


def counted() -> float:
    """Number of waiting rows that the metric tells."""
    return sum(sample.value for metric in WAITING_TASKS.collect() for sample in metric.samples)


async def complaints_about(database: Database, owner: Connection, folder: Path, odds: Sequence[Odd]) -> list[str]:
    """What breaks the promise if these values stand in the table, each in a row of its own."""
    await owner.execute(FORGET)
    async with programs(database, folder) as both:
        company = Company(both, owner)
        await company.gather(odds)
        return await company.judge()
