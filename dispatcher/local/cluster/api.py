"""The HTTP side: a request becomes a call of the registry, a list or a watch; a refusal becomes a Status.

The holder of the token may do everything. Any other client may do nothing: a Job runs a process of this machine. The
token is in the header Authorization. kubectl sends no header to a server without TLS, so for kubectl the token is the
first part of the path, as the kubeconfig names it.
"""

import hmac
from typing import Any, Final

import msgspec
from aiohttp import web

from dispatcher.local.cluster.bodies import LARGEST_BODY, read_body
from dispatcher.local.cluster.discovery import discover
from dispatcher.local.cluster.faults import ApiFault, conflict, not_found
from dispatcher.local.cluster.kinds import BY_PLACE, POD, REVIEW, Target
from dispatcher.local.cluster.listing import list_objects, read_version
from dispatcher.local.cluster.registry import Registry, check_name
from dispatcher.local.cluster.watching import Watch

Json = dict[str, Any]
PARTS: Final = frozenset({"", "status", "binding"})
TRUE: Final = frozenset({"1", "true"})


class Api:
    """The API. `app()` returns it as an aiohttp application."""

    def __init__(self, registry: Registry, token: str) -> None:
        self._registry = registry
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
        """The path without the token. ApiFault 401: the token is neither there nor in the header."""
        first, _, rest = request.path.removeprefix("/").partition("/")
        if hmac.compare_digest(first.encode(), self._token):
            return f"/{rest}"
        if hmac.compare_digest(request.headers.get("Authorization", "").encode(), b"Bearer " + self._token):
            return request.path
        raise ApiFault(401, "Unauthorized")

    async def _route(self, request: web.Request, target: Target) -> web.StreamResponse:
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
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        try:
            await stream.prepare(request)
            async for lines in watch.lines():
                await stream.write(lines)
            await stream.write_eof()
        except ConnectionResetError:
            pass  # the reader is gone
        finally:
            watch.close()
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
    """The target of a path. ApiFault 404: nothing is served there."""
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
