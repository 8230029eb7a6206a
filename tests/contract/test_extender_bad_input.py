"""Requests that no kube-scheduler sends, over real HTTP, and clients that leave, stand still, or are many.

Each body gets the answer with which a scheduler can go on, and the next request is answered as if nothing had happened.
A node whose name can be read passes and gets points, whatever else is unreadable. Only a request without any name gets
400.
"""

import asyncio
import gzip
import json
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from prometheus_client import REGISTRY

from dispatcher.model.launches import HISTORY_NODES as HISTORY
from dispatcher.model.launches import REAL_RESOURCES as REAL
from tests.contract.asked import Asked
from tests.contract.bodies import (
    DEEP,
    POD,
    POINTS,
    READABLE,
    SECRET,
    UNREADABLE,
    Json,
    asking,
    node,
    noted,
    padded,
    whole,
)
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.waiting import wait_for
from tests.scheduling.own_extender import OwnExtender, account

pytest_plugins = ["tests.contract.asked_fixtures"]
LARGEST = 16 * 2**20


@pytest.mark.parametrize(("body", "names"), READABLE.values(), ids=READABLE)
async def test_nodes_with_a_readable_name_pass_and_get_points(attacked: Asked, body: bytes, names: list[str]) -> None:
    assert await attacked.passed(body) == names
    scores = await attacked.points(body)
    assert list(scores) == names
    assert all(type(score) is int and 0 <= score <= 10 for score in scores.values())


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
async def test_request_without_a_readable_name_is_refused(attacked: Asked, verb: str, body: bytes) -> None:
    status, answer = await attacked.post(verb, body)
    assert (status, list(answer)) == (400, ["Error"])
    assert answer["Error"]
    assert SECRET not in answer["Error"], "kube-scheduler's log gets the error"


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "explain"])
@pytest.mark.parametrize("size", [LARGEST + 1, 20 * 2**20])
async def test_body_that_is_too_large_gets_413(attacked: Asked, verb: str, size: int) -> None:
    body = asking(Extra=" " * size)[: size - 1] + b"}"
    assert await attacked.post(verb, body) == (413, {"Error": f"more than {LARGEST} bytes"})


async def in_parts(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 2**20):
        yield body[start : start + 2**20]


async def test_body_without_a_length_is_measured(attacked: Asked) -> None:
    assert (await attacked.post("filter", in_parts(b" " * 20 * 2**20)))[0] == 413
    status, answer = await attacked.post("filter", in_parts(asking(Extra=" " * 2**21)))
    assert (status, answer["NodeNames"]) == (200, ["a", "b"])


async def test_compressed_body_is_measured_uncompressed(attacked: Asked) -> None:
    status, _ = await attacked.post("filter", gzip.compress(b" " * 20 * 2**20), **{"Content-Encoding": "gzip"})
    assert status == 413
    status, answer = await attacked.post("filter", gzip.compress(asking()), **{"Content-Encoding": "gzip"})
    assert (status, answer["NodeNames"]) == (200, ["a", "b"])


async def test_body_that_is_wrongly_called_gzip_is_refused(attacked: Asked) -> None:
    status, answer = await attacked.post("filter", asking(), **{"Content-Encoding": "gzip"})
    assert (status, list(answer)) == (400, ["Error"])


async def test_largest_allowed_body_is_answered(attacked: Asked) -> None:
    body = padded(whole(node("a"), node("b")), LARGEST)
    assert await attacked.passed(body) == ["a", "b"]
    assert await attacked.points(body) == {"a": POINTS["a"], "b": POINTS["b"]}


@pytest.mark.parametrize(
    ("pod", "parts"),
    [
        (noted(annotations={HISTORY: "{}"}), ["history-nodes"]),
        (noted(annotations={REAL: "{}", HISTORY: '["a"]'}), ["real-resources"]),
        (noted(annotations={REAL: "5", HISTORY: "[5]"}), ["history-nodes", "real-resources"]),
        (5, ["pod"]),
        (POD | {"spec": {"containers": None}}, ["pod"]),
        (POD, []),
    ],
)
async def test_unreadable_parts_of_a_pod_are_counted(attacked: Asked, pod: object, parts: list[str]) -> None:
    def counted() -> dict[str, float]:
        name, all_parts = "dispatcher_extender_ignored_total", ("history-nodes", "real-resources", "pod")
        return {part: REGISTRY.get_sample_value(name, {"part": part}) or 0 for part in all_parts}

    before = counted()
    await attacked.points(asking(pod))
    assert counted() == {part: count + (part in parts) for part, count in before.items()}


# The other verbs


@pytest.mark.parametrize("verb", ["preempt", "explain"])
@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b'{"Pod": {', DEEP.encode(), b"\xff"])
async def test_body_that_is_no_request_is_refused(attacked: Asked, verb: str, body: bytes) -> None:
    status, answer = await attacked.post(verb, body)
    assert (status, list(answer)) == (400, ["Error"])


@pytest.mark.parametrize(
    "victims",
    [5, [], {"a": None}, {"a": 5}, {"a": {"Pods": 5}}, {"a": {"Pods": [{}]}}, {"a": {"Pods": [5]}},
     {"a": {"NumPDBViolations": 0.5}}],
)  # fmt: skip
async def test_unreadable_victims_are_refused(attacked: Asked, victims: object) -> None:
    body = json.dumps({"Pod": POD, "NodeNameToMetaVictims": victims}).encode()
    status, answer = await attacked.post("preempt", body)
    assert (status, list(answer)) == (400, ["Error"])


@pytest.mark.parametrize("pod", [None, 5, [], {"spec": {"containers": None}}, {"metadata": {"annotations": {"x": 5}}}])
async def test_explain_refuses_a_pod_that_is_none(attacked: Asked, pod: object) -> None:
    assert await attacked.post("explain", asking(pod)) == (400, {"Error": "Pod: not one"})


@pytest.mark.parametrize("keys", [{}, {"Nodes": None}, {"Nodes": None, "NodeNames": None}])
async def test_explain_without_names_tells_of_all_nodes(attacked: Asked, keys: Json) -> None:
    status, answer = await attacked.post("explain", json.dumps({"Pod": POD, **keys}).encode())
    assert (status, list(answer["nodes"])) == (200, ["a", "b", "c"])


async def test_explain_names_ignored_notes(attacked: Asked) -> None:
    status, answer = await attacked.post("explain", asking(noted(annotations={HISTORY: DEEP, REAL: DEEP})))
    assert (status, answer["ignored"]) == (200, ["history-nodes", "real-resources"])


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
async def test_other_methods_are_not_allowed(attacked: Asked, method: str) -> None:
    async with attacked.session.request(method, f"{attacked.url}/filter") as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, "POST")


@pytest.mark.parametrize("path", ["", "/", "/filters", "/filter/", "/v1/filter", "/bind", "/..%2ffilter", "/FILTER"])
async def test_other_paths_are_not_found(attacked: Asked, path: str) -> None:
    async with attacked.session.post(f"{attacked.url}{path}", data=asking()) as answer:
        assert answer.status == 404


MANY = 200
HEAD = b"POST /filter HTTP/1.1\r\nHost: localhost\r\n"
BROKEN = {
    "no request": b"%s\r\n\r\n",
    "a header that is none": HEAD + b"%s\r\n\r\n",
    "a length that is none": HEAD + b"Content-Length: %s\r\n\r\n",
    "a chunk that is none": HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n%s\r\n",
    "a body longer than it is said to be": HEAD + b"Content-Length: 2\r\n\r\n{}%s\r\n\r\n",
    "no gzip": HEAD + b"Content-Encoding: gzip\r\nContent-Length: 15\r\n\r\n%s",
    "an encoding that nobody has": HEAD + b"Content-Encoding: br\r\nContent-Length: 15\r\n\r\n%s",
}
"""Each has a place for a secret, which the log must not show."""


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt", "explain"])
@pytest.mark.parametrize("sent", [0, 1, 300, -1])
@pytest.mark.parametrize("is_rude", [True, False], ids=["reset", "closed"])
async def test_client_that_leaves_within_its_body_is_forgotten(
    attacked: Asked, verb: str, sent: int, is_rude: bool
) -> None:
    before = asyncio.all_tasks()
    body = asking()
    _, writer = await attacked.begin(verb, body, len(body) + sent if sent < 0 else sent)
    waiting = await wait_for(lambda: asyncio.all_tasks() - before, "the extender waits for the body")
    leave(writer, is_rude=is_rude)
    await wait_for(lambda: not waiting & asyncio.all_tasks(), "the extender waits no more")


def leave(writer: asyncio.StreamWriter, *, is_rude: bool) -> None:
    if is_rude:
        reset = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
    writer.close()


@pytest.mark.parametrize(
    "header", [{"Origin": "https://evil.test"}, {"Sec-Fetch-Site": "cross-site"}, {"origin": "null"}]
)
async def test_page_in_a_browser_may_not_ask(attacked: Asked, header: dict[str, str]) -> None:
    """A page may send a POST of plain text to loopback, with the right Host."""
    status, answer = await attacked.post("filter", asking(), **header)
    assert (status, answer) == (403, {"Error": "no page in a browser may ask the extender"})


async def test_client_that_stops_within_its_body_keeps_no_other_waiting(attacked: Asked) -> None:
    body = asking()
    reader, writer = await attacked.begin("filter", body, 100)
    for _ in range(5):
        await attacked.answers_well()
    writer.write(body[100:])
    assert (await reader.readline()).split()[1] == b"200"
    writer.close()
    await writer.wait_closed()


async def test_simultaneous_requests_get_their_own_answers(attacked: Asked) -> None:
    good = [asking(NodeNames=[f"node-{number}", "a"]) for number in range(MANY // 2)]
    bad = [*UNREADABLE.values()] * MANY
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        asked = Asked(attacked.port, session)
        passed, refused = await asyncio.gather(
            asyncio.gather(*[asked.passed(body) for body in good]),
            asyncio.gather(*[asked.post("prioritize", body) for body in bad[: MANY // 2]]),
        )
    assert passed == [[f"node-{number}", "a"] for number in range(MANY // 2)]
    assert {status for status, _ in refused} == {400}


@pytest.mark.parametrize("sent", BROKEN.values(), ids=BROKEN)
async def test_broken_http_is_refused_and_the_connection_closed(attacked: Asked, sent: bytes) -> None:
    answer = await attacked.say(sent % SECRET.encode())
    refusals = [line for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.") and b" 400 " in line]
    assert len(refusals) >= 1, answer


# The log


@pytest_asyncio.fixture(loop_scope="session")
async def program(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> AsyncIterator[OwnExtender]:
    """The real program, with a log of its own."""
    async with OwnExtender(await account(control_plane, namespace, tmp_path), LOG_LEVEL="debug") as made:
        await made.ready()
        yield made


@pytest.mark.parametrize("path", ["filter", "explain", "metrics", "readyz"])
async def test_program_refuses_a_request_with_a_foreign_host_name(program: OwnExtender, path: str) -> None:
    port = program.port if path in {"metrics", "readyz"} else program.extender_port
    method = "GET" if port == program.port else "POST"
    async with aiohttp.ClientSession() as session:
        for host, refused in (("evil.example", True), (f"localhost:{port}", False)):
            url = f"http://127.0.0.1:{port}/{path}"
            async with session.request(method, url, data=asking(), headers={"Host": host}) as answer:
                assert (answer.status == 403) is refused


async def test_log_never_shows_the_content_of_a_request(program: OwnExtender) -> None:
    """Requests hold environments of Pods: the log shows neither a whole request nor its unreadable part."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
        asked = Asked(program.extender_port, session)
        for body in [*UNREADABLE.values(), *(body for body, _ in READABLE.values())]:
            for verb in ("filter", "prioritize", "preempt", "explain"):
                await asked.post(verb, body)
        for sent in BROKEN.values():
            await asked.say(sent % SECRET.encode())
        _, writer = await asked.begin("filter", asking(), 300)
        leave(writer, is_rude=True)
        await asked.post("filter", b" " * 20 * 2**20)
        assert await asked.passed(asking()) == ["a", "b"]
    assert await program.stop() == 0
    assert "uncached" in program.log, "the program logs"
    assert SECRET not in program.log
    assert "Traceback" not in program.log, "every fault is expected"
