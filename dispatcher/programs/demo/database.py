"""The database of a demo: a Postgres server, migrated, with a login for each program and the queues of the samples."""

import asyncio
import secrets
from pathlib import Path
from typing import Final

import asyncpg

from dispatcher.local.children import Keeper
from dispatcher.local.postgres import SUPERUSER, Home, Postmaster
from dispatcher.pg.migrate import migrate
from dispatcher.pg.queries import query
from dispatcher.programs.demo.samples import QUEUES

POSTGRES: Final = "postgres"
SERVICE: Final = "demo"
SUBMITTER: Final = "demo"
LOGINS: Final = (SUBMITTER, "reader", "task", "janitor", "observer", "operator")
"""Each login has a password of its own: the one that a container knows gives no right that the container lacks."""


class DemoDatabase:
    """The server in the folder `home`. `url` is valid before `open`."""

    def __init__(self, home: Home) -> None:
        self._postmaster = Postmaster(home, "demo")
        self._passwords = {SUPERUSER: home.password, **{login: secrets.token_hex(16) for login in LOGINS}}

    def url(self, login: str) -> str:
        return f"postgresql://{login}:{self._passwords[login]}@127.0.0.1:{self._postmaster.port}/demo"

    def write_service(self, path: Path) -> None:
        """Writes a file of libpq with the submitter's login, for this account alone: psql gets no password to show."""
        path.touch(mode=0o600)
        values = {
            "host": "127.0.0.1", "port": self._postmaster.port, "dbname": "demo", "user": SUBMITTER,
            "password": self._passwords[SUBMITTER], "sslmode": "disable",
        }  # fmt: skip
        path.write_text("".join([f"[{SERVICE}]\n", *(f"{name}={value}\n" for name, value in values.items())]))

    async def open(self, keeper: Keeper) -> None:
        """Starts the server, kept by `keeper`, and fills it."""
        await self._postmaster.initialise()
        await keeper.keep(POSTGRES, self._start)
        admin = await asyncpg.connect(self._postmaster.admin_url)
        try:
            await admin.execute(query("database", "demo"))
        finally:
            await admin.close()
        owner_url = self.url(SUPERUSER)
        await migrate(owner_url)
        owner = await asyncpg.connect(owner_url)
        try:
            for login in LOGINS:
                await owner.fetchval(query("password", "demo"), login, self._passwords[login])
            await owner.execute(query("logins", "demo"))
            for name, (cap, note) in QUEUES.items():
                await owner.execute(query("queue", "demo"), name, cap, note)
        finally:
            await owner.close()

    async def _start(self) -> asyncio.subprocess.Process:
        await self._postmaster.start()
        return self._postmaster.process
