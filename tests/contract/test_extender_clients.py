"""Clients of the extender that leave, stand still, speak no HTTP or are many; and the log lines about them."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from tests.contract.asked import Asked
from tests.contract.bodies import READABLE, SECRET, UNREADABLE, asking
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.waiting import wait_for
from tests.scheduling.own_extender import OwnExtender, account

pytest_plugins = ["tests.contract.asked_fixtures"]
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
