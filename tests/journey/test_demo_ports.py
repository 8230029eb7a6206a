"""`dispatcher demo` chooses a port and binds it a moment later. These tests take the port in between.

The two programs that listen are started again on another port. The port of Postgres cannot change, because all programs
know it already. If it is taken, the demo ends, says so, and leaves nothing.
"""

import asyncio
import os
import signal
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

import msgspec
import pytest

from dispatcher.kube.client import KubeClient
from dispatcher.kube.credentials import log_in
from dispatcher.runtime.health import take_nobody_new
from dispatcher.settings.definition import KubeSettings
from tests.controlplane.waiting import wait_for
from tests.rig.demoing import ITS_LAST_WORDS, Demo, demo
from tests.rig.postgres import insert_one
from tests.rig.remains import listening

RUBBISH = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n\xff"
TAKEN = 'could not bind IPv4 address "127.0.0.1": Address already in use'
SECRET = "/api/v1/namespaces/default/secrets/task-database"


@asynccontextmanager
async def stranger(port: int) -> AsyncIterator[list[bytes]]:
    """A server of another user on that port, whose answers are not text. Yields the requests that it got."""
    asked = list[bytes]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(1000))
        writer.write(RUBBISH)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", port)
    try:
        yield asked
    finally:
        await take_nobody_new(server)
        server.close()


@pytest.mark.slow
async def test_program_whose_port_is_taken_starts_on_another_port() -> None:
    async with demo("--keep", "--tasks", 1) as shown, AsyncExitStack() as others:
        await shown.says(ITS_LAST_WORDS)
        for name, of in (("dispatcher", "DASHBOARD"), ("janitor", "LISTEN")):
            async with shown.held(name, of) as port:
                asked = await others.enter_async_context(stranger(port))
                if name == "dispatcher":
                    await shown.until(lambda asked=asked: asked, "reasons are asked for there")
            await shown.says(f"{name} ended with 2, and is started again")
            await shown.until(
                lambda name=name, of=of: shown.port(name, of) in listening("self").values(), f"{name} listens"
            )
            assert shown.port(name, of) != port
        await shown.says(f"task {await insert_one(shown.database_url)} (default) succeeded")
        shown.signal(signal.SIGINT)
        assert await shown.ends() == 0


@pytest.mark.slow
async def test_demo_that_ends_because_of_a_taken_port_names_it() -> None:
    async with demo("--keep", "--tasks", 1) as shown:
        await shown.says(ITS_LAST_WORDS)
        await shown.kills("dispatcher")
        async with AsyncExitStack() as others:
            async with shown.held("dispatcher") as port:
                await others.enter_async_context(stranger(port))
            assert await shown.ends(30) == 1
        assert "dispatcher ended 3 times, the last time with 2:" in shown.said
        last = shown.said.rstrip().splitlines()[-1]
        assert last.startswith(f"DISPATCHER_LISTEN_ADDRESS is '127.0.0.1:{port}': "), last
        assert last.endswith("address already in use"), last


@pytest.mark.slow
async def test_postgres_port_that_is_taken_before_its_start_is_named() -> None:
    async with demo("--plain", "--tasks", 1) as shown:
        remains = shown.remains
        initdb = await wait_for(
            lambda: next((pid for pid, words in remains.living().items() if "/initdb " in words), 0),
            "initdb is at work",
        )
        os.kill(initdb, signal.SIGSTOP)
        port = await port_in_secret(shown)
        async with stranger(port):
            os.kill(initdb, signal.SIGCONT)
            assert await shown.ends(30) == 1
        check_taken(shown.said, port)


async def port_in_secret(shown: Demo) -> int:
    """The port of Postgres, from the Secret of the tasks, before Postgres runs."""
    config = shown.run_folder / "kubeconfig"
    await shown.until(lambda: config.exists() and config.read_text(), "the cluster is there")
    client = KubeClient(await log_in(KubeSettings(kubeconfig=str(config))))

    async def secret() -> bytes:
        reply = await client.request("GET", SECRET)
        return reply.body if reply.status == 200 else b""

    try:
        written = msgspec.json.decode(await wait_for(secret, "the Secret is there"))
    finally:
        await client.close()
    return urlsplit(b64decode(written["data"]["TASK_DATABASE_URL"]).decode()).port or 0


@pytest.mark.slow
async def test_postgres_port_that_is_taken_during_a_restart_is_named() -> None:
    async with demo("--keep", "--tasks", 1) as shown, AsyncExitStack() as others:
        await shown.says(ITS_LAST_WORDS)
        port = urlsplit(shown.database_url).port or 0
        shown.signal(signal.SIGSTOP)  # else it would start Postgres again at once
        os.kill(shown.pid("postgres"), signal.SIGKILL)
        await shown.until(lambda: port not in listening("self").values(), "its port is free")
        await others.enter_async_context(stranger(port))
        shown.signal(signal.SIGCONT)
        assert await shown.ends(30) == 1
        check_taken(shown.said, port)


def check_taken(said: str, port: int) -> None:
    told = said.rpartition("Postgres did not start:\n")[2]
    assert (said.count("Postgres did not start:"), TAKEN in told, f"port {port}" in told) == (1, True, True), said
