"""Reads the records of a run: the audit log of the API server, the tables, and a watch of the Jobs.

Names of labels are written here again on purpose: a label that the dispatcher renames must be noticed.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from tests.controlplane.api import Change, Json, KubeFault
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.player import Player
from tests.controlplane.waiting import wait_for
from tests.faults.history_records import History, Key, Life, Row, Start, Write
from tests.rig.postgres import Database

LABEL = "dispatcher.internal"
OVER = ("Complete", "Failed")
NEVER = datetime.min.replace(tzinfo=UTC)
WRITES = ("create", "delete", "deletecollection")


class Ref(Struct, rename="camel"):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class User(Struct):
    username: str = ""


class Status(Struct):
    code: int = 0


class Line(Struct, rename="camel"):
    """The fields of a line of the audit log that are used here."""

    stage: str
    verb: str
    request_received_timestamp: datetime
    stage_timestamp: datetime
    user: User = msgspec.field(default_factory=User)
    object_ref: Ref = msgspec.field(default_factory=Ref)
    response_status: Status = msgspec.field(default_factory=Status)
    request_object: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)

    def body(self) -> Json:
        return msgspec.json.decode(self.request_object, type=Json) if bytes(self.request_object) else {}


def read_lines(path: Path, namespace: str) -> list[Line]:
    """Answered requests of this namespace, oldest answer first."""
    decoder, mark = msgspec.json.Decoder(Line), f'"namespace":"{namespace}"'.encode()
    with path.open("rb") as log:
        lines = [decoder.decode(line) for line in log if mark in line and line.endswith(b"\n")]
    answered = [line for line in lines if line.stage == "ResponseComplete" and line.object_ref.namespace == namespace]
    return sorted(answered, key=lambda line: line.stage_timestamp)


def writes_of(lines: Iterable[Line], ours: str) -> list[Write]:
    """Creates and deletes of Jobs and Pods. A write is ours if its user's name starts with `ours`."""
    return [
        Write(
            line.verb,
            line.object_ref.resource,
            line.object_ref.name,
            line.user.username,
            line.user.username.startswith(ours),
            line.response_status.code,
            line.request_received_timestamp,
            line.stage_timestamp,
            key_of(line.body()) if (line.verb, line.object_ref.resource) == ("create", "jobs") else None,
            line.body() if line.verb.startswith("delete") else {},
        )
        for line in lines
        if line.verb in WRITES and line.object_ref.resource in {"jobs", "pods"} and not line.object_ref.subresource
    ]


def is_over(job: Json) -> bool:
    conditions = job.get("status", {}).get("conditions") or ()
    return any(condition["type"] in OVER and condition["status"] == "True" for condition in conditions)


def key_of(job: Json) -> Key | None:
    """(task, attempt, launch) by the labels. A Job of no task has no key."""
    labels = job.get("metadata", {}).get("labels", {})
    numbers = [labels.get(f"{LABEL}/{name}", "") for name in ("task-id", "attempt", "launch")]
    return (int(numbers[0]), int(numbers[1]), int(numbers[2])) if all(numbers) else None


class Sight(Struct, frozen=True):
    """A Job in one event of a watch. After the Jobs of a LIST comes a sight without a name."""

    type: str
    name: str
    uid: str
    key: Key | None
    is_over: bool


def sights_of(change: Change) -> Iterator[Sight]:
    for job in change.objects:
        meta = job["metadata"]
        yield Sight(change.type, meta["name"], meta["uid"], key_of(job), is_over(job))
    if change.type == "LIST":
        yield Sight("LIST", "", "", None, False)


def lives_of_sights(sights: Iterable[Sight]) -> list[Life]:
    """Lives in the order of the changes. A time is the number of a sight.

    All sights of one list have the same time: the order of the changes before a list is unknown.
    """
    open_: dict[str, Life] = {}
    over: dict[str, Life] = {}
    listed: set[str] = set()
    at = 0

    def end(uid: str, at: int) -> None:
        over[uid] = msgspec.structs.replace(open_.pop(uid), ended=float(at))

    for sight in sights:
        at += not listed or sight.type != "LIST"
        if sight.type == "LIST" and not sight.name:
            for uid in [uid for uid in open_ if uid not in listed]:
                end(uid, at)
            listed.clear()
            continue
        if sight.type == "LIST":
            listed.add(sight.uid)
        if sight.key and sight.uid not in open_ and sight.uid not in over:
            open_[sight.uid] = Life(sight.key, sight.name, at)
        if sight.uid in open_ and (sight.is_over or sight.type == "DELETED"):
            end(sight.uid, at)
    return [*over.values(), *open_.values()]


@asynccontextmanager
async def watched(plane: ControlPlane, namespace: str) -> AsyncIterator[list[Sight]]:
    """Sights of the namespace's Jobs, from a watch that goes past every proxy. The list grows until the exit."""
    sights: list[Sight] = []
    began = asyncio.Event()

    async def follow() -> None:
        async for change in plane.api.follow(f"/apis/batch/v1/namespaces/{namespace}/jobs"):
            sights.extend(sights_of(change))
            began.set()

    following = asyncio.create_task(follow())
    await began.wait()
    try:
        yield sights
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def read_history(
    plane: ControlPlane, namespace: str, database: Database, player: Player, sights: Iterable[Sight]
) -> History:
    """The records of a finished run."""
    lines, lives = await all_lines(plane, namespace), lives_of_sights(sights)
    rows, starts = await read_rows(database), await read_starts(database)
    ours = f"system:serviceaccount:{namespace}:"
    return History(writes_of(lines, ours), lives, starts, rows, list(accepted_by(player)))


async def all_lines(plane: ControlPlane, namespace: str) -> list[Line]:
    """All lines up to now. The server writes a line after its answer, so a request of our own marks the end."""
    path, name = plane.logs / "audit.log", f"end-{secrets.token_hex(4)}"
    try:
        await plane.admin("GET", f"/api/v1/namespaces/{namespace}/configmaps/{name}")
    except KubeFault as fault:
        assert fault.status == 404  # noqa: PT017  # only the line of this request in the log matters
    found: list[Line] = []

    def is_written() -> bool:
        found[:] = read_lines(path, namespace)
        return any(line.object_ref.name == name for line in found)

    await wait_for(is_written, "the audit log's last line")
    return found


async def read_rows(database: Database) -> list[Row]:
    admin = await database.session("admin")
    query = """
    SELECT id, status, attempt, launch, max_failures, encode(run_digest, 'hex'), error
    FROM dispatch_private.tasks ORDER BY id
    """
    return [Row(*record) for record in await admin.fetch(query)]


async def read_starts(database: Database) -> list[Start]:
    admin = await database.session("admin")
    query = """
    SELECT task_id, attempt, launch, pod_name, encode(run_digest, 'hex'), started_at, ended_at
    FROM dispatch_private.task_launches WHERE started_at IS NOT NULL
    """
    return [Start((task, attempt, launch), *rest) for task, attempt, launch, *rest in await admin.fetch(query)]


def accepted_by(player: Player) -> Iterator[Start]:
    """Accepted starts by the played containers. Their time is unknown (NEVER)."""
    for run in player.runs:
        if run.started is not None and run.task_id is not None:
            key = (run.task_id, run.attempt, run.launch)
            yield Start(key, run.env["POD_NAME"], run.started.run_digest.hex(), NEVER)
