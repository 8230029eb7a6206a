"""What a demo shows: the view of one moment, and the news between two views.

`DemoView`, `DemoRow`: the state at one moment, and texts of its rows. Pure.

`Observer`: collects rows from Postgres, nodes and Pods from the API server, reasons from the dispatcher's API. A reason
is shown only while it is true: of the attempt that waits now, by a cycle that is at most FRESH_SECONDS old.

`News`: the changes from one view to the next, as lines. Pure.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import asyncpg
import msgspec
from msgspec import Struct

from dispatcher.commands.reaching import NoAnswer, opened
from dispatcher.kube.client import KubeClient
from dispatcher.model.errors import ClusterError, DispatcherError
from dispatcher.model.launches import LABEL_INSTALLATION
from dispatcher.model.reasons import ReasonInWords
from dispatcher.model.resources import parse_quantity
from dispatcher.model.stored_json import Json
from dispatcher.model.tasks import for_terminal
from dispatcher.model.verdicts import PARKED, HoldReason
from dispatcher.views.rows import RowsPage
from dispatcher.views.status import InstallationStatus, QueueStatus
from dispatcher_demo.statements import demo_query

ENDED: Final = frozenset({"succeeded", "failed", "cancelled"})
STATUSES: Final = ("waiting", "processing", "succeeded", "failed", "cancelled")
LONGEST_ERROR: Final = 120


class RowState(StrEnum):
    """The word for a row. It says more than the row's status: a waiting row may have a Job, or need a person."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    AGAIN = "tried again"
    NEEDS_YOU = "needs you"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


OF_STATUS: Final = {
    "processing": RowState.RUNNING, "succeeded": RowState.DONE, "failed": RowState.FAILED,
    "cancelled": RowState.CANCELLED,
}  # fmt: skip


class DemoRow(Struct, frozen=True):
    """A task as its submitter sees it.

    seconds: the duration of its last run.
    progress, note: its container's words about its work.
    is_stopping: its submitter has cancelled it, and its container runs.
    cause: why it waits, by the last cycle; None: it does not wait, or no cycle has judged its present state.
    """

    id: int
    queue: str
    status: str
    attempt: int = 1
    error: str | None = None
    result: Any = None
    node: str | None = None
    seconds: float | None = None
    progress: float | None = None
    note: str | None = None
    is_stopping: bool = False
    cause: ReasonInWords | None = None

    @property
    def is_ended(self) -> bool:
        return self.status in ENDED

    @property
    def state(self) -> RowState:
        if self.status != "waiting":
            return RowState.STOPPING if self.is_stopping and self.status == "processing" else OF_STATUS[self.status]
        reason = self.cause.reason if self.cause else None
        if reason in PARKED:
            return RowState.NEEDS_YOU
        if reason is HoldReason.LAUNCHED:
            return RowState.STARTING
        return RowState.AGAIN if self.attempt > 1 else RowState.WAITING


class NodeLoad(Struct, frozen=True):
    """The load of one node.

    cores: its allocatable cores.
    used: cores that the Pods on it request.
    pods: the number of these Pods.
    """

    name: str
    cores: float
    used: float
    pods: int


class QueueLoad(Struct, frozen=True):
    """What the rows of one queue wait for.

    reasons: the number of waiting rows by reason.
    in_flight, max_jobs: unfinished Jobs, and how many there may be; None: no cap.
    unjudged: the number of waiting rows that no cycle has judged yet.
    """

    queue: str
    reasons: Mapping[HoldReason, int] = {}
    in_flight: int = 0
    max_jobs: int | None = None
    unjudged: int = 0


class DemoView(Struct, frozen=True):
    """The state of a demo.

    rows: all tasks.
    nodes: the nodes with their load.
    queues: what the rows of each queue wait for, by the last cycle. None: not known at the moment.
    in_flight, max_jobs: unfinished Jobs of all queues, and their cap.
    away: the servers that do not answer.
    passing: park reasons that end by themselves.
    """

    rows: Sequence[DemoRow] = ()
    nodes: Sequence[NodeLoad] = ()
    queues: Sequence[QueueLoad] | None = None
    in_flight: int = 0
    max_jobs: int = 0
    away: Sequence[str] = ()
    passing: frozenset[HoldReason] = frozenset()

    @property
    def statuses(self) -> Counter[str]:
        return Counter(row.status for row in self.rows)

    @property
    def states(self) -> Counter[RowState]:
        return Counter(row.state for row in self.rows)

    @property
    def ended(self) -> int:
        return sum(row.is_ended for row in self.rows)

    @property
    def parked(self) -> int:
        """The number of rows that wait for a person."""
        needs = PARKED - self.passing
        return sum(n for queue in self.queues or () for reason, n in queue.reasons.items() if reason in needs)

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens without a person."""
        statuses = self.statuses
        return self.queues is not None and not statuses["processing"] and statuses["waiting"] == self.parked


def outcome(row: DemoRow) -> str:
    """The result or error of a row that has ended, or empty."""
    if row.status != "succeeded":
        return error_line(row.error)
    result = row.result if isinstance(row.result, dict) else {}
    return for_terminal(", ".join(f"{key} {value}" for key, value in result.items()))


def error_line(text: str | None) -> str:
    """The first line of an error, or the last one of a traceback of Python, as a terminal may show it."""
    lines = (text or "").strip().splitlines() or [""]
    line = lines[-1] if lines[0].startswith("Traceback ") else lines[0]
    return for_terminal(line[:LONGEST_ERROR])


FRESH_SECONDS: Final = 5
ANSWER_SECONDS: Final = 2
PAGE: Final = 100
LAUNCHED: Final = f"tasks?status=waiting&reason={HoldReason.LAUNCHED}&limit={PAGE}"
WAITING: Final = f"tasks?status=waiting&limit={PAGE}"
OF_DATABASE: Final = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
AWAY: Final = (OSError, TimeoutError, *OF_DATABASE)
POSTGRES: Final = "Postgres"
DISPATCHER: Final = "the dispatcher"
CLUSTER: Final = "the cluster"
PASSING: Final = ReasonInWords(HoldReason.FINISHING, "its container has ended, and the janitor reports it soon")


class JudgedRow(msgspec.Struct, frozen=True):
    """A waiting row as the dispatcher has judged it."""

    status: str
    attempt: int
    cause: ReasonInWords


class CycleReport(msgspec.Struct, frozen=True):
    """The dispatcher's report of its last cycle. `rows`: some of the waiting rows, by id."""

    status: InstallationStatus
    rows: Mapping[int, JudgedRow]


class Observer:
    """Makes views. A part that cannot be read now stays as it was.

    connect: opens a connection to Postgres.
    passing: park reasons that the janitor ends.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[asyncpg.Connection]], client: KubeClient, installation: str,
        passing: frozenset[HoldReason],
    ) -> None:  # fmt: skip
        self._connect = connect
        self._client = client
        self._passing = passing
        self._mine = {"labelSelector": f"{LABEL_INSTALLATION}={installation}"}
        self._connection: asyncpg.Connection | None = None
        self._last = DemoView(passing=passing)
        self.api_url = ""

    async def close(self) -> None:
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def observe(self) -> DemoView:
        away = list[str]()
        # Reasons first: if a row moves on afterwards, the sums differ, and the demo does not count as over.
        told = await self._told(away)
        rows, seen_at = await self._rows(away)
        nodes = await self._nodes(away)
        if told is None or seen_at is None or not is_fresh(told.status.as_of, seen_at):
            self._last = DemoView(rows, nodes, away=away, passing=self._passing)
            return self._last
        status = told.status
        judged = [with_cause(row, told, self._passing) for row in rows]
        loads = [load_of(one, [row for row in judged if row.queue == one.queue]) for one in status.queues]
        self._last = DemoView(judged, nodes, loads, status.in_flight, status.max_jobs, away, self._passing)
        return self._last

    async def _told(self, away: list[str]) -> CycleReport | None:
        """The status and the reasons of rows. None: the dispatcher does not answer, or another program has its port."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS), opened(self.api_url) as api:
                status = await api.ask("status", InstallationStatus)
                waiting = sum(queue.waiting for queue in status.queues)
                pages = [WAITING, *([LAUNCHED] if waiting > PAGE else [])] if waiting else []
                found = [await api.ask(page, RowsPage) for page in pages]
        except (NoAnswer, *AWAY):
            away.append(DISPATCHER)
            return None
        except DispatcherError:  # no cycle has ended yet, or another program has the port until ours listens
            return None
        parked = {
            row.task: JudgedRow("waiting", row.attempt, ReasonInWords(row.reason, row.message))
            for row in status.parked_rows
        }
        return CycleReport(status, {**parked, **{id_: one for page in found for id_, one in judged_on(page)}})

    async def _rows(self, away: list[str]) -> tuple[Sequence[DemoRow], datetime | None]:
        """The rows, and the time by the database's clock; None: the rows are older."""
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._connect()
            found = await self._connection.fetch(demo_query("rows"), timeout=5)
        except AWAY:
            away.append(POSTGRES)
            # A connection that broke during an answer is useless, and the driver may take it for open.
            self._disconnect()
            return [msgspec.structs.replace(row, cause=None) for row in self._last.rows], None
        return [row_of(record) for record in found], found[0]["seen_at"] if found else None

    async def _nodes(self, away: list[str]) -> Sequence[NodeLoad]:
        try:
            pods = await self._list("/api/v1/pods", self._mine)
            return loads_of(pods, await self._list("/api/v1/nodes", {}))
        except ClusterError:
            away.append(CLUSTER)
            return self._last.nodes

    async def _list(self, path: str, params: Mapping[str, str]) -> list[Json]:
        reply = await self._client.request("GET", path, params=params, seconds=5)
        found: list[Json] = msgspec.json.decode(reply.expect(f"list {path}"))["items"]
        return found


def row_of(record: asyncpg.Record) -> DemoRow:
    result = json.loads(record["result"]) if record["result"] else None
    return DemoRow(
        record["id"], record["queue"], record["status"], record["attempt"], record["error"], result,
        record["node_name"], record["seconds"], record["progress"], record["note"], record["is_stopping"],
    )  # fmt: skip


def is_fresh(judged_at: datetime, seen_at: datetime) -> bool:
    return (seen_at - judged_at).total_seconds() <= FRESH_SECONDS


def with_cause(row: DemoRow, told: CycleReport, passing: frozenset[HoldReason]) -> DemoRow:
    """The row with the reason why it waits, if the dispatcher has judged its present state."""
    known = told.rows.get(row.id)
    if known is None or (known.status, known.attempt) != (row.status, row.attempt):
        return row
    return msgspec.structs.replace(row, cause=PASSING if known.cause.reason in passing else known.cause)


def judged_on(page: RowsPage) -> Iterator[tuple[int, JudgedRow]]:
    """The rows of a page that the cycle has seen, by id."""
    for row in page.tasks:
        if row.reason is not None and row.created_at <= page.judged_at:
            yield row.task, JudgedRow(row.status, row.attempt, ReasonInWords(row.reason, row.message or ""))


def load_of(queue: QueueStatus, rows: Sequence[DemoRow]) -> QueueLoad:
    """What the rows of the queue wait for now.

    The dispatcher's count may be half a minute old, but the rows are not. So if the reason of each row is not known,
    the count is scaled: the rows without a reason wait for what most of the counted rows wait for.
    """
    waiting = [row for row in rows if row.status == "waiting"]
    reasons, unjudged = dict(Counter(row.cause.reason for row in waiting if row.cause)), 0
    if sum(reasons.values()) < len(waiting):
        reasons = {reason: n for reason, n in queue.reasons.items() if n}
        most = max(reasons, key=lambda reason: reasons[reason], default=None)
        surplus = sum(reasons.values()) - len(waiting)
        if most is None or reasons[most] <= surplus:
            reasons, unjudged = {}, len(waiting)
        else:
            reasons[most] -= surplus
    return QueueLoad(queue.queue, reasons, queue.in_flight, queue.max_jobs, unjudged)


def loads_of(pods: Sequence[Json], nodes: Sequence[Json]) -> list[NodeLoad]:
    number, used = Counter[str](), Counter[str]()
    for pod in pods:
        name = pod["spec"].get("nodeName")
        if name and pod["status"].get("phase") not in {"Succeeded", "Failed"}:
            number[name] += 1
            used[name] += int(1000 * cores_of(pod))
    return [
        NodeLoad(name, float(parse_quantity(node["status"]["allocatable"]["cpu"])), used[name] / 1000, number[name])
        for node in nodes
        if (name := node["metadata"]["name"]) and node["status"].get("allocatable")
    ]


def cores_of(pod: Json) -> float:
    asked = [(one.get("resources") or {}).get("requests") or {} for one in pod["spec"]["containers"]]
    return sum(float(parse_quantity(str(one.get("cpu", 0)))) for one in asked)


MOST_INSERTED: Final = 50


class News:
    """Takes views as they come. It does not repeat what is still true."""

    def __init__(self) -> None:
        self._before = DemoView()
        self._needing: set[tuple[int, int]] = set()
        self._away: set[str] = set()

    def take(self, view: DemoView) -> list[str]:
        """The news since the view before."""
        before, self._before = self._before, view
        return [*changes(before, view), *self._needs(view), *roomless(before, view), *self._servers(before, view)]

    def _needs(self, view: DemoView) -> list[str]:
        """One line for each row that needs a person, once for each attempt."""
        lines = []
        for row in view.rows:
            if row.state is RowState.NEEDS_YOU and row.cause and (row.id, row.attempt) not in self._needing:
                self._needing.add((row.id, row.attempt))
                lines.append(f"{about(row)} needs you: {for_terminal(row.cause.message)}")
        return lines

    def _servers(self, before: DemoView, view: DemoView) -> list[str]:
        """One line for each server that has gone away, or is back. At the start the last ones are still starting."""
        back = sorted(self._away - {*view.away})
        gone = sorted({*view.away} - {*before.away}) if before.rows else []
        self._away = (self._away | {*gone}) - {*back}
        return [*(f"{name} does not answer" for name in gone), *(f"{name} answers again" for name in back)]


def changes(before: DemoView, after: DemoView) -> list[str]:
    """One line for each change of a row. Many new rows are one line with their number."""
    known = {row.id: row for row in before.rows}
    new = [row for row in after.rows if row.id not in known and row.status == "waiting"]
    lines = [f"{len(new):,} tasks are inserted"] if len(new) > MOST_INSERTED else []
    rest = [row for row in after.rows if not lines or row.id in known or row.status != "waiting"]
    return lines + [f"{about(row)} {words}" for row in rest if (words := change(known.get(row.id), row))]


def about(row: DemoRow) -> str:
    return f"task {row.id} ({for_terminal(row.queue)})"


def change(was: DemoRow | None, row: DemoRow) -> str:
    """What became of the row; empty if status and attempt are unchanged."""
    if was is not None and (was.status, was.attempt) == (row.status, row.attempt):
        return ""
    if row.status == "waiting" and row.attempt == 1:
        return "is inserted"
    if row.status == "waiting":
        told = error_line(row.error)
        return f"failed, and is tried again (attempt {row.attempt})" + (f": {told}" if told else "")
    if row.status == "processing":
        again = f", attempt {row.attempt}" if row.attempt > 1 else ""
        return f"runs on {for_terminal(row.node or '')}{again}"
    told = outcome(row)
    return f"{row.status}: {told}" if told else row.status


def roomless(before: DemoView, after: DemoView) -> list[str]:
    """One line for each queue whose rows wait for room on a node, and did not before."""
    queues = sorted(full(after) - full(before))
    return [f"the nodes are full: rows of queue {queue} wait for room" for queue in queues]


def full(view: DemoView) -> set[str]:
    return {queue.queue for queue in view.queues or () if queue.reasons.get(HoldReason.NO_ROOM_NOW)}
