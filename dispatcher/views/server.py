"""Serves the dashboard and its JSON API. It answers GET and HEAD, and changes nothing.

It shows no env, payload, result or key of a row.

`Pacing`: gives the dashboard at most a tenth of the event loop, so that people who look never slow the cycles down.
Each request pays for the time in which its answer was computed. Waiting for the database costs nothing, nor does
waiting for the processor: on a busy machine cycles wait as long. The next request waits until the time is paid for.

`Pages`: writes pages from answers. The templates escape every text of a row.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from msgspec import Struct

from dispatcher import __version__
from dispatcher.model.history import MOST_FAILED
from dispatcher.model.reasons import ADVICE
from dispatcher.runtime.clock import elapsed, worked
from dispatcher.runtime.health import BoundedRunner, listen
from dispatcher.runtime.rounds import Precedence
from dispatcher.views import words
from dispatcher.views.answers import ADDRESSES, API, Address, Answers, ApiRefusal, ApiRequest, Refusal, openapi
from dispatcher.views.launches import binary
from dispatcher.views.status import InstallationIdentity

T = TypeVar("T")
PART: Final = 0.1
"""Part of the event loop's time that the dashboard gets."""
LEAST: Final = 0.002
"""Seconds that any request costs: reading and writing it takes time, too."""
BURST: Final = 0.2
"""Seconds of work that are done at once after a time without requests."""
LONGEST_WAIT: Final = 2.0
"""Seconds for which a request waits for its turn, at most."""


class Pacing:
    """Gives each request its turn. Time is an argument."""

    def __init__(self) -> None:
        self._next = float("-inf")

    def wait(self, now: float) -> float | None:
        """Seconds until the turn of a new request, which pays for LEAST at once; None: too many requests wait."""
        turn = max(self._next, now - BURST / PART)
        if turn - now > LONGEST_WAIT:
            return None
        self._next = turn + LEAST / PART
        return max(0.0, turn - now)

    def charge(self, seconds: float) -> None:
        """Charges a request with its seconds of work."""
        self._next += max(0.0, seconds - LEAST) / PART


class TimedAwait(Generic[T]):
    """Awaits some work, and adds up the `seconds` in which it ran, without those in which it waited."""

    def __init__(self, work: Awaitable[T], clock: Callable[[], float]) -> None:
        self.seconds = 0.0
        self._work = work
        self._clock = clock

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        step: Callable[[Any], Any] = steps.send
        given: Any = None
        while True:
            began = self._clock()
            try:
                waits_for = step(given)
            except StopIteration as done:
                result: T = done.value
                return result
            finally:
                self.seconds += self._clock() - began
            try:
                step, given = steps.send, (yield waits_for)
            except BaseException as fault:  # noqa: BLE001  # the work itself decides about a cancellation or a fault
                step, given = steps.throw, fault


FOLDER: Final = Path(__file__).parent
WORDS: Final = (
    "duration", "relative", "exact", "instant", "number", "percent", "query", "stacked", "columns", "steps", "highest",
    "drawn", "as_yaml", "beginning", "brief", "end", "some", "amount", "resources", "free_part", "filled",
)  # fmt: skip
FILTERS: Final = {name: getattr(words, name) for name in WORDS} | {"binary": binary}
KINDS: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class StaticFile(Struct, frozen=True):
    """A file that pages name. `kind`: its media type."""

    body: bytes
    kind: str


STATIC: Final[Mapping[str, StaticFile]] = {
    path.name: StaticFile(path.read_bytes(), KINDS[path.suffix]) for path in sorted((FOLDER / "static").iterdir())
}
MOST_BYTES: Final = 100_000 - sum(len(file.body) for file in STATIC.values())
"""Bytes of the text of a page, at most. With its style and its script a page has less than 100 kB."""
FRAME_BYTES: Final = 10_000
"""Bytes of a page without rows, about."""
LEAST_SHARE: Final = 0.001
"""The smallest share of rows that is tried."""


class Pages:
    """The pages of one replica.

    prefix: the path under which a proxy shows them.
    leads: whether it leads. Only the leader sends creates, and knows which of them the API server refuses.

    A page that would be too large has a share of its rows, and says how many are left out. JSON has all of them.
    """

    def __init__(
        self, installation: InstallationIdentity, prefix: str, leads: Callable[[], bool] = lambda: True
    ) -> None:  # fmt: skip
        self._environment = Environment(
            loader=FileSystemLoader(FOLDER / "templates"), autoescape=True, undefined=StrictUndefined,
            trim_blocks=True, lstrip_blocks=True, auto_reload=False,
        )  # fmt: skip
        self._environment.filters |= FILTERS
        self._environment.globals |= {"site": installation, "prefix": prefix, "api": API, "advice": ADVICE}
        self._environment.globals |= {"most_failed": MOST_FAILED, "leads": leads}

    def write(self, template: str, answer: Any, asked: ApiRequest, json_address: str) -> str:
        """One page. `json_address`: that of the same answer as JSON, below the prefix."""
        now = datetime.now(UTC)
        page = partial(
            self._environment.get_template(template).render, answer=answer, asked=asked, now=now,
            json_address=json_address, as_of=getattr(answer, "as_of", now),
            status=answer.status if isinstance(answer, Refusal) else 200,
        )  # fmt: skip
        share, text = 1.0, page(share=1.0)
        while (size := len(text.encode())) > MOST_BYTES and share > LEAST_SHARE:
            share *= min(0.95, (0.95 * MOST_BYTES - FRAME_BYTES) / (size - FRAME_BYTES))
            text = page(share=share)
        return text


REFUSED: Final = "refused.html"
MOST_AT_ONCE: Final = 16
"""Requests that are answered at the same time, at most. All of them share one connection to the database."""
ANSWER_SECONDS: Final = 10
"""Limit of an answer in seconds. A statement may take 5 s, and others may stand before it."""
KEPT_SECONDS: Final = 3600
"""Seconds for which browsers keep a static file."""
MOST_CONNECTIONS: Final = 200
"""Connections, at most."""
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every answer. Pages hold no inline script or style."""


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
        app = web.Application(client_max_size=1024, middlewares=[told_as_faults, self.paced])
        for before in dict.fromkeys(("", self._prefix)):
            for path, address in ADDRESSES.items():
                app.router.add_get(before + API + path, self.as_json(path))
                if address.page:
                    app.router.add_get(before + address.page, self.as_page(path, address))
            app.router.add_get(f"{before}{API}/openapi.json", self.openapi)
            app.router.add_get(f"{before}/static/{{name}}", self.static)
        if self._prefix:
            app.router.add_get(self._prefix, self.to_first_page)
        app.on_response_prepare.append(secured)
        return app

    def as_json(self, path: str) -> Handler:
        async def answer(request: web.Request) -> web.Response:
            found = await self._answers.find(path, asked_of(request))
            await self._cycles.wait()
            if isinstance(found, Refusal):
                return in_json(ApiRefusal(found.error), found.status)
            return in_json(found)

        return answer

    def as_page(self, path: str, address: Address) -> Handler:
        async def answer(request: web.Request) -> web.Response:
            began, asked = elapsed(), asked_of(request)
            timed = TimedAwait(self._answers.find(path, asked), elapsed)
            found = await timed
            waited = elapsed() - began - timed.seconds
            await self._cycles.wait()
            begun, status = elapsed(), found.status if isinstance(found, Refusal) else 200
            template = REFUSED if isinstance(found, Refusal) else address.template
            with_name = path.replace("{" + address.path + "}", asked.path) if address.path else path
            text = self._pages.write(template, found, asked, API + with_name)
            timing = {"database": waited, "read": timed.seconds, "write": elapsed() - begun}
            headers = {"Cache-Control": "no-store", "Server-Timing": told(timing)}
            return web.Response(text=text, status=status, content_type="text/html", headers=headers)

        return answer

    async def to_first_page(self, request: web.Request) -> web.Response:
        """Redirects from the prefix without a slash, as people type it."""
        raise web.HTTPFound(request.rel_url.with_path(f"{self._prefix}/", keep_query=True))

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
        timed = TimedAwait(handler(request), worked)
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


@web.middleware
async def told_as_faults(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Middleware that gives programs each refusal as JSON, like an answer."""
    try:
        return await handler(request)
    except web.HTTPException as refused:
        if f"{API}/" not in request.path or refused.status < 400:
            raise
        told = in_json(ApiRefusal((refused.text or refused.reason).strip()), refused.status)
        told.headers.update({name: value for name, value in refused.headers.items() if name == "Allow"})
        return told


async def secured(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)


def told(seconds: Mapping[str, float]) -> str:
    """Durations as browsers show them. `database`: all waits of an answer, most of them for the database."""
    return ", ".join(f"{name};dur={one * 1000:.1f}" for name, one in seconds.items())


def asked_of(request: web.Request) -> ApiRequest:
    """The question of a request. A form sends empty fields, too: a name with a value and an empty one has one value."""
    values = {name: [one for one in request.query.getall(name) if one] for name in request.query}
    query = {name: found[0] if found else "" for name, found in values.items()}
    repeated = tuple(name for name, found in values.items() if len(found) > 1)
    return ApiRequest(next(iter(request.match_info.values()), ""), query, repeated)


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
