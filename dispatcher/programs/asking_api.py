"""Asks the API of a running dispatcher (DISPATCHER_DASHBOARD_ADDRESS) and reads its answers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

import aiohttp
import msgspec

from dispatcher.model.errors import DispatcherError

ANSWER_SECONDS: Final = 10
MOST_BYTES: Final = 4 << 20
T = TypeVar("T")


class Unknown(DispatcherError):
    """The dispatcher does not know what was asked for."""


class NoAnswer(DispatcherError):
    """No dispatcher answered."""


class Api:
    """The API of one dispatcher. `name`: what faults call it."""

    def __init__(self, session: aiohttp.ClientSession, name: str) -> None:
        self._session = session
        self.name = name

    async def ask(self, path: str, what: type[T]) -> T:
        """The answer of GET /api/v1/`path`. Raises Unknown, NoAnswer, and DispatcherError for an answer of others."""
        try:
            async with self._session.get(f"/api/v1/{path}") as reply:
                body = await whole(reply)
        except (aiohttp.ClientError, TimeoutError) as fault:
            why = str(fault) or type(fault).__name__
            raise NoAnswer(f"no dispatcher answers at {self.name}: {why}") from fault
        if reply.status == 200:
            return self._read(body, what)
        told = error_of(body)
        if reply.status == 404 and told:
            raise Unknown(told)
        raise DispatcherError(f"{self.name} answers {reply.status}: {told or 'it is not the API of a dispatcher'}")

    async def text(self, path: str) -> str:
        """The answer of GET `path` as text. Raises NoAnswer, and DispatcherError for any other status than 200."""
        try:
            async with self._session.get(path) as reply:
                body = await whole(reply)
        except (aiohttp.ClientError, TimeoutError) as fault:
            raise NoAnswer(f"{self.name} does not answer: {str(fault) or type(fault).__name__}") from fault
        if reply.status != 200:
            raise DispatcherError(f"{self.name} answers {reply.status}")
        return body.decode(errors="replace")

    def _read(self, body: bytes, what: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=what)
        except msgspec.DecodeError as fault:
            raise DispatcherError(
                f"the answer of {self.name} is not from a dispatcher of this version: {fault}"
            ) from fault


@asynccontextmanager
async def opened(url: str, name: str = "", socket: Path | None = None) -> AsyncIterator[Api]:
    """The API at `url`. `socket`: a Unix socket that leads there."""
    async with aiohttp.ClientSession(
        base_url=url,
        connector=aiohttp.UnixConnector(str(socket)) if socket else None,
        timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS),
        trust_env=False,
    ) as session:
        yield Api(session, name or url)


async def whole(reply: aiohttp.ClientResponse) -> bytes:
    """The body to its end. A single read may return a part of it. Raises DispatcherError for a body without end."""
    body = bytearray()
    async for piece in reply.content.iter_any():
        body += piece
        if len(body) > MOST_BYTES:
            raise DispatcherError(
                f"{reply.url} answers more than {MOST_BYTES} bytes: it is not the API of a dispatcher"
            )
    return bytes(body)


def error_of(body: bytes) -> str:
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return ""
    return str(found["error"])[:500] if isinstance(found, dict) and "error" in found else ""
