"""A database that is copied to another server, as docs/install.md says: roles first, then the rows."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.integration.doctoring_database import faults
from tests.integration.installing import in_database, made_logins, own_server, psql, run, tried, urls
from tests.rig.pages import INSTALL, read_page
from tests.rig.postgres import url_with
from tests.rig.postgres_process import Postmaster

HINTS = "-X", "-q", "-v", "ON_ERROR_STOP=1"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def old() -> AsyncIterator[Postmaster]:
    """A server with an installation, a login of a team, and one row of it."""
    async with own_server() as server:
        logins = urls(await made_logins(server.admin_url))
        migrated = {"DISPATCHER_DATABASE_URL": logins["dispatcher-migrate-database"], "PATH": os.environ["PATH"]}
        await run(sys.executable, "-m", "dispatcher", "migrate", **migrated)
        for team in ("team_gone", "team_a", "team_b"):
            await psql(work(server), f"CREATE ROLE {team} LOGIN IN ROLE dispatch_submitter")
            await psql(work(server), f"SET SESSION AUTHORIZATION {team}; INSERT INTO dispatch.tasks DEFAULT VALUES")
        await psql(
            work(server), "INSERT INTO dispatch.queues (name, owner_role) VALUES ('b', 'team_b'), ('gone', 'team_gone')"
        )
        await psql(work(server), "DROP ROLE team_gone")
        await psql(work(server), forgets())
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def new() -> AsyncIterator[Postmaster]:
    async with own_server() as server:
        yield server


def forgets() -> str:
    """The statement of the page that comes before a dump."""
    found = re.search(r"psql '[^']+' -c '([^']+)'\npg_dump ", read_page(INSTALL))
    assert found is not None
    return found[1]


def work(server: Postmaster) -> str:
    return in_database(server.admin_url, "work")


async def seen_by(server: Postmaster, login: str) -> list[str]:
    return await psql(
        work(server), f"SET SESSION AUTHORIZATION {login}; SELECT id, submitted_by FROM dispatch.tasks ORDER BY id"
    )


async def copy(old: Postmaster, new: str, *, way: str, folder: str) -> None:
    if way == "psql":
        await run("psql", *HINTS, new, given=await run("pg_dump", work(old)))
        return
    await run("pg_dump", "-Fc", "-f", f"{folder}/dump", work(old))
    await run("pg_restore", "--exit-on-error", "-d", new, f"{folder}/dump")


@pytest.mark.slow
@pytest.mark.parametrize(("way", "administrator"), [("psql", ""), ("pg_restore", ""), ("psql", "dba")])
async def test_copy_after_the_roles_is_ready_at_once(
    old: Postmaster, new: Postmaster, tmp_path_factory: pytest.TempPathFactory, way: str, administrator: str
) -> None:
    """`dba` is no superuser, as on a managed server."""
    admin_url = new.admin_url
    if administrator:
        await psql(admin_url, "CREATE ROLE dba LOGIN CREATEROLE PASSWORD 'dba'; ALTER DATABASE work OWNER TO dba")
        admin_url = url_with(admin_url, login=administrator)
    logins = urls(await made_logins(admin_url))
    for team in ("newcomer", "team_b", "team_a"):  # each has the oid of another role on the old server
        await psql(admin_url, f"CREATE ROLE {team} LOGIN IN ROLE dispatch_submitter")
    await copy(old, in_database(admin_url, "work"), way=way, folder=str(tmp_path_factory.mktemp("dump")))
    for name in ("dispatcher-database", "dispatcher-janitor-database"):
        assert await faults(logins[name]) == []
    assert await seen_by(new, "team_a") == ["2|team_a"]
    assert await seen_by(new, "team_b") == ["3|team_b"]
    assert await seen_by(new, "newcomer") == []
    as_team = "SET SESSION AUTHORIZATION {};"
    assert await psql(
        work(new), as_team.format("team_a") + "INSERT INTO dispatch.tasks DEFAULT VALUES RETURNING id"
    ) == ["4"]
    into_b = "INSERT INTO dispatch.tasks (queue) VALUES ('b') RETURNING id"
    assert await psql(work(new), as_team.format("team_b") + into_b) == ["5"]


async def test_copy_without_the_roles_is_named_with_the_way_out(old: Postmaster, new: Postmaster) -> None:
    status, _, said = await tried("psql", "-Xq", work(new), given=await run("pg_dump", work(old)))
    assert (status, 'role "dispatch_owner" does not exist' in said) == (0, True)
    logins = urls(await made_logins(new.admin_url))
    (found,) = await faults(logins["dispatcher-database"])
    assert (found.what, "restored without its roles" in found.message) == ("RestoredWithoutRoles", True)
    assert "deploy/logins.sql" in found.mend


async def test_dump_of_a_role_that_row_security_limits_fails_or_is_empty(old: Postmaster) -> None:
    """So the page names the role that can."""
    await psql(
        work(old), "CREATE ROLE backup LOGIN SUPERUSER; ALTER ROLE backup NOSUPERUSER; GRANT pg_read_all_data TO backup"
    )
    backup = "--role=backup", work(old)
    status, _, said = await tried("pg_dump", *backup)
    assert (status, "row-level security" in said) == (1, True), said
    dumped = await run("pg_dump", "--enable-row-security", "--data-only", "-t", "dispatch_private.tasks", *backup)
    assert "team_a" not in dumped
