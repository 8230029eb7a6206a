"""An API server of the tests that lists and watches as the real one does, and misbehaves on request.

It keeps Jobs and Pods of one installation, and Nodes. All share one version counter, as in etcd. A fault answers a
request in place of the server. It is put into `lists` or `watches` for the next such request, or kept in `until_cured`.
Every request is recorded in `asked`.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import msgspec
from aiohttp import web

from dispatcher.kube.credentials import Login
from dispatcher.model import launches as ids
from tests.rig.loopback import on_loopback

Json: TypeAlias = dict[str, Any]
Fault: TypeAlias = "Callable[[ScriptedApi, web.Request], Awaitable[web.StreamResponse]]"
Server = TypeVar("Server", bound="ScriptedApi")

NAMESPACE = "jobs"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
NODES = "/api/v1/nodes"


@dataclass(frozen=True, slots=True)
class Asked:
    at: float
    kind: str  # list | watch
    path: str
    query: Mapping[str, str]
    token: str


@dataclass(frozen=True, slots=True)
class Change:
    version: int
    path: str
    type: str
    object: Json
    is_told: bool = True

    @property
    def line(self) -> bytes:
        return event(self.type, self.object)


@dataclass
class ScriptedApi:
    """The state and the script of the server; `serving` runs it."""

    url: str = ""
    version: int = 100
    oldest: int = 0
    changes: list[Change] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    lists: "deque[Fault]" = field(default_factory=deque)
    watches: "deque[Fault]" = field(default_factory=deque)
    until_cured: "dict[str, Fault]" = field(default_factory=dict)
    tokens: set[str] = field(default_factory=lambda: {"good"})
    token_file: str = "good"
    _token: str = "good"
    _moved: asyncio.Condition = field(default_factory=asyncio.Condition)
    _pages: dict[str, list[Json]] = field(default_factory=dict)
    _cuts: int = 0
    _is_over: bool = False

    # Acts of a test

    async def put(self, name: str, path: str = JOBS, *, is_told: bool = True, **labels: str) -> None:
        """Makes or changes an object. With `is_told` False, no watch ever shows it."""
        self.version += 1
        kind = "MODIFIED" if name in self.objects(path) else "ADDED"
        await self._change(Change(self.version, path, kind, made(name, self.version, labels), is_told))

    async def remove(self, name: str, path: str = JOBS, *, is_told: bool = True) -> None:
        self.version += 1
        gone = self.objects(path)[name]
        last = {**gone, "metadata": gone["metadata"] | {"resourceVersion": str(self.version)}}
        await self._change(Change(self.version, path, "DELETED", last, is_told))

    async def bookmark(self) -> None:
        for path in (JOBS, PODS, NODES):
            mark = {"metadata": {"resourceVersion": str(self.version)}}
            await self._change(Change(self.version, path, "BOOKMARK", mark))

    def compact(self) -> None:
        """Forgets watches and pages from before now."""
        self.oldest = self.version
        self._pages.clear()

    async def cut(self) -> None:
        """Breaks every watch."""
        self._cuts += 1
        await self._tell()

    def objects(self, path: str = JOBS, at: int | None = None) -> dict[str, Json]:
        """Objects by name; `at`: as of that version."""
        found: dict[str, Json] = {}
        for change in self.changes:
            if change.path != path or change.type == "BOOKMARK" or (at is not None and change.version > at):
                continue
            name = change.object["metadata"]["name"]
            found.pop(name, None)
            if change.type != "DELETED":
                found[name] = change.object
        return found

    def requests(self, kind: str, since: float = 0) -> list[Asked]:
        return [asked for asked in self.asked if asked.kind == kind and asked.at >= since]

    async def read_token(self, refused: bool) -> str:
        if refused:
            self._token = self.token_file
        return self._token

    def login(self) -> Login:
        return Login(self.url, None, self.read_token, NAMESPACE)

    # Answers of the server

    async def answer(self, request: web.Request) -> web.StreamResponse:
        kind = "watch" if "watch" in request.query else "list"
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.asked.append(Asked(time.monotonic(), kind, request.path, dict(request.query), token))
        if token not in self.tokens:
            return status(401, "Unauthorized", "Unauthorized")
        script = self.watches if kind == "watch" else self.lists
        if script:
            return await script.popleft()(self, request)
        if kind in self.until_cured:
            return await self.until_cured[kind](self, request)
        return await self.serve_watch(request) if kind == "watch" else self.serve_list(request)

    def serve_list(self, request: web.Request) -> web.StreamResponse:
        query = request.query
        if "continue" in query:
            version, page = query["continue"].split("/")[0], self._pages.get(query["continue"])
            if page is None:
                return status(410, "Expired", "The provided continue parameter is too old")
        else:
            exact = query.get("resourceVersionMatch") == "Exact"
            version = query["resourceVersion"] if exact else str(self.version)
            if int(version) < self.oldest:
                return status(410, "Expired", f"The resourceVersion for the provided list is too old: {version}")
            page = list(self.objects(request.path, int(version)).values())
        limit = int(query.get("limit", len(page)))
        meta = {"resourceVersion": version}
        if page[limit:]:
            meta["continue"] = f"{version}/{len(self._pages)}/{time.monotonic()}"
            self._pages[meta["continue"]] = page[limit:]
        return web.json_response({"metadata": meta, "items": page[:limit]})

    async def serve_watch(self, request: web.Request) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        if since < self.oldest:
            return status(410, "Expired", f"too old resource version: {since} ({self.oldest})")
        stream = await accepted(request)
        cuts, told = self._cuts, 0
        try:
            async with asyncio.timeout(int(request.query["timeoutSeconds"])):
                while not self._is_over:
                    news = self.changes[told:]
                    told += len(news)
                    for change in news:
                        if change.path == request.path and change.version > since and change.is_told:
                            await stream.write(change.line)
                    await self.until(lambda: self._cuts != cuts or len(self.changes) > told)  # noqa: B023  # awaited here
                    if self._cuts != cuts:
                        break_off(request)
                        break
        except (TimeoutError, ConnectionError):
            pass  # the watch's time is over, or the client is gone
        return stream

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Waits until the condition holds, or the server ends."""
        async with self._moved:
            await self._moved.wait_for(lambda: self._is_over or is_so())

    async def end(self) -> None:
        self._is_over = True
        await self._tell()

    async def _change(self, change: Change) -> None:
        self.changes.append(change)
        await self._tell()

    async def _tell(self) -> None:
        async with self._moved:
            self._moved.notify_all()


@asynccontextmanager
async def serving() -> AsyncIterator[ScriptedApi]:
    async with served(ScriptedApi()) as api:
        yield api


@asynccontextmanager
async def served(api: Server) -> AsyncIterator[Server]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.answer)
    async with on_loopback(app) as address:
        api.url = f"http://{address}"
        try:
            yield api
        finally:
            await api.end()


def made(name: str, version: int, labels: Mapping[str, str]) -> Json:
    """An object that the dispatcher takes for its own Job, or for a Pod or a Node."""
    own = {ids.LABEL_INSTALLATION: "dispatcher", ids.LABEL_ATTEMPT: "1", ids.LABEL_LAUNCH: "1"}
    notes = {ids.IDENTITY: "0" * 64, ids.DATABASE_ID: "test"}
    meta = {"name": name, "uid": f"uid-of-{name}", "resourceVersion": str(version)}
    return {"metadata": meta | {"labels": own | dict(labels), "annotations": notes}}


def event(kind: str, what: Json) -> bytes:
    return msgspec.json.encode({"type": kind, "object": what}) + b"\n"


def status(code: int, reason: str, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "reason": reason, "message": message}, status=code)


async def accepted(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"Content-Type": "application/json"})
    await stream.prepare(request)
    return stream


def break_off(request: web.Request) -> None:
    """Resets the connection: the client sees a broken stream instead of its end."""
    if request.transport is not None:
        request.transport.abort()
