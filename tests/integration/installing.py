"""`deploy/logins.sql`, run as its head says, on a server of its own: logins belong to the whole server."""

from __future__ import annotations

import asyncio
import json
import os
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import msgspec
import pytest_asyncio

from dispatcher.jobs.offered import offered_templates
from tests.controlplane.api import Json
from tests.house.tree import ROOT
from tests.rig.builders import a_template
from tests.rig.postgres import Database
from tests.rig.postgres_process import Folder, Postmaster, binaries


async def tried(*command: str, given: str = "", **environ: str) -> tuple[int, str, str]:
    """Runs a command in the checkout. Returns its exit status, output and faults."""
    env = {"PATH": f"{binaries()}:{os.environ['PATH']}", "PGCLIENTENCODING": "UTF8", **environ}
    child = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=env, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    async with asyncio.timeout(30):
        out, err = await child.communicate(given.encode())
    assert child.returncode is not None
    return child.returncode, out.decode(), err.decode()


async def run(*command: str, given: str = "", **environ: str) -> str:
    """Runs a command in the checkout. Returns its output. It must end with 0 and print no fault."""
    status, out, err = await tried(*command, given=given, **environ)
    assert (status, err) == (0, ""), (out, err)
    return out


async def psql(url: str, statements: str) -> list[str]:
    """Lines of the answers of psql; columns are separated by `|`."""
    return (await run("psql", "-XqAt", "-v", "ON_ERROR_STOP=1", url, given=statements)).splitlines()


@asynccontextmanager
async def own_server() -> AsyncIterator[Postmaster]:
    """A server with the database `work`. It is not that of other tests."""
    folder = Folder()
    server = Postmaster(folder, "installed")
    try:
        await server.initialise()
        await server.start()
        await psql(server.admin_url, "CREATE DATABASE work")
        yield server
    finally:
        await server.stop(immediately=True)
        folder.close()


def script(url: str, *variables: str) -> tuple[str, ...]:
    """The command on the page of installation. `url`: of an administrator, in the database to use."""
    given = [word for one in ("sslmode=disable", "jobs=of-tasks", *variables) for word in ("-v", one)]
    return ("psql", "-X", "-f", "deploy/logins.sql", *given, url)


def in_database(url: str, name: str) -> str:
    return urlsplit(url)._replace(path=f"/{name}").geturl()


async def made_logins(url: str, *variables: str, database: str = "work") -> list[Json]:
    """The Secrets that deploy/logins.sql prints."""
    printed = await run(*script(in_database(url, database), *variables))
    items: list[Json] = json.loads(printed)["items"]
    return items


def urls(secrets: list[Json]) -> dict[str, str]:
    """The URL in each Secret, by the name of the Secret."""
    return {one["metadata"]["name"]: next(iter(one["stringData"].values())) for one in secrets}


TASK = 42
"""The id of the row on all pages."""
TEMPLATE = a_template(opens="env,cpu,memory", bounds={"max-cpu": "8", "max-memory": "16Gi"})


@pytest_asyncio.fixture(loop_scope="session")
async def ready(database: Database) -> Database:
    """A database whose next row has the id of the page, with a queue and a template."""
    admin, janitor = await database.session("admin"), await database.session("janitor")
    await admin.execute(f"ALTER TABLE dispatch_private.tasks ALTER COLUMN id RESTART WITH {TASK}")
    await admin.execute("INSERT INTO dispatch.queues (name) VALUES ('reports')")
    offered = msgspec.to_builtins(offered_templates({"default": TEMPLATE}, ()))
    assert await janitor.fetchval("SELECT dispatch_private.janitor_templates($1, true)", offered) == 1
    return database
