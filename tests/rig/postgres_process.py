"""The project's own Postgres servers as tests need them: they can be copied and frozen, and nothing of them stays.

A guard process outlives the tests by a second. It ends the servers and removes their files, however the tests end.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import asyncpg

from dispatcher_demo import postgres
from dispatcher_demo.postgres import SETTINGS, SUPERUSER, Home, free_port

__all__ = ["SETTINGS", "SUPERUSER", "Folder", "Postmaster", "binaries", "free_port"]

SETTINGS["synchronous_commit"] = "off"  # a killed server forgets a tenth of a second
SHARED_MEMORY, ENOUGH_BYTES = Path("/dev/shm"), 4 << 30
GUARD = """
read -r _ || true                      # ends when the process that started us does
[ -d "$1" ] || exit 0
for file in "$1"/*/postmaster.pid; do
  [ -f "$file" ] && pid=$(head -n 1 "$file") && kill -QUIT "$pid" && kill -CONT "$pid"
done
sleep 1
rm -rf "$1"
"""


def in_memory() -> Path | None:
    """The folder of shared memory, if there is enough of it; else None, the usual one.

    A tenth of the CPU of the integration suite was that of a disk's file system: a database is 300 files.
    """
    if not os.access(SHARED_MEMORY, os.W_OK):
        return None
    return SHARED_MEMORY if shutil.disk_usage(SHARED_MEMORY).free >= ENOUGH_BYTES else None


class Folder(Home):
    """The temporary folder of all servers of one test session, and its guard."""

    def __init__(self) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="dispatcher-pg-", dir=in_memory())), binaries())
        command = ["/bin/sh", "-c", GUARD, "guard", str(self.path)]
        self._guard = subprocess.Popen(command, stdin=subprocess.PIPE, cwd="/", start_new_session=True)

    def close(self) -> None:
        shutil.rmtree(self.path)
        self._guard.communicate()


class Postmaster(postgres.Postmaster):
    """A Postgres server that can be copied and frozen."""

    def __init__(self, folder: Folder, name: str) -> None:
        super().__init__(folder, name)
        self.folder = folder
        self._frozen: list[int] = []

    def open_to(self, network: str) -> None:
        """From the next start on, clients of this network can connect, by their passwords."""
        self.settings["listen_addresses"] = "*"
        with (self.directory / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {network} password\n")

    async def copy(self, primary: Postmaster) -> None:
        """Makes a base backup that follows the primary once it is started."""
        source = ["-h", "127.0.0.1", "-p", str(primary.port), "-U", SUPERUSER]
        options = ["-R", "-X", "stream", "--checkpoint=fast", "--no-sync"]
        await self.folder.make(self.directory, "pg_basebackup", *source, *options)

    async def stop(self, *, immediately: bool = False) -> None:
        self.thaw()
        await super().stop(immediately=immediately)

    async def freeze(self) -> None:
        """Stops the server's processes until `thaw`: it still accepts TCP connections and answers nothing."""
        witness: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(self.admin_url)
        os.kill(self.process.pid, signal.SIGSTOP)  # first, so that no backend starts unseen
        others = await witness.fetch("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        await witness.close()
        self._frozen = [self.process.pid, *(row["pid"] for row in others)]
        self._signal_frozen(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_frozen(signal.SIGCONT)
        self._frozen = []

    def _signal_frozen(self, number: signal.Signals) -> None:
        for pid in self._frozen:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue  # a background process that ended by itself


def binaries() -> Path:
    """The folder of Postgres' programs; `TEST_POSTGRES_BIN` names another one, e.g. of the oldest supported version."""
    given = os.environ.get("TEST_POSTGRES_BIN")
    return Path(given) if given else postgres.binaries()
