"""A PgBouncer between the programs and Postgres: refused in words if it loses what a session needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from shutil import which
from urllib.parse import urlsplit

import pytest

from dispatcher.model.errors import DatabaseUnfit
from tests.controlplane.ports import free_ports
from tests.controlplane.waiting import wait_for
from tests.integration.looking import ids, opened
from tests.rig.execing import DONE, execute
from tests.rig.postgres import Database, url_with
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import insert_row

database = one_database
PROGRAM = which("pgbouncer") or which("pgbouncer", path="/usr/sbin")
pytestmark = [
    pytest.mark.slow,  # a package of Debian
    pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed: make packages, as root"),
]
USUAL = (
    "extra_float_digits,search_path,statement_timeout,idle_in_transaction_session_timeout,plan_cache_mode,"
    "enable_seqscan,enable_sort,enable_incremental_sort,jit"
)


@asynccontextmanager
async def pgbouncer(database: Database, folder: Path, mode: str, ignored: str) -> AsyncIterator[str]:
    """The port of a PgBouncer for every login of the database."""
    server, port = urlsplit(database.admin_url), free_ports(1)[0]
    logins = {urlsplit(database.url(name)) for name in ("reader", "task")}
    (folder / "users").write_text("".join(f'"{one.username}" "{one.password}"\n' for one in logins))
    (folder / "ini").write_text(
        f"[databases]\n* = host={server.hostname} port={server.port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nauth_type = plain\nauth_file = {folder}/users\npool_mode = {mode}\n"
        f"ignore_startup_parameters = {ignored}\nunix_socket_dir =\n"
    )
    for path in (*folder.parents[:2], folder, folder / "users", folder / "ini"):
        path.chmod(0o755)
    assert PROGRAM is not None
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        "-u",
        "nobody",
        str(folder / "ini"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await wait_for(lambda: answers(port), "PgBouncer listens", 20)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


async def answers(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


@pytest.mark.parametrize("mode", ["session", "transaction"])
@pytest.mark.parametrize("ignored", ["extra_float_digits", USUAL])
async def test_dispatcher_says_that_it_needs_a_direct_connection(
    database: Database, tmp_path: Path, mode: str, ignored: str
) -> None:
    async with (
        pgbouncer(database, tmp_path, mode, ignored) as host,
        opened(url_with(database.url("reader"), host=host)) as session,
    ):
        with pytest.raises(DatabaseUnfit, match="Connect directly"):
            await ids(session)


@pytest.mark.parametrize("mode", ["session", "transaction"])
@pytest.mark.parametrize("ignored", ["extra_float_digits", USUAL])
async def test_container_reports_through_it(database: Database, tmp_path: Path, mode: str, ignored: str) -> None:
    row = await insert_row(database)
    async with pgbouncer(database, tmp_path, mode, ignored) as host:
        ended = await execute(row, "true", TASK_DATABASE_URL=url_with(database.url("task"), host=host))
    assert (ended.status, await row.status()) == (DONE, "succeeded"), ended.said
