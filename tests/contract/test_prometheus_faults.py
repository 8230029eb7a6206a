"""Servers that are no Prometheus, or a broken one: each is a fault of ours, reported soon and cheaply."""

import asyncio
import gzip
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from aiohttp import web

from dispatcher.model.caches import Use
from dispatcher.model.errors import DispatcherError
from dispatcher.prometheus import LARGEST_ANSWER, Prometheus, PrometheusFault
from tests.controlplane.ports import free_ports
from tests.prometheus.exporter import CPU, MEMORY
from tests.prometheus.scripted import (
    GOOD,
    Answer,
    Scripted,
    answering,
    bomb,
    cut,
    endless,
    enormous,
    reset,
    says,
    silent,
    zipped,
)

BEGAN, ENDED = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 10, tzinfo=UTC)
BOUND_SECONDS = 15
"""Our limit is 5 s, and without it the library's limit is 300 s. The rest is for a busy machine."""
IN_FLIGHT = 8 * 2**20
"""Bytes of a body that the sockets of both sides may hold, in addition to the bytes that were read."""
HTML = "<html><body>Who are you?</body></html>"
ANSWERS: dict[str, Answer] = {
    "500 in plain text": says("out of memory", 500),
    "500 in HTML": says(HTML, 500),
    "503 of a proxy": says("", 503),
    "401": says("Unauthorized\n", 401),
    "404": says("404 page not found\n", 404),
    "a login page": says(HTML),
    "nothing": says(""),
    "half of an answer": cut,
    "a broken connection": reset,
    "a redirect": says("", 302, {"Location": "/elsewhere"}),
    "a redirect that reads like an answer": says(GOOD % "1", 307, {"Location": "/elsewhere"}),
    "not compressed, as it says": zipped(b"plain"),
    "not UTF-8": zipped(gzip.compress(b'{"status":"error","error":"\xff"}')),
    "a number": says("7"),
    "null": says("null"),
    "a list": says("[]"),
    "an empty object": says("{}"),
    "a Status of Kubernetes": says('{"kind":"Status","status":"Failure","code":403}', 403),
    "success with nothing": says('{"status":"success"}'),
    "success with null": says('{"status":"success","data":null}'),
    "success with an empty object": says('{"status":"success","data":{}}'),
    "a scalar": says('{"status":"success","data":{"resultType":"scalar","result":[1763769600,"1"]}}'),
    "a matrix": says('{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"1"]]}]}}'),
    "a number that is none": says(GOOD.replace('"%s"', "{}")),
    "more depth than a reader has": says('{"status":"success","x":' + "[" * 500_000),
    "an error": says('{"status":"error","errorType":"bad_data","error":"parse error"}', 400),
    "an error beside an answer": says(GOOD.replace("success", "error") % "1"),
    "an error with 200": says('{"status":"error","errorType":"timeout","error":"query timed out"}'),
}


@asynccontextmanager
async def asking(url: str) -> AsyncIterator[Prometheus]:
    adapter = Prometheus(url)
    try:
        yield adapter
    finally:
        await adapter.close()


async def use(adapter: Prometheus) -> Use | None:
    return await adapter.use_of("jobs", "pod-1", BEGAN, ENDED)


async def test_two_questions_are_asked_below_the_root_and_answered() -> None:
    """The root may be a path, e.g. of a Prometheus behind a proxy."""
    async with answering(says(GOOD % "2.5")) as server, asking(f"{server.url}/tools/prom/") as adapter:
        assert await use(adapter) == Use(2.5, 2.5)
    assert [path for path, _ in server.asked] == ["/tools/prom/api/v1/query"] * 2
    assert [(CPU in query, MEMORY in query) for _, query in server.asked] == [(True, False), (False, True)]


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_invalid_answer_is_a_fault(answer: Answer) -> None:
    async with answering(answer) as server, asking(server.url) as adapter:
        with pytest.raises(PrometheusFault, match=server.url):
            await use(adapter)
    assert {path for path, _ in server.asked} == {"/api/v1/query"}, "no redirect is followed"


async def test_error_of_the_server_is_reported() -> None:
    async with answering(ANSWERS["an error"]) as server, asking(server.url) as adapter:
        with pytest.raises(DispatcherError, match="400 parse error"):
            await use(adapter)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "", "one", "0x10"])
async def test_impossible_use_is_unknown(value: str) -> None:
    async with answering(says(GOOD % value)) as server, asking(server.url) as adapter:
        assert await use(adapter) is None


async def test_closed_port_is_a_fault_at_once() -> None:
    (port,) = free_ports(1)
    began = time.monotonic()
    async with asking(f"http://127.0.0.1:{port}") as adapter:
        with pytest.raises(PrometheusFault, match="Cannot connect"):
            await use(adapter)
    assert time.monotonic() - began < 2


@pytest.mark.slow
async def test_endless_answer_is_given_up_in_bounded_time() -> None:
    async def given_up(answer: Answer) -> None:
        async with answering(answer) as server, asking(server.url) as adapter:
            began = time.monotonic()
            with pytest.raises(PrometheusFault, match="TimeoutError"):
                await use(adapter)
            assert time.monotonic() - began < BOUND_SECONDS

    await asyncio.gather(given_up(silent), given_up(endless))


async def test_enormous_body_is_not_read_to_its_end() -> None:
    async with answering(enormous) as server, asking(server.url) as adapter:
        with pytest.raises(PrometheusFault):
            await use(adapter)
    assert LARGEST_ANSWER <= server.sent < LARGEST_ANSWER + IN_FLIGHT


async def test_body_that_grows_when_unpacked_does_not_fill_the_memory() -> None:
    async with answering(bomb()) as server, asking(server.url) as adapter:
        tracemalloc.start()
        try:
            with pytest.raises(PrometheusFault):
                await use(adapter)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < LARGEST_ANSWER + IN_FLIGHT


async def test_question_after_a_fault_is_asked_and_answered_normally() -> None:
    answers = iter([reset, says(HTML), says(GOOD % "1"), says(GOOD % "2")])

    async def in_turn(script: Scripted, request: web.Request) -> web.StreamResponse:
        return await next(answers)(script, request)

    async with answering(in_turn) as server, asking(server.url) as adapter:
        for _ in range(2):
            with pytest.raises(PrometheusFault):
                await use(adapter)
        assert await use(adapter) == Use(1, 2)
