"""The servers of a benchmark: a real control plane, a real Postgres, and separate places for installations in them.

Everything is made for one run and removed after it. The controllers are stopped (SIGSTOP) during a comparison, for
every client alike: they would take most of two cores, at times that have nothing to do with the measured work.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from dispatcher import __version__
from tests.controlplane.audit import AuditEvent, parse
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.waiting import wait_for
from tests.rig.dispatching import ROOT, Place
from tests.rig.postgres import PostgresServer

CONTROLLERS = ("kube-controller-manager", "kube-scheduler", "kwok")
TICKS = os.sysconf("SC_CLK_TCK")
WITHOUT_LIMITS = {
    "KUBE_WRITES_PER_SECOND": 10_000,
    "MAX_JOBS": 100_000,
    "MAX_PENDING": 100_000,
    "POLL_SECONDS": None,  # as it is shipped
}
"""Settings of a dispatcher that is limited only by its own speed and by the API server."""


class Servers:
    """The servers of one run, and the folder of its files."""

    def __init__(self, plane: ControlPlane, postgres: PostgresServer, folder: Path) -> None:
        self.plane = plane
        self.postgres = postgres
        self.folder = folder
        self._places = 0
        self._namespaces: list[str] = []
        self._read_to = 0

    async def add_nodes(self) -> None:
        """50 nodes with room for all Pods of a benchmark."""
        await self.plane.add_nodes(50, cpu="256", memory="1Ti", pods=1000)

    async def place(self) -> Place:
        """A fresh namespace, with the dispatcher's own account in it, and a fresh database."""
        self._places += 1
        folder = self.folder / f"place-{self._places}"
        folder.mkdir()
        place = Place(self.plane, await self.plane.create_namespace(), await self.postgres.create_database(), folder)
        await place.prepare()
        self._namespaces.append(place.namespace)
        return place

    def stop_controllers(self) -> None:
        self._signal(signal.SIGSTOP)

    def let_controllers_go_on(self) -> None:
        self._signal(signal.SIGCONT)

    async def show_first_pod(self, place: Place, check: Callable[[], None]) -> None:
        """Lets the controllers make the Pod of one row. Until then the dispatcher launches few rows of its shape.

        The Jobs of earlier turns are deleted first: the controllers would make thousands of Pods before this one.
        """
        for jobs in self._jobs_of_earlier(place):
            await self.plane.admin("DELETE", jobs, params={"propagationPolicy": "Background"})
        self.let_controllers_go_on()
        await (await place.database.session("team_a")).execute("INSERT INTO dispatch.tasks DEFAULT VALUES")
        pods = f"/api/v1/namespaces/{place.namespace}/pods"

        async def is_there() -> bool:
            return bool((await self.plane.admin("GET", pods))["items"])

        await wait_for(is_there, "the first Pod", 120, check=check)
        self.stop_controllers()
        await self.made(place, 1)

    def _jobs_of_earlier(self, place: Place) -> list[str]:
        earlier = [name for name in self._namespaces if name != place.namespace]
        self._namespaces = [place.namespace]
        return [f"/apis/batch/v1/namespaces/{name}/jobs" for name in earlier]

    async def versions(self) -> dict[str, str]:
        """The versions of the dispatcher and of the servers."""
        kubernetes = (await self.plane.admin("GET", "/version"))["gitVersion"]
        admin = await asyncpg.connect(self.postgres.admin_url)
        try:
            postgres = str(await admin.fetchval("SHOW server_version"))
        finally:
            await admin.close()
        return {"dispatcher": __version__, "kubernetes": kubernetes, "postgres": postgres}

    def _signal(self, number: signal.Signals) -> None:
        for name, pid in self.plane.pids().items():
            if name in CONTROLLERS:
                os.kill(pid, number)

    async def made(self, place: Place, count: int, check: Callable[[], None] = lambda: None) -> list[AuditEvent]:
        """Waits for `count` creates, and returns them from the audit log. Only for one place after the other.

        Until then it only searches the log for words, and leaves the cores to the measured programs.
        """
        marks = b'"verb":"create"', f'"resource":"jobs","namespace":"{place.namespace}"'.encode(), b'"code":201'
        found: list[bytes] = []

        def enough() -> bool:
            with (self.plane.logs / "audit.log").open("rb") as file:
                file.seek(self._read_to)
                new = file.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read_to += len(whole)
            lines = (line for line in whole.splitlines() if all(mark in line for mark in marks))
            found.extend(line for line in lines if b"dryRun=" not in line)
            return len(found) >= count

        await wait_for(enough, f"{count} creates in {place.namespace}", 120, check=check)
        assert len(found) == count, "a Job was made twice"
        return list(parse(found))


@asynccontextmanager
async def launched(kind: type[ControlPlane] = ControlPlane, *, has_room: bool = True) -> AsyncIterator[Servers]:
    """`kind`: of the control plane. `has_room`: with nodes for all Pods."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        postgres = await PostgresServer.launch()
        try:
            async with kind() as plane:
                made = Servers(plane, postgres, Path(folder))
                if has_room:
                    await made.add_nodes()
                try:
                    yield made
                finally:
                    made.let_controllers_go_on()
        finally:
            await postgres.close()


@asynccontextmanager
async def program(module: str, *arguments: object) -> AsyncIterator[asyncio.subprocess.Process]:
    """A module of ours as a process that has said `ready`. It is killed at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *map(str, arguments),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n", f"{module} did not start"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mib(pid: int, what: str) -> float:
    """Memory of a process in MiB. `what`: VmRSS (now) or VmHWM (peak)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{what}:")]
    return int(line.split()[1]) / 1024
