"""`dispatcher exec -- CMD…`: the end of a command becomes the state of its row."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from dispatcher.container.contract import FINAL
from tests.rig.execing import DONE, PROGRAM, PYTHON, UNTIL_TOLD, WRONG, each, error_of, execute, sh, wrapped
from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import Pod, insert_row

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
