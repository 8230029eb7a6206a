"""A small client of the API server for tests: plain JSON in, plain JSON out, refusals are raised.

The module does not use the dispatcher's client, so a fault of that client cannot hide itself.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import aiohttp
import msgspec

from tests.controlplane.waiting import moment

Json = dict[str, Any]
MERGE_PATCH = "application/merge-patch+json"
READY_SECONDS = 5
UNREACHABLE = (aiohttp.ClientError, TimeoutError, OSError)


class KubeFault(Exception):
    """The server answered with a status of 400 or more."""

    def __init__(self, request: str, status: int, body: Json) -> None:
        super().__init__(f"{request}: {status} {body.get('reason', '')}: {body.get('message', body)}")
        self.status = status
        self.body = body


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a collection. `LIST`: all objects that exist now. Otherwise one object."""

    type: Literal["LIST", "ADDED", "MODIFIED", "DELETED"]
    objects: list[Json]


class Api:
    """One identity at one API server; connections are kept."""

    def __init__(self, url: str, ca_file: Path | None, token: str) -> None:
        self._url = url
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=32, ssl=ssl.create_default_context(cafile=ca_file) if ca_file else True
            ),
            headers={"Authorization": f"Bearer {token}"},
            timeout=aiohttp.ClientTimeout(total=30),
            read_bufsize=4 << 20,  # a line of a watch is a whole object
        )

    async def close(self) -> None:
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str | None = None,
        accept: str = "application/json",
        params: Mapping[str, str] | None = None,
    ) -> Json:
        """The answer; KubeFault from status 400 on. A PATCH is a merge patch unless `content_type` is given."""
        kind = content_type or (MERGE_PATCH if method == "PATCH" else "application/json")
        sent = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": kind, "Accept": accept}
        async with self._session.request(method, self._url + path, data=sent, params=params, headers=headers) as answer:
            text = await answer.read()
            if answer.status >= 400:
                raise KubeFault(f"{method} {path}", answer.status, _object(text))
            return _object(text)

    async def is_ready(self) -> bool:
        """Whether /readyz says so. A server that starts can leave an early request without an answer."""
        try:
            async with asyncio.timeout(READY_SECONDS):
                return await self.request("GET", "/readyz") == {"message": "ok"}
        except (KubeFault, *UNREACHABLE):
            return False

    async def follow(self, path: str, *, labels: str = "") -> AsyncGenerator[Change, None]:
        """All objects at `path`, then their changes, without end. Lists again after every interruption."""
        while True:
            try:
                async for change in self._list_and_watch(path, {"labelSelector": labels}):
                    yield change
            except (KubeFault, *UNREACHABLE):
                await moment(0.2)

    async def _list_and_watch(self, path: str, params: dict[str, str]) -> AsyncIterator[Change]:
        listed = await self.request("GET", path, params=params)
        yield Change("LIST", listed["items"])
        since = {"watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"]}
        patient = aiohttp.ClientTimeout(total=None, connect=10)
        async with self._session.get(self._url + path, params=params | since, timeout=patient) as answer:
            answer.raise_for_status()
            async for line in answer.content:
                event = msgspec.json.decode(line, type=Json)
                if event["type"] not in ("ADDED", "MODIFIED", "DELETED"):  # ERROR: resourceVersion too old, list again
                    return
                yield Change(event["type"], [event["object"]])


def _object(text: bytes) -> Json:
    """The server's answer as an object. Plain text, as of /readyz and of gateways, becomes `message`."""
    try:
        found = msgspec.json.decode(text) if text else {}
    except msgspec.DecodeError:
        found = None
    return found if isinstance(found, dict) else {"message": text.decode(errors="replace")}
