"""Reads rows in one read-only snapshot of the primary, taken for one cycle.

Invariant: the snapshot of the rows also tells whether the server is the primary. Rows of a standby may be old: a task
that is done may still wait there. The usual measure of lag does not help: it is NULL on a fresh standby.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

import asyncpg
import msgspec

from dispatcher.model.cache_history import Run
from dispatcher.model.errors import DatabaseError, DatabaseNotPrimary, DatabaseUnfit
from dispatcher.model.snapshot import Frame
from dispatcher.model.tasks import IndexedRow, Kind, Queue, Request, Status, Task
from dispatcher.pg.connect import Session
from dispatcher.pg.migrate import NEWEST, check_newer
from dispatcher.pg.queries import query
from dispatcher.runtime.metrics import DATABASE_UP

T = TypeVar("T")
STATUSES: Final = frozenset(status.value for status in Status)

NEEDED_INDEXES: Final = ("tasks_pkey", "tasks_ready", "tasks_due", "tasks_processing", "tasks_history",
                         "tasks_ready_of_submitter", "tasks_due_of_submitter")  # fmt: skip
NODES: Final = 3
SUBMITTERS: Final = 1000
RUNS: Final = 10


class Look:
    """The queries of one snapshot."""

    def __init__(self, connection: asyncpg.Connection, frame: asyncpg.Record) -> None:
        self._connection = connection
        self.now: datetime = frame["now"]
        self.database_id: str = frame["database_id"]
        self.frame = Frame(msgspec.json.decode(frame["queues"], type=list[Queue]), frame["held"], frame["next_due"])

    async def indexed_rows(self, windows: Mapping[str, int]) -> list[IndexedRow]:
        """The first waiting rows of each queue. `windows`: most rows by queue."""
        return await self.all(
            "candidates", lambda row: IndexedRow(*row), list(windows), list(windows.values()), self.now
        )

    async def submitters(self, queues: Sequence[str]) -> list[tuple[str, str]]:
        """(queue, submitter) of all submitters with waiting rows in these queues."""
        return await self.all("submitters", tuple, list(queues), SUBMITTERS)

    async def indexed_rows_of(self, windows: Mapping[tuple[str, str], int]) -> list[IndexedRow]:
        """The first waiting rows of each submitter. `windows`: most rows by (queue, submitter)."""
        parameters = (*columns(list(windows)), list(windows.values()), self.now)
        return await self.all("candidates_of", lambda row: IndexedRow(*row), *parameters)

    async def kinds(self, ids: Sequence[int]) -> list[Kind]:
        return await self.all("kinds", read_kind, ids)

    async def tasks(self, ids: Sequence[int]) -> dict[int, Task]:
        return {task.id: task for task in await self.all("tasks", read_task, ids)} if ids else {}

    async def still_waiting(self, ids: Sequence[int]) -> list[int]:
        rows = await self.all("statuses", tuple, ids) if ids else ()
        return [id_ for id_, status in rows if status == Status.WAITING]

    async def waiting(self, ids: Sequence[int]) -> tuple[dict[int, Task], dict[int, Request]]:
        """`tasks` and `requests` in one query, for rows that are likely to be launched."""
        rows = await self._connection.fetch(query("contenders"), ids) if ids else ()
        return {row["id"]: read_task(row) for row in rows}, {row["id"]: read_request(row) for row in rows}

    async def requests(self, ids: Sequence[int]) -> dict[int, Request]:
        return {request.task_id: request for request in await self.all("requests", read_request, ids)}

    async def histories(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], dict[str, float]]:
        """Nodes where each (queue, cache key) succeeded last, newest first, each with the seconds since then.

        Keys without such a node are left out.
        Each step of the query's recursion finds one node: the node of the newest run that was on no earlier node. A
        step reads at most 1,000 index entries, so that a key with 100,000 runs on one node costs no more than a key
        with a few. The seconds come as texts: asyncpg would ask the server about an array of another type.
        """
        rows = await self._connection.fetch(query("histories"), *columns(keys), NODES)
        return {(queue, key): dict(zip(nodes, map(float, ages), strict=True)) for queue, key, nodes, ages in rows}

    async def runs(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], list[Run]]:
        """The newest successful runs of each (queue, cache key), newest first."""
        found: dict[tuple[str, str], list[Run]] = {key: [] for key in keys}
        for queue, key, *run in await self._connection.fetch(query("runs"), *columns(keys), RUNS):
            found[queue, key].append(Run(*run))
        return found

    async def start_secret(self) -> tuple[bytes, bytes]:
        """The secret from which start keys are derived. Only the dispatcher's role may read it."""
        row = await self._connection.fetchrow(query("start_secret"))
        if row is None:
            raise DatabaseUnfit("dispatch.secrets is empty: its owner calls dispatch.rotate_secrets()")
        return row["start_inner"], row["start_outer"]

    async def run_digests(self, ids: Sequence[int]) -> dict[int, bytes]:
        """Digest of the run token that holds each row. Only the janitor's role may read it."""
        rows = await self._connection.fetch(query("run_digests", "janitor"), ids)
        return {row["id"]: row["run_digest"] for row in rows}

    async def with_cause(self, ids: Sequence[int]) -> list[tuple[int, int, int]]:
        """(task, attempt, launch) of the launches of these rows of which it is known what ended them."""
        rows = await self._connection.fetch(query("with_cause", "janitor"), ids) if ids else ()
        return [tuple(row) for row in rows]

    async def all(self, name: str, read: Callable[[asyncpg.Record], T], *parameters: Any) -> list[T]:
        """The rows of a query, each read by `read`."""
        return [read(row) for row in await self._connection.fetch(query(name), *parameters)]


L = TypeVar("L", bound=Look)


@contextlib.asynccontextmanager
async def look(session: Session, held_at_most: int = 0) -> AsyncIterator[Look]:
    """Opens a snapshot to decide by, and sets the gauge that shows whether rows can be read.

    held_at_most: most held rows in its frame.
    Raises DatabaseError without a snapshot.
    """
    try:
        async with snapshot(session, Look, held_at_most) as rows:
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
        frame = await connection.fetchrow(query("frame"), list(NEEDED_INDEXES), held_at_most, NEWEST)
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
        raise DatabaseUnfit(f"index {names} is missing or invalid: make it again as sql/migrations has it")
    return frame


def columns(keys: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [queue for queue, _ in keys], [key for _, key in keys]


def read_task(row: asyncpg.Record) -> Task:
    facts = {name: row[name] for name in Task.__struct_fields__}
    facts["status"] = Status(row["status"]) if row["status"] in STATUSES else Status.UNKNOWN
    return Task(**facts)


def read_kind(row: asyncpg.Record) -> Kind:
    return Kind(
        digest=row["kind"],
        template=row["template"],
        timeout_seconds=row["timeout_seconds"],
        spec=read_texts(row["spec"]),
        spec_names=frozenset(row["spec_names"]),
        env_names=frozenset(row["env_names"]),
    )


def read_request(row: asyncpg.Record) -> Request:
    env, spec = read_texts(row["env"]), msgspec.json.decode(row["spec"])
    return Request(row["id"], row["attempt"], env, spec, row["cache_key"])


def read_texts(written: str) -> dict[str, str]:
    """Reads a JSON object of strings. Other values become text: only an administrator can write them."""
    found = msgspec.json.decode(written)
    pairs = found.items() if isinstance(found, dict) else ()
    return {name: value if isinstance(value, str) else msgspec.json.encode(value).decode() for name, value in pairs}
