"""The examples of the task author's page, run as containers; and the page, compared with the code that it describes."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tomllib
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dispatcher.container import exec as exec_
from dispatcher.container.contract import FINAL, PUT_OFF, UNREPORTED
from dispatcher.jobs.env import CONTRACT
from dispatcher.jobs.templates import parse_template
from dispatcher.model.launches import OPENINGS
from tests.controlplane import binaries
from tests.controlplane.waiting import wait_for
from tests.rig.execing import Ended, Wrapper, started, wrapped
from tests.rig.pages import AUTHOR, find_block
from tests.rig.poolers import pooler
from tests.rig.postgres import Database, PostgresServer
from tests.rig.postgres_fixtures import one_database
from tests.rig.postgres_process import binaries as postgres_programs
from tests.rig.rows import SECOND, Pod, Row, insert_row
from tests.rig.tasking import Library

database = one_database

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "author.md").read_text(encoding="utf-8")
BASH, GO = DOCS / "examples" / "task.sh", DOCS / "examples" / "go"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

# The Go example does the same with these payloads by itself.
COMMAND = """
payload=$(cat)
case $payload in
    *seconds*) echo hanging >&2; sleep 3600 & wait ;;
    *missing*) echo 'some input is missing' >&2; exit 1 ;;
    *many*) echo 'rows: not a number' >&2; exit 65 ;;
    *) echo "$payload" ;;
esac
"""
GOOD, BAD, EARLY, LONG = {"rows": 17}, {"rows": "many"}, {"missing": 2}, {"seconds": 3600}


class Image(NamedTuple):
    """An example as the entry point of an image."""

    argv: tuple[str, ...]

    def runs(self, row: Row, pod: Pod = SECOND, launch: int = 1) -> AbstractAsyncContextManager[Wrapper]:
        path = f"{postgres_programs()}:{os.environ['PATH']}"
        return wrapped(row, program=self.argv, pod=pod, launch=launch, PATH=path, TASK_HEARTBEAT_EVERY="0.1s")

    async def run(self, row: Row, pod: Pod = SECOND, launch: int = 1) -> Ended:
        async with self.runs(row, pod, launch) as child:
            return await child.has_ended()


def bash(command: str) -> Image:
    return Image((str(BASH), "sh", "-c", command))


@pytest.fixture(scope="session")
def go_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Go example, built with the toolchain of the control plane and the account's own build cache."""
    go, _ = binaries.toolchain()
    program = tmp_path_factory.mktemp("author") / "example"
    env = os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    command: list[str | Path] = [go, "build", "-buildvcs=false", "-o", program, "."]
    done = subprocess.run(command, cwd=GO, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


@pytest.fixture(params=["bash", "go"])
def image(request: pytest.FixtureRequest, go_program: Path) -> Image:
    return Image((str(go_program),)) if request.param == "go" else bash(COMMAND)


async def is_running(row: Row, signs: int = 1) -> None:
    """Waits for so many heartbeats after the start: the work has begun."""
    seen = set()

    async def has_beaten() -> bool:
        now = await row.now()
        seen.add(now["heartbeat_at"])
        return len(seen - {None, now["started_at"]}) >= signs

    await wait_for(has_beaten, "the example sends heartbeats")


async def outcomes(row: Row) -> list[str | None]:
    return [run["outcome"] for run in await row.launches()]


@pytest.mark.slow
async def test_example_reports_done_work_with_its_result(image: Image, database: Database) -> None:
    row = await insert_row(database, payload=GOOD)
    ended = await image.run(row)
    now = await row.now()
    assert (ended.status, now["status"], now["result"], now["error"]) == (0, "succeeded", GOOD, None), ended
    assert (now["job_uid"], now["node_name"], now["pod_name"]) == (SECOND.job_uid, SECOND.node, SECOND.name)
    assert await outcomes(row) == ["succeeded"]


async def test_example_reports_failed_work_with_its_error(image: Image, database: Database) -> None:
    row = await insert_row(database, payload=BAD)
    ended = await image.run(row)
    now = await row.now()
    assert (ended.status, now["status"], now["result"], now["failures"]) == (0, "failed", None, 1), ended
    assert "rows" in now["error"].lower()


async def test_example_asks_for_another_attempt(image: Image, database: Database) -> None:
    row = await insert_row(database, payload=EARLY)
    ended = await image.run(row)
    now = await row.now()
    assert (ended.status, now["status"], now["attempt"], now["failures"]) == (0, "waiting", 2, 1), ended
    assert now["error"].strip() == "some input is missing"
    assert await outcomes(row) == ["retry"]


async def test_example_leaves_the_row_of_another_launch_alone(image: Image, database: Database) -> None:
    row = await insert_row(database, payload=LONG)
    await row.started(launch=2)
    before = await row.now()
    assert await image.run(row, launch=1) == Ended(0, b"", b"")
    assert await row.now() == before


@pytest.mark.parametrize("name", ["TASK_ID", "TASK_START_KEY", "TASK_LAUNCH", "JOB_UID", "TASK_DATABASE_URL"])
@pytest.mark.parametrize("value", [None, ""])
async def test_variable_that_is_missing_is_named_and_ends_the_example(
    image: Image, database: Database, name: str, value: str | None
) -> None:
    row = await insert_row(database, payload=GOOD)
    environ: dict[str, Any] = {"PATH": f"{postgres_programs()}:{os.environ['PATH']}", name: value}
    async with wrapped(row, program=image.argv, pod=SECOND, **environ) as child:
        ended = await child.has_ended()
    assert (ended.status, await row.status()) == (2, "waiting")
    assert f"{name} is not set" in ended.err.decode()


async def test_cancel_stops_the_example_and_ends_the_row(image: Image, database: Database) -> None:
    row = await insert_row(database, payload=LONG)
    async with image.runs(row) as child:
        await is_running(row)
        assert await row.cancel("wrong month") == "processing"
        ended = await child.has_ended()
    now = await row.now()
    assert (ended.status, now["status"], now["error"]) == (0, "cancelled", "wrong month"), ended
    assert await outcomes(row) == ["cancelled"]


async def test_example_that_lost_its_row_stops_and_reports_nothing(image: Image, database: Database) -> None:
    row = await insert_row(database, payload=LONG)
    async with image.runs(row) as child:
        await is_running(row)
        await row.retry()
        before = await row.now()
        ended = await child.has_ended()
    assert ended.status == 1, ended
    assert await row.now() == before
    assert (before["status"], before["attempt"], await outcomes(row)) == ("waiting", 2, ["lost"])


async def test_stopped_example_leaves_the_row_to_the_next_launch(image: Image, database: Database) -> None:
    row = await insert_row(database, payload=LONG)
    async with image.runs(row) as child:
        await is_running(row)
        child.terminate()
        ended = await child.has_ended()
    assert (ended.status, await row.status(), await outcomes(row)) == (143, "processing", [None]), ended
    await row.started(launch=2)


async def test_example_that_is_started_again_in_its_pod_runs_nothing(image: Image, database: Database) -> None:
    row = await insert_row(database, payload=LONG)
    async with image.runs(row):
        await is_running(row)
    before = await row.now()  # the first one was killed
    assert await image.run(row) == Ended(0, b"", b"")
    assert dict(await row.now()) == {**before, "second_process": True}


async def test_example_sends_heartbeats_while_it_works(image: Image, database: Database) -> None:
    row = await insert_row(database, payload=LONG)
    async with image.runs(row) as child:
        await is_running(row, signs=3)
        child.terminate()
        await child.has_ended()


async def test_exit_0_after_sigterm_without_a_result_is_left_to_the_next_launch(database: Database) -> None:
    row = await insert_row(database)
    async with bash("trap 'exit 0' TERM; echo ready >&2; sleep 100 & wait").runs(row) as child:
        await wait_for(lambda: b"ready\n" in child.err, "the command is ready", check=child.check)
        child.terminate()
        ended = await child.has_ended()
    assert (ended.status, await row.status()) == (143, "processing"), ended


@pytest.mark.parametrize("cause", ["cancel", "SIGTERM"])
async def test_children_stop_and_exit_0_counts_unless_cancelled(database: Database, cause: str) -> None:
    row = await insert_row(database)
    child_of_command = "trap 'echo told >&2; exit' TERM; echo ready >&2; while :; do sleep 0.1; done"
    command = f"({child_of_command}) & trap 'wait; echo 17; exit 0' TERM; wait"
    async with bash(command).runs(row) as child:
        await wait_for(lambda: b"ready\n" in child.err, "the command is ready", check=child.check)
        if cause == "cancel":
            await row.cancel()
        else:
            child.terminate()
        ended, now = await child.has_ended(), await row.now()
    expected = (0, "cancelled", None) if cause == "cancel" else (0, "succeeded", 17)
    assert (ended.status, now["status"], now["result"]) == expected
    assert "told\n" in ended.said


async def test_absent_database_is_asked_again(image: Image, postgres: PostgresServer, database: Database) -> None:
    row = await insert_row(database, payload=GOOD)
    await postgres.stop()
    async with image.runs(row) as child:
        try:
            await wait_for(lambda: b"onnect" in child.err, "the example says what it lacks", check=child.check)
        finally:
            await postgres.start()
        ended = await child.has_ended()
    assert (ended.status, await row.status()) == (0, "succeeded"), ended


@pytest.mark.parametrize("payload", [None, 'it\'s `date` "|" \\ :token ü\n\t', {"a|b": ["|"]}, [], "x" * 60_000])
async def test_payload_and_result_pass_the_shell_unchanged(database: Database, payload: Any) -> None:
    row = await insert_row(database, payload=payload)
    ended = await bash("cat").run(row)
    now = await row.now()
    assert (ended.status, now["status"], now["result"]) == (0, "succeeded", payload), ended


async def test_shell_example_takes_the_statuses_for_final_that_exec_takes(database: Database) -> None:
    rows = {status: await insert_row(database) for status in (1, 2, *range(63, 80), 137)}
    await asyncio.gather(*(bash(f"exit {status}").run(row) for status, row in rows.items()))
    assert {status for status, row in rows.items() if await row.status() == "failed"} == FINAL


async def test_error_and_names_pass_the_shell_unchanged(database: Database) -> None:
    row = await insert_row(database, max_failures=1)
    odd = Pod("a-pod", "'); DROP TABLE dispatch.tasks; --", "o'node :'token' \\")
    ended = await bash(r"""printf "it's \377not \$(date) \\\\ :'token' ü" >&2; exit 3""").run(row, odd)
    now = await row.now()
    assert (now["status"], now["error"]) == ("failed", "it's not $(date) \\ :'token' ü"), ended
    assert (now["pod_name"], now["job_uid"], now["node_name"]) == (odd.name, odd.job_uid, None)


async def test_end_of_a_long_log_is_the_error(database: Database) -> None:
    row = await insert_row(database)
    ended = await bash("yes ü | head -c 3000000 >&2; echo last words >&2; exit 3").run(row)
    error = (await row.now())["error"]
    assert error.endswith("ü\nü\nlast words")
    assert 4000 < len(error.encode()) <= 4096
    assert len(ended.err) > 500_000


async def test_process_that_left_and_holds_stderr_keeps_no_report_back(database: Database) -> None:
    row = await insert_row(database)
    ended = await bash("setsid sleep 30 & echo 17").run(row)
    now = await row.now()
    assert (ended.status, now["status"], now["result"]) == (0, "succeeded", 17), ended


@pytest.mark.parametrize("result", ["echo 17 rows", "head -c 70000 /dev/zero | tr '\\0' 1", "yes | head -c 200000"])
async def test_result_that_cannot_be_stored_fails_the_row(database: Database, result: str) -> None:
    row = await insert_row(database)
    ended = await bash(result).run(row)
    now = await row.now()
    assert (ended.status, now["status"]) == (0, "failed"), ended
    assert now["error"] == "the result is not JSON of at most 64 KiB"


ODD_CALLS: dict[str, tuple[tuple[str, ...], tuple[int, str], str]] = {
    "nothing to run": ((), (2, "waiting"), "usage: "),
    "a mark before the command": (("--", "echo", "17"), (0, "succeeded"), ""),
    "no such program": (("missing", "17"), (0, "failed"), ""),
}


@pytest.mark.parametrize(("argv", "end", "said"), ODD_CALLS.values(), ids=ODD_CALLS)
async def test_shell_example_reports_no_work_that_it_has_not_begun(
    database: Database, argv: tuple[str, ...], end: tuple[int, str], said: str
) -> None:
    row = await insert_row(database)
    ended = await Image((str(BASH), *argv)).run(row)
    assert (ended.status, await row.status()) == end, ended
    assert said in ended.said


OF_THE_IMAGE = ("PGCLIENTENCODING=LATIN1", "PGHOSTADDR=192.0.2.1", "PGSERVICE=own", "PGOPTIONS=-c search_path=own")


async def test_variables_of_the_images_own_database_are_the_commands_alone(database: Database) -> None:
    row = await insert_row(database, payload={"a": "日本"})
    url = f"TASK_DATABASE_URL={database.url('task')}\n"  # as `echo` ends what it makes a Secret of
    argv = bash("""printf '["%s", "Zürich", %s]' "$PGHOSTADDR" "$(cat)" """).argv
    ended = await Image(("env", url, *OF_THE_IMAGE, *argv)).run(row)
    now = await row.now()
    assert (now["status"], now["result"]) == ("succeeded", ["192.0.2.1", "Zürich", {"a": "日本"}]), ended
    assert ended.err == b""  # nor a word of the shell about its own children


@pytest.mark.parametrize("url", ["postgresql://task:s3cr%tXX@h/d", "postgresql://task:s3cr/XX@h/d", "s3crXX"])
async def test_go_example_says_nothing_of_a_url_that_it_cannot_read(
    database: Database, go_program: Path, url: str
) -> None:
    row = await insert_row(database)
    ended = await Image(("env", f"TASK_DATABASE_URL={url}", str(go_program))).run(row)
    assert (ended.status, "TASK_DATABASE_URL cannot be used" in ended.said, "XX" in ended.said) == (2, True, False)


async def test_go_example_reads_the_url_of_a_secret_that_was_made_by_echo(database: Database, go_program: Path) -> None:
    row = await insert_row(database, payload=GOOD)
    url = f"TASK_DATABASE_URL={database.url('task')}\n"
    ended = await Image(("env", url, str(go_program))).run(row)
    assert (ended.status, await row.status()) == (0, "succeeded"), ended


async def test_error_is_told_although_a_process_that_left_holds_stderr(database: Database) -> None:
    row = await insert_row(database)
    ended = await bash("echo last words >&2; setsid sleep 30 & exit 3").run(row)
    assert (await row.now())["error"] == "last words", ended


async def test_refused_result_is_known_in_any_language_of_the_server(database: Database, tmp_path: Path) -> None:
    """lc_messages is that of the server's operating system. It translates the word before the code, too."""
    psql, run = tmp_path / "psql", f'{postgres_programs()}/psql "$@" 2>&1 1>&3 | sed s/ERROR:/FEHLER:/ >&2'
    psql.write_text(f"#!/bin/bash\n{{ {run}; exit ${{PIPESTATUS[0]}}; }} 3>&1\n", encoding="utf-8")
    psql.chmod(0o755)
    row = await insert_row(database)
    ended = await Image(("env", f"PATH={tmp_path}:{os.environ['PATH']}", *bash("echo 17 rows").argv)).run(row)
    assert ("FEHLER" in ended.said, await row.status()) == (True, "failed"), ended


async def test_script_needs_no_more_programs_than_it_says(database: Database, tmp_path: Path) -> None:
    """An image without grep asked until its run limit whether its result could be stored."""
    coreutils = "cat env head mkfifo mktemp mv od rm sleep tail tee timeout tr wc"
    for name in ("bash", "sh", "iconv", *coreutils.split()):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    row = await insert_row(database)
    path = f"{tmp_path}:{postgres_programs()}"
    ended = await Image(("env", f"PATH={path}", *bash("echo 17 rows").argv)).run(row)
    assert (ended.status, await row.status(), "not found" in ended.said) == (0, "failed", False), ended


async def test_pooler_that_refuses_the_key_is_named_at_once(database: Database) -> None:
    row = await insert_row(database)
    async with pooler(database.url("task")) as (url, startups):
        ended = await Image(("env", f"TASK_DATABASE_URL={url}", *bash("echo 17").argv)).run(row)
    assert (ended.status, "connect to Postgres itself" in ended.said, len(startups)) == (2, True, 1), ended


async def test_go_example_works_behind_a_pooler_that_refuses_settings(go_program: Path, database: Database) -> None:
    row = await insert_row(database, payload=GOOD)
    async with pooler(database.url("task")) as (url, _):
        ended = await Image(("env", f"TASK_DATABASE_URL={url}", str(go_program))).run(row)
    assert (ended.status, await row.status()) == (0, "succeeded"), ended


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_python_on_the_page_takes_a_row_and_reports(database: Database, driver: str) -> None:
    (program,) = [text for language, text in BLOCKS if language == "python"]
    rows = [await insert_row(database, payload={"months": months}) for months in (["May", "June"], [])]
    ended = [await Library(driver).run(row, program) for row in rows]
    now = [await row.now() for row in rows]
    assert [(one.status, row["status"]) for one, row in zip(ended, now, strict=True)] == [
        (0, "succeeded"),
        (1, "failed"),
    ]
    assert [(row["result"], row["error"]) for row in now] == [({"months": 2}, None), (None, "no months")]


async def test_calls_on_the_page_are_valid_in_the_database(database: Database) -> None:
    """Prepared with the login of a container; a wrong name, type or number of parameters is refused.

    Some drivers send a type with each parameter: JDBC and Npgsql that of a text, psycopg `double precision`.
    """
    task = await database.connect("task")
    calls = re.findall(r"^SELECT [^;]+", PAGE, re.MULTILINE)
    assert len(calls) == 3
    for number, call in enumerate(calls):
        await task.prepare(call)
        types = ", ".join(["text"] * len(re.findall(r"\$\d", call)))
        await task.execute(f"PREPARE of_texts_{number} ({types}) AS {call}")
    await task.execute("PREPARE of_numbers (text, double precision, text) AS " + calls[1])


async def test_try_on_the_page_reports_its_payload_as_the_result() -> None:
    block = find_block(AUTHOR, "dispatcher try")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    async with started(("sh", "-ec", block), {"PATH": path}) as child:
        ended = await child.has_ended()
    assert (ended.status, ended.said) == (0, 'dispatcher try: succeeded, with the result {"rows": 2}\n')


def test_page_names_all_variables_and_openings() -> None:
    assert [name for name in sorted(CONTRACT) if f"`{name}`" not in PAGE] == []
    assert set(re.findall(r"dispatcher\.internal/[a-z-]+", PAGE)) == set(OPENINGS)


def test_page_installs_the_supported_driver() -> None:
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (driver,) = [needed for needed in project["dependencies"] if needed.startswith("asyncpg")]
    assert f"pip install '{driver}'" in PAGE


def test_template_of_the_sidecars_page_has_one_task_and_no_doubt() -> None:
    page_blocks = re.findall(r"^```yaml\n(.*?)^```$", (DOCS / "sidecars.md").read_text(), re.MULTILINE | re.DOTALL)
    template = parse_template("report", page_blocks[0])
    assert template.task_container["name"] == "report"
    assert template.pod_spec["initContainers"][0]["restartPolicy"] == "Always"
    assert list(template.doubts(())) == []


def test_page_has_the_numbers_of_exec() -> None:
    numbers = [UNREPORTED, PUT_OFF, exec_.TERMINATED, exec_.HEARTBEAT_SECONDS, exec_.GRACE_SECONDS]
    assert [number for number in numbers if not re.search(rf"\b{int(number)}\b", PAGE)] == []
    (listed,) = re.findall(r"\| ends with (.+) \(of sysexits", PAGE)
    spans = [[int(end) for end in part.split(" to ")] for part in listed.split(", ")]
    assert {status for span in spans for status in range(span[0], span[-1] + 1)} == FINAL


@pytest.mark.parametrize(("path", "most"), [(DOCS / "author.md", 215), (BASH, 76), (GO / "main.go", 138)])
def test_page_and_examples_are_short(path: Path, most: int) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= most
