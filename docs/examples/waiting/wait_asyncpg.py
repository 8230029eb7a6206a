"""An example of docs/submitter.md: inserts a batch of rows and prints `ID STATUS` of each end, until no row is live.

    DATABASE_URL=… python wait_asyncpg.py BATCH [DEADLINE_SECONDS [ASK_EVERY_SECONDS]]

Exits with 0 when all rows have ended, with 1 at the deadline or when the database refuses. A second run with the same
name inserts nothing: it waits for the rows that are there.
"""

import argparse
import asyncio
import contextlib
import os
import sys

import asyncpg

INSERT = """
INSERT INTO dispatch.tasks (queue, batch, dedupe_key, payload)
SELECT $1, $2, $2 || '/' || part, to_jsonb(part) FROM generate_series(1, 5) AS part
WHERE NOT EXISTS (SELECT FROM dispatch.tasks WHERE queue = $1 AND batch = $2 AND submitted_by = dispatch.own_name())
"""
LIVE = """
SELECT now(), (SELECT waiting + processing > 0 FROM dispatch.batch_status
               WHERE queue = $1 AND batch = $2 AND submitted_by = dispatch.own_name())
"""
ENDED = """
SELECT id, status, finished_at FROM dispatch.task_ended_since(coalesce($3, (
    SELECT min(created_at) FROM dispatch.tasks WHERE queue = $1 AND batch = $2 AND submitted_by = dispatch.own_name()
)) - interval '1 minute') WHERE queue = $1 AND batch = $2
"""
AWAY = ("08", "25", "40", "53", "55", "57")  # classes of SQLSTATE: the server is busy, locked, stopped, or a standby


class Batch:
    """The time of the last answer and the ends that were told. Both outlive a connection."""

    def __init__(self, name: str, every: int) -> None:
        self.of, self.every = ("default", name), every
        self.answered, self.told = None, set()

    async def wait(self, connection: asyncpg.Connection) -> None:
        woken = asyncio.Event()
        await connection.add_listener("dispatch_done", lambda *_: woken.set())
        connection.add_termination_listener(lambda _: woken.set())
        await connection.execute(INSERT, *self.of)
        while await self.is_live(connection):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.every):
                    await woken.wait()
            await asyncio.sleep(1)  # the notification is also for ends that are seen a moment later
            woken.clear()

    async def is_live(self, connection: asyncpg.Connection) -> bool:
        """Tells new ends. If no row is live any more, it asks from the beginning on, so that no end is missed."""
        now, live = await connection.fetchrow(LIVE, *self.of)
        for end in await connection.fetch(ENDED, *self.of, self.answered if live else None):
            if end not in self.told:  # a row that is retried ends again, at another time
                print(end["id"], end["status"], flush=True)
                self.told.add(end)
        self.answered = now
        return bool(live)


async def wait(batch: Batch) -> None:
    """Connects again and again while the database is away."""
    while True:
        connection = None
        try:
            connection = await asyncpg.connect(os.environ.get("DATABASE_URL"), timeout=20, command_timeout=20)
            return await batch.wait(connection)
        except ValueError:  # the fault has parts of the URL
            sys.exit("DATABASE_URL is not postgresql://USER:PASSWORD@HOST:PORT/DATABASE")
        except (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError, asyncpg.PostgresError) as fault:
            if isinstance(fault, asyncpg.PostgresError) and fault.sqlstate[:2] not in AWAY:
                sys.exit(f"the database refuses: {fault}")
            print(f"the database is away and asked again: {type(fault).__name__}: {fault}", file=sys.stderr)
        finally:
            if connection:
                connection.terminate()
        await asyncio.sleep(1)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("batch")
    parser.add_argument("deadline", type=int, nargs="?", default=3600, help="seconds")
    parser.add_argument("every", type=int, nargs="?", default=60, help="seconds without a notification")
    given = parser.parse_args()
    try:
        async with asyncio.timeout(given.deadline):
            await wait(Batch(given.batch, given.every))
    except TimeoutError:
        sys.exit("the batch has not ended at the deadline")


if __name__ == "__main__":
    asyncio.run(main())
