"""Which address a command asks by itself: none that another account of the machine may have taken."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from dispatcher.commands.reaching import NoAnswer, Where, error_of, listeners, opened, own_address, reached
from dispatcher.model.errors import SettingsError
from dispatcher.runtime.health import Site, take_nobody_new
from tests.unit.reading_settings import read

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
LINE = (
    "   0: 0100007F:1F91 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  {account}        0 4711 1 0 100"
)


def table(folder: Path, *accounts: int, state: str = "0A") -> Path:
    lines = [LINE.format(state=state, account=account) for account in accounts]
    (folder / "tcp").write_text("\n".join([HEAD, *lines]) + "\n", encoding="ascii")
    return folder


def test_accounts_that_listen_on_the_port_are_found(tmp_path: Path) -> None:
    assert listeners(8081, table(tmp_path, 1000, 33)) == {1000, 33}
    assert listeners(8080, tmp_path) == set()
    assert listeners(8081, table(tmp_path, 1000, state="01")) == set()


def test_machine_that_does_not_tell_who_listens_is_not_believed(tmp_path: Path) -> None:
    assert listeners(8081, tmp_path) == {-1}


async def test_port_of_our_own_account_is_asked() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        assert listeners(port) == {os.getuid()}
        assert own_address(port) == f"http://127.0.0.1:{port}"
        with pytest.raises(NoAnswer, match="not known that your own account listens at http://127"):
            own_address(port, trusted={os.getuid() + 1})
    finally:
        await take_nobody_new(server)
        server.close()


def test_answer_of_deep_brackets_is_no_error_of_ours() -> None:
    assert error_of(b"[" * 3_900_000) == ""


@asynccontextmanager
async def answering(what: object) -> AsyncIterator[tuple[str, list[str]]]:
    """The address of a server that answers so to all, and the paths that were asked."""
    paths = list[str]()

    async def answer(request: web.Request) -> web.Response:
        paths.append(request.path)
        return web.json_response(what)

    runner = web.AppRunner(web.Application())
    runner.app.router.add_get("/{path:.*}", answer)
    await runner.setup()
    try:
        await Site(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", paths
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("base", "asked"),
    [
        ("", ["/api/v1/status", "/metrics"]), ("/", ["/api/v1/status", "/metrics"]),
        ("/dispatcher", ["/dispatcher/api/v1/status", "/dispatcher/metrics"]),
        ("/a/b/", ["/a/b/api/v1/status", "/a/b/metrics"]),
    ],
)  # fmt: skip
async def test_address_with_a_path_is_asked_below_it(base: str, asked: list[str]) -> None:
    """A proxy shows the dispatcher there (DASHBOARD_PREFIX)."""
    async with answering(7) as (url, paths), opened(url + base) as api:
        assert (await api.ask("status", int), await api.text("/metrics")) == (7, "7")
    assert paths == asked


@pytest.mark.parametrize(
    ("about", "told"),
    [
        ({"leads": False, "leader": "run-b_77"}, "does not know what the API server refuses: ask run-b\n"),
        ({"leads": False, "leader": None}, ""), ({"leads": True, "leader": "run-a_1"}, ""), (7, ""),
    ],
)  # fmt: skip
async def test_replica_that_does_not_lead_names_the_one_that_knows_more(
    about: object, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`kubectl exec` on a Deployment takes any replica. There a parked row was the next one in its line."""
    async with answering(about) as (url, _), reached(Where(url), read({}).settings) as api:
        assert await api.ask("status", object) == about
    said = capsys.readouterr().err
    assert told in said if told else said == ""


@pytest.mark.parametrize("url", ["host:8081", "ftp://host", "http://host:99999", "http://[", "http://u:p@host", "/api"])
async def test_address_that_none_can_have_is_refused_by_its_name(url: str) -> None:
    with pytest.raises(SettingsError) as refused:
        async with reached(Where(url), read({}).settings):
            pass
    (fault,) = refused.value.faults
    assert fault.startswith(f"--url is {url!r}: ")
    with pytest.raises(SettingsError, match=r"DISPATCHER_API_URL is 'http://host:99999': "):
        async with reached(Where(), read({"API_URL": "http://host:99999"}).settings):
            pass
