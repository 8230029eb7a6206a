"""The dashboard's HTTP server: what it answers to whom. No cycle has ended, so there is nothing to show."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from yarl import URL

from dispatcher.model.errors import DatabaseAway
from dispatcher.placement.placing import Warmth
from dispatcher.runtime.clock import elapsed
from dispatcher.runtime.health import BoundedRunner
from dispatcher.runtime.rounds import LONGEST_WAIT, Precedence
from dispatcher.views.answers import Answers, Sources
from dispatcher.views.counting import Overview
from dispatcher.views.reads import CacheContext, Estimates, ExplanationReader
from dispatcher.views.server import ANSWER_SECONDS, MOST_AT_ONCE, MOST_CONNECTIONS, Dashboard, Pages, serve
from dispatcher.views.status import InstallationIdentity
from tests.controlplane.ports import free_ports
from tests.rig.showing import Shown

NAMED = InstallationIdentity("dispatcher", "1", "jobs", "me")


def no_rows() -> AbstractAsyncContextManager[object]:
    raise DatabaseAway("the database does not answer")


class Server:
    """The server at a port of this machine."""

    def __init__(self, port: int, runner: BoundedRunner) -> None:
        self.port = port
        self._runner = runner

    @property
    def open_connections(self) -> int:
        (server,) = self._runner.server.args
        return len(server.connections)

    async def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, Mapping[str, str], str]:
        """The path is sent as it is written."""
        url = URL(f"http://127.0.0.1:{self.port}{path}", encoded=True)
        async with aiohttp.ClientSession() as session, session.request(method, url, headers=headers) as answer:
            return answer.status, answer.headers, await answer.text()


@asynccontextmanager
async def serving(
    rows: Any, answer_seconds: float = ANSWER_SECONDS, cycles: Precedence | None = None, address: str = "127.0.0.1",
    hosts: Sequence[str] = (), prefix: str = "", missing: Callable[[], Mapping[str, str]] = dict,
) -> AsyncIterator[Server]:  # fmt: skip
    """The server. `rows`: opens what stands for the database. `hosts`: names by which it is called. `missing`: in
    /readyz.
    """
    (port,) = free_ports(1)
    asking = ExplanationReader(
        rows, lambda: None, CacheContext("jobs", Warmth("live", lambda _: True, lambda: 0)), Estimates(rows)
    )
    sources = Sources(asking, Overview(NAMED, rows, missing, lambda: True), *[None] * 4)  # type: ignore[arg-type]  # no page asks for them
    dashboard = Dashboard(Answers(sources), Pages(NAMED, prefix), cycles or Precedence(), prefix, answer_seconds)
    running = await serve(dashboard, f"{address}:{port}", hosts)
    try:
        yield Server(port, running)
    finally:
        await running.cleanup()


@pytest_asyncio.fixture(loop_scope="session")
async def server() -> AsyncIterator[Server]:
    async with serving(no_rows) as made:
        yield made


SECURED = {
    "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
}  # fmt: skip


@pytest.mark.fault(62)
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 503), ("HEAD", "/", 503), ("GET", "/tasks?queue=&status=waiting", 503),
        ("GET", "/tasks?status=odd", 400),
        ("POST", "/", 405), ("PUT", "/tasks", 405), ("DELETE", "/api/v1/status", 405), ("OPTIONS", "/", 405),
        ("PATCH", "/api/v1/tasks/1", 405),
        ("GET", "/nowhere", 404), ("GET", "/static/page.css", 200), ("GET", "/api/v1/openapi.json", 200),
        ("GET", "/static/../server.py", 404),
        ("GET", "/static/..%2fserver.py", 404), ("GET", "/static/%2e%2e/templates/layout.html", 404),
        ("GET", "/static//etc/passwd", 404), ("GET", "/static/layout.html", 404), ("GET", "/static/page.css%00", 404),
        ("GET", "//evil.example/", 404), ("GET", "/api/v1/../../etc", 404), ("GET", "/tasks?after=%ff%fe", 400),
    ],
)  # fmt: skip
async def test_every_answer_has_the_headers_that_protect_a_browser(
    server: Server, method: str, path: str, status: int
) -> None:
    told, headers, _ = await server.ask(path, method)
    assert (path, told) == (path, status)
    assert SECURED.items() <= headers.items()
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/status", 503), ("GET", "/api/v1/tasks?status=odd", 400), ("GET", "/api/v1/tasks/0", 400),
        ("GET", "/api/v1/nowhere", 404), ("POST", "/api/v1/tasks", 405),
    ],
)  # fmt: skip
async def test_every_refusal_of_the_api_is_a_fault_in_json(server: Server, method: str, path: str, status: int) -> None:
    told, headers, text = await server.ask(path, method)
    assert (told, headers["Content-Type"]) == (status, "application/json")
    assert json.loads(text)["error"]
    assert (status == 405) == ("GET" in headers.get("Allow", ""))


async def test_dispatcher_that_never_began_tells_what_is_missing() -> None:
    """`dispatcher status` is what people ask first after an installation."""
    lacks = {"database": "the database refuses the login", "leader": "lease dispatcher-leader: 403"}
    async with serving(no_rows, missing=lambda: lacks) as server:
        status, _, text = await server.ask("/api/v1/status")
    told = "no cycle has ended yet: database: the database refuses the login; leader: lease dispatcher-leader: 403"
    assert (status, json.loads(text)["error"]) == (503, told)


@pytest.mark.parametrize("path", ["/", "/api/v1/status"])
async def test_cycle_goes_before_an_answer_and_before_its_text_for_a_limited_time(path: str) -> None:
    cycles = Precedence()
    async with serving(no_rows, cycles=cycles) as server:
        with cycles.running():
            began = elapsed()
            assert (await server.ask(path))[0] == 503
            assert elapsed() - began >= 2 * LONGEST_WAIT


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("/failures?queue=nope", "'queue' is no filter of /failures, which has none"),
        ("/status?foo=1", "'foo' is no filter of /status"), ("/tasks/7?status=failed", "'status' is no filter of"),
        ("/about?x=%00", "'x' is no filter of /about"), ("/queues/a?status=failed", "'status' is no filter of"),
        ("/tasks?status=waiting&status=failed", "'status' is given more than once: a filter has one value"),
        ("/nodes?cpu=1&cpu=1", "'cpu' is given more than once"), ("/batches?batch=a&batch=b", "more than once"),
        ("/tasks?quee=a", "unknown field `quee`; the filters are"), ("/tasks?limit=0", "$.limit"),
        ("/tasks?after=x", "$.after"),
    ],
)  # fmt: skip
async def test_filter_that_would_be_ignored_is_refused(server: Server, asked: str, told: str) -> None:
    status, _, text = await server.ask(f"/api/v1{asked}")
    assert (status, told in json.loads(text)["error"]) == (400, True), text


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("tasks?label=month", "write NAME=VALUE"), ("tasks?label=%3Dx", "write NAME=VALUE"),
        ("tasks?batch=%00", "'batch' has a character that no row can have"), ("tasks?id=0", "$.id"),
        ("tasks?status=odd", "the filters are queue, status, reason, submitted_by, batch, label, template, id, group"),
        ("nodes?cpu=much", 'cpu: "much" is not a Kubernetes quantity'), ("nodes?memory=-1Gi", "give more than 0"),
        (f"nodes?cpu={'9' * 41}", "$.cpu"), ("nodes?limit=501", "$.limit"), ("nodes?page=2", "unknown field `page`"),
        ("nodes?cpu=0", "is no size of a Pod"),
    ],
)  # fmt: skip
async def test_filter_that_cannot_be_read_is_refused_in_words(server: Server, asked: str, told: str) -> None:
    status, _, text = await server.ask(f"/api/v1/{asked}")
    page_status, _, page = await server.ask(f"/{asked}")
    assert (status, page_status) == (400, 400)
    assert told in json.loads(text)["error"]
    assert told in Shown(page).words


@pytest.mark.parametrize("asked", ["/failures?queue=", "/tasks?status=&status=failed", "/tasks?status=failed&status="])
async def test_empty_field_of_a_form_is_no_filter(server: Server, asked: str) -> None:
    assert (await server.ask(f"/api/v1{asked}"))[0] == 503


async def test_prefix_without_its_slash_leads_to_the_first_page() -> None:
    async with serving(no_rows, prefix="/batch") as server:
        url = f"http://127.0.0.1:{server.port}/batch"
        async with aiohttp.ClientSession() as session, session.get(url, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (302, "/batch/")
            assert SECURED.items() <= answer.headers.items()
        assert [(await server.ask(path))[0] for path in ("/batch", "/batch/", "/")] == [503, 503, 503]


async def test_page_tells_how_long_it_took(server: Server) -> None:
    _, headers, _ = await server.ask("/")
    assert re.fullmatch(r"database;dur=[0-9.]+, read;dur=[0-9.]+, write;dur=[0-9.]+", headers["Server-Timing"])
    assert headers["Cache-Control"] == "no-store"


@pytest.mark.fault(62)
@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost@evil.example"])
async def test_name_of_another_host_gets_no_page(server: Server, host: str) -> None:
    """A web page can let its own name point to this machine."""
    for path in ("/", "/api/v1/status", "/static/page.js"):
        status, _, text = await server.ask(path, Host=host)
        assert (status, "dispatcher" in text) == (403, False)


@pytest.mark.fault(62)
@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1"])
async def test_dashboard_answers_to_its_own_names_and_those_of_its_setting(address: str) -> None:
    """A server on every interface is reached under names that the network gives it. Nobody checks those but us."""
    async with serving(no_rows, address=address, hosts=("tasks.example", "tasks.internal")) as server:
        for host, status in (
            ("evil.example", 403), ("tasks.example.evil.example", 403), ("10.1.2.3", 403), ("", 403),
            ("tasks.example", 200), ("TASKS.internal:8443", 200), ("127.0.0.1", 200), ("localhost", 200),
        ):  # fmt: skip
            assert (host, (await server.ask("/static/page.css", Host=host))[0]) == (host, status)


@pytest.mark.fault(62)
@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET /static/page.css HTTP/1.1\r\nHost: localhost\r\n\r\n"]
)
async def test_very_many_connections_take_no_place_from_a_new_one(server: Server, sent: bytes) -> None:
    """They send nothing, or half a request, or do not read their answer."""
    lines = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(MOST_CONNECTIONS + 100)]
    try:
        for _, writer in lines:
            writer.write(sent)
        assert (await server.ask("/static/page.js"))[0] == 200
        for reader, _ in lines[:100]:
            with suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), 10)  # the oldest are closed
        assert server.open_connections <= MOST_CONNECTIONS
    finally:
        for _, writer in lines:
            writer.close()


@pytest.mark.fault(62)
async def test_silent_database_keeps_no_request_waiting_and_no_place_taken() -> None:
    """Sixteen are answered at once. The others wait for a place, and are refused."""
    waiting = Silent()
    async with serving(waiting.opened, answer_seconds=0.5) as server:
        outcomes = [one[0] for one in await asyncio.gather(*(server.ask("/api/v1/tasks") for _ in range(60)))]
        assert {*outcomes} <= {503, 429}
        assert outcomes.count(503) >= MOST_AT_ONCE
        assert waiting.most <= MOST_AT_ONCE
        assert waiting.now == 0, "nobody waits for the database any more"
        assert (await server.ask("/static/page.css"))[0] == 200


class Silent:
    """A database that never answers. `now`, `most`: how many wait for it, and waited at the same time."""

    def __init__(self) -> None:
        self.now = self.most = 0

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[object]:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.Event().wait()
            yield None
        finally:
            self.now -= 1
