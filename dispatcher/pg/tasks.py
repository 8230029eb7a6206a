"""Reads rows in one read-only snapshot of the primary; declares queues; and makes the janitor's calls.

`look`: invariant: the snapshot of the rows also shows whether the server is the primary. Rows of a standby may be old:
a task that is done may still wait there. The usual measure of lag does not help: it is NULL on a fresh standby.

`declare_queues`: the work of `dispatcher migrate --queues FILE`.

`Closings`: the janitor's calls. Each one is a compare-and-set, on a separate session that may write.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import asyncpg
import msgspec
from msgspec import Meta, Struct

from dispatcher.container.contract import NewestServer
from dispatcher.model.caches import CacheRun
from dispatcher.model.errors import DatabaseError, DatabaseNotPrimary, DatabaseUnfit
from dispatcher.model.tasks import Frame, IndexedRow, Kind, Queue, Request, Status, Task
from dispatcher.pg.connect import Session, Url, open_connection, translated
from dispatcher.pg.migrate import NEWEST, WRITING, check_newer, tell_notice
from dispatcher.pg.queries import query
from dispatcher.runtime.metrics import DATABASE_UP

T = TypeVar("T")
STATUSES: Final = frozenset(status.value for status in Status)

NEEDED_INDEXES: Final = ("tasks_pkey", "tasks_ready", "tasks_due", "tasks_processing", "tasks_history",
                         "tasks_ready_of_submitter", "tasks_due_of_submitter")  # fmt: skip
NODES: Final = 3
"""Nodes of a cache key that are read, at most."""
SUBMITTERS: Final = 1000
"""Submitters that are read, at most."""
RUNS: Final = 10
"""Newest runs of a cache key that are read, at most."""
NO_JOB: Final = "env or spec holds something that no Job can be made of"
UNREADABLE: Final = (msgspec.DecodeError, RecursionError)
"""Exceptions of the decoder for JSON that it cannot hold: numbers of thousands of digits, or deep nesting."""


class TaskSnapshot:
    """The queries of one snapshot."""

    def __init__(self, connection: asyncpg.Connection, frame: asyncpg.Record) -> None:
        self._connection = connection
        self.now: datetime = frame["now"]
        self.database_id: str = frame["database_id"]
        self.frame = Frame(
            msgspec.json.decode(frame["queues"], type=list[Queue]),
            frame["held"],
            frame["next_due"],
            frame["tasks_refused"] or "",
        )

    async def indexed_rows(self, windows: Mapping[str, int]) -> list[IndexedRow]:
        """The first waiting rows of each queue. `windows`: most rows by queue."""
        return await self.all(
            query("candidates", "cycle"), lambda row: IndexedRow(*row), list(windows), list(windows.values()), self.now
        )

    async def submitters(self, queues: Sequence[str]) -> list[tuple[str, str]]:
        """(queue, submitter) of all submitters with waiting rows in these queues."""
        return await self.all(query("submitters", "cycle"), tuple, list(queues), SUBMITTERS)

    async def indexed_rows_of(self, windows: Mapping[tuple[str, str], int]) -> list[IndexedRow]:
        """The first waiting rows of each submitter. `windows`: most rows by (queue, submitter)."""
        parameters = (*columns(list(windows)), list(windows.values()), self.now)
        return await self.all(query("candidates_of", "cycle"), lambda row: IndexedRow(*row), *parameters)

    async def kinds(self, ids: Sequence[int]) -> list[Kind]:
        return await self.all(query("kinds", "cycle"), read_kind, ids)

    async def tasks(self, ids: Sequence[int]) -> dict[int, Task]:
        return {task.id: task for task in await self.all(query("tasks", "cycle"), read_task, ids)} if ids else {}

    async def still_waiting(self, ids: Sequence[int]) -> dict[int, int]:
        """The attempts of those rows that still wait, by id."""
        rows = await self.all(query("statuses", "cycle"), tuple, ids) if ids else ()
        return {id_: attempt for id_, status, attempt in rows if status == Status.WAITING}

    async def waiting(self, ids: Sequence[int]) -> tuple[dict[int, Task], dict[int, Request]]:
        """`tasks` and `requests` in one query, for rows that are likely to be launched."""
        rows = await self._connection.fetch(query("contenders", "cycle"), ids) if ids else ()
        return {row["id"]: read_task(row) for row in rows}, {row["id"]: read_request(row) for row in rows}

    async def requests(self, ids: Sequence[int]) -> dict[int, Request]:
        return {request.task_id: request for request in await self.all(query("contenders", "cycle"), read_request, ids)}

    async def histories(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], dict[str, float]]:
        """Nodes where each (queue, cache key) succeeded last, newest first, each with the seconds since then.

        Keys without such a node are left out. Each step of the query's recursion finds one node: the node of the newest
        run that was on no earlier node. A step reads at most 1,000 index entries, so that a key with 100,000 runs on
        one node costs no more than a key with a few. The seconds come as texts: asyncpg would ask the server about an
        array of another type.
        """
        rows = await self._connection.fetch(query("histories", "caches"), *columns(keys), NODES)
        return {(queue, key): dict(zip(nodes, map(float, ages), strict=True)) for queue, key, nodes, ages in rows}

    async def runs(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[CacheRun]]:
        """The newest successful runs of each (queue, cache key), newest first."""
        found: dict[tuple[str, str], list[CacheRun]] = {key: [] for key in keys}
        for queue, key, *run in await self._connection.fetch(query("runs", "caches"), *columns(keys), RUNS):
            found[queue, key].append(CacheRun(*run))
        return found

    async def start_secret(self) -> tuple[bytes, bytes]:
        """The secret from which start keys are derived. Only the dispatcher's role may read it."""
        row = await self._connection.fetchrow(query("start_secret", "cycle"))
        if row is None:
            raise DatabaseUnfit("dispatch_private.secrets is empty: its owner calls dispatch.rotate_secrets()")
        return row["start_inner"], row["start_outer"]

    async def run_digests(self, ids: Sequence[int]) -> dict[int, bytes]:
        """Digest of the run token that holds each row. Only the janitor's role may read it."""
        rows = await self._connection.fetch(query("run_digests", "janitor"), ids)
        return {row["id"]: row["run_digest"] for row in rows}

    async def with_cause(self, launches: Collection[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        """Those of these launches, each as (task, attempt, launch), whose end has a known cause."""
        parameters = [list(column) for column in zip(*launches, strict=True)]
        rows = await self._connection.fetch(query("with_cause", "janitor"), *parameters) if launches else ()
        return [tuple(row) for row in rows]

    async def all(self, statement: str, read: Callable[[asyncpg.Record], T], *parameters: Any) -> list[T]:
        """The rows of a query, each read by `read`."""
        return [read(row) for row in await self._connection.fetch(statement, *parameters)]


L = TypeVar("L", bound=TaskSnapshot)


@contextlib.asynccontextmanager
async def look(session: Session, held_at_most: int = 0) -> AsyncIterator[TaskSnapshot]:
    """Opens a snapshot to decide by, and sets the gauge that shows whether rows can be read.

    held_at_most: most held rows in its frame.

    Raises DatabaseError without a snapshot.
    """
    try:
        async with snapshot(session, TaskSnapshot, held_at_most) as rows:
            DATABASE_UP.set(1)
            yield rows
    except DatabaseError:
        DATABASE_UP.set(0)
        raise


@contextlib.asynccontextmanager
async def snapshot(session: Session, kind: type[L], held_at_most: int = 0) -> AsyncIterator[L]:
    """Opens a snapshot with the queries of `kind`. Raises DatabaseError without one."""
    async with session.use() as connection:
        transaction = connection.transaction(isolation="repeatable_read", readonly=True)
        await transaction.start()
        try:
            frame = await connection.fetchrow(query("frame", "cycle"), list(NEEDED_INDEXES), held_at_most, NEWEST)
        except (asyncpg.UndefinedTableError, asyncpg.UndefinedFunctionError) as fault:
            raise DatabaseUnfit(
                f"the database has no schema, or one of a version before {NEWEST}: run `dispatcher migrate` ({fault})"
            ) from fault
        yield kind(connection, fit(frame))
        await transaction.commit()  # no rollback after a fault: the session is dropped; a frozen server never answers


def fit(frame: asyncpg.Record | None) -> asyncpg.Record:
    """The frame, if decisions may use its snapshot. Raises DatabaseError otherwise."""
    if frame is not None and frame["in_recovery"]:
        raise DatabaseNotPrimary("the server is in recovery (a standby): name the primary in DATABASE_URL")
    if frame is None or frame["version"] < NEWEST:
        found = "none" if frame is None else frame["version"]
        raise DatabaseUnfit(f"schema version is {found}, this version needs {NEWEST}: run `dispatcher migrate`")
    check_newer(frame["newer"])
    if frame["missing_indexes"]:
        names = ", ".join(frame["missing_indexes"])
        raise DatabaseUnfit(f"index {names} is missing or invalid: `dispatcher doctor` prints what makes it again")
    return frame


def columns(keys: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [queue for queue, _ in keys], [key for _, key in keys]


def read_task(row: asyncpg.Record) -> Task:
    facts = {name: row[name] for name in Task.__struct_fields__}
    facts["status"] = Status(row["status"]) if row["status"] in STATUSES else Status.UNKNOWN
    return Task(**facts)


def read_kind(row: asyncpg.Record) -> Kind:
    """The kind. A row that cannot be read is that row's fault: the kind says why, and its rows are held."""
    fault, spec = "" if row["are_objects"] else "env or spec is no object", dict[str, str]()
    try:
        spec = read_texts(row["spec"] or "{}")
    except UNREADABLE:
        fault = NO_JOB
    names = frozenset(row["spec_names"]), frozenset(row["env_names"])
    return Kind(row["kind"], row["template"], row["timeout_seconds"], spec, *names, fault)


def read_request(row: asyncpg.Record) -> Request:
    """The request. If it cannot be read, it says why, and no Job is made of it."""
    env, spec, fault = dict[str, str](), dict[str, Any](), ""
    try:
        env, spec = read_texts(row["env"]), msgspec.json.decode(row["spec"], type=dict[str, str | list[str]])
        fault = wrong_list(spec)
    except UNREADABLE:
        fault = NO_JOB
    return Request(row["id"], row["attempt"], env, spec, row["cache_key"], fault)


def wrong_list(spec: Mapping[str, object]) -> str:
    """The first field of spec that must not be a list and is one, or the other way round; empty: none."""
    wrong = (name for name, value in spec.items() if isinstance(value, list) != (name in {"command", "args"}))
    return next((f"spec.{name} has a value of a wrong type" for name in wrong), "")


def read_texts(written: str) -> dict[str, str]:
    """Reads a JSON object of strings. Other values become text: only an administrator can write them."""
    found = msgspec.json.decode(written)
    pairs = found.items() if isinstance(found, dict) else ()
    return {name: value if isinstance(value, str) else msgspec.json.encode(value).decode() for name, value in pairs}


Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Role = Annotated[str, Meta(min_length=1, max_length=63)]


class QueueRow(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A row of `dispatch.queues`, with the names and limits of its columns."""

    name: Annotated[str, Meta(pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?|\*)$")]
    weight: Annotated[int, Meta(ge=1, le=1000)] = 1
    max_jobs: Count | None = None
    max_jobs_per_submitter: Count | None = None
    max_pending: Count | None = None
    paused_until: str | None = None
    owner_role: Role | None = None
    submit_role: Role | None = None
    max_waiting_per_submitter: Count | None = None
    note: str | None = None
    fair_submitters: bool = False


def read_queues(file: Path) -> list[QueueRow]:
    """The queues of the file, a JSON list. Raises DatabaseUnfit with the place and the rule of a fault."""
    try:
        queues = msgspec.json.decode(file.read_bytes(), type=list[QueueRow])
    except (OSError, msgspec.DecodeError) as fault:  # `$[1].weight` is the weight of the second queue
        told = "`\\d+ dispatch.queues` in psql explains each column"
        raise DatabaseUnfit(f"queues of {file}: {fault}: {told}") from fault
    names = [queue.name for queue in queues]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DatabaseUnfit(f"queues of {file}: {', '.join(twice)} is declared twice: keep one of them")
    return queues


async def declare_queues(database_url: str | None, queues: list[QueueRow]) -> list[str]:
    """Inserts the queues that are missing, all or none, and returns their names. Other queues stay as they are."""
    connection = await open_connection(database_url, WRITING, writes=True)
    connection.add_log_listener(tell_notice)
    try:
        with translated():
            async with connection.transaction():
                await connection.execute(query("as_owner", "migrate"))
                made = await connection.fetch(query("queues", "migrate"), msgspec.json.encode(queues).decode())
    finally:
        await connection.close()
    return [row["name"] for row in made]


LOCKED: Final = "locked"
MOST_REFUSED: Final = 10
"""Entries that one call may pass over, at most."""
CLOSING: Final = {
    "application_name": "dispatcher-janitor",
    "lock_timeout": "1000",  # for locks of whole tables; the functions never wait for a row
}
DELETED_AT_ONCE: Final = 1000
"""Rows that one call deletes, at most."""


class DeletionResult(Struct, frozen=True):
    """The answer to `delete_old`.

    deleted: number of deleted rows.
    kept: rows that cannot be deleted, because a foreign key or a trigger of somebody else holds them.
    why: what holds the first of them; None: nothing.
    """

    deleted: int
    kept: Sequence[int]
    why: str | None


class Closings:
    """Calls with a login of `dispatch_janitor`. An answer is the row's new status, None or LOCKED.

    None: the row is no longer as judged, so nothing changed.
    LOCKED: another transaction holds the row, so nothing changed.
    """

    def __init__(self, url: Url, newest: NewestServer | None = None) -> None:
        self._session = Session(url, CLOSING, writes=True, newest=newest)

    async def close(self) -> None:
        await self._session.close()

    async def give_back(self, task_id: int, fence: tuple[int, int, bytes], failures: int, error: str) -> str | None:
        """Returns a run: next attempt, or failed. `fence`: attempt, launch and token digest of the run."""
        return await self._call(query("return", "janitor"), task_id, *fence, failures, error)

    async def end(self, task_id: int, fence: tuple[int, int, str | None], outcome: str, error: str) -> str | None:
        """Ends a row. `fence`: attempt, launch and uid of the Job judged; without a uid only a waiting row matches."""
        return await self._call(query("end", "janitor"), task_id, *fence, outcome, error)

    async def cancel(self, task_id: int, attempt: int, run_digest: bytes) -> str | None:
        return await self._call(query("cancel", "janitor"), task_id, attempt, run_digest)

    async def oldest_snapshot(self) -> tuple[int, str, str, str] | None:
        """The holder of the oldest dead rows: (pid, login, oldest transaction, remedy). 0: a prepared transaction."""
        async with self._session.use() as connection:
            row = await connection.fetchrow(query("oldest_snapshot", "janitor"))
        return tuple(row)[:4] if row is not None else None

    async def told(self, most: int) -> list[tuple[int, int, str, datetime, str]]:
        """Reasons in the database, at most `most`: (task, attempt, reason, since, message)."""
        async with self._session.use() as connection:
            return [tuple(row) for row in await connection.fetch(query("told", "janitor"), most)]

    async def tell(self, report: str) -> int | None:
        """Writes reasons. Returns the number of changed rows; None: another janitor has written newer ones."""
        async with self._session.use() as connection:
            changed: int | None = await connection.fetchval(query("tell", "janitor"), report)
        return changed

    async def templates(self, offered: Sequence[T], *, are_all: bool) -> tuple[int, Sequence[T]]:
        """Brings the table `templates` in step. `are_all`: other templates are deleted. Returns the same as `ended`."""

        async def write(some: Sequence[T]) -> int:
            is_whole = are_all and len(some) == len(offered)
            return await self._count(query("templates", "janitor"), msgspec.json.encode(some).decode(), is_whole)

        return await pass_over(write, offered)

    async def ended(self, ends: Sequence[T]) -> tuple[int, Sequence[T]]:
        """Writes down the ends of launches. Returns the number of changed rows, and the refused entries."""

        async def write(some: Sequence[T]) -> int:
            return await self._count(query("ended", "janitor"), msgspec.json.encode(some).decode())

        return await pass_over(write, ends)

    async def delete_old(self, days: int, kept: Sequence[int]) -> DeletionResult:
        """Deletes rows that ended `days` ago, one batch at most; 0: none. Forgets roles that are gone.

        kept: rows that stay.
        """
        most = DELETED_AT_ONCE if days else 0
        async with self._session.use() as connection:
            found = await connection.fetchrow(query("delete", "janitor"), days, most, [*map(str, kept)])
        assert found is not None  # it has one row
        return DeletionResult(found["deleted"], [*map(int, found["kept"])], found["why"])

    async def count_old(self, days: int) -> int:
        """Number of rows that `delete_old` would delete."""
        return await self._count(query("old", "janitor"), days, DELETED_AT_ONCE)

    async def _count(self, statement: str, *parameters: object) -> int:
        return int(await self._call(statement, *parameters) or 0)

    async def _call(self, statement: str, *parameters: object) -> str | None:
        async with self._session.use() as connection:
            answer: str | None = await connection.fetchval(statement, *parameters)
        return answer


async def pass_over(write: Callable[[Sequence[T]], Awaitable[int]], entries: Sequence[T]) -> tuple[int, Sequence[T]]:
    """Writes all entries by one call; if the database refuses it, by halves. One bad entry must not stop the others.

    Returns the sum of the answers, and the refused entries. Raises the fault if all entries are refused, or more than
    MOST_REFUSED: then no single entry is the cause.
    """
    changed, refused, left = 0, list[T](), [entries]
    while left:
        some = left.pop()
        try:
            changed += await write(some)
        except DatabaseUnfit:
            if len(some) == 1:
                refused += some
            if len(refused) > MOST_REFUSED or len(refused) == len(entries):
                raise
            half = len(some) // 2
            left += [part for part in (some[half:], some[:half]) if len(some) > 1]
    return changed, refused
