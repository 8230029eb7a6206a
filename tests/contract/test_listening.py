"""A server of ours that stops while somebody comes in, at each turn of the loop that this takes."""

import asyncio
import socket

import pytest
from aiohttp import web

from dispatcher.errors import SettingsError
from dispatcher.listening import listen, take_nobody_new

TURNS = 6
"""Accepted in the first or second, made known in the next ones; by the last it waits to be asked something."""


@pytest.mark.parametrize("turns", range(TURNS))
async def test_who_comes_in_while_it_stops_is_let_go(turns: int) -> None:
    server = await served("127.0.0.1:0")
    with socket.create_connection(server.addresses[0]) as client:
        client.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.cleanup()
        assert await is_let_go(client)


async def test_who_comes_in_while_it_stops_is_let_go_by_a_server_of_streams_too() -> None:
    """The proxies of the fault suite close theirs so."""
    for turns in range(TURNS):
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()) as client:
            client.setblocking(False)
            for _ in range(turns):
                await asyncio.sleep(0)
            await take_nobody_new(server)
            server.close()
            assert await is_let_go(client), turns


async def test_an_address_that_is_taken_is_told_with_the_setting_that_names_it() -> None:
    server = await served("127.0.0.1:0")
    taken = f"127.0.0.1:{server.addresses[0][1]}"
    other = web.AppRunner(web.Application())
    with pytest.raises(SettingsError, match=f"DISPATCHER_LISTEN_ADDRESS is '{taken}'.*address already in use"):
        await listen(other, "DISPATCHER_LISTEN_ADDRESS", taken)
    await other.cleanup()
    await server.cleanup()


@pytest.mark.parametrize(("address", "reached"), [(":0", "127.0.0.1"), ("[::1]:0", "::1")])
async def test_it_listens_on_every_interface_and_on_ipv6(address: str, reached: str) -> None:
    server = await served(address)
    ports = {one[1] for one in server.addresses if reached in one[0] or one[0] == "0.0.0.0"}
    socket.create_connection((reached, ports.pop())).close()
    await server.cleanup()


async def served(address: str) -> web.AppRunner:
    runner = web.AppRunner(web.Application(), shutdown_timeout=1)
    await listen(runner, "DISPATCHER_LISTEN_ADDRESS", address)
    return runner


async def is_let_go(client: socket.socket) -> bool:
    try:
        async with asyncio.timeout(5):
            return await asyncio.get_running_loop().sock_recv(client, 1) == b""
    except ConnectionError:
        return True
