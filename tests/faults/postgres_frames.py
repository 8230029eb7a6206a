"""The part of the Postgres wire protocol (version 3) that the proxy reads: frames, and the SQL of statements."""

import asyncio
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass

SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
PARSE, BIND, EXECUTE, SYNC, QUERY, CLOSE, TERMINATE = b"P", b"B", b"E", b"S", b"Q", b"C", b"X"
READY, ERROR, ROW, DONE = b"Z", b"E", b"D", b"C"
IDLE = b"I"  # in READY: no transaction is open, so earlier statements are committed


@dataclass(frozen=True, slots=True)
class Frame:
    """One message. The first message of a client has no type."""

    type: bytes
    body: bytes

    def encoded(self) -> bytes:
        return self.type + struct.pack("!i", len(self.body) + 4) + self.body


@dataclass(frozen=True, slots=True)
class Asked:
    """The request of a client's frame. `kind`: `connect`, `query`, `execute` or `sync`; `sql`: its statement."""

    kind: str
    sql: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {' '.join(self.sql.split())[:60]}".strip()


async def read_startup(reader: asyncio.StreamReader) -> tuple[int, Frame]:
    """(request code or protocol version, frame)"""
    (length,) = struct.unpack("!i", await reader.readexactly(4))
    body = await reader.readexactly(length - 4)
    return struct.unpack("!i", body[:4])[0], Frame(b"", body)


async def read_frames(reader: asyncio.StreamReader) -> AsyncIterator[Frame]:
    """Frames until the other side closes. An incomplete last frame is dropped."""
    try:
        while True:
            head = await reader.readexactly(5)
            (length,) = struct.unpack("!i", head[1:])
            yield Frame(head[:1], await reader.readexactly(length - 4))
    except (asyncio.IncompleteReadError, ConnectionError):
        return


class Statements:
    """The SQL of prepared statements and portals by name. A driver sends the text once, and then only the name."""

    def __init__(self) -> None:
        self._prepared: dict[bytes, str] = {}
        self._portals: dict[bytes, str] = {}
        self._last = ""

    def read(self, frame: Frame) -> Asked | None:
        """The request of the frame. None if no fault can apply to it."""
        first, _, rest = frame.body.partition(b"\0")
        if frame.type == PARSE:
            self._prepared[first] = rest.partition(b"\0")[0].decode(errors="replace")
        elif frame.type == BIND:
            self._portals[first] = self._prepared.get(rest.partition(b"\0")[0], "")
        elif frame.type == EXECUTE:
            self._last = self._portals.get(first, "")
            return Asked("execute", self._last)
        elif frame.type == QUERY:
            self._last = first.decode(errors="replace")
            return Asked("query", self._last)
        elif frame.type == SYNC:
            last, self._last = self._last, ""
            return Asked("sync", last) if last else None  # after a mere Parse there is nothing to commit
        return None
