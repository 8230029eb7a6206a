"""Serves the dashboard and its JSON API. It answers GET and HEAD, and changes nothing.

It shows no env, payload, result or key of a row.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from dispatcher import __version__
from dispatcher.dashboard.addresses import ADDRESSES, API, Address, Fault
from dispatcher.dashboard.answers import Answers, Asked, Refusal
from dispatcher.dashboard.openapi import openapi
from dispatcher.dashboard.pacing import LONGEST_WAIT, Pacing, Timed
from dispatcher.dashboard.pages import STATIC, Pages
from dispatcher.runtime.clock import elapsed, worked
from dispatcher.runtime.listening import BoundedRunner, listen
from dispatcher.runtime.precedence import Precedence

REFUSED: Final = "refused.html"
MOST_AT_ONCE: Final = 16
"""Requests that are answered at the same time. All of them share one connection to the database."""
ANSWER_SECONDS: Final = 10
"""A statement may take 5 s, and others may stand before it."""
KEPT_SECONDS: Final = 3600
MOST_CONNECTIONS: Final = 200
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Of every answer. Pages hold no inline script or style."""


class Dashboard:
    """The HTTP server.

    cycles: a cycle goes before each answer, and before the text of each answer is written.
    prefix: paths are answered with it and without it, as some proxies cut it off.
    """

    def __init__(
        self, answers: Answers, pages: Pages, cycles: Precedence, prefix: str = "",
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:  # fmt: skip
        self._answers = answers
        self._cycles = cycles
        self._pages = pages
        self._prefix = prefix
        self._answer_seconds = answer_seconds
        self._pacing = Pacing()
        self._places = asyncio.Semaphore(MOST_AT_ONCE)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=1024, middlewares=[self.paced])
        for before in dict.fromkeys(("", self._prefix)):
            for path, address in ADDRESSES.items():
                app.router.add_get(before + API + path, self.as_json(path))
                if address.page:
                    app.router.add_get(before + address.page, self.as_page(path, address))
            app.router.add_get(f"{before}{API}/openapi.json", self.openapi)
            app.router.add_get(f"{before}/static/{{name}}", self.static)
        app.on_response_prepare.append(secured)
        return app

    def as_json(self, path: str) -> Handler:
        async def answer(request: web.Request) -> web.Response:
            found = await self._answers.find(path, asked_of(request))
            await self._cycles.wait()
            if isinstance(found, Refusal):
                return in_json(Fault(found.error), found.status)
            return in_json(found)

        return answer

    def as_page(self, path: str, address: Address) -> Handler:
        async def answer(request: web.Request) -> web.Response:
            began, asked = elapsed(), asked_of(request)
            timed = Timed(self._answers.find(path, asked), elapsed)
            found = await timed
            waited = elapsed() - began - timed.seconds
            await self._cycles.wait()
            begun, status = elapsed(), found.status if isinstance(found, Refusal) else 200
            template = REFUSED if isinstance(found, Refusal) else address.template
            twin = API + path.replace("{" + address.path + "}", asked.path) if address.path else API + path
            text = self._pages.write(template, found, asked, twin)
            timing = {"database": waited, "read": timed.seconds, "write": elapsed() - begun}
            headers = {"Cache-Control": "no-store", "Server-Timing": told(timing)}
            return web.Response(text=text, status=status, content_type="text/html", headers=headers)

        return answer

    async def openapi(self, _: web.Request) -> web.Response:
        return in_json(openapi(__version__))

    async def static(self, request: web.Request) -> web.Response:
        file = STATIC.get(request.match_info["name"])
        if file is None:
            raise web.HTTPNotFound
        headers = {"Cache-Control": f"max-age={KEPT_SECONDS}"}
        return web.Response(body=file.body, content_type=file.kind, charset="utf-8", headers=headers)

    @web.middleware
    async def paced(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Lets each request wait for its turn. Clients that flood the server wait for their refusals, too."""
        if not await self._has_turn():
            raise web.HTTPTooManyRequests(text="too many requests: ask again in some seconds\n")
        await self._cycles.wait()
        timed = Timed(handler(request), worked)
        try:
            async with asyncio.timeout(self._answer_seconds):
                return await timed
        except TimeoutError as fault:
            text = f"no answer within {self._answer_seconds:g} s: the database is slow, or many ask\n"
            raise web.HTTPServiceUnavailable(text=text) from fault
        finally:
            self._pacing.charge(timed.seconds)
            self._places.release()

    async def _has_turn(self) -> bool:
        """Waits for a place and a turn. False: both take too long."""
        wait = self._pacing.wait(elapsed())
        await asyncio.sleep(LONGEST_WAIT if wait is None else wait)
        try:
            async with asyncio.timeout(LONGEST_WAIT):
                return wait is not None and await self._places.acquire()
        except TimeoutError:
            return False


async def secured(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)


def told(seconds: Mapping[str, float]) -> str:
    """Durations as browsers show them. `database`: all waits of an answer, most of them for the database."""
    return ", ".join(f"{name};dur={one * 1000:.1f}" for name, one in seconds.items())


def asked_of(request: web.Request) -> Asked:
    return Asked(next(iter(request.match_info.values()), ""), dict(request.query))


def in_json(body: Any, status: int = 200) -> web.Response:
    headers = {"Cache-Control": "no-store"}
    written = msgspec.json.encode(body) + b"\n"
    return web.Response(body=written, status=status, content_type="application/json", headers=headers)


async def serve(dashboard: Dashboard, address: str, hosts: Sequence[str]) -> BoundedRunner:
    """Serves at DISPATCHER_DASHBOARD_ADDRESS, under its own names and `hosts`.

    Raises SettingsError if it cannot listen there.
    """
    runner = BoundedRunner(dashboard.app(), MOST_CONNECTIONS, access_log=None, shutdown_timeout=2, keepalive_timeout=30)
    await listen(runner, "DISPATCHER_DASHBOARD_ADDRESS", address, names=hosts)
    return runner
