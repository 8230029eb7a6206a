"""The programs of played containers.

A program gets its environment, and the three database calls of a task. It returns the container's exit code. The
variable `PLAY` sets the behaviour of `play_task`, so rows inserted by SQL alone make a mixed load.
"""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

import asyncpg

from tests.rig.rows import Started

START = "SELECT run_token, payload FROM dispatch.task_start($1, $2, $3, $4, $5, $6, $7, $8)"
HEARTBEAT = "SELECT dispatch.task_heartbeat($1)"
FINISH = "SELECT dispatch.task_finish($1, $2, $3, $4)"
EXITS = ("start-then-exit-0", "start-then-exit-1", "exit-0-without-start", "exit-1-without-start")
PLAYS = ("succeed", "retry", "fail", "hang", *EXITS)


@dataclass(slots=True)
class TaskCalls:
    """The calls of one container and their answers.

    run_id: of the container's process.
    asked: whether `task_start` has answered.
    started: its answer; None before it, and after a refusal.
    heartbeats, reports: the answers in order.
    """

    pool: "asyncpg.Pool[asyncpg.Record] | None"
    run_id: str = field(default_factory=lambda: secrets.token_hex(16))
    asked: bool = False
    started: Started | None = None
    heartbeats: list[str] = field(default_factory=list)
    reports: list[str | None] = field(default_factory=list)

    @property
    def database(self) -> "asyncpg.Pool[asyncpg.Record]":
        assert self.pool is not None, "this player was given no database"
        return self.pool

    async def start(self, env: Mapping[str, str]) -> Started | None:
        numbers = (int(env["TASK_ATTEMPT"]), int(env["TASK_LAUNCH"]))
        here = (env["JOB_UID"], env["NODE_NAME"], env["POD_NAME"], self.run_id)
        row = await self.database.fetchrow(START, int(env["TASK_ID"]), env["TASK_START_KEY"], *numbers, *here)
        self.asked = True
        if row is not None and row["run_token"] is not None:
            self.started = Started(row["run_token"], json.loads(row["payload"]) if row["payload"] else None)
        return self.started

    async def heartbeat(self) -> str:
        """`continue`, `cancel` or `lost`."""
        self.heartbeats.append(await self.database.fetchval(HEARTBEAT, self._token()))
        return self.heartbeats[-1]

    async def finish(self, outcome: str, error: str | None = None, result: object = None) -> str | None:
        """The row's new status; None if the token is no longer that of the run."""
        sent = None if result is None else json.dumps(result)
        self.reports.append(await self.database.fetchval(FINISH, self._token(), outcome, error, sent))
        return self.reports[-1]

    def _token(self) -> UUID:
        assert self.started is not None, "not started"
        return self.started.run_token


Program = Callable[[Mapping[str, str], TaskCalls], Awaitable[int]]


async def play_task(env: Mapping[str, str], calls: TaskCalls) -> int:
    """A task that follows the contract, or breaks it as `PLAY` says."""
    play = env.get("PLAY", "succeed")
    if play not in PLAYS:
        raise ValueError(f"PLAY is {play!r}, not one of {', '.join(PLAYS)}")
    code = int(play.split("exit-")[1][0]) if play in EXITS else None
    if code is not None and play.endswith("-without-start"):
        return code
    if await calls.start(env) is None:
        return 0
    if code is not None:
        return code
    await calls.heartbeat()
    if play == "hang":
        await asyncio.Event().wait()
    return await _report(play, calls)


async def _report(play: str, calls: TaskCalls) -> int:
    outcome = {"succeed": "succeeded", "retry": "retry", "fail": "failed"}[play]
    error = None if play == "succeed" else f"played: {play}"
    await calls.finish(outcome, error, {"played": play} if play == "succeed" else None)
    return 1 if play == "fail" else 0
