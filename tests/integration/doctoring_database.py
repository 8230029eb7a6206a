"""`dispatcher doctor` asked about a database, with faults that a test plants in it."""

import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from dispatcher.doctor.finding import Finding, FindingState, Installation
from dispatcher.doctor.look_at_database import look_at_database
from tests.rig.postgres import Database


def now() -> datetime:
    return datetime.now(UTC)


async def findings(url: str, program: str | None = None) -> list[Finding]:
    """`program`: that of the Pod in which the doctor runs."""

    async def in_its_pod() -> Installation:
        return Installation("dispatcher", program)

    return (await look_at_database(lambda: url, in_its_pod, now))[0]


async def faults(url: str) -> list[Finding]:
    return [one for one in await findings(url) if one.state is FindingState.FAULT]


async def mend(database: Database, login: str = "reader") -> None:
    """Runs the command of the only fault as psql runs it."""
    (one,) = await faults(database.url(login))
    program, name, *words = shlex.split(one.mend, comments=True)
    assert (program, name) == ("psql", database.name)
    administrator = await database.connect()
    for flag, statement in zip(words[::2], words[1::2], strict=True):
        assert flag == "-c"
        await administrator.execute(statement)
    await administrator.close()


async def fault_of(url: str) -> tuple[str, str]:
    (one,) = await faults(url)
    assert one.mend
    assert one.why
    return one.what, one.where


@asynccontextmanager
async def planted(database: Database, plant: str, remove: str) -> AsyncIterator[None]:
    admin = await database.session("admin")
    await admin.execute(plant)
    try:
        yield
    finally:
        await admin.execute(remove)


async def fill(database: Database, rows: int) -> None:
    """Inserts waiting rows, half of them with a time, and as many launches, without a trigger."""
    admin = await database.connect()
    await admin.execute("SET session_replication_role = replica")
    await admin.execute(
        "INSERT INTO dispatch_private.tasks (queue, submitted_by, kind, cache_key, run_at) "
        "SELECT 'queue-' || n % 10, 'team-' || n % 7, 'x', 'k', CASE n % 2 WHEN 0 THEN now() END "
        f"FROM generate_series(1, {rows}) AS n"
    )
    await admin.execute(
        "INSERT INTO dispatch_private.task_launches (task_id, attempt, launch, job_uid, started_at, queue) "
        f"SELECT n, 1, 1, 'job', now() - n * interval '1 s', 'queue-' || n % 10 FROM generate_series(1, {rows}) AS n"
    )
    await admin.close()
