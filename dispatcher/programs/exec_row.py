"""The row of one launch: the contract of its container, and the three calls that start, keep and end its run."""

import asyncio
import contextlib
import os
import random
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from dispatcher.programs.exec_progress import NOTHING, Progress

T = TypeVar("T")
CONNECT_SECONDS: Final = 5
ANSWER_SECONDS: Final = 10
HEARD_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 10
POOLED: Final = {"application_name": "dispatcher/exec"}
SQL: Final = Path(__file__).parents[1] / "sql" / "exec"
AWAY: Final = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.TargetServerAttributeNotMatched,
    asyncpg.exceptions.OperatorInterventionError,
    asyncpg.exceptions.InsufficientResourcesError,
    asyncpg.exceptions.TransactionRollbackError,
    asyncpg.exceptions.ReadOnlySQLTransactionError,
)
"""No answer, or not from the primary server: the call is repeated."""

NOT_STORABLE: Final = (asyncpg.DataError, asyncpg.exceptions.ProgramLimitExceededError)
FAULTS: Final = (asyncpg.PostgresError, *AWAY)


class NotStorable(Exception):
    """The row cannot hold what was reported. The message is the database's."""


class Misuse(Exception):
    """The environment is not that of a task's container."""


AT_WORK: Final = (*FAULTS, Misuse)
"""Faults of calls while CMD runs. Misuse is one: the URL could be read at the start, and can be read again."""


class Contract(NamedTuple):
    """The launch, as the environment of the Job describes it. `limit_seconds`: the run limit."""

    database_url: str
    task_id: int
    start_key: str
    attempt: int
    launch: int
    job_uid: str
    node: str
    pod: str
    limit_seconds: int


class Report(NamedTuple):
    """The end of CMD.

    outcome: `succeeded`, `failed` or `retry`. Empty: nothing is reported.
    status: the exit status of this program.
    error: the message for the row.
    result: the result for the row, as JSON.
    """

    outcome: str
    status: int
    error: str | None = None
    result: str | None = None


class TaskRow(Protocol):
    """The three calls of a container."""

    async def start(self) -> tuple[str, str] | None:
        """(run token, payload). None: the row does not accept this launch."""

    async def heartbeat(self, token: str, progress: Progress) -> str:
        """`continue`, `cancel` or `lost`."""

    async def finish(self, token: str, report: Report) -> str | None:
        """The new status of the row. None: the run has lost the row. NotStorable: the row cannot hold the report."""


class Row:
    """The three calls in Postgres. Each opens a connection of its own."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract

    async def start(self) -> tuple[str, str] | None:
        me = self._contract
        found = await self._call("start", me.task_id, me.start_key, me.attempt, me.launch, me.job_uid, me.node, me.pod)
        return (found["run_token"], found["payload"]) if found else None

    async def heartbeat(self, token: str, progress: Progress = NOTHING) -> str:
        found = await self._call("heartbeat", token, progress.done, progress.note)
        return str(found[0]) if found else "lost"

    async def finish(self, token: str, report: Report) -> str | None:
        try:
            found = await self._call("finish", token, report.outcome, report.error, report.result)
        except NOT_STORABLE as fault:
            raise NotStorable(str(fault)) from fault
        return found[0] if found else None

    async def _call(self, name: str, *parameters: object) -> asyncpg.Record | None:
        connection = await self._connect()
        try:
            return await connection.fetchrow((SQL / f"{name}.sql").read_text(encoding="utf-8"), *parameters)
        finally:
            connection.terminate()  # no clean close: a frozen server would not answer

    async def _connect(self) -> asyncpg.Connection:
        try:
            return await self._connect_with({**POOLED, "search_path": "pg_catalog, pg_temp"})
        except asyncpg.exceptions.ProtocolViolationError:  # this pooler refuses settings
            return await self._connect_with(POOLED)  # our statements name the schema of each object

    async def _connect_with(self, settings: dict[str, str]) -> asyncpg.Connection:
        try:
            return await asyncpg.connect(
                self._contract.database_url,
                timeout=CONNECT_SECONDS,
                command_timeout=ANSWER_SECONDS,
                statement_cache_size=0,  # one statement, perhaps through a pooler
                server_settings=settings,
                target_session_attrs=SessionAttribute.primary,
            )
        except (ValueError, OverflowError):  # the driver's message may contain the password
            raise Misuse(
                "TASK_DATABASE_URL cannot be read: postgresql://USER:PASSWORD@HOST:PORT/DATABASE, "
                "the password's special characters percent-encoded"
            ) from None


async def ask_until(doing: str, call: Callable[[], Awaitable[T]], deadline: float) -> T:
    """Repeats the call, with growing pauses, until there is an answer or the deadline has passed."""
    pause = 0.2
    while True:
        try:
            return await call()
        except AWAY as fault:
            if time.monotonic() >= deadline:
                raise
            say(f"{doing}: {describe(fault)}; asked again")
        await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311  # spreads a thousand tasks, keeps no secret
        pause = min(2 * pause, LONGEST_PAUSE_SECONDS)


def read_contract(env: Mapping[str, str]) -> Contract:
    """The contract. Misuse: names all faults at once."""
    numbers, faults = {}, []
    for name in ("TASK_ID", "TASK_ATTEMPT", "TASK_LAUNCH", "TASK_TIMEOUT_SECONDS"):
        numbers[name] = int(text) if (text := env.get(name, "")).isdecimal() else 0
        if not numbers[name]:
            faults.append(f"{name} is not a number above 0")
    needed = ("TASK_DATABASE_URL", "TASK_START_KEY", "JOB_UID", "POD_NAME")
    faults += [f"{name} is not set" for name in needed if not env.get(name)]
    if env.get("TASK_START_KEY") and not is_uuid(env["TASK_START_KEY"]):
        faults.append("TASK_START_KEY is not a UUID")
    if faults:
        source = "A Secret sets TASK_DATABASE_URL: TASK_SECRET, or envFrom of the template."
        rest = "The dispatcher sets the other variables. On your own machine use: dispatcher try -- CMD…"
        raise Misuse(f"{'; '.join(faults)}. {source} {rest}")
    return Contract(
        database_url=env["TASK_DATABASE_URL"],
        task_id=numbers["TASK_ID"],
        start_key=env["TASK_START_KEY"],
        attempt=numbers["TASK_ATTEMPT"],
        launch=numbers["TASK_LAUNCH"],
        job_uid=env["JOB_UID"],
        node=env.get("NODE_NAME", ""),
        pod=env["POD_NAME"],
        limit_seconds=numbers["TASK_TIMEOUT_SECONDS"],
    )


def is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def describe(fault: BaseException) -> str:
    """Type and text of a fault. It never has the URL, which holds a password."""
    return f"{type(fault).__name__}: {fault}"


def say(words: str, who: str = "dispatcher exec") -> None:
    """Writes one line to stderr, among CMD's own. A stderr that is not read must not block us."""
    line = f"{who}: {words}\n".encode(errors="backslashreplace")
    writer = threading.Thread(target=write_line, args=(line,), daemon=True)
    writer.start()
    writer.join(HEARD_SECONDS)


def write_line(line: bytes) -> None:
    with contextlib.suppress(OSError):  # stderr is closed
        os.write(2, line)
