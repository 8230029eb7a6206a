"""Sample tasks that make the three calls of the contract themselves, without `dispatcher exec`.

`by_hand.py flaky` fails in its first attempt, and asks for another one in a second. `by_hand.py endless` works until a
heartbeat says `cancel` or `lost`. Each call opens its own connection, and is made again while Postgres is away: the
same call from the same process gets the same answer.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import asyncpg

from dispatcher.pg.queries import read_sql
from dispatcher_demo.statements import demo_query

START, HEARTBEAT = (read_sql(f"exec/{name}.sql") for name in ("start", "heartbeat"))
REPORT = demo_query("report")
PAUSE_SECONDS = 0.3
AWAY = (OSError, TimeoutError, asyncpg.InternalClientError, asyncpg.PostgresConnectionError)
STARTING = (asyncpg.CannotConnectNowError, asyncpg.AdminShutdownError, asyncpg.CrashShutdownError)


async def main(what: str, env: Mapping[str, str]) -> None:
    url, attempt = env["TASK_DATABASE_URL"], int(env["TASK_ATTEMPT"])
    row = int(env["TASK_ID"]), env["TASK_START_KEY"], attempt, int(env["TASK_LAUNCH"])
    token = await call(url, START, *row, env["JOB_UID"], env["NODE_NAME"], env["POD_NAME"], os.urandom(16).hex())
    if token is None:
        return  # the row does not accept this launch
    if what == "flaky":
        await fail_once(url, token, attempt)
    else:
        await work_on(url, token)


async def call(url: str, statement: str, *values: object) -> Any:
    """The answer to one call, once there is one."""
    while True:
        try:
            connection = await asyncpg.connect(url, timeout=5)
            try:
                return await connection.fetchval(statement, *values, timeout=5)
            finally:
                connection.terminate()
        except (*AWAY, *STARTING):
            await asyncio.sleep(PAUSE_SECONDS)


async def fail_once(url: str, token: str, attempt: int) -> None:
    if attempt == 1:
        words = "the other side was not there, as it happens"
        await call(url, REPORT, token, "retry", words, timedelta(seconds=1))
    else:
        await call(url, REPORT, token, "succeeded", None, None)


async def work_on(url: str, token: str) -> None:
    while await call(url, HEARTBEAT, token, None, None) == "continue":  # noqa: ASYNC110  # the work itself is a pause
        await asyncio.sleep(PAUSE_SECONDS)
    await call(url, REPORT, token, "failed", "stopped, as it was asked to", None)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], os.environ))
