"""Declares queues in the database, from a file. `dispatcher migrate --queues FILE` calls it."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from dispatcher.model.errors import DatabaseUnfit
from dispatcher.pg.connect import open_connection, translated
from dispatcher.pg.migrate import WRITING
from dispatcher.pg.queries import query

Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Role = Annotated[str, Meta(min_length=1, max_length=63)]


class Queue(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A row of `dispatch.queues`, with the names and limits of its columns."""

    name: Annotated[str, Meta(pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?|\*)$")]
    weight: Annotated[int, Meta(ge=1, le=1000)] = 1
    max_jobs: Count | None = None
    max_jobs_per_submitter: Count | None = None
    max_pending: Count | None = None
    paused_until: str | None = None
    owner_role: Role | None = None
    submit_role: Role | None = None
    max_waiting_per_submitter: Count | None = None
    note: str | None = None
    fair_submitters: bool = False


def read_queues(file: Path) -> list[Queue]:
    """The queues of the file, a JSON list. Raises DatabaseUnfit with the place and the rule of a fault."""
    try:
        queues = msgspec.json.decode(file.read_bytes(), type=list[Queue])
    except (OSError, msgspec.DecodeError) as fault:  # `$[1].weight` is the weight of the second queue
        raise DatabaseUnfit(f"queues of {file}: {fault}: see table dispatch.queues in docs/operator.md") from fault
    names = [queue.name for queue in queues]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise DatabaseUnfit(f"queues of {file}: {', '.join(twice)} is declared twice: keep one of them")
    return queues


async def declare_queues(database_url: str | None, queues: list[Queue]) -> list[str]:
    """Inserts the queues that are missing, all or none, and returns their names. Other queues stay as they are."""
    connection = await open_connection(database_url, **WRITING)
    try:
        with translated():
            async with connection.transaction():
                await connection.execute(query("as_owner", "migrate"))
                made = await connection.fetch(query("queues", "migrate"), msgspec.json.encode(queues).decode())
    finally:
        await connection.close()
    return [row["name"] for row in made]
