"""Queries for lists of rows: pages by filters, batches, failures.

Each reads a bounded number of rows, by an index. A session has one plan for all parameters, so each index has a query.
"""

import heapq
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import asyncpg
from msgspec import structs

from dispatcher.model.history import (
    MOST_FAILED,
    MOST_MATCHING,
    BatchCount,
    FailedTask,
    Found,
    ListedTask,
    Source,
    Wanted,
)
from dispatcher.model.tasks import Status
from dispatcher.pg.connect import SESSION
from dispatcher.pg.queries import query
from dispatcher.pg.tasks import Look, columns

LARGEST_ID: Final = 2**63 - 1
MOST_FEW: Final = 3000
"""Rows from all parts of the table cost a page of it each: 40 ms for so many."""
FEW_MILLISECONDS: Final = 25
"""An index of labels finds all rows of a label before the first one: 0.15 s for a million."""
LOOKED_AT: Final = 25_000
LOOKED_AT_OF_SOME: Final = 5000
"""Rows of one submitter or batch may lie far apart in the table, so that each costs a page of it."""
MOST_BATCHES: Final = 20
MOST_OF_BATCH: Final = 100_000
MOST_FAILED_OF_BATCH: Final = 1000
INDEXED: Final = frozenset({Status.PROCESSING, Status.FAILED})
"""Each of these statuses has an index of its rows."""


class Lists(Look):
    """One snapshot, with the queries for lists."""

    async def find(self, wanted: Wanted, labels: str | None, among: Sequence[int] | None) -> Found:
        """The newest rows that match.

        labels: the label that is asked for, as JSON.
        among: only these rows can match; None: every row can.
        """
        if among is None and is_of_waiting(wanted):
            found = await self._newest_waiting(queues_of(wanted), before(wanted), wanted.limit)
            if found is not None:
                return found
        if among is None:
            owners = await self._owners_of(wanted)
            if owners == []:
                return Found([], 0)
            if owners and len(owners) == 1:
                wanted = structs.replace(wanted, queue=owners[0][0], submitted_by=owners[0][1])
            among = await self.few(wanted, labels)
        if among is not None:
            return await self._among(wanted, labels, among)
        return await self._among_newest(wanted, labels)

    async def few(self, wanted: Wanted, labels: str | None) -> list[int] | None:
        """The only rows that can match, by the index of one filter; None: they are too many, or no filter has one.

        Of many waiting rows, the result has the newest ones, one more than a page reads.
        """
        if wanted.id is not None:
            return [wanted.id]
        if has_owner(wanted):
            return None  # its index has the rows of the batch in the order of the page
        if labels is not None:
            return await few_ids(self._connection, "few_with_labels", labels)
        if wanted.batch is not None:
            return await few_ids(self._connection, "few_of_batch", wanted.queue, wanted.batch)
        return await self._few_of_status(wanted)

    async def page(self, ids: Sequence[int]) -> list[ListedTask]:
        """Rows, the newest first."""
        return await self.all("page", lambda row: ListedTask(*row), ids) if ids else []

    async def sources(self, ids: Sequence[int]) -> list[Source]:
        return await self.all("sources", lambda row: Source(*row), ids) if ids else []

    async def batches(self, queue: str | None, submitted_by: str | None, batch: str) -> list[BatchCount]:
        """Batches of this name. `queue`, `submitted_by`: None: of every one."""
        owners = await self.owners(queue, submitted_by, batch)
        most = MOST_OF_BATCH // max(1, len(owners))
        return await self.all("batches", lambda row: BatchCount(*row), *columns(owners), batch, most)

    async def owners(self, queue: str | None, submitted_by: str | None, batch: str) -> list[tuple[str, str]]:
        """(queue, submitter) of the batches of this name."""
        return await self.all("owners_of_batch", tuple, queue, submitted_by, batch, MOST_BATCHES)

    async def failed(self, since: datetime) -> list[FailedTask]:
        """The rows that failed since a time, the newest first."""
        return await self.all("failed", lambda row: FailedTask(*row), since, MOST_FAILED)

    async def failed_of_batch(self, queue: str, submitted_by: str, batch: str) -> list[FailedTask]:
        """The failed rows of a batch, in no order."""
        parameters = queue, batch, submitted_by, MOST_FAILED_OF_BATCH, MOST_OF_BATCH
        return await self.all("failed_of_batch", lambda row: FailedTask(*row), *parameters)

    async def _owners_of(self, wanted: Wanted) -> list[tuple[str, str]] | None:
        """(queue, submitter) of the batch that is asked for; None: none is, or both are given."""
        if wanted.batch is None or has_owner(wanted):
            return None
        return await self.owners(wanted.queue, wanted.submitted_by, wanted.batch)

    async def _few_of_status(self, wanted: Wanted) -> list[int] | None:
        if wanted.status is Status.WAITING:
            found = await self._newest_waiting(queues_of(wanted), before(wanted), MOST_FEW + 1)
            return None if found is None else list(found.ids)
        return await few_ids(self._connection, "few_of_status", wanted.status) if wanted.status in INDEXED else None

    async def newest_waiting(self, queues: Sequence[str] | None, wanted: Wanted, *, are_due: bool) -> Sequence[int]:
        """Ids of the newest waiting rows of these queues, one more than a page reads; None: of every queue.

        None are found if that takes too long.
        """
        found = await self._newest_waiting(queues, before(wanted), MOST_FEW + 1, are_due)
        return found.ids if found is not None else ()

    async def _newest_waiting(
        self, queues: Sequence[str] | None, first: int, most: int, are_due: bool | None = None
    ) -> Found | None:
        """The newest waiting rows below `first`, `most` of them with their ids; None: it takes too long.

        Their index has the order in which they are launched. A thousand priorities in one queue, or very many rows
        with a `run_at`, take too long.
        """
        parameters = first, queues, MOST_MATCHING + 1, most, are_due
        found = await briefly(self._connection, "newest_waiting", *parameters)
        return None if found is None else Found(*found[0])

    async def _among(self, wanted: Wanted, labels: str | None, ids: Sequence[int]) -> Found:
        first = before(wanted)
        newest = heapq.nlargest(MOST_FEW + 1, (id_ for id_ in ids if id_ < first))
        found = await self._matching("matching_among", wanted, labels, newest[:MOST_FEW])
        return Found(found.ids, found.matching, newest[MOST_FEW - 1] if len(newest) > MOST_FEW else None)

    async def _among_newest(self, wanted: Wanted, labels: str | None) -> Found:
        """The rows that match among the newest ones of a batch, of a submitter or of the table."""
        if has_owner(wanted):
            return await self._matching("matching_of_batch", wanted, labels, LOOKED_AT_OF_SOME)
        if wanted.submitted_by:
            return await self._matching("matching_of_submitter", wanted, labels, LOOKED_AT_OF_SOME)
        return await self._matching("matching", wanted, labels, LOOKED_AT)

    async def _matching(self, name: str, wanted: Wanted, labels: str | None, looked_at: int | Sequence[int]) -> Found:
        filters = wanted.queue, wanted.status, wanted.submitted_by, wanted.batch, labels, wanted.template
        row = await self._connection.fetchrow(
            query(name), before(wanted), *filters, MOST_MATCHING + 1, wanted.limit, looked_at
        )
        assert row is not None
        return Found(*row)


def is_of_waiting(wanted: Wanted) -> bool:
    """Whether the waiting rows of a queue, or of all queues, are asked for, and nothing else."""
    return wanted == Wanted(wanted.queue, Status.WAITING, after=wanted.after, limit=wanted.limit)


def before(wanted: Wanted) -> int:
    """The page has the ids below this one."""
    return LARGEST_ID if wanted.after is None else wanted.after


def queues_of(wanted: Wanted) -> list[str] | None:
    return None if wanted.queue is None else [wanted.queue]


def has_owner(wanted: Wanted) -> bool:
    """Whether one batch is asked for: two submitters, or two queues, may use the same name."""
    return None not in (wanted.batch, wanted.queue, wanted.submitted_by)


async def few_ids(connection: asyncpg.Connection, name: str, *parameters: Any) -> list[int] | None:
    """The ids that a query finds; None: they are too many, or it takes too long."""
    found = await briefly(connection, name, *parameters, MOST_FEW + 1)
    return [row["id"] for row in found] if found is not None and len(found) <= MOST_FEW else None


async def briefly(connection: asyncpg.Connection, name: str, *parameters: Any) -> list[asyncpg.Record] | None:
    """The rows of a query; None: it takes too long."""
    try:
        async with connection.transaction():  # a savepoint: the snapshot outlives a query that was stopped
            await connection.fetch(query("statement_timeout"), str(FEW_MILLISECONDS))
            found = await connection.fetch(query(name), *parameters)
            await connection.fetch(query("statement_timeout"), SESSION["statement_timeout"])
            return list(found)
    except asyncpg.QueryCanceledError:
        return None
