"""A server of ours that stops while a client connects, at each turn of the event loop that the connection takes."""

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress

import pytest
from aiohttp import web

from dispatcher.model.errors import SettingsError
from dispatcher.runtime import health
from dispatcher.runtime.health import listen, take_nobody_new

TURNS = 6
"""The connection is accepted in turn 1 or 2 and reported in the next turns; by the last one it waits for a request."""


@pytest.mark.parametrize("turns", range(TURNS))
async def test_connection_made_during_the_stop_is_closed(turns: int) -> None:
    server = await served("127.0.0.1:0")
    with socket.create_connection(server.addresses[0]) as client:
        client.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.cleanup()
        assert await is_closed(client)


async def test_connection_made_during_the_stop_of_a_stream_server_is_closed() -> None:
    """The proxies of the fault suite close their servers in this way."""
    for turns in range(TURNS):
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()) as client:
            client.setblocking(False)
            for _ in range(turns):
                await asyncio.sleep(0)
            await take_nobody_new(server)
            server.close()
            assert await is_closed(client), turns


@pytest.mark.parametrize("turns", range(TURNS))
async def test_stopped_stream_server_has_told_of_every_accepted_connection(turns: int) -> None:
    """A server that keeps its connections closes them after the stop. One that it learned of later would stay open."""
    taken: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda reader, writer: taken.append(writer), "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()) as client:
        client.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await take_nobody_new(server)
        server.close()
        known = len(taken)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        for writer in taken:
            writer.transport.abort()
        assert len(taken) == known
        assert await is_closed(client)


async def test_taken_address_is_reported_with_its_setting() -> None:
    server = await served("127.0.0.1:0")
    taken = f"127.0.0.1:{server.addresses[0][1]}"
    other = web.AppRunner(web.Application())
    with pytest.raises(SettingsError, match=f"DISPATCHER_LISTEN_ADDRESS is '{taken}'.*address already in use"):
        await listen(other, "DISPATCHER_LISTEN_ADDRESS", taken)
    await other.cleanup()
    await server.cleanup()


@pytest.mark.parametrize(("address", "reached"), [(":0", "127.0.0.1"), (":0", "::1"), ("[::1]:0", "::1")])
async def test_server_listens_on_every_interface_and_on_ipv6(address: str, reached: str) -> None:
    server = await served(address)
    ports = {one[1] for one in server.addresses if one[0] in {reached, "::" if ":" in reached else "0.0.0.0"}}
    socket.create_connection((reached, ports.pop())).close()
    await server.cleanup()


ALLOWED = ["127.0.0.1", "localhost", "LOCALHOST", "[::1]", "127.0.0.1:{port}", "localhost:{port}", "[::1]:{port}"]
REBOUND = [
    *(
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "evil.example/127.0.0.1",
    ),
    *("localhost.", "127.0.0.2", "0.0.0.0", "10.1.2.3", "::1", "127.0.0.1:80:80", "[::1", "[::1]x", "[]", ""),
]
LOOPBACK = pytest.mark.parametrize("address", ["127.0.0.1:0", "localhost:0", "[::1]:0"])


@LOOPBACK
@pytest.mark.parametrize("host", ALLOWED)
async def test_loopback_server_answers_to_names_of_its_machine(address: str, host: str) -> None:
    status, told = await asked(address, f"Host: {host}\r\n")
    assert (status, told) == (200, "here")


@LOOPBACK
@pytest.mark.parametrize("host", REBOUND)
async def test_loopback_server_refuses_names_of_others(address: str, host: str) -> None:
    status, told = await asked(address, f"Host: {host}\r\n")
    assert status == 403
    assert told.startswith("Host is '")
    assert told.endswith("localhost, [::1] only\n")


@pytest.mark.parametrize("head", ["", "Host: localhost\r\nHost: evil.example\r\n"], ids=["none", "two"])
async def test_loopback_server_refuses_a_request_without_one_host(head: str) -> None:
    assert (await asked("127.0.0.1:0", head, "1.0"))[0] in {400, 403}


async def test_loopback_server_refuses_by_host_before_it_looks_at_the_path() -> None:
    assert (await asked("127.0.0.1:0", "Host: evil.example\r\n", path="/nowhere"))[0] == 403


async def test_loopback_server_answers_to_the_host_of_its_setting() -> None:
    assert (await asked("127.0.0.2:0", "Host: 127.0.0.2\r\n"))[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "10.1.2.3:8080"])
async def test_server_on_every_interface_answers_to_any_name(host: str) -> None:
    """kubelet and Prometheus call the address of the Pod."""
    assert (await asked("0.0.0.0:0", f"Host: {host}\r\n"))[0] == 200


@pytest.mark.parametrize(
    ("names", "host", "status"),
    [
        ((), "evil.example", 403), ((), "10.1.2.3:{port}", 403), ((), "localhost:{port}", 200),
        (("tasks.example",), "evil.example", 403), (("tasks.example",), "tasks.example:{port}", 200),
        (("tasks.example",), "Tasks.Example", 200), (("tasks.example",), "127.0.0.1", 200),
    ],
)  # fmt: skip
async def test_server_on_every_interface_answers_to_the_names_that_it_was_given(
    names: tuple[str, ...], host: str, status: int
) -> None:
    assert (await asked("0.0.0.0:0", f"Host: {host}\r\n", names=names))[0] == status


async def asked(
    address: str, head: str, version: str = "1.1", path: str = "/", names: Sequence[str] | None = None
) -> tuple[int, str]:
    """Status and body of the answer of a server that listens there, to a GET with that head."""
    server = await served(address, names)
    host, port = server.addresses[0][:2]
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET {path} HTTP/{version}\r\n{head.format(port=port)}Connection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    await server.cleanup()
    return int(answer.split()[1]), answer.partition("\r\n\r\n")[2]


async def here(_: web.Request) -> web.Response:
    return web.Response(text="here")


async def served(address: str, names: Sequence[str] | None = None) -> web.AppRunner:
    app = web.Application()
    app.router.add_get("/", here)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await listen(runner, "DISPATCHER_LISTEN_ADDRESS", address, names=names)
    return runner


async def is_closed(client: socket.socket) -> bool:
    try:
        async with asyncio.timeout(5):
            return await asyncio.get_running_loop().sock_recv(client, 1) == b""
    except ConnectionError:
        return True


async def test_half_requests_at_the_probe_port_leave_room_for_probes() -> None:
    server = await health.serve(health.build_app({}), "127.0.0.1:0")
    port = server.addresses[0][1]
    lines = [await asyncio.open_connection("127.0.0.1", port) for _ in range(health.MOST_CONNECTIONS + 100)]
    try:
        for _, writer in lines:
            writer.write(b"GET /healthz HTTP/1.1\r\n")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await asyncio.wait_for(reader.read(), 10)).startswith(b"HTTP/1.1 200")
        for reader, _ in lines[:100]:
            with suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), 10)  # the oldest are closed
        writer.close()
    finally:
        for _, writer in lines:
            writer.close()
        await server.cleanup()
