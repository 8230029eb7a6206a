"""Rows as their submitter and their containers see them: the five functions, called by parameter name."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg

from tests.rig.postgres import Connection, Database, Record

START_OF_PROCESS = """
SELECT * FROM dispatch.task_start(task_id => $1, start_key => $2, attempt => $3, launch => $4,
                                  job_uid => $5, node => $6, pod => $7, run_id => $8)
"""
START = """
SELECT * FROM dispatch.task_start(task_id => $1, start_key => $2, attempt => $3, launch => $4,
                                  job_uid => $5, node => $6, pod => $7)
"""
HEARTBEAT = "SELECT dispatch.task_heartbeat(run_token => $1)"
FINISH = """
SELECT dispatch.task_finish(run_token => $1, outcome => $2, error => $3, result => $4, retry_after => $5)
"""
CANCEL = "SELECT dispatch.task_cancel(task_id => $1, reason => $2)"
RETRY = "SELECT dispatch.task_retry(task_id => $1, attempt => $2)"

TURN_TO_UNJUDGED = """
INSERT INTO dispatch_private.templates (name) SELECT $1 WHERE EXISTS (SELECT FROM dispatch.templates)
ON CONFLICT (name) DO UPDATE SET row_may_set = NULL
"""
TRIES = 50

TERMINAL = {"succeeded", "failed", "cancelled"}


@dataclass(frozen=True)
class Pod:
    """One run of a container. Two Pods with one job_uid are two containers of one launch. `run_id`: of its process."""

    name: str | None = "pod-1"
    job_uid: str = "job-1"
    node: str = "node-1"
    run_id: str | None = None


FIRST = Pod()
SECOND = Pod("pod-2", "job-2", "node-2")


@dataclass(frozen=True)
class Started:
    run_token: UUID
    payload: Any

    @property
    def run_digest(self) -> bytes:
        """The digest of the token, which the row keeps."""
        return hashlib.sha256(self.run_token.bytes).digest()


@dataclass(frozen=True)
class Row:
    """One task of the database. Every call uses the login that makes it in production, on its own connection or on
    `by`.
    """

    database: Database
    id: int
    start_key: UUID

    async def start(
        self,
        *,
        attempt: int = 1,
        launch: int = 1,
        pod: Pod = FIRST,
        start_key: UUID | None = None,
        by: Connection | None = None,
    ) -> Started | None:
        connection = by or await self.database.session("task")
        key = start_key or self.start_key
        call = (self.id, key, attempt, launch, pod.job_uid, pod.node, pod.name)
        if pod.run_id is None:
            answers = await connection.fetch(START, *call)
        else:
            answers = await connection.fetch(START_OF_PROCESS, *call, pod.run_id)
        assert len(answers) <= 1
        return Started(**dict(answers[0])) if answers else None

    async def started(self, *, attempt: int = 1, launch: int = 1, pod: Pod = FIRST) -> Started:
        accepted = await self.start(attempt=attempt, launch=launch, pod=pod)
        assert accepted is not None, "the start was refused"
        return accepted

    async def heartbeat(self, started: Started) -> str:
        return str(await (await self.database.session("task")).fetchval(HEARTBEAT, started.run_token))

    async def finish(
        self,
        started: Started,
        outcome: str | None,
        *,
        error: str | None = None,
        result: object = None,
        retry_after: timedelta | None = None,
        by: Connection | None = None,
    ) -> str | None:
        connection = by or await self.database.session("task")
        answer: str | None = await connection.fetchval(FINISH, started.run_token, outcome, error, result, retry_after)
        return answer

    async def cancel(self, reason: str | None = None, *, login: str = "team_a") -> str | None:
        answer: str | None = await (await self.database.session(login)).fetchval(CANCEL, self.id, reason)
        return answer

    async def retry(self, attempt: int | None = None, *, login: str = "team_a") -> str | None:
        answer: str | None = await (await self.database.session(login)).fetchval(RETRY, self.id, attempt)
        return answer

    async def now(self) -> Record:
        """The row as it stands; fails if the row contradicts itself."""
        row = await self.database.task(self.id)
        assert contradictions(row) == []
        return row

    async def status(self) -> str:
        return str((await self.now())["status"])

    async def launches(self) -> list[Record]:
        return await self.database.launches(self.id)

    async def silent_for(self, seconds: float) -> None:
        """Sets the last heartbeat back by so many seconds."""
        admin = await self.database.session("admin")
        silence = "UPDATE dispatch_private.tasks SET heartbeat_at = now() - $2::interval WHERE id = $1"
        await admin.execute(silence, self.id, timedelta(seconds=seconds))


async def insert_unjudged(database: Database, login: str = "team_a", **columns: object) -> int:
    """Inserts a row that its template refuses, as if the template had been another one. A janitor may run beside it."""
    admin = await database.session("admin")
    for _ in range(TRIES):
        await admin.execute(TURN_TO_UNJUDGED, columns.get("template", "default"))
        try:
            return await database.insert_task(login, **columns)
        except asyncpg.PostgresError as refused:
            if not (refused.sqlstate or "").startswith("DI"):
                raise
    raise AssertionError(f"refused {TRIES} times: {columns}")


async def insert_row(database: Database, login: str = "team_a", **columns: object) -> Row:
    task_id = await database.insert_task(login, **columns)
    return Row(database, task_id, await database.start_key(task_id))


def contradictions(row: Record) -> list[str]:
    """The rules that this row breaks; empty for every row that may exist."""
    status = row["status"]
    waiting, processing, over = status == "waiting", status == "processing", status in TERMINAL
    rules = {
        "unknown status": waiting or processing or over,
        "waiting with a launch": not waiting or row["launch"] == 0,
        "waiting with a Job": not waiting or row["job_uid"] is None,
        "waiting and asked to cancel": not waiting or row["cancel_requested_at"] is None,
        "processing without a launch": not processing or row["launch"] > 0,
        "processing and never started": not processing or row["started_at"] is not None,
        "a token exactly while processing": processing == (row["run_digest"] is not None),
        "finished_at exactly when over": over == (row["finished_at"] is not None),
    }
    return [rule for rule, holds in rules.items() if not holds]
