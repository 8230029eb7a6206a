"""`dispatcher exec` behind a pooler that refuses settings, as PgBouncer does with settings that it does not know."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from tests.rig.execing import DONE, execute
from tests.rig.postgres import Database, url_with
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import insert_row

database = one_database
FIELDS = b"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: search_path\0\0"
REFUSAL = b"E" + struct.pack("!I", len(FIELDS) + 4) + FIELDS


async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def pooler(url: str) -> AsyncIterator[tuple[str, list[bytes]]]:
    """The pooler's URL, and the startup messages that it got."""
    server, startups = urlsplit(url), list[bytes]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = await reader.readexactly(4)
        startup = size + await reader.readexactly(struct.unpack("!I", size)[0] - 4)
        startups.append(startup)
        if b"search_path" in startup:
            writer.write(REFUSAL)
            await writer.drain()
            writer.close()
            return
        from_server, to_server = await asyncio.open_connection(server.hostname, server.port)
        to_server.write(startup)
        await asyncio.gather(forward(reader, to_server), forward(from_server, writer))

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        port = listening.sockets[0].getsockname()[1]
        yield url_with(url, host=f"127.0.0.1:{port}") + "?sslmode=disable", startups
    finally:
        listening.close()


async def test_pooler_that_refuses_a_setting_is_asked_without_it(database: Database) -> None:
    row = await insert_row(database)
    async with pooler(database.url("task")) as (url, startups):
        ended = await execute(row, "true", TASK_DATABASE_URL=url)
    assert (ended.status, await row.status()) == (DONE, "succeeded"), ended
    assert [b"search_path" in startup for startup in startups] == [True, False] * 2, "twice: the start and the report"
