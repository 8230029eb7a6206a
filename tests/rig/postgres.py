"""A real Postgres for tests: a server, databases that are made in milliseconds, one login per role of the project.

`postgres_process` makes the server, unless `TEST_DATABASE_URL` (the URL of an administrator) names one. A database is a
copy of a template that was migrated once, so every test starts from the real schema. The logins belong to the whole
server. Each is a member of exactly one group role, as in a real installation.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg
import pytest

from dispatcher.pg.migrate import migrate
from tests.rig.postgres_process import SUPERUSER, Folder, Postmaster

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Record: TypeAlias = asyncpg.Record

LOGINS = {
    "reader": "dispatch_reader",
    "task": "dispatch_task",
    "team_a": "dispatch_submitter",
    "team_b": "dispatch_submitter",
    "operator": "dispatch_operator",
    "observer": "dispatch_observer",
    "janitor": "dispatch_janitor",
}
OURS = "made by the tests of the dispatcher"

CHEAP_HASHES = "SELECT set_config(name, '1', false) FROM pg_settings WHERE name = 'scram_iterations'"
"""A server of Postgres 16 or later checks a password in no time. With its default a connection costs 3 ms of CPU."""
EXISTING_LOGINS = """
SELECT rolname, shobj_description(oid, 'pg_authid') AS note FROM pg_roles WHERE rolname = ANY ($1::text[])
"""
# CREATE DATABASE copies the contents of a template, but not who may connect to it or make temporary tables in it.
COPIED_GRANTS = """
SELECT format('GRANT %s ON DATABASE %I TO %s', acl.privilege_type, $2::text,
              CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END)
  FROM pg_database, aclexplode(datacl) AS acl
 WHERE datname = $1
"""


class Database:
    """One database; `drop` closes every connection that this object opened."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.name = name
        self.admin_url = url_with(server.admin_url, database=name)
        self._server = server
        self._opened: list[Connection] = []
        self._kept: dict[str, Connection] = {}

    def url(self, login: str) -> str:
        return self.admin_url if login == "admin" else url_with(self.admin_url, login=login)

    async def connect(self, login: str = "admin") -> Connection:
        """A new connection; jsonb values are Python values both ways."""
        connection = await connect(self.url(login))
        self._opened.append(connection)
        return connection

    async def insert_task(self, login: str = "team_a", **columns: object) -> int:
        names = ", ".join(columns) or "queue"
        places = ", ".join(f"${n}" for n in range(1, len(columns) + 1)) or "DEFAULT"
        connection = await self.session(login)
        statement = f"INSERT INTO dispatch.tasks ({names}) VALUES ({places}) RETURNING id"
        task_id: int = await connection.fetchval(statement, *columns.values())
        return task_id

    async def task(self, task_id: int) -> Record:
        admin = await self.session("admin")
        row = await admin.fetchrow("SELECT * FROM dispatch_private.tasks WHERE id = $1", task_id)
        assert row is not None, f"no task {task_id}"
        return row

    async def start_key(self, task_id: int) -> UUID:
        """The key that the container of the row is given."""
        admin = await self.session("admin")
        query = "SELECT dispatch_private.start_keys(id, created_at) FROM dispatch_private.tasks WHERE id = $1 LIMIT 1"
        key: UUID = await admin.fetchval(query, task_id)
        return key

    async def launches(self, task_id: int) -> list[Record]:
        admin = await self.session("admin")
        query = "SELECT * FROM dispatch_private.task_launches WHERE task_id = $1 ORDER BY attempt, launch"
        return await admin.fetch(query, task_id)

    async def drop(self) -> None:
        for connection in self._opened:
            connection.terminate()
        await self._server.execute(f'DROP DATABASE IF EXISTS "{self.name}" WITH (FORCE)')

    async def session(self, login: str) -> Connection:
        """The one connection of the login that this object keeps for itself and its callers."""
        kept = self._kept.get(login)
        if kept is None or kept.is_closed():  # after an outage
            kept = self._kept[login] = await self.connect(login)
        return kept


class Standby:
    """A streaming hot standby of the server: every database and login of the primary, read only."""

    def __init__(self, postmaster: Postmaster, primary_url: str) -> None:
        self.postmaster = postmaster
        self._primary_url = primary_url

    def url(self, database: Database, login: str = "admin") -> str:
        return url_with(database.url(login), host=f"127.0.0.1:{self.postmaster.port}")

    async def caught_up(self) -> None:
        """Returns when everything that the primary has written by now is visible here."""
        primary, standby = await connect(self._primary_url), await connect(self.postmaster.admin_url)
        try:
            written = await primary.fetchval("SELECT pg_current_wal_insert_lsn()::text")
            await primary.execute("SELECT pg_switch_wal()")  # pushes what asynchronous commits hold back
            async with asyncio.timeout(30):
                reached = "SELECT pg_last_wal_replay_lsn() >= $1::text::pg_lsn"
                while not await standby.fetchval(reached, written):  # noqa: ASYNC110  # replay tells nobody
                    await asyncio.sleep(0.01)
        finally:
            await primary.close()
            await standby.close()

    async def promote(self) -> None:
        """Makes the standby a primary of its own; the old primary goes on."""
        connection = await connect(self.postmaster.admin_url)
        try:
            assert await connection.fetchval("SELECT pg_promote()")
        finally:
            await connection.close()

    async def stop(self, *, immediately: bool = False) -> None:
        await self.postmaster.stop(immediately=immediately)

    async def start(self) -> None:
        await self.postmaster.start()


class PostgresServer:
    """The server of a test session: `launch` starts it, `close` ends it."""

    def __init__(self, admin_url: str, postmaster: Postmaster | None) -> None:
        self.admin_url = admin_url
        self._postmaster = postmaster
        self._standbys: list[Standby] = []
        self._template: str | None = None
        self._template_lock = asyncio.Lock()

    @classmethod
    async def launch(cls, *, network: str | None = None) -> PostgresServer:
        """`network`: clients of this network can connect; by default those of this machine alone."""
        if existing := os.environ.get("TEST_DATABASE_URL"):
            return cls(existing, None)
        postmaster = Postmaster(Folder(), "primary")
        await postmaster.initialise()
        if network:
            postmaster.open_to(network)
        await postmaster.start()
        made = cls(postmaster.admin_url, postmaster)
        await made.execute(f"{CHEAP_HASHES}; ALTER ROLE {SUPERUSER} PASSWORD '{postmaster.home.password}'")
        return made

    async def close(self) -> None:
        if self._postmaster is None:
            if self._template:
                await self.execute(f'DROP DATABASE "{self._template}" WITH (FORCE)')
            return
        for postmaster in [*(standby.postmaster for standby in self._standbys), self._postmaster]:
            await postmaster.stop(immediately=True)
        self._postmaster.folder.close()

    async def create_database(self, *, migrated: bool = True) -> Database:
        name = f"dispatch_test_{secrets.token_hex(5)}"
        if migrated:
            await self._copy_template(name)
        else:
            await self.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
        return Database(self, name)

    async def start_standby(self) -> Standby:
        primary = self._owned()
        postmaster = Postmaster(primary.folder, f"standby{len(self._standbys) + 1}")
        standby = Standby(postmaster, self.admin_url)
        await postmaster.copy(primary)
        await postmaster.start()
        self._standbys.append(standby)
        return standby

    async def stop(self, *, immediately: bool = False) -> None:
        await self._owned().stop(immediately=immediately)

    async def start(self) -> None:
        await self._owned().start()

    async def freeze(self) -> None:
        await self._owned().freeze()

    def thaw(self) -> None:
        self._owned().thaw()

    def log(self) -> str:
        """The log of the server so far. Empty for the server of `TEST_DATABASE_URL`, whose log is out of reach."""
        return self._postmaster.log_path.read_text(errors="replace") if self._postmaster else ""

    async def execute(self, statement: str) -> None:
        connection = await connect(self.admin_url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    def _owned(self) -> Postmaster:
        if self._postmaster is None:
            pytest.skip("needs a server of its own; TEST_DATABASE_URL names somebody's")
        return self._postmaster

    async def _copy_template(self, name: str) -> None:
        async with self._template_lock:
            if self._template is None:
                self._template = await self._build_template()
        admin = await connect(self.admin_url)
        try:
            strategy = "STRATEGY file_copy" if admin.get_server_version().major >= 15 else ""
            await admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{self._template}" {strategy}')
            grants = await admin.fetch(COPIED_GRANTS, self._template, name)
            if grants:
                await admin.execute(f'REVOKE ALL ON DATABASE "{name}" FROM PUBLIC')
            for (grant,) in grants:
                await admin.execute(grant)
        finally:
            await admin.close()

    async def _build_template(self) -> str:
        name = f"dispatch_template_{secrets.token_hex(5)}"
        await self.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
        await migrate(url_with(self.admin_url, database=name))
        await self._create_logins()
        return name

    async def _create_logins(self) -> None:
        admin = await connect(self.admin_url)
        try:
            await admin.execute(CHEAP_HASHES)
            notes = {row["rolname"]: row["note"] for row in await admin.fetch(EXISTING_LOGINS, list(LOGINS))}
            for login, group in LOGINS.items():
                if login not in notes:
                    await admin.execute(f"CREATE ROLE {login} LOGIN PASSWORD '{login}'")
                    await admin.execute(f"COMMENT ON ROLE {login} IS '{OURS}'")
                elif notes[login] != OURS:
                    raise RuntimeError(f"the server has a role {login} that is not ours to use")
                await admin.execute(f"GRANT {group} TO {login}")
        finally:
            await admin.close()


@asynccontextmanager
async def standby_of(postgres: PostgresServer) -> AsyncIterator[Standby]:
    """A standby with everything that the server has written by now."""
    made = await postgres.start_standby()
    await made.caught_up()
    try:
        yield made
    finally:
        await made.stop(immediately=True)


@asynccontextmanager
async def server_with(name: str, **settings: str) -> AsyncIterator[PostgresServer]:
    """A server of a test's own, with these settings."""
    postmaster = Postmaster(Folder(), name)
    postmaster.settings.update(settings)
    await postmaster.initialise()
    await postmaster.start()
    made = PostgresServer(postmaster.admin_url, postmaster)
    try:
        yield made
    finally:
        await made.close()


async def connect(url: str) -> Connection:
    connection: Connection = await asyncpg.connect(url)
    await connection.set_type_codec("jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
    return connection


async def insert_one(url: str) -> int:
    """Inserts a row of the defaults, and returns its id."""
    connection = await asyncpg.connect(url)
    task_id: int = await connection.fetchval("INSERT INTO dispatch.tasks DEFAULT VALUES RETURNING id")
    await connection.close()
    return task_id


def url_with(url: str, *, login: str | None = None, host: str | None = None, database: str | None = None) -> str:
    """The URL with another login (its password is its name), host or database."""
    parts = urlsplit(url)
    user, _, old_host = parts.netloc.rpartition("@")
    netloc = f"{f'{login}:{login}' if login else user}@{host or old_host}"
    return parts._replace(netloc=netloc, path=f"/{database}" if database else parts.path).geturl()
