"""Which address a command asks by itself: none that another account of the machine may have taken."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from dispatcher.commands.reaching import NoAnswer, error_of, listeners, own_address
from dispatcher.runtime.health import take_nobody_new

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
