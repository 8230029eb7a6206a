"""The JSON API. It answers GET and HEAD, changes nothing, and holds no env, payload, result or key of a row."""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from aiohttp import web

from dispatcher import __version__
from dispatcher.dashboard.asking import Asking, NotYet
from dispatcher.dashboard.openapi import API, Fault, openapi
from dispatcher.dashboard.overview import Overview
from dispatcher.explain.status import InstallationStatus
from dispatcher.model.errors import DatabaseError
from dispatcher.model.history import Wanted
from dispatcher.runtime.listening import listen

LARGEST_ID: Final = 2**63 - 1
AN_ID: Final = re.compile(r"[1-9][0-9]{0,18}")


class Api:
    def __init__(self, asking: Asking, overview: Overview) -> None:
        self._asking = asking
        self._overview = overview

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1024)
        app.add_routes([
            web.get(f"{API}/tasks", self.tasks),
            web.get(f"{API}/tasks/{{id}}/explain", self.explain),
            web.get(f"{API}/status", self.status),
            web.get(f"{API}/queues", self.queues),
            web.get(f"{API}/queues/{{name}}", self.queue),
            web.get(f"{API}/nodes", self.nodes),
            web.get(f"{API}/openapi.json", self.openapi),
        ])  # fmt: skip
        return app

    async def explain(self, request: web.Request) -> web.Response:
        written = request.match_info["id"]
        if AN_ID.fullmatch(written) is None or int(written) > LARGEST_ID:
            return answer(Fault(f"{written[:40]!r} is no id of a row: give a whole number from 1 to {LARGEST_ID}"), 400)
        try:
            found = await self._asking.explain(int(written))
        except (NotYet, DatabaseError) as fault:
            return answer(Fault(str(fault)), 503)
        if found is None:
            return answer(Fault(f"there is no row {written}: it never was, or it was deleted after its retention"), 404)
        return answer(found)

    async def tasks(self, request: web.Request) -> web.Response:
        try:
            wanted = msgspec.convert(dict(request.query), Wanted, strict=False)
        except msgspec.ValidationError as fault:
            return answer(Fault(f"{fault}; the filters are {', '.join(Wanted.__struct_fields__)}"[:500]), 400)
        try:
            return answer(await self._asking.page(wanted))
        except (NotYet, DatabaseError) as fault:
            return answer(Fault(str(fault)), 503)

    async def nodes(self, _: web.Request) -> web.Response:
        try:
            found = self._asking.nodes()
        except NotYet as fault:
            return answer(Fault(str(fault)), 503)
        return answer(Fault("no node is watched: CHECK_ROOM is false"), 404) if found is None else answer(found)

    async def openapi(self, _: web.Request) -> web.Response:
        return answer(openapi(__version__))

    async def status(self, _: web.Request) -> web.Response:
        found = await self._status()
        return answer(found, 503 if isinstance(found, Fault) else 200)

    async def queues(self, _: web.Request) -> web.Response:
        found = await self._status()
        return answer(found, 503) if isinstance(found, Fault) else answer(found.queues)

    async def queue(self, request: web.Request) -> web.Response:
        found, name = await self._status(), request.match_info["name"]
        if isinstance(found, Fault):
            return answer(found, 503)
        queue = next((queue for queue in found.queues if queue.queue == name), None)
        return answer(queue) if queue else answer(Fault(f"there is no queue {name[:63]!r} in dispatch.queues"), 404)

    async def _status(self) -> InstallationStatus | Fault:
        try:
            return await self._overview.status()
        except (NotYet, DatabaseError) as fault:
            return Fault(str(fault))


def answer(body: Any, status: int = 200) -> web.Response:
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return web.Response(
        body=msgspec.json.encode(body) + b"\n", status=status, content_type="application/json", headers=headers
    )


async def serve(asking: Asking, overview: Overview, address: str, hosts: Sequence[str]) -> web.AppRunner:
    """Serves at DISPATCHER_DASHBOARD_ADDRESS, under its own names and `hosts`.

    Raises SettingsError if it cannot listen there.
    """
    runner = web.AppRunner(Api(asking, overview).app(), access_log=None, shutdown_timeout=2)
    await listen(runner, "DISPATCHER_DASHBOARD_ADDRESS", address, names=hosts)
    return runner
