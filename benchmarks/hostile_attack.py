"""The hostile team of `hostile_team.py`: makes all its attacks at once, with nothing but its own login.

As a program it prepares its rows, prints that it is ready, and attacks until it is killed. It uses all connections that
its CONNECTION LIMIT allows. Each attack has connections of its own. With a second argument it does as much work in a
table of its own, by as many connections: what anybody on the same server feels who shares no table with it.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial

import asyncpg

from dispatcher.commands.options import turn

Connection = asyncpg.Connection
CONNECTIONS = 20
ROWS, POISON, LARGE = 70_000, 1_000, 1_000
LARGE_ENV = f'{{"TEXT": "{"x" * 16_000}"}}'
CANCELLED = 250
STORMS = 4
MANY_ROWS = """
INSERT INTO dispatch.tasks (template, priority, env, cache_key)
SELECT $2, $3, $4, 'shared-' || n % 50 FROM generate_series(1, $1) AS n
"""
OWN_ROWS = "SELECT id FROM dispatch.tasks WHERE status IN ('waiting', 'processing') ORDER BY status, id LIMIT $1"
OTHERS_KEYS = "INSERT INTO dispatch.tasks (dedupe_key) SELECT 'b-' || n FROM generate_series(1, 2000) AS n"
CANCEL = "SELECT dispatch.task_cancel($1)"
RETRY = "SELECT dispatch.task_retry($1)"
ONE_ROW = "INSERT INTO dispatch.tasks (cache_key) VALUES ('storm') RETURNING id"
OWN_TABLE = """
CREATE TABLE public.own (LIKE dispatch_private.tasks INCLUDING ALL);
ALTER TABLE public.own ALTER kind SET DEFAULT '\\x00';
GRANT SELECT, INSERT, UPDATE ON public.own TO team_a;
"""
OWN_ROW = "INSERT INTO public.own (cache_key) VALUES ('storm') RETURNING id"
OWN_UPDATE = "UPDATE public.own SET status = $2 WHERE id = $1"


async def prepare(one: Connection) -> None:
    """Inserts rows that come before those of other teams. The Jobs of the first ones are refused by the API server.

    The rows that fill the team's cap come last: a team at its cap gets no further look.
    """
    await one.execute(MANY_ROWS, POISON, "poison", 0, "{}")
    await one.execute(MANY_ROWS, LARGE, "default", 1, LARGE_ENV)
    await one.execute(MANY_ROWS, ROWS, "default", 100, "{}")


async def hold_cancels(one: Connection) -> None:
    """Cancels rows in an open transaction, which keeps them locked."""
    await one.execute("BEGIN")
    for row in await one.fetch(OWN_ROWS, CANCELLED):
        await one.execute(CANCEL, row["id"])
    await asyncio.Event().wait()


async def hold_keys(one: Connection) -> None:
    """Inserts the dedupe keys of the other team, without a commit."""
    await one.execute("BEGIN")
    await one.execute(OTHERS_KEYS)
    await asyncio.Event().wait()


async def listen(one: Connection) -> None:
    """Listens in an open transaction: the server must keep all later notifications."""
    await one.execute("LISTEN flood")
    await one.execute("LISTEN dispatch_tasks")
    await one.execute("BEGIN")
    await one.execute("SELECT 1")
    await asyncio.Event().wait()


async def notify(one: Connection, channel: str = "dispatch_tasks") -> None:
    """Floods a channel of its own, and another one: that on which the dispatcher listens."""
    number = 0
    while True:
        number += 1
        await one.execute("SELECT pg_notify('flood', $1)", f"{number} {'x' * 7000}")
        await one.execute("SELECT pg_notify($1, '')", channel)


async def storm(one: Connection) -> None:
    """Inserts, cancels, retries and cancels a row, again and again."""
    while True:
        task_id = await one.fetchval(ONE_ROW)
        for statement in (CANCEL, RETRY, CANCEL):
            await one.fetchval(statement, task_id)


async def roll_back(one: Connection) -> None:
    """Inserts and cancels, and takes it back: what a rollback leaves must hold back no notification of others."""
    own = await one.fetchval(ONE_ROW)
    while True:
        await one.execute("BEGIN")
        await one.fetchval(ONE_ROW)
        await one.fetchval(CANCEL, own)
        await one.execute("ROLLBACK")
        await asyncio.sleep(0.02)


async def be_refused(one: Connection) -> None:
    """Inserts rows that their template refuses: of an unknown one, and with closed env names."""
    while True:
        for template, env in (("nobodys", "{}"), ("default", '{"PYTHONPATH": "/evil", "BASH_ENV": "/evil"}')):
            with suppress(asyncpg.PostgresError):
                await one.execute(MANY_ROWS, 1, template, 0, env)


async def stay(one: Connection) -> None:
    """Keeps a transaction with a snapshot open."""
    await one.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await one.execute("SELECT FROM dispatch.tasks LIMIT 1")
    await asyncio.Event().wait()


ATTACKS: tuple[Callable[[Connection], Coroutine[None, None, None]], ...] = (
    hold_cancels, hold_keys, listen, notify, be_refused, roll_back, *[storm] * STORMS,
)  # fmt: skip


async def own_storm(one: Connection) -> None:
    """Inserts a row into the team's own table and updates it thrice, again and again."""
    while True:
        task_id = await one.fetchval(OWN_ROW)
        for status in ("cancelled", "waiting", "cancelled"):
            await one.fetchval(OWN_UPDATE, task_id, status)


async def own_refused(one: Connection) -> None:
    """Inserts rows that the team's own table refuses."""
    while True:
        with suppress(asyncpg.PostgresError):
            await one.execute("INSERT INTO public.own (priority) VALUES (NULL)")


WORK: tuple[Callable[[Connection], Coroutine[None, None, None]], ...] = (
    partial(notify, channel="own_tasks"),
    own_refused,
    *[own_storm] * (STORMS + 1),
)


async def main(url: str, *own: str) -> None:
    lines = [await asyncpg.connect(url) for _ in range(CONNECTIONS)]
    if not own:
        await prepare(lines[0])
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    acts = WORK if own else (*ATTACKS, *[stay] * (CONNECTIONS - len(ATTACKS)))
    async with asyncio.TaskGroup() as group:
        for act, line in zip(acts, lines, strict=False):
            group.create_task(act(line))


if __name__ == "__main__":
    turn(main(*sys.argv[1:]))
