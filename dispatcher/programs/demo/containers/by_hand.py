"""Sample tasks that make the three calls of the contract themselves, without `dispatcher exec`.

`by_hand.py flaky` fails in its first attempt, and asks for another one in a second. `by_hand.py endless` works until a
heartbeat says `cancel` or `lost`.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

import asyncpg

SQL = Path(__file__).parents[3] / "sql"
START, HEARTBEAT = ((SQL / "exec" / f"{name}.sql").read_text() for name in ("start", "heartbeat"))
REPORT = (SQL / "demo" / "report.sql").read_text()
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def main(what: str, env: Mapping[str, str]) -> None:
    connection = await asyncpg.connect(env["TASK_DATABASE_URL"])
    try:
        attempt = int(env["TASK_ATTEMPT"])
        row = int(env["TASK_ID"]), env["TASK_START_KEY"], attempt, int(env["TASK_LAUNCH"])
        token = await connection.fetchval(START, *row, env["JOB_UID"], env["NODE_NAME"], env["POD_NAME"])
        if token is None:
            return  # the row does not accept this launch
        if what == "flaky":
            await fail_once(connection, token, attempt)
        else:
            await work_on(connection, token)
    finally:
        await connection.close()


async def fail_once(connection: Connection, token: str, attempt: int) -> None:
    if attempt == 1:
        words = "the other side was not there, as it happens"
        await connection.execute(REPORT, token, "retry", words, timedelta(seconds=1))
    else:
        await connection.execute(REPORT, token, "succeeded", None, None)


async def work_on(connection: Connection, token: str) -> None:
    while await connection.fetchval(HEARTBEAT, token) == "continue":  # noqa: ASYNC110  # the work itself is a pause
        await asyncio.sleep(0.3)
    await connection.execute(REPORT, token, "failed", "stopped, as it was asked to", None)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], os.environ))
