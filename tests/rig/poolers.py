"""A pooler in front of Postgres that refuses settings of sessions, as PgBouncer, RDS Proxy and Neon do."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from tests.rig.postgres import url_with

REFUSALS = {
    "PgBouncer": b"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: search_path\0\0",
    "RDS Proxy": b"SFATAL\0VFATAL\0C0A000\0MFeature not supported: RDS Proxy currently doesn't support command-line "
    b"options.\0\0",
    "Neon": b"SERROR\0CXX000\0Munsupported startup parameter in options: search_path. Please use unpooled connection "
    b"or remove this parameter from the startup package.\0\0",
}
"""How poolers refuse settings."""


async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def pooler(url: str, kind: str = "PgBouncer") -> AsyncIterator[tuple[str, list[bytes]]]:
    """The pooler's URL, and the startup messages that it got."""
    server, startups, fields = urlsplit(url), list[bytes](), REFUSALS[kind]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = await reader.readexactly(4)
        startup = size + await reader.readexactly(struct.unpack("!I", size)[0] - 4)
        startups.append(startup)
        if any(one in startup for one in (b"search_path", b"statement_timeout", b"options\0-c")):
            writer.write(b"E" + struct.pack("!I", len(fields) + 4) + fields)
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
