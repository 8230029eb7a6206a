"""Queries that answer people's questions. No cycle waits for them.

`ListReads`: lists of rows: pages by filters, batches, failures. Each query reads a bounded number of rows, by an index.
A session has one plan for all parameters, so each index has a query.

`OwnRows`: the questions of `dispatcher submit` and `dispatcher wait` with a submitter's login, by functions of schema
`dispatch`.
"""

import heapq
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

import asyncpg
import msgspec
from msgspec import Struct, structs

from dispatcher.model.errors import DispatcherError
from dispatcher.model.history import (
    MOST_FAILED,
    MOST_MATCHING,
    BatchStatus,
    EndedTask,
    FailedTask,
    JobSource,
    LaunchFacts,
    ListedRow,
    Percentiles,
    QueueSettings,
    RowFilter,
    RowMarks,
    RowMatches,
    Start,
)
from dispatcher.model.tasks import LARGEST_ID, EndCount, LinePosition, OfferedTemplate, QueueCount, Status, Task
from dispatcher.pg.connect import SESSION, Session, Url
from dispatcher.pg.queries import query
from dispatcher.pg.tasks import UNREADABLE, TaskSnapshot, columns, read_texts, snapshot

T = TypeVar("T")
LONGEST_COUNT_SECONDS: Final = 15
"""Seconds that a count of the waiting rows may take: 5 are too few for ten million. A stop waits for it."""
MOST_BATCHES: Final = 20
"""Batches of one name that are counted, at most."""
OF_BATCHES: Final = ("waiting", "processing", "succeeded", "failed", "cancelled")
"""The statuses by which the rows of a batch are counted."""
OF_A_SUBMITTER: Final = {
    "application_name": "dispatcher/wait",
    "statement_timeout": "7000",
}
MOST_EXPLAINED: Final = 1000
"""Rows whose reasons are read, at most."""
OF_THE_ROW: Final = ("DI", "22", "23", "42501")
"""SQLSTATEs that name a fault of a row: ours, the type of a value, a key, the right to insert."""
FIRST_ELEMENT: Final = "element 1 of tasks: "
UNSEEN: Final = (
    "a row of this dedupe_key is alive, and the role that the login begins as does not see it\n"
    "Let the login inherit: ALTER ROLE … INHERIT, then grant it dispatch_submitter again."
)
INDEXED: Final = frozenset({Status.PROCESSING, Status.FAILED})
"""Statuses whose rows have an index of their own."""


class ListBounds(msgspec.Struct, frozen=True):
    """What a list reads at most.

    few: ids read by one index before filtering. Rows from all parts of the table cost a page each: 40 ms for so many.
    few_milliseconds: statement_timeout of such a query. An index of labels takes 0.15 s for a million rows of a label.
    looked_at: newest rows of the table.
    looked_at_of_some: newest rows of one submitter or batch. They may lie far apart, so that each costs a page.
    of_batch: rows of a batch that are counted.
    failed, failed_of_batch: failed rows of the page of failures, and of a batch.
    """

    few: int = 3000
    few_milliseconds: int = 25
    looked_at: int = 25_000
    looked_at_of_some: int = 5000
    of_batch: int = 100_000
    failed: int = MOST_FAILED
    failed_of_batch: int = 1000


class ListReads(TaskSnapshot):
    """One snapshot, with the queries for lists."""

    bounds: ClassVar[ListBounds] = ListBounds()

    async def find(self, wanted: RowFilter, labels: str | None, among: Sequence[int] | None) -> RowMatches:
        """The newest rows that match.

        labels: the wanted label, as JSON.
        among: only these rows can match; None: every row can.
        """
        if among is None and is_of_waiting(wanted):
            found = await self._newest_waiting(queues_of(wanted), before(wanted), wanted.limit)
            if found is not None:
                return found
        if among is None:
            owners = await self._owners_of(wanted)
            if owners == []:
                return RowMatches([], 0)
            if owners and len(owners) == 1:
                wanted = structs.replace(wanted, queue=owners[0][0], submitted_by=owners[0][1])
            among = await self.few(wanted, labels)
        if among is not None:
            return await self._among(wanted, labels, among)
        return await self._among_newest(wanted, labels)

    async def few(self, wanted: RowFilter, labels: str | None) -> list[int] | None:
        """The only rows that can match, by the index of one filter; None: they are too many, or no filter has an index.

        Of many waiting rows, the result has the newest ones, one more than a page reads.
        """
        if wanted.id is not None:
            return [wanted.id]
        if has_owner(wanted):
            return None  # its index has the rows of the batch in the order of the page
        if labels is not None:
            return await few_ids(self._connection, self.bounds, query("few_with_labels", "pages"), labels)
        if wanted.batch is not None:
            return await few_ids(
                self._connection, self.bounds, query("few_of_batch", "pages"), wanted.queue, wanted.batch
            )
        return await self._few_of_status(wanted)

    async def page(self, ids: Sequence[int]) -> list[ListedRow]:
        """Rows, the newest first."""
        return await self.all(query("page", "pages"), lambda row: ListedRow(*row), ids) if ids else []

    async def sources(self, ids: Sequence[int]) -> list[JobSource]:
        return await self.all(query("sources", "batches"), lambda row: JobSource(*row), ids) if ids else []

    async def batches(self, queue: str | None, submitted_by: str | None, batch: str) -> list[BatchStatus]:
        """Batches of this name. `queue`, `submitted_by`: None: any."""
        owners = await self.owners(queue, submitted_by, batch)
        most = self.bounds.of_batch // max(1, len(owners))
        return await self.all(query("batches", "batches"), read_batch, *columns(owners), batch, most)

    async def owners(self, queue: str | None, submitted_by: str | None, batch: str) -> list[tuple[str, str]]:
        """(queue, submitter) of the batches of this name."""
        return await self.all(query("owners_of_batch", "batches"), tuple, queue, submitted_by, batch, MOST_BATCHES)

    async def failed(self, since: datetime) -> list[FailedTask]:
        """The rows that failed since a time, the newest first."""
        return await self.all(query("failed", "batches"), lambda row: FailedTask(*row), since, self.bounds.failed)

    async def failed_of_batch(self, queue: str, submitted_by: str, batch: str) -> list[FailedTask]:
        """The failed rows of a batch, in no order."""
        parameters = queue, batch, submitted_by, self.bounds.failed_of_batch, self.bounds.of_batch
        return await self.all(query("failed_of_batch", "batches"), lambda row: FailedTask(*row), *parameters)

    async def _owners_of(self, wanted: RowFilter) -> list[tuple[str, str]] | None:
        """(queue, submitter) of the wanted batch; None: no batch is wanted, or both are given."""
        if wanted.batch is None or has_owner(wanted):
            return None
        return await self.owners(wanted.queue, wanted.submitted_by, wanted.batch)

    async def _few_of_status(self, wanted: RowFilter) -> list[int] | None:
        if wanted.status is Status.WAITING:
            found = await self._newest_waiting(queues_of(wanted), before(wanted), self.bounds.few + 1)
            return None if found is None else list(found.ids)
        if wanted.status not in INDEXED:
            return None
        return await few_ids(self._connection, self.bounds, query("few_of_status", "pages"), wanted.status)

    async def newest_waiting(self, queues: Sequence[str] | None, wanted: RowFilter, *, are_due: bool) -> Sequence[int]:
        """Ids of the newest waiting rows of these queues, one more than a page reads; `queues` None: all queues.

        Empty if the query takes too long.
        """
        found = await self._newest_waiting(queues, before(wanted), self.bounds.few + 1, are_due)
        return found.ids if found is not None else ()

    async def _newest_waiting(
        self, queues: Sequence[str] | None, first: int, most: int, are_due: bool | None = None
    ) -> RowMatches | None:
        """The newest waiting rows below `first`, with the ids of `most` of them; None: the query takes too long.

        Their index has the order in which they are launched. A thousand priorities in one queue, or very many rows with
        a `run_at`, take too long.
        """
        parameters = first, queues, MOST_MATCHING + 1, most, are_due
        found = await briefly(self._connection, self.bounds, query("newest_waiting", "pages"), *parameters)
        return None if found is None else RowMatches(*found[0])

    async def _among(self, wanted: RowFilter, labels: str | None, ids: Sequence[int]) -> RowMatches:
        first = before(wanted)
        few = self.bounds.few
        newest = heapq.nlargest(few + 1, (id_ for id_ in ids if id_ < first))
        found = await self._matching(query("matching_among", "pages"), wanted, labels, newest[:few])
        return RowMatches(found.ids, found.matching, newest[few - 1] if len(newest) > few else None)

    async def _among_newest(self, wanted: RowFilter, labels: str | None) -> RowMatches:
        """The rows that match among the newest ones of a batch, of a submitter or of the table."""
        if has_owner(wanted):
            return await self._matching(
                query("matching_of_batch", "pages"), wanted, labels, self.bounds.looked_at_of_some
            )
        if wanted.submitted_by:
            return await self._matching(
                query("matching_of_submitter", "pages"), wanted, labels, self.bounds.looked_at_of_some
            )
        return await self._matching(query("matching", "pages"), wanted, labels, self.bounds.looked_at)

    async def _matching(
        self, statement: str, wanted: RowFilter, labels: str | None, looked_at: int | Sequence[int]
    ) -> RowMatches:
        filters = wanted.queue, wanted.status, wanted.submitted_by, wanted.batch, labels, wanted.template
        row = await self._connection.fetchrow(
            statement, before(wanted), *filters, MOST_MATCHING + 1, wanted.limit, looked_at
        )
        assert row is not None
        return RowMatches(*row)


def is_of_waiting(wanted: RowFilter) -> bool:
    """Whether all waiting rows of a queue, or of all queues, are wanted."""
    return wanted == RowFilter(wanted.queue, Status.WAITING, after=wanted.after, limit=wanted.limit)


def before(wanted: RowFilter) -> int:
    """The id below which the ids of the page are."""
    return LARGEST_ID if wanted.after is None else wanted.after


def queues_of(wanted: RowFilter) -> list[str] | None:
    return None if wanted.queue is None else [wanted.queue]


def has_owner(wanted: RowFilter) -> bool:
    """Whether the filter names one batch: two submitters, or two queues, may use the same name."""
    return None not in (wanted.batch, wanted.queue, wanted.submitted_by)


async def few_ids(
    connection: asyncpg.Connection, bounds: ListBounds, statement: str, *parameters: Any
) -> list[int] | None:
    """The ids that a query finds; None: they are too many, or the query takes too long."""
    found = await briefly(connection, bounds, statement, *parameters, bounds.few + 1)
    return [row["id"] for row in found] if found is not None and len(found) <= bounds.few else None


async def briefly(
    connection: asyncpg.Connection, bounds: ListBounds, statement: str, *parameters: Any
) -> list[asyncpg.Record] | None:
    """The rows of a query; None: it takes too long."""
    try:
        async with connection.transaction():  # a savepoint: the snapshot outlives a query that was stopped
            await connection.fetch(query("statement_timeout", "pages"), str(bounds.few_milliseconds))
            found = await connection.fetch(statement, *parameters)
            await connection.fetch(query("statement_timeout", "pages"), SESSION["statement_timeout"])
            return list(found)
    except asyncpg.QueryCanceledError:
        return None


MOST_IN_LINE: Final = 10_000
"""Rows before a row that are counted, at most."""
MOST_STARTS: Final = 1000
"""Starts of a queue that are read, at most."""
MOST_LAUNCHES: Final = 20
"""Launches of a row that are read, at most."""


class Questions(ListReads):
    """One snapshot, with the queries that answer questions."""

    async def task(self, task_id: int) -> Task | None:
        return (await self.tasks([task_id])).get(task_id)

    async def line(self, task: Task) -> LinePosition:
        """The place of a waiting row in its queue."""
        parameters = task.queue, task.priority, task.id, self.now, MOST_IN_LINE, task.kind
        return (await self.all(query("line", "explain"), read_line, *parameters))[0]

    async def launches(self, task_id: int) -> list[LaunchFacts]:
        """The newest launches of a row, newest first."""
        return await self.all(query("launches", "explain"), lambda row: LaunchFacts(**row), task_id, MOST_LAUNCHES)

    async def marks(self, task_id: int) -> RowMarks | None:
        """The marks of a row. None: there is no such row."""
        return next(iter(await self.all(query("marks", "explain"), read_marks, task_id)), None)

    async def starts(self, task: Task) -> list[Start]:
        """Starts of the row's queue in the last hour, newest first."""
        return await self._starts(task.queue, lambda row: read_start(row, task))

    async def queue_settings(self, queue: str) -> dict[str, QueueSettings]:
        """The rows of `dispatch.queues` for this queue and for `*`, by name."""
        return dict(
            await self.all(query("queue_settings", "queues"), lambda row: (row[0], QueueSettings(*row[1:])), queue)
        )

    async def queue_starts(self, queue: str) -> list[tuple[datetime, bytes | None]]:
        """Starts of a queue in the last hour, newest first, each with the kind of its row."""
        return await self._starts(queue, lambda row: (row["started_at"], row["kind"]))

    async def _starts(self, queue: str, read: Callable[[asyncpg.Record], T]) -> list[T]:
        return await self.all(query("starts", "explain"), read, queue, self.now, MOST_STARTS)

    async def queue_ends(self, queue: str, most: int) -> list[EndedTask]:
        """The rows of a queue that ended last, newest first."""
        return await self.all(query("queue_ends", "queues"), lambda row: EndedTask(*row), queue, most)

    async def queue_times(self, queue: str, most: int) -> tuple[Percentiles, Percentiles]:
        """The waiting times and the run times of the rows of a queue that ended last."""
        return (await self.all(query("queue_times", "queues"), read_times, queue, most))[0]

    async def warm_keys(self, nodes: Sequence[str], most: int) -> dict[str, dict[str, int]]:
        """Number of different cache keys by node and queue, of the newest ends."""
        found: dict[str, dict[str, int]] = {}
        for node, queue, keys in await self.all(query("warm_keys", "caches"), tuple, list(nodes), most):
            found.setdefault(node, {})[queue] = keys
        return found

    async def counts(self, at_work: Sequence[int] = ()) -> list[QueueCount]:
        """The waiting rows of every queue. It reads their whole index: 0.2 s for a million rows.

        at_work: rows whose containers run. None of them is the oldest one.
        """
        await self._connection.fetch(query("statement_timeout", "pages"), f"{LONGEST_COUNT_SECONDS}s")
        most = LONGEST_COUNT_SECONDS + 3  # above the server's limit, as ANSWER_SECONDS are
        rows = await self._connection.fetch(query("counts", "queues"), self.now, list(at_work), timeout=most)
        await self._connection.fetch(query("statement_timeout", "pages"), SESSION["statement_timeout"])
        return [QueueCount(*row) for row in rows]

    async def ends(self, since: datetime, until: datetime) -> list[EndCount]:
        """The rows that ended from `since` on and before `until`."""
        return await self.all(query("ends", "queues"), lambda row: EndCount(*row), since, until)

    async def templates(self) -> list[OfferedTemplate]:
        """The templates by which INSERT judges rows."""
        found = await self.all(query("templates", "queues"), read_template)
        return [one for one in found if one is not None]


def read_template(row: asyncpg.Record) -> OfferedTemplate | None:
    """The row; None: it cannot be read. The janitor writes it again soon."""
    try:
        bounds = msgspec.json.decode(row["bounds"], type=dict[str, str | int])
    except UNREADABLE:
        return None
    lists = {name: tuple(row[name]) for name in ("images", "machines", "sets")}
    opened = row["row_may_set"]
    return OfferedTemplate(row["name"], None if opened is None else tuple(opened), bounds, note=row["note"], **lists)


def read_batch(row: asyncpg.Record) -> BatchStatus:
    """The batch. Statuses without a row are left out."""
    facts = dict(row)
    counts = {name: facts.pop(name) for name in OF_BATCHES}
    return BatchStatus(**facts, by_status={name: number for name, number in counts.items() if number})


def read_labels(written: str) -> dict[str, str]:
    """The labels; none if they cannot be read."""
    try:
        return read_texts(written)
    except UNREADABLE:
        return {}


def read_marks(row: asyncpg.Record) -> RowMarks:
    return RowMarks(row["batch"], read_labels(row["labels"]), row["progress"], row["note"], row["error"])


def read_start(row: asyncpg.Record, task: Task) -> Start:
    """The start, as this row sees it. Nothing is known of a row that was deleted."""
    at, kind, priority, task_id = row
    return Start(at, kind == task.kind, task_id is not None and priority < task.priority and task_id > task.id)


def read_times(row: asyncpg.Record) -> tuple[Percentiles, Percentiles]:
    """(waiting, running)."""
    return Percentiles(row["waits"], *(row["wait"] or ())), Percentiles(row["runs"], *(row["run"] or ()))


def read_line(row: asyncpg.Record) -> LinePosition:
    return LinePosition(row["before"], row["of"], MOST_IN_LINE, row["alike"])


def questions(session: Session) -> AbstractAsyncContextManager[Questions]:
    """Opens a snapshot. Raises DatabaseError without one."""
    return snapshot(session, Questions)


class RowRefused(DispatcherError):
    """The database refuses a row. The message has its rule and the next step, never a value of env or payload."""


class RowNow(Struct, frozen=True):
    """A row that a submitter waits for. `error`: why it has failed."""

    id: int
    status: str
    error: str | None


class BatchNow(NamedTuple):
    """Number of rows of a batch, and of those that have ended."""

    tasks: int
    succeeded: int
    failed: int
    cancelled: int


class Reason(Struct, frozen=True):
    """A reason, and the number of unfinished rows that have it."""

    status: str
    message: str
    rows: int


class OwnRows:
    """The rows of a submitter's login. Each call raises DatabaseError if it has no answer."""

    def __init__(self, url: Url) -> None:
        self._session = Session(url, OF_A_SUBMITTER, writes=True)

    async def submit(self, columns: Mapping[str, Any]) -> int:
        """Inserts a row. A repeated call inserts a second one, so nothing here repeats it. Raises RowRefused."""
        async with self._used() as connection:
            try:
                made = await connection.fetchval(query("submit", "wait"), msgspec.json.encode(columns).decode())
            except asyncpg.PostgresError as fault:
                told = fault.as_dict()
                lacks_right = isinstance(fault, asyncpg.InsufficientPrivilegeError) and not told.get("hint")
                if lacks_right or not (fault.sqlstate or "").startswith(OF_THE_ROW):
                    raise
                words = told["message"].removeprefix(FIRST_ELEMENT)
                raise RowRefused("\n".join(filter(None, (f"{words} ({fault.sqlstate})", told.get("hint"))))) from None
        if made is None:
            raise RowRefused(UNSEEN)
        return int(made)

    async def rows(self, ids: Sequence[int]) -> list[RowNow]:
        """The rows that exist and that this login sees."""
        return [RowNow(*row) for row in await self._fetch(query("rows", "wait"), ids)]

    async def queues_of_batch(self, batch: str) -> list[str]:
        return [row["queue"] for row in await self._fetch(query("queues_of_batch", "wait"), batch)]

    async def batch(self, queues: Sequence[str], batch: str) -> BatchNow:
        return BatchNow(*(await self._fetch(query("batch", "wait"), queues, batch))[0])

    async def rows_of_batch(self, queues: Sequence[str], batch: str, statuses: Sequence[str]) -> list[RowNow]:
        """The first rows of a batch of this login that have one of these statuses."""
        found = await self._fetch(query("rows_of_batch", "wait"), queues, batch, statuses, MOST_EXPLAINED)
        return [RowNow(*row) for row in found]

    async def why(self, ids: Sequence[int]) -> list[Reason]:
        """The most frequent reasons of the first of these rows that have not ended."""
        return [Reason(*row) for row in await self._fetch(query("why", "wait"), ids[:MOST_EXPLAINED])]

    async def close(self) -> None:
        await self._session.close()

    async def _fetch(self, statement: str, *parameters: object) -> list[asyncpg.Record]:
        async with self._used() as connection:
            return await connection.fetch(statement, *parameters)

    @asynccontextmanager
    async def _used(self) -> AsyncIterator[asyncpg.Connection]:
        async with self._session.use() as connection:
            await connection.execute(query("as_login", "wait"))
            yield connection
