"""The HTTP side: a request becomes a call of the registry, a list or a watch; a refusal becomes a Status.

The holder of the token may do everything. Any other client may do nothing: a Job runs a process of this machine. The
token is in the header Authorization. kubectl sends no header to a server without TLS, so for kubectl the token is the
first part of the path, as the kubeconfig names it.

`read_body`: JSON of the right types, without unknown fields.

`discover`: the answers from which kubectl learns the kinds. Pure.

`log_of`, `pieces`: the output of containers, read from the folders of the nodes on this machine. A real API server asks
the kubelet.

`Watch`: changes from a version on, as lines, with a bookmark before the end.
"""

import asyncio
import hmac
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web

from dispatcher import __version__
from dispatcher.model.resources import parse_quantity
from dispatcher.model.stored_json import Json
from dispatcher_demo.cluster.fields import unknown_fields
from dispatcher_demo.cluster.kinds import (
    BY_PLACE,
    JOB,
    KINDS,
    POD,
    REVIEW,
    ApiFault,
    ObjectKind,
    Target,
    bad_request,
    conflict,
    expired,
    not_found,
)
from dispatcher_demo.cluster.registry import (
    Change,
    Query,
    Registry,
    Storage,
    check_name,
    list_objects,
    read_number,
    read_selection,
    read_version,
)

MERGE_PATCH: Final = "application/merge-patch+json"
LARGEST_BODY: Final = 3 * 2**20
TYPES: Final[dict[str, type]] = {
    **dict.fromkeys(("metadata", "spec", "template", "labels", "annotations", "nodeSelector"), dict),
    **dict.fromkeys(("containers", "env", "args", "command", "tolerations", "volumes", "finalizers"), list),
    **dict.fromkeys(("name", "namespace", "generateName", "image", "value", "renewTime"), str),
    **dict.fromkeys(("backoffLimit", "activeDeadlineSeconds", "parallelism", "completions"), int),
    "suspend": bool,
}
"""Types of fields by name, at any depth: fields that a template is likely to get wrong."""
AT_TOP: Final[dict[str, type]] = {"value": int}
"""Types of fields at the top of an object. `value`: of a PriorityClass."""
TEXTS: Final = frozenset({"labels", "annotations", "nodeSelector", "stringData", "data"})
AMOUNTS: Final = frozenset({"requests", "limits"})
LARGEST: Final = 2**31 - 1
GO: Final[dict[type, str]] = {int: "int32", bool: "bool", str: "string", dict: "map", list: "slice"}


async def read_body(request: web.Request, kind: ObjectKind) -> Json:
    """The body. Raises ApiFault 400 if it is no object, and 415 if its content type is not JSON."""
    wanted = MERGE_PATCH if request.method == "PATCH" else "application/json"
    try:
        text = await request.read()
    except web.HTTPRequestEntityTooLarge as fault:
        raise ApiFault(413, f"Request entity too large: limit is {LARGEST_BODY}") from fault
    if text and request.content_type != wanted:
        raise ApiFault(415, f"the body of the request was {request.content_type}, and only {wanted} is served")
    if not text and request.method == "DELETE":
        return {}
    found = decode(text)
    if request.method == "DELETE":
        return found
    check_types(found)
    unknown = sorted(unknown_fields(found)) if kind is JOB else []
    if unknown and request.query.get("fieldValidation") == "Strict":
        faults = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise bad_request(f'{kind.kind} in version "v1" cannot be handled: strict decoding error: {faults}')
    return found if request.method == "PATCH" else without_nulls(found)


def decode(text: bytes) -> Json:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as fault:
        raise bad_request(f"the body is not JSON: {fault}") from fault
    if not isinstance(found, dict) or not isinstance(found.get("status", {}), dict | None):
        raise bad_request(f"json: cannot unmarshal {type(found).__name__} into an object of the API")
    return found


def without_nulls(found: Any) -> Any:
    """The JSON without its null fields: null means absent."""
    if isinstance(found, list):
        return [without_nulls(one) for one in found]
    if not isinstance(found, dict):
        return found
    return {key: without_nulls(value) for key, value in found.items() if value is not None}


def check_types(given: Json, at: str = "") -> None:
    """Raises ApiFault 400 if a value has another type than its field."""
    for name, held in given.items():
        where = f"{at}{name}"
        wanted = AT_TOP.get(where) or TYPES.get(name)
        if held is not None and wanted and type(held) is not wanted:
            raise not_of_type(held, where, wanted)
        if isinstance(held, int) and held > LARGEST:
            raise not_of_type(held, where, int)
        if isinstance(held, dict) and name in TEXTS:
            check_texts(held, where)
        if isinstance(held, dict) and name in AMOUNTS:
            check_amounts(held, where)
        for one in held if isinstance(held, list) else [held]:
            if isinstance(one, dict):
                check_types(one, f"{where}.")


def not_of_type(held: object, where: str, wanted: type) -> ApiFault:
    return bad_request(f"json: cannot unmarshal {type(held).__name__} into the field {where} of type {GO[wanted]}")


def check_texts(held: Json, where: str) -> None:
    if not all(isinstance(one, str | None) for one in held.values()):
        raise not_of_type(held, where, str)


def check_amounts(held: Json, where: str) -> None:
    for amount in held.values():
        try:
            parse_quantity(str(amount))
        except ValueError as fault:
            raise bad_request(f"{where}: {fault}") from fault


SHORT: Final[Mapping[str, tuple[str, ...]]] = {
    "configmaps": ("cm",), "events": ("ev",), "namespaces": ("ns",), "nodes": ("no",), "pods": ("po",),
    "priorityclasses": ("pc",), "resourcequotas": ("quota",),
}  # fmt: skip
VERBS: Final = ("create", "delete", "get", "list", "patch", "update", "watch")
IN_ALL: Final = frozenset({"jobs", "pods"})
"""The kinds that `kubectl get all` shows."""
GROUPS: Final = tuple(dict.fromkeys(kind.group for kind in KINDS if kind.group))


def discover(path: str) -> Json | None:
    """The answer to a path of discovery; None: it is another path."""
    return ANSWERS.get(path.rstrip("/"))


def group(name: str) -> Json:
    version = {"groupVersion": f"{name}/v1", "version": "v1"}
    return {"name": name, "versions": [version], "preferredVersion": version}


def resources(group_version: str) -> Json:
    listed = [resource(kind) for kind in KINDS if kind.api_version == group_version]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}


def resource(kind: ObjectKind) -> Json:
    return {
        "name": kind.plural, "singularName": kind.kind.lower(), "kind": kind.kind, "namespaced": kind.namespaced,
        "verbs": ["create"] if kind is REVIEW else list(VERBS), "shortNames": list(SHORT.get(kind.plural, ())),
        "categories": ["all"] if kind.plural in IN_ALL else [],
    }  # fmt: skip


ANSWERS: Final[Mapping[str, Json]] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group(name) for name in GROUPS]},
    "/api/v1": resources("v1"),
    **{f"/apis/{name}/v1": resources(f"{name}/v1") for name in GROUPS},
    "/version": {"major": "1", "minor": "36", "gitVersion": f"v1.36.0-dispatcher-{__version__}", "platform": "memory"},
}


LOOK_SECONDS: Final = 0.2
ENDED: Final = frozenset({"Succeeded", "Failed"})


def log_of(registry: Registry, nodes: Path | None, target: Target, container: str) -> Path:
    """The file with a container's output. Raises ApiFault if there is none."""
    if target.kind is not POD or nodes is None:
        raise not_found()
    pod: Mapping[str, Any] = registry.get(target).object
    names = [one["name"] for one in pod["spec"]["containers"]]
    name = container or names[0]
    if name not in names:
        raise bad_request(f"container {name} is not valid for pod {target.name}")
    file: Path = nodes / pod["spec"].get("nodeName", "") / "pods" / pod["metadata"]["uid"] / "containers" / name / "log"
    if not file.exists():
        raise bad_request(f'container "{name}" in pod "{target.name}" is waiting to start')
    return file


async def pieces(registry: Registry, target: Target, file: Path, query: Mapping[str, str]) -> AsyncGenerator[bytes]:
    """The output, or as much as `tailLines` asks for; with `follow` until the Pod has ended."""
    with file.open("rb") as log:
        lines = log.read().splitlines(keepends=True)
        tail = query.get("tailLines", "")
        yield b"".join(lines[max(0, len(lines) - int(tail)) :] if tail.isdecimal() else lines)
        while query.get("follow") in {"1", "true"} and not is_over(registry, target):
            await asyncio.sleep(LOOK_SECONDS)
            yield log.read()
        yield log.read()


def is_over(registry: Registry, target: Target) -> bool:
    try:
        return registry.get(target).object["status"].get("phase") in ENDED
    except ApiFault:
        return True


DEFAULT_SECONDS: Final = 1800
"""Length of a watch that names none."""
BOOKMARK_SECONDS: Final = 50
"""Seconds between two bookmarks."""
BEFORE_THE_END: Final = 2
"""Seconds before the end of a watch at which the last bookmark comes."""
BEHIND_AT_MOST: Final = 10_000
"""Lines that wait for one reader, at most. A slower reader gets an error, and has to list again."""


class Watch:
    """One watch. `lines` ends after the requested time. The caller must call `close`, even after a fault."""

    def __init__(self, storage: Storage, target: Target, query: Query) -> None:
        self._storage = storage
        self._kind = target.kind
        self._selection = read_selection(target, query)
        self._is_marked = query.get("allowWatchBookmarks") in {"true", "1"}
        self._ends_at = time.monotonic() + (read_number(query, "timeoutSeconds") or DEFAULT_SECONDS)
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue()
        self._after = version = read_version(query.get("resourceVersion") or "0")
        self._refused = b""
        if version > storage.version:
            pass  # changes up to that version are skipped
        elif version:
            self._replay(version)
        else:
            for _, entry in sorted(storage.all(self._kind).items()):
                if self._selection.matches(entry.object):
                    self._waiting.put_nowait(line("ADDED", entry.whole))
        storage.listeners.append(self._hear)

    def _replay(self, version: int) -> None:
        """Queues the changes since that version. A forgotten version becomes an error line, as in the real server."""
        try:
            for change in self._storage.since(self._kind, version):
                self._hear(change)
        except ApiFault as fault:
            self._refused = line("ERROR", msgspec.json.encode(fault.status))

    def close(self) -> None:
        self._storage.listeners.remove(self._hear)

    async def lines(self) -> AsyncIterator[bytes]:
        """Yields the waiting lines, all in one piece."""
        if self._refused:
            yield self._refused
            return
        while (left := self._ends_at - time.monotonic()) > 0:
            pause = min(BOOKMARK_SECONDS, left - BEFORE_THE_END if left > BEFORE_THE_END else left)
            try:
                async with asyncio.timeout(pause):
                    found = [await self._waiting.get()]
            except TimeoutError:
                if self._is_marked:
                    yield bookmark(self._kind, self._storage.version)
                continue
            if self._waiting.qsize() > BEHIND_AT_MOST:
                yield line("ERROR", msgspec.json.encode(expired("this watch fell behind").status))
                return
            while not self._waiting.empty():
                found.append(self._waiting.get_nowait())
            yield b"".join(found)

    def _hear(self, change: Change) -> None:
        if change.kind is self._kind and change.version > self._after and (event := self._selection.event(change)):
            self._waiting.put_nowait(line(event[0], event[1].whole))


def line(what: str, whole: bytes) -> bytes:
    return b'{"type":"' + what.encode() + b'","object":' + whole + b"}\n"


def bookmark(kind: ObjectKind, version: int) -> bytes:
    head = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": {"resourceVersion": str(version)}}
    return line("BOOKMARK", msgspec.json.encode(head))


PARTS: Final = frozenset({"", "status", "binding"})
TRUE: Final = frozenset({"1", "true"})


class Api:
    """The API. `app()` returns it as an aiohttp application. `nodes`: the folder with the nodes' folders."""

    def __init__(self, registry: Registry, token: str, nodes: Path | None = None) -> None:
        self._registry = registry
        self._nodes = nodes
        self._token = token.encode()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            path = self._check_identity(request)
            if path in {"/healthz", "/livez", "/readyz"}:
                return web.Response(text="ok")
            if request.method == "GET" and (found := discover(path)) is not None:
                return answer(msgspec.json.encode(found))
            return await self._route(request, read_path(path))
        except ApiFault as fault:
            return answer(msgspec.json.encode(fault.status), fault.code)

    def _check_identity(self, request: web.Request) -> str:
        """The path without the token. Raises ApiFault 401 if the token is neither there nor in the header."""
        first, _, rest = request.path.removeprefix("/").partition("/")
        if hmac.compare_digest(first.encode(), self._token):
            return f"/{rest}"
        if hmac.compare_digest(request.headers.get("Authorization", "").encode(), b"Bearer " + self._token):
            return request.path
        raise ApiFault(401, "Unauthorized")

    async def _route(self, request: web.Request, target: Target) -> web.StreamResponse:
        if target.part == "log" and request.method == "GET":
            file = log_of(self._registry, self._nodes, target, request.query.get("container", ""))
            return await self._stream(request, pieces(self._registry, target, file, request.query), "text/plain")
        if target.part not in PARTS or (target.part == "status" and not target.kind.has_status):
            raise not_found()
        if target.kind is REVIEW or target.part == "binding":
            return self._answer_virtual(request, target, await read_body(request, target.kind))
        if request.method == "GET":
            return await self._read(request, target)
        verb = {"POST": self._create, "PUT": self._update, "PATCH": self._patch, "DELETE": self._delete}
        if request.method not in verb or (request.method == "POST") is bool(target.name):
            raise ApiFault(405, "the server does not allow this method on the requested resource", details={})
        return verb[request.method](request, target, await read_body(request, target.kind))

    async def _read(self, request: web.Request, target: Target) -> web.StreamResponse:
        if target.name:
            self._registry.storage.check_reached(read_version(request.query.get("resourceVersion") or "0"))
            return answer(self._registry.get(target).whole)
        if request.query.get("watch") in TRUE:
            return await self._watch(request, target)
        return answer(list_objects(self._registry.storage, target, request.query))

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        watch = Watch(self._registry.storage, target, request.query)
        try:
            return await self._stream(request, watch.lines(), "application/json")
        finally:
            watch.close()

    async def _stream(self, request: web.Request, texts: AsyncIterator[bytes], kind: str) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Type": kind})
        try:
            await stream.prepare(request)
            async for text in texts:
                await stream.write(text)
            await stream.write_eof()
        except ConnectionResetError:
            pass  # the reader is gone
        return stream

    def _create(self, request: web.Request, target: Target, body: Json) -> web.Response:
        entry = self._registry.create(target, body, dry_run="dryRun" in request.query)
        return answer(entry.whole, 201)

    def _update(self, _: web.Request, target: Target, body: Json) -> web.Response:
        return answer(self._registry.update(target, body).whole)

    def _patch(self, _: web.Request, target: Target, body: Json) -> web.Response:
        return answer(self._registry.patch(target, body).whole)

    def _delete(self, _: web.Request, target: Target, body: Json) -> web.Response:
        return answer(self._registry.delete(target, body).whole)

    def _answer_virtual(self, request: web.Request, target: Target, body: Json) -> web.Response:
        """Answers requests for objects that are not stored: access reviews and bindings."""
        if request.method != "POST":
            raise ApiFault(405, "the server does not allow this method on the requested resource", details={})
        return self._review(body) if target.kind is REVIEW else self._bind(target, body)

    def _review(self, body: Json) -> web.Response:
        """Allows everything: the token gives all rights."""
        head = {"kind": REVIEW.kind, "apiVersion": REVIEW.api_version, "metadata": {}}
        return answer(msgspec.json.encode({**head, "spec": body.get("spec"), "status": {"allowed": True}}), 201)

    def _bind(self, target: Target, body: Json) -> web.Response:
        if target.kind is not POD:
            raise not_found()
        meta, uid = body.get("metadata") or {}, self._registry.get(target).object["metadata"]["uid"]
        check_name(target, meta)
        if meta.get("uid", uid) != uid:
            raise conflict(target, "is another one by now")
        self._registry.bind(target, body["target"]["name"])
        done = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        return answer(msgspec.json.encode(done), 201)


def answer(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def read_path(path: str) -> Target:
    """The target of a path. Raises ApiFault 404 if nothing is served there."""
    group, rest = split_group(path.strip("/").split("/"))
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    plural, name, part = (*rest, "", "", "")[:3]
    kind = BY_PLACE.get((group, plural))
    if kind is None or len(rest) > 3 or (namespace and not kind.namespaced):
        raise not_found()
    return Target(kind, namespace, name, part)


def split_group(words: list[str]) -> tuple[str, list[str]]:
    if words[:2] == ["api", "v1"] and len(words) > 2:
        return "", words[2:]
    if words[:1] == ["apis"] and words[2:3] == ["v1"] and len(words) > 3:
        return words[1], words[3:]
    raise not_found()
