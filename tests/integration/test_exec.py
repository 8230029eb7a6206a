"""`dispatcher exec -- CMD…`: the end of a command becomes the state of its row. Variables and streams pass as is."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from dispatcher.container.contract import FINAL
from tests.controlplane.waiting import wait_for
from tests.faults import postgres_verbs as verbs
from tests.faults.postgres_proxy import PostgresProxy, runs
from tests.faults.rules import nth
from tests.rig.execing import (
    DONE,
    FOR_EVER,
    PROGRAM,
    PYTHON,
    TERMINATED,
    UNTIL_TOLD,
    WRONG,
    each,
    error_of,
    execute,
    sh,
    wrapped,
)
from tests.rig.poolers import REFUSALS, pooler
from tests.rig.postgres import Database, PostgresServer
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import Pod, Row, insert_row

database = one_database
RULE = "CODES are exit statuses from 1 to 255, such as 2,64-68"
WRONG_OPTIONS = {
    ("--final", "0"): f"--final is '0': {RULE}",
    ("--final=256",): RULE,
    ("--retry", "5-3"): RULE,
    ("--retry", "one"): RULE,
    ("--final", ""): RULE,
    ("--final", "1-99999999999"): RULE,
    ("--final", "7", "--retry", "6-8"): "7 is in --final and in --retry: name it once",
    ("--finals", "3"): "'--finals' is no option of exec, and no CMD",
    ("--", "--final", "3"): "'--final' is no option of exec, and no CMD",  # args behind an ENTRYPOINT `exec --`
    ("--", "--help"): "'--help' is no option of exec, and no CMD",
}


async def test_exit_0_is_success_with_the_content_of_the_result_file(database: Database) -> None:
    row = await insert_row(database)
    ended = await execute(row, *sh('echo \'{"rows": 17, "name": "naïve"}\' > "$TASK_RESULT_FILE"'))
    now = await row.now()
    assert (ended.status, now["status"], now["error"]) == (DONE, "succeeded", None)
    assert now["result"] == {"rows": 17, "name": "naïve"}
    (launch,) = await row.launches()
    assert (launch["outcome"], launch["error"], launch["ended_at"] is None) == ("succeeded", None, False)


async def test_launch_of_a_row_has_its_node_and_pod(database: Database) -> None:
    row = await insert_row(database)
    await execute(row, "true", launch=3, pod=Pod("pod-x", "job-x", "node-x"))
    (launch,) = await row.launches()
    assert (launch["attempt"], launch["launch"], launch["job_uid"]) == (1, 3, "job-x")
    assert (launch["node_name"], launch["pod_name"]) == ("node-x", "pod-x")


async def test_row_is_processing_while_its_command_runs(database: Database) -> None:
    row = await insert_row(database)
    async with wrapped(row, *sh(UNTIL_TOLD)) as wrapper:
        await wrapper.says("begun")
        assert await row.status() == "processing"
        wrapper.go()
        ended = await wrapper.has_ended()
    assert (ended.status, await row.status()) == (DONE, "succeeded")


async def test_failure_is_tried_again_as_a_crash_is(database: Database) -> None:
    row = await insert_row(database)
    ended = await execute(row, *sh("echo not yet >&2; exit 1"))
    now = await row.now()
    assert (ended.status, now["status"], now["attempt"], now["failures"]) == (1, "waiting", 2, 1)
    assert now["run_at"] > datetime.now(UTC)
    (launch,) = await row.launches()
    assert (launch["outcome"], launch["error"]) == ("retry", "not yet\n")


async def test_row_fails_after_the_last_allowed_failure(database: Database) -> None:
    row = await insert_row(database, max_failures=1)
    ended = await execute(row, *sh("exit 75"))
    assert (ended.status, await row.status()) == (75, "failed")


@pytest.mark.slow
async def test_exit_status_is_that_of_exec_and_says_whether_a_second_try_helps(database: Database) -> None:
    statuses = (1, 2, *range(63, 80), 126, 127, 143, 255)
    commands = {str(status): sh(f"echo oh {status} >&2; exit {status}") for status in statuses}
    for status, (row, ended) in (await each(database, commands)).items():
        expected = "failed" if int(status) in FINAL else "waiting"
        assert (str(ended.status), await row.status()) == (status, expected)
        assert await error_of(row) == f"oh {status}\n"


async def test_options_change_which_statuses_are_final(database: Database) -> None:
    options = ("--final", "3,10-12", "--retry=64-66")
    for status, expected in ((3, "failed"), (11, "failed"), (65, "waiting"), (67, "failed"), (9, "waiting")):
        row = await insert_row(database)
        await execute(row, *options, "--", *sh(f"exit {status}"), program=PROGRAM[:-1])
        assert await row.status() == expected, status


async def test_option_that_cannot_be_used_starts_nothing(database: Database) -> None:
    row = await insert_row(database)
    for options, told in WRONG_OPTIONS.items():
        ended = await execute(row, *options, "--", "true", program=PROGRAM[:-1])
        assert (ended.status, told in ended.said) == (WRONG, True), (options, ended.said)
    assert await row.status() == "waiting"


async def test_silent_failure_has_its_status_as_the_error(database: Database) -> None:
    for status, (row, _) in (await each(database, {"7": sh("exit 7"), "SIGKILL": sh("kill -9 $$")})).items():
        assert status in await error_of(row)


async def test_empty_result_file_is_no_result(database: Database) -> None:
    """As a pipe whose first program found nothing leaves it. The folder is the same after a `cd`."""
    row = await insert_row(database)
    ended = await execute(row, *sh('cd /; true > "$TASK_RESULT_FILE"; test -s "$TASK_PAYLOAD_FILE"'), TMPDIR=".")
    now = await row.now()
    assert (ended.status, now["status"], now["result"]) == (DONE, "succeeded", None), ended


async def test_failed_command_has_no_result(database: Database) -> None:
    row = await insert_row(database)
    await execute(row, *sh('echo 17 > "$TASK_RESULT_FILE"; exit 65'))
    assert (await row.now())["result"] is None


async def test_command_killed_by_a_signal_is_tried_again_and_ends_with_128_and_its_number(database: Database) -> None:
    """Also by a signal without a name."""
    commands = {str(128 + number): sh(f"echo last words >&2; kill -{number} $$") for number in (9, 11, 15)}
    unnamed = {str(128 + number): sh(f"kill -{number} $$") for number in (34, 40, 64)}
    for status, (row, ended) in (await each(database, commands | unnamed)).items():
        assert (str(ended.status), await row.status()) == (status, "waiting")
        assert (await error_of(row)).startswith("last words\nCMD was ended by SIG") or status in unnamed


async def test_command_that_cannot_be_run_fails_as_in_a_shell(database: Database, tmp_path: Path) -> None:
    closed, strange, orphaned = tmp_path / "closed", tmp_path / "strange", tmp_path / "orphaned"
    closed.write_text("#!/bin/sh\n")
    strange.write_text("neither a script nor a program")
    orphaned.write_text("#!/no/such/interpreter\n")
    strange.chmod(0o755)
    orphaned.chmod(0o755)
    expected = {"no-such-command": "127", "/no/such/file": "127", str(orphaned): "127", str(closed): "126"}
    expected |= {str(tmp_path): "126", str(strange): "126"}
    for name, (row, ended) in (await each(database, {name: (name,) for name in expected})).items():
        assert (str(ended.status), await row.status()) == (expected[name], "failed"), name
        assert name in await error_of(row)
        assert ("what its first line names" in await error_of(row)) == (name == str(orphaned))


async def test_missing_command_with_an_undecodable_name_fails(database: Database) -> None:
    row = await insert_row(database)
    ended = await execute(row, "/no/such/\udcff")
    assert (ended.status, await row.status()) == (127, "failed")
    assert "/no/such/" in await error_of(row)


async def test_error_is_the_last_4_kib_of_stderr(database: Database) -> None:
    row = await insert_row(database)
    writes = "import os; os.write(2, b'#' * 5000 + b'~' * 4096); os._exit(1)"
    ended = await execute(row, *PYTHON, writes)
    assert ended.err.startswith(b"#" * 5000 + b"~" * 4096)
    error = await error_of(row)
    assert (error.count("~"), error.count("#")) == (4096, 0)


async def test_character_cut_in_two_by_the_4_kib_does_no_harm(database: Database) -> None:
    row = await insert_row(database)
    await execute(row, *PYTHON, "import os; os.write(2, 'ü'.encode() * 3000 + b'!'); os._exit(1)")
    error = await error_of(row)
    assert error.count("ü") == 2047
    assert error.rstrip().endswith("ü!")


async def test_stderr_that_is_no_text_is_reported_as_far_as_possible(database: Database) -> None:
    row = await insert_row(database)
    every = bytes(range(256))
    ended = await execute(row, *PYTHON, "import os; os.write(2, b'<' + bytes(range(256)) + b'>'); os._exit(1)")
    assert b"<" + every + b">" in ended.err
    error = await error_of(row)
    assert "ABC" in error
    assert error.rstrip().endswith(">")
    assert "\0" not in error


async def test_command_gets_its_arguments_and_variables_unchanged(database: Database, tmp_path: Path) -> None:
    row = await insert_row(database)
    arguments = ["--help", "-h", "", "a b", "--", "*", "$HOME", "ü"]
    shows = "import os, sys; print(sys.argv[1:], os.environ['COLOUR'], os.environ['TASK_QUEUE'])"
    ended = await execute(row, *PYTHON, shows, *arguments, COLOUR="blue green")
    assert ended.out.decode() == f"{arguments} blue green default\n"


ISOLATED = (sys.executable, "-I", "-m", "dispatcher", "exec", "--")
"""As on the author's page: not even the start of the interpreter reads a variable."""
DIVERTING = {
    "PGHOST": "nowhere.invalid", "PGPORT": "1", "PGUSER": "nobody", "PGSSLMODE": "verify-full",
    "PGSSLROOTCERT": "/nothing",
    "PGTARGETSESSIONATTRS": "standby", "PGPASSFILE": "/nothing", "PGSERVICEFILE": "/nothing", "HOME": "/nothing",
    "SSL_CERT_FILE": "/nothing", "LOCPATH": "/nothing", "GCONV_PATH": "/nothing",
}  # fmt: skip
SHOWN = "env | cut -d= -f1 | sort | tr '\\n' ' '"


async def test_variable_of_the_row_runs_nothing_in_exec(database: Database, tmp_path: Path) -> None:
    """PYTHONWARNINGS with BROWSER, and a module that every start of an interpreter would load."""
    ran = tmp_path / "ran"
    (tmp_path / "sitecustomize.py").write_text(f"open({str(ran)!r}, 'w')")
    evil = {"PYTHONPATH": str(tmp_path), "PYTHONWARNINGS": "all:0:antigravity.x:0:0", "BROWSER": f"touch {ran} #%s",
            "PYTHONSTARTUP": str(tmp_path / "sitecustomize.py"), "BASH_ENV": str(ran), "ENV": str(ran)}  # fmt: skip
    row = await insert_row(database)
    ended = await execute(row, *sh(SHOWN), program=ISOLATED, **evil)
    assert (ended.status, await row.status()) == (DONE, "succeeded"), ended
    assert not ran.exists()
    assert evil.keys() <= set(ended.out.decode().split()), "the command gets them"


async def test_connection_uses_only_its_url(database: Database) -> None:
    row = await insert_row(database)
    ended = await execute(row, *sh(SHOWN), **DIVERTING)
    assert (ended.status, await row.status()) == (DONE, "succeeded"), ended
    assert DIVERTING.keys() <= set(ended.out.decode().split())


async def test_command_gets_its_environment_unchanged(database: Database) -> None:
    row = await insert_row(database)
    odd = {"PATH": "/usr/bin:/bin:/odd", "NODE_OPTIONS": "a b\n'c' \\ ü", "HTTP_PROXY": "", "AWS_X": "x" * 100_000}
    script = """printf "%s|%s|%s|%s" "$PATH" "$NODE_OPTIONS" "${HTTP_PROXY-unset}" "${#AWS_X}"
    env | grep -c KEPT; echo "${LC_CTYPE-unset}" """
    ended = await execute(row, *sh(script), **odd)
    assert ended.out.decode() == f"{odd['PATH']}|{odd['NODE_OPTIONS']}||1000000\nunset\n", ended


@pytest.mark.parametrize("kind", REFUSALS)
async def test_pooler_that_refuses_a_setting_is_asked_without_it(database: Database, kind: str) -> None:
    row = await insert_row(database)
    async with pooler(database.url("task"), kind) as (url, startups):
        ended = await execute(row, "true", TASK_DATABASE_URL=url)
    assert (ended.status, await row.status()) == (DONE, "succeeded"), ended
    assert [b"search_path" in startup for startup in startups] == [True, False] * 2, "twice: the start and the report"


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


async def test_stderr_that_a_program_made_non_blocking_loses_nothing(database: Database) -> None:
    """Node.js does so with the pipe that it shares with exec, where the image says 2>&1."""
    row = await insert_row(database)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    async with wrapped(row, *sh("yes | head -c 300000 >&2"), stderr=writing) as wrapper:
        await wait_for(lambda: not select.select([], [writing], [], 0)[1], "the pipe is full", check=wrapper.check)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            assert await asyncio.to_thread(pipe.read) == b"y\n" * 150_000
        assert (await wrapper.has_ended()).status == DONE


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
        script, url = "echo one >&2; sleep 0.1; echo two >&2; exit 65", proxy.url(database.url("task"))
        rows = await run_unread(database, script, 65, TASK_DATABASE_URL=url)
    assert rule.hits == 2
    for row in rows:
        assert (await row.status(), await error_of(row)) == ("failed", "one\ntwo\n")


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
