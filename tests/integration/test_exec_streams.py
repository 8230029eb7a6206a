"""`dispatcher exec` and the streams of its command: they pass unchanged, and do not need a reader."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.controlplane.waiting import wait_for
from tests.faults import postgres_verbs as verbs
from tests.faults.postgres_proxy import PostgresProxy, runs
from tests.faults.rules import nth
from tests.rig.execing import DONE, FOR_EVER, TERMINATED, error_of, execute, sh, wrapped
from tests.rig.postgres import Database, PostgresServer
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import Row, insert_row

database = one_database

PEAK = """awk '/VmHWM/ {print $2}' /proc/$PPID/status > "$TASK_RESULT_FILE" """
MOST_PEAK_KIB = 64 << 10


@asynccontextmanager
async def unread(is_stuck: bool) -> AsyncIterator[int]:
    """The write end of a pipe that is full, or that has no reader."""
    reading, writing = os.pipe()
    if is_stuck:
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writing, b"x" * 4096)
        os.set_blocking(writing, True)
    else:
        os.close(reading)
    try:
        yield writing
    finally:
        os.close(writing)
        if is_stuck:
            os.close(reading)


async def test_streams_pass_to_and_from_the_command_unchanged(database: Database) -> None:
    row = await insert_row(database)
    every = bytes(range(256)) * 400
    ended = await execute(row, *sh("tee /dev/stderr"), given=every)
    assert (ended.status, ended.out, ended.err) == (DONE, every, every)


async def test_stderr_appears_while_the_command_runs(database: Database) -> None:
    row = await insert_row(database)
    async with wrapped(row, *sh("printf half >&2; read -r go; exit 0")) as wrapper:
        await wait_for(lambda: b"half" in wrapper.err, "half a line", check=wrapper.check)
        assert (await wrapper.has_ended()).status == DONE


async def test_large_stderr_needs_no_memory(database: Database, tmp_path: Path) -> None:
    row = await insert_row(database)
    path = tmp_path / "stderr"
    script = f"yes 0123456789 | head -c 100000000 >&2; {PEAK}; cat $TASK_RESULT_FILE; echo the end >&2; exit 1"
    with path.open("wb") as file:
        ended = await execute(row, *sh(script), stderr=file.fileno())
    assert path.stat().st_size >= 100_000_000
    assert int(ended.out) < MOST_PEAK_KIB
    assert "the end" in await error_of(row)
    assert len(await error_of(row)) < 5000


async def test_daemon_that_keeps_stderr_open_does_not_delay_the_report(database: Database) -> None:
    row = await insert_row(database)
    async with wrapped(row, *sh(f"setsid sh -c 'echo >&2 there; {FOR_EVER}' >&- & echo last >&2; exit 65")) as wrapper:
        assert await wrapper.is_gone() == 65
    assert await row.status() == "failed"
    assert "last" in await error_of(row)


async def test_command_may_close_its_stderr_and_go_on(database: Database) -> None:
    row = await insert_row(database)
    ended = await execute(row, *sh("exec 2>&-; read -r go; echo went on"), given=b"go\n")
    assert (ended.status, ended.out, await row.status()) == (DONE, b"went on\n", "succeeded")


async def test_command_is_reported_with_an_unread_stderr(database: Database, postgres: PostgresServer) -> None:
    """Words of the command and of exec are dropped if they cannot be written."""
    async with PostgresProxy(postgres.admin_url) as proxy:
        rule = proxy.add(verbs.drop_before, runs("task_finish"), nth(1, 2))
        script, url = "echo one >&2; exit 65", proxy.url(database.url("task"))
        rows = await run_unread(database, script, 65, TASK_DATABASE_URL=url)
    assert rule.hits == 2
    for row in rows:
        assert (await row.status(), await error_of(row)) == ("failed", "one\n")


async def test_refused_row_is_no_fault_with_an_unread_stderr(database: Database) -> None:
    for row in await run_unread(database, "echo ran", DONE, TASK_ATTEMPT=2):
        assert await row.status() == "waiting"


async def test_stop_works_with_an_unread_stderr(database: Database) -> None:
    for row in await run_unread(database, f"kill $PPID; {FOR_EVER}", TERMINATED):
        assert await row.status() == "processing"


async def run_unread(database: Database, script: str, status: int, **environ: object) -> list[Row]:
    """Runs the command for two rows: one with a stderr that nobody reads, one with a stderr without a reader."""
    rows = [await insert_row(database) for _ in range(2)]
    async with unread(is_stuck=True) as stuck, unread(is_stuck=False) as gone:
        pipes = zip(rows, (stuck, gone), strict=True)
        ended = await asyncio.gather(*(execute(row, *sh(script), stderr=pipe, **environ) for row, pipe in pipes))
    assert [(one.status, one.out) for one in ended] == [(status, b"")] * 2
    return rows
