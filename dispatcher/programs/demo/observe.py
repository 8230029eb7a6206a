"""Collects a `DemoView`: rows from Postgres, nodes and Pods from the API server, reasons from the dispatcher's API.

A reason is told only while it is true: of the attempt that waits now, by a cycle that is at most FRESH_SECONDS old.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import asyncpg
import msgspec

from dispatcher.explain.listing import Page
from dispatcher.explain.reasons import Cause
from dispatcher.explain.status import InstallationStatus, QueueStatus
from dispatcher.kube.client import KubeClient
from dispatcher.model.errors import ClusterError, DispatcherError
from dispatcher.model.identity import LABEL_INSTALLATION
from dispatcher.model.quantity import parse_quantity
from dispatcher.model.verdicts import HoldReason
from dispatcher.pg.queries import query
from dispatcher.programs.asking_api import NoAnswer, opened
from dispatcher.programs.demo.view import DemoView, NodeLoad, QueueLoad, Row

Json = dict[str, Any]
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
PASSING: Final = Cause(HoldReason.FINISHING, "its container has ended, and the janitor reports it soon")


class Judged(msgspec.Struct, frozen=True):
    """A waiting row as the dispatcher has judged it."""

    status: str
    attempt: int
    cause: Cause


class Told(msgspec.Struct, frozen=True):
    """What the dispatcher tells of its last cycle. `rows`: some of the waiting rows, by id."""

    status: InstallationStatus
    rows: Mapping[int, Judged]


class Observer:
    """Makes views. A part that cannot be read now is shown as it was. `passing`: park reasons that the janitor ends."""

    def __init__(
        self, database_url: str, client: KubeClient, installation: str, passing: frozenset[HoldReason]
    ) -> None:
        self._database_url = database_url
        self._client = client
        self._passing = passing
        self._mine = {"labelSelector": f"{LABEL_INSTALLATION}={installation}"}
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
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

    async def _told(self, away: list[str]) -> Told | None:
        """The status and the reasons of rows. None: the dispatcher does not answer, or another program has its port."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS), opened(self.api_url) as api:
                status = await api.ask("status", InstallationStatus)
                waiting = sum(queue.waiting for queue in status.queues)
                pages = [WAITING, *([LAUNCHED] if waiting > PAGE else [])] if waiting else []
                found = [await api.ask(page, Page) for page in pages]
        except (NoAnswer, *AWAY):
            away.append(DISPATCHER)
            return None
        except DispatcherError:  # no cycle has ended yet, or another program has the port until ours listens
            return None
        parked = {
            row.task: Judged("waiting", row.attempt, Cause(row.reason, row.message)) for row in status.parked_rows
        }
        return Told(status, {**parked, **{id_: one for page in found for id_, one in judged_on(page)}})

    async def _rows(self, away: list[str]) -> tuple[Sequence[Row], datetime | None]:
        """The rows, and the time by the database's clock; None: they are older."""
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = await asyncpg.connect(self._database_url, timeout=5)
            found = await self._connection.fetch(query("rows", "demo"), timeout=5)
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


def row_of(record: asyncpg.Record) -> Row:
    result = json.loads(record["result"]) if record["result"] else None
    return Row(
        record["id"], record["queue"], record["status"], record["attempt"], record["error"], result,
        record["node_name"], record["seconds"], record["progress"], record["note"], record["is_stopping"],
    )  # fmt: skip


def is_fresh(judged_at: datetime, seen_at: datetime) -> bool:
    return (seen_at - judged_at).total_seconds() <= FRESH_SECONDS


def with_cause(row: Row, told: Told, passing: frozenset[HoldReason]) -> Row:
    """The row with the reason why it waits, if the dispatcher has judged it as it is now."""
    known = told.rows.get(row.id)
    if known is None or (known.status, known.attempt) != (row.status, row.attempt):
        return row
    return msgspec.structs.replace(row, cause=PASSING if known.cause.reason in passing else known.cause)


def judged_on(page: Page) -> Iterator[tuple[int, Judged]]:
    """The rows of a page that the cycle has seen, by id."""
    for row in page.tasks:
        if row.reason is not None and row.created_at <= page.judged_at:
            yield row.task, Judged(row.status, row.attempt, Cause(row.reason, row.message or ""))


def load_of(queue: QueueStatus, rows: Sequence[Row]) -> QueueLoad:
    """What the rows of the queue wait for now.

    The dispatcher's count may be half a minute old, but the rows are not. So if it has not told the reason of each row,
    its count is made to fit: what most of the counted rows wait for, the others wait for as well.
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
