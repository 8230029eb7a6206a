"""The table of tasks (docs/protocol.md, section 3): plain records, five functions, and snapshots to read.

Each function is one compare-and-set: a call that matches no row changes nothing. Roles, validation and wake-ups of
Postgres have other suites.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct

from dispatcher.model.launches import start_key
from dispatcher.model.tasks import TERMINAL, Frame, IndexedRow, Kind, Queue, Request, Status, Task
from tests.property.timing import Timeline
from tests.rig.builders import DATABASE_ID

SECRET: Final = (b"inner" * 12, b"outer" * 12)
STALE: Final = timedelta(seconds=60)
RETRY_AFTER: Final = timedelta(seconds=10)


class Row(Struct, frozen=True):
    """One row.

    task: the columns that decisions read.
    request: the columns that the Job is built from.
    run_token, pod: of the current run.
    """

    task: Task
    request: Request
    run_token: str | None = None
    pod: str | None = None


class NewTask(Struct, frozen=True):
    """The columns that a submitter inserts."""

    queue: str = "default"
    submitted_by: str = "team_a"
    priority: int = 100
    run_at: datetime | None = None
    timeout_seconds: int | None = None
    max_failures: int = 3
    template: str = "default"
    env: Mapping[str, str] = {}
    spec: Mapping[str, Any] = {}


class Table:
    """Rows and queues.

    starts: accepted launches of each (task, attempt), in their order.
    hidden: rows that no look shows.
    """

    def __init__(self, clock: Timeline) -> None:
        self._clock = clock
        self.rows: dict[int, Row] = {}
        self.queues: dict[str, Queue] = {}
        self.starts: dict[tuple[int, int], list[int]] = {}
        self.hidden: set[int] = set()
        self._ids = 0
        self._tokens = 0

    @property
    def next_id(self) -> int:
        """The id of the row that is inserted next."""
        return self._ids + 1

    def insert(self, new_task: NewTask) -> int:
        self._ids += 1
        id_ = self._ids
        task = Task(
            id=id_, queue=new_task.queue, priority=new_task.priority, run_at=new_task.run_at,
            timeout_seconds=new_task.timeout_seconds, max_failures=new_task.max_failures, template=new_task.template,
            status=Status.WAITING, attempt=1, launch=0, failures=0, job_uid=None, pod_name=None,
            submitted_by=new_task.submitted_by,
            created_at=self._clock.of_rows, started_at=None, heartbeat_at=None, finished_at=None,
            cancel_requested_at=None, kind=digest(new_task),
        )  # fmt: skip
        self.rows[id_] = Row(task, Request(id_, 1, dict(new_task.env), dict(new_task.spec), None))
        return id_

    def start(self, id_: int, key: str, at: tuple[int, int], by: tuple[str, str]) -> str | None:
        """The run token; None if the start is refused. `at`: attempt and launch. `by`: uid of the Job and Pod."""
        row = self.rows.get(id_)
        if row is None or start_key(SECRET, id_, row.task.created_at) != key or row.task.attempt != at[0]:
            return None
        task = row.task
        is_free = task.status is Status.WAITING or (task.status is Status.PROCESSING and task.max_failures > 1)
        if is_free and at[1] > task.launch and task.cancel_requested_at is None:
            self._tokens += 1
            token, now = f"token-{self._tokens}", self._clock.of_rows
            self._set(
                row,
                status=Status.PROCESSING,
                launch=at[1],
                job_uid=by[0],
                pod_name=by[1],
                started_at=now,
                heartbeat_at=now,
            )
            self.rows[id_] = msgspec.structs.replace(self.rows[id_], run_token=token, pod=by[1])
            self.starts.setdefault((id_, at[0]), []).append(at[1])
            return token
        same = (task.launch, task.status, task.job_uid, row.pod) == (at[1], Status.PROCESSING, *by)
        return row.run_token if same else None

    def heartbeat(self, token: str) -> str:
        if (row := self._running(token)) is None:
            return "lost"
        self._set(row, heartbeat_at=self._clock.of_rows)
        return "continue" if row.task.cancel_requested_at is None else "cancel"

    def finish(self, token: str, outcome: str) -> None:
        if (row := self._running(token)) is None:
            return
        task = row.task
        if outcome == "succeeded":
            self._end(row, Status.SUCCEEDED)
        elif task.cancel_requested_at is not None:
            self._end(row, Status.CANCELLED)
        elif outcome == "retry" and task.failures + 1 < task.max_failures:
            self._next_attempt(row, failures=task.failures + 1, run_at=self._clock.of_rows + RETRY_AFTER)
        else:
            self._end(row, Status.FAILED, failures=task.failures + 1)

    def cancel(self, id_: int) -> None:
        row, now = self.rows[id_], self._clock.of_rows
        if row.task.status in TERMINAL:
            return
        heard = row.task.heartbeat_at
        if row.task.status is Status.WAITING or heard is None or heard < now - STALE:
            self._end(row, Status.CANCELLED)
        else:
            self._set(row, cancel_requested_at=row.task.cancel_requested_at or now)

    def retry(self, id_: int) -> None:
        self._next_attempt(self.rows[id_], failures=0)

    def look(self, held_at_most: int) -> "Look":
        """A snapshot of the rows that are not hidden. Rows are frozen, so a copy of the mapping is enough."""
        shown = {id_: row for id_, row in self.rows.items() if id_ not in self.hidden}
        now = self._clock.of_rows
        return Look(now, shown, plan_frame(now, shown, list(self.queues.values()), held_at_most))

    def _running(self, token: str) -> Row | None:
        found = (row for row in self.rows.values() if row.run_token == token and row.task.status is Status.PROCESSING)
        return next(found, None)

    def _end(self, row: Row, status: Status, **changes: Any) -> None:
        self._set(row, status=status, finished_at=self._clock.of_rows, **changes)
        self._clear_token(row.task.id)

    def _next_attempt(self, row: Row, **changes: Any) -> None:
        attempt = row.task.attempt + 1
        cleared: dict[str, Any] = {
            "launch": 0,
            "job_uid": None,
            "pod_name": None,
            "cancel_requested_at": None,
            "finished_at": None,
        }
        self._set(row, status=Status.WAITING, attempt=attempt, **cleared, **changes)
        self._clear_token(row.task.id)

    def _set(self, row: Row, **changes: Any) -> None:
        task = msgspec.structs.replace(row.task, **changes)
        request = msgspec.structs.replace(row.request, attempt=task.attempt)
        self.rows[task.id] = msgspec.structs.replace(self.rows[task.id], task=task, request=request)

    def _clear_token(self, id_: int) -> None:
        self.rows[id_] = msgspec.structs.replace(self.rows[id_], run_token=None, pod=None)


class Look:
    """One read-only snapshot.

    listed: ids that the index returned.
    read: ids whose whole row was asked for.
    """

    def __init__(self, now: datetime, rows: Mapping[int, Row], frame: Frame) -> None:
        self.now = now
        self.database_id = DATABASE_ID
        self.rows = rows
        self.frame = frame
        self.listed: set[int] = set()
        self.read: set[int] = set()

    async def indexed_rows(self, windows: Mapping[str, int]) -> list[IndexedRow]:
        """Of each queue: the ready rows by (priority, id), then the due rows by (run_at, id)."""
        waiting: dict[str, list[Task]] = {name: [] for name in windows}
        for row in self.rows.values():
            if row.task.status is Status.WAITING and row.task.queue in waiting:
                waiting[row.task.queue].append(row.task)
        return [row for name, most in windows.items() for row in self._first(waiting[name], most)]

    async def submitters(self, queues: Sequence[str]) -> list[tuple[str, str]]:
        waiting = [row.task for row in self.rows.values() if row.task.status is Status.WAITING]
        return sorted({(task.queue, task.submitted_by) for task in waiting if task.queue in queues})

    async def indexed_rows_of(self, windows: Mapping[tuple[str, str], int]) -> list[IndexedRow]:
        """As `indexed_rows`, of each submitter in a queue."""
        own: dict[tuple[str, str], list[Task]] = {submitter: [] for submitter in windows}
        for row in self.rows.values():
            submitter = row.task.queue, row.task.submitted_by
            if row.task.status is Status.WAITING and submitter in own:
                own[submitter].append(row.task)
        return [row for submitter, most in windows.items() for row in self._first(own[submitter], most)]

    def _first(self, waiting: Sequence[Task], most: int) -> list[IndexedRow]:
        ready = sorted((t.priority, t.id) for t in waiting if t.run_at is None)[:most]
        due = sorted((t.run_at, t.id) for t in waiting if t.run_at is not None and t.run_at <= self.now)
        found = [indexed_row(self.rows[id_].task) for _, id_ in (*ready, *due[:most])]
        self.listed |= {row.id for row in found}
        return found

    async def start_secret(self) -> tuple[bytes, bytes]:
        return SECRET

    async def kinds(self, ids: Iterable[int]) -> list[Kind]:
        return [kind(row) for id_ in ids if (row := self.rows.get(id_)) is not None]

    async def tasks(self, ids: Iterable[int]) -> dict[int, Task]:
        wanted = set(ids)
        self.read |= wanted
        return {id_: self.rows[id_].task for id_ in sorted(wanted) if id_ in self.rows}

    async def still_waiting(self, ids: Iterable[int]) -> dict[int, int]:
        tasks = {id_: self.rows[id_].task for id_ in ids if id_ in self.rows}
        return {id_: task.attempt for id_, task in tasks.items() if task.status is Status.WAITING}

    async def waiting(self, ids: Iterable[int]) -> tuple[dict[int, Task], dict[int, Request]]:
        return await self.tasks(ids), await self.requests(ids)

    async def requests(self, ids: Iterable[int]) -> dict[int, Request]:
        return {id_: self.rows[id_].request for id_ in ids if id_ in self.rows}

    async def histories(self, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], dict[str, float]]:
        return {}


def plan_frame(now: datetime, rows: Mapping[int, Row], queues: Sequence[Queue], held_at_most: int) -> Frame:
    """The queues, the ids of processing rows, and the time when the next row becomes due."""
    tasks = [row.task for row in rows.values()]
    held = sorted(task.id for task in tasks if task.status is Status.PROCESSING)[:held_at_most]
    names = {queue.name for queue in queues}
    coming = [t.run_at for t in tasks if t.status is Status.WAITING and t.queue in names and t.run_at is not None]
    return Frame(queues, held, min((at for at in coming if at > now), default=None))


def indexed_row(task: Task) -> IndexedRow:
    return IndexedRow(task.id, task.attempt, task.priority, task.queue, task.kind, task.submitted_by)


def kind(row: Row) -> Kind:
    task, request = row.task, row.request
    spec = {name: value for name, value in request.spec.items() if name not in {"command", "args"}}
    names = frozenset(request.spec), frozenset(request.env)
    return Kind(task.kind, task.template, task.timeout_seconds, spec, *names)


def digest(new_task: NewTask) -> bytes:
    """A digest of all columns that the bounds of a template are checked against."""
    judged = {name: value for name, value in new_task.spec.items() if name not in {"command", "args"}}
    columns = [
        new_task.template,
        new_task.timeout_seconds,
        sorted(judged.items()),
        sorted(new_task.spec),
        sorted(new_task.env),
    ]
    return hashlib.sha256(msgspec.json.encode(columns)).digest()
