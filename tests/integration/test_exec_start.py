"""`dispatcher exec` around the command: usage, environment, whether the row may start, its payload and its result."""

import asyncio
import json
import uuid
from pathlib import Path

import pytest

from tests.rig.execing import (
    COULD_NOT,
    DONE,
    FOR_EVER,
    PROGRAM,
    PUT_OFF,
    PYTHON,
    UNTIL_TOLD,
    WRONG,
    Ended,
    each,
    error_of,
    execute,
    sh,
    wrapped,
)
from tests.rig.losses import UNREADABLE
from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import SECOND, Pod, Row, insert_row

database = one_database

NEEDED = ["TASK_DATABASE_URL", "TASK_ID", "TASK_START_KEY", "TASK_ATTEMPT", "TASK_LAUNCH", "JOB_UID", "POD_NAME"]


def untouched(ended: Ended) -> bool:
    """The command never ran, exec reported no fault, and wrote one line about it."""
    return (ended.status, ended.out, len(ended.err.splitlines())) == (DONE, b"", 1)


async def test_row_with_another_key_attempt_or_id_is_left_alone(database: Database) -> None:
    row = await insert_row(database)
    refused: dict[str, dict[str, object]] = {
        "another key": {"TASK_START_KEY": uuid.uuid4()},
        "another attempt": {"TASK_ATTEMPT": 2},
        "another row": {"TASK_ID": row.id + 1000},
    }
    ended = await asyncio.gather(*(execute(row, "echo", "ran", **changed) for changed in refused.values()))
    assert {name: untouched(one) for name, one in zip(refused, ended, strict=True)} == dict.fromkeys(refused, True)
    assert await row.status() == "waiting"
    assert await row.launches() == []


async def test_row_that_is_over_is_left_alone(database: Database) -> None:
    rows = [await insert_row(database) for _ in range(3)]
    await rows[0].cancel()
    await rows[1].finish(await rows[1].started(), "succeeded")
    await rows[2].finish(await rows[2].started(), "failed")
    before = [await row.now() for row in rows]
    ended = await asyncio.gather(*(execute(row, "echo", "ran", launch=2) for row in rows))
    assert [untouched(one) for one in ended] == [True] * 3
    assert [await row.now() for row in rows] == before


async def test_row_that_another_pod_runs_is_left_alone(database: Database) -> None:
    row = await insert_row(database)
    holder = await row.started(launch=2)
    ended = await asyncio.gather(*(execute(row, "echo", "ran", launch=n, pod=SECOND) for n in (1, 2)))
    assert [untouched(one) for one in ended] == [True, True]
    assert await row.heartbeat(holder) == "continue"


async def test_pods_of_one_launch_run_the_command_once(database: Database) -> None:
    row = await insert_row(database)
    pods = [Pod(f"pod-{n}") for n in range(4)]
    ended = await asyncio.gather(*(execute(row, "echo", "ran", pod=pod) for pod in pods))
    assert sorted((one.status, one.out) for one in ended) == [(DONE, b"")] * 3 + [(DONE, b"ran\n")]
    assert (await row.status(), len(await row.launches())) == ("succeeded", 1)


async def test_two_launches_of_a_row_with_one_failure_run_the_command_once(database: Database) -> None:
    row = await insert_row(database, max_failures=1)
    ended = await asyncio.gather(execute(row, "echo", "ran"), execute(row, "echo", "ran", launch=2, pod=SECOND))
    assert sorted(one.out for one in ended) == [b"", b"ran\n"]
    assert (await row.status(), len(await row.launches())) == ("succeeded", 1)


async def test_killed_exec_is_followed_by_the_next_launch(database: Database) -> None:
    row = await insert_row(database)
    async with wrapped(row, *sh(f"echo begun; {FOR_EVER}")) as first:
        await first.says("begun")
        first.process.kill()
        await first.is_gone()
        assert await row.status() == "processing"
        ended = await execute(row, *sh('echo 2 > "$TASK_RESULT_FILE"'), launch=2, pod=SECOND)
    assert (ended.status, await row.status(), (await row.now())["result"]) == (DONE, "succeeded", 2)
    assert [launch["outcome"] for launch in await row.launches()] == ["lost", "succeeded"]


async def test_command_that_was_taken_over_reports_nothing(database: Database) -> None:
    row = await insert_row(database)
    async with wrapped(row, *sh(f'{UNTIL_TOLD}; echo 1 > "$TASK_RESULT_FILE"')) as old:
        await old.says("begun")
        await row.started(launch=2, pod=SECOND)
        before = await row.now()
        old.go()
        ended = await old.has_ended()
    assert ended.status == DONE
    assert await row.now() == before


@pytest.mark.parametrize("max_failures", [1, 3])
async def test_container_that_is_started_again_in_its_pod_runs_nothing(database: Database, max_failures: int) -> None:
    row = await insert_row(database, max_failures=max_failures)
    async with wrapped(row, *sh(UNTIL_TOLD)) as first:
        await first.says("begun")
        held = await row.now()
    ended = await execute(row, "echo", "ran")  # the first one was killed
    assert (ended.status, ended.out) == (DONE, b"")
    assert dict(await row.now()) == {**held, "second_process": True}


TASK_SH = Path(__file__).parents[2] / "docs" / "examples" / "task.sh"


@pytest.mark.parametrize(
    ("taker", "words"),
    [(PROGRAM, "use one of the two"), (("bash", str(TASK_SH)), "TASK_START_KEY is not set")],
    ids=["exec", "by hand"],
)
async def test_command_that_would_take_the_row_again_is_no_success(
    database: Database, taker: tuple[str, ...], words: str
) -> None:
    row = await insert_row(database)
    ended = await execute(row, *taker, "echo", "ran")
    assert (ended.out, await row.status()) == (b"", "waiting")
    assert words in ended.said


async def test_missing_variables_are_all_reported_at_once(database: Database) -> None:
    row = await insert_row(database)
    ended = await execute(row, "echo", "ran", **dict.fromkeys(NEEDED))
    assert (ended.status, ended.out) == (WRONG, b"")
    assert [name for name in NEEDED if name not in ended.said] == []


async def test_unreadable_variables_are_all_reported_at_once_without_the_key(database: Database) -> None:
    row = await insert_row(database)
    faults = {"TASK_ID": "first", "TASK_START_KEY": "hush", "TASK_ATTEMPT": "1.5", "TASK_LAUNCH": 0}
    faults |= {"TASK_TIMEOUT_SECONDS": "soon"}
    ended = await execute(row, "echo", "ran", **faults)
    assert (ended.status, ended.out) == (WRONG, b"")
    assert [name for name in faults if name not in ended.said] == []
    assert "hush" not in ended.said
    assert await row.status() == "waiting"


async def test_unreadable_url_is_reported_without_its_password(database: Database) -> None:
    row = await insert_row(database)
    every = await asyncio.gather(*(execute(row, "echo", "ran", TASK_DATABASE_URL=url) for url in UNREADABLE.values()))
    for name, ended in zip(UNREADABLE, every, strict=True):
        assert (ended.status, ended.out) == (WRONG, b""), (name, ended)
        assert "TASK_DATABASE_URL" in ended.said, name
        assert "hush" not in ended.said, name


async def test_wrong_password_is_reported_without_the_password(database: Database) -> None:
    row = await insert_row(database)
    url = database.url("task").replace("task:task", "task:hush")
    ended = await execute(row, "echo", "ran", TASK_DATABASE_URL=url, TASK_TIMEOUT_SECONDS=1)
    assert (ended.status, ended.out) == (PUT_OFF, b"")
    assert "password" in ended.said.splitlines()[-1]
    assert "hush" not in ended.said
    assert await row.status() == "waiting"


async def test_exec_without_a_folder_for_files_starts_no_row_and_says_what_to_mount(database: Database) -> None:
    row = await insert_row(database)
    ended = await execute(row, "echo", "ran", program=(*sh('ulimit -f 0; exec "$@"'), "sh", *PROGRAM))
    assert (ended.status, ended.out) == (COULD_NOT, b"")
    assert "mount an emptyDir at /tmp, or name a folder in TMPDIR" in ended.said
    assert await row.status() == "waiting"


async def test_login_without_the_right_to_start_is_reported(database: Database) -> None:
    row = await insert_row(database)
    ended = await execute(row, "echo", "ran", TASK_DATABASE_URL=database.url("observer"), TASK_TIMEOUT_SECONDS=1)
    assert (ended.status, ended.out) == (PUT_OFF, b"")
    assert "task_start" in ended.said
    assert await row.status() == "waiting"


@pytest.mark.parametrize("arguments", [(), ("--",)])
async def test_exec_without_a_command_shows_its_usage(database: Database, arguments: tuple[str, ...]) -> None:
    row = await insert_row(database)
    ended = await execute(row, *arguments, program=PROGRAM[:-1])
    assert (ended.status, ended.out) == (WRONG, b"")
    assert "-- CMD [ARG" in ended.said
    assert await row.status() == "waiting"


async def test_help_of_exec_shows_only_its_usage(database: Database) -> None:
    row = await insert_row(database)
    ended = await execute(row, "--help", program=PROGRAM[:-1])
    assert (ended.status, ended.err, await row.status()) == (DONE, b"", "waiting")
    assert b"-- CMD [ARG" in ended.out


MOST_RESULT_BYTES = 65536
SHOWS_PAYLOAD = sh('cat "$TASK_PAYLOAD_FILE"')
EXACT = '{"big": 123456789012345678901234567890, "wide": 1.00000000000000000000000001, "far": 1e400}'

# Things that a command may leave in place of a result: the script for each; F is the file's name.
BAD = {
    "words": "F.write_text('done')",
    "two values": "F.write_text('{} {}')",
    "half a value": """F.write_text('{"a": ')""",
    "single quotes": """F.write_text("{'a': 1}")""",
    "NaN": """F.write_text('{"a": NaN}')""",
    "Infinity": "F.write_text('[-Infinity]')",
    "an escaped NUL": r"""F.write_text('{"a": "b\\u0000c"}')""",
    "a NUL": r"""F.write_bytes(b'"a\0b"')""",
    "half a pair": r"""F.write_text('"\\ud800"')""",
    "no UTF-8": r"""F.write_bytes(b'"\xff"')""",
    "a number beyond all": "F.write_text('1e999999')",
    "a deep one": "F.write_text('[' * 30000 + ']' * 30000)",
}
TOO_LARGE = {
    "a byte too many": f"F.write_text(json.dumps('x' * {MOST_RESULT_BYTES - 1}))",
    "a number too long": "F.write_text('1e100000')",
    "gigabytes": "F.open('wb').truncate(5 << 30)",
}
ODD = {
    "a folder": "F.unlink(missing_ok=True); F.mkdir()",
    "a pipe that nobody writes": "F.unlink(missing_ok=True); os.mkfifo(F)",
    "a device without end": "F.unlink(missing_ok=True); F.symlink_to('/dev/zero')",
}
# A program that reads without end reaches this limit instead of the machine's.
BOUNDED = (*sh("""ulimit -v 2000000; exec "$@" """), "sh", *PROGRAM)
GOOD = {
    "exactly 64 KiB": f"F.write_text(json.dumps('x' * {MOST_RESULT_BYTES - 2}))",
    "exactly 64 KiB of two bytes each": f"F.write_text('\"' + 'ü' * {MOST_RESULT_BYTES // 2 - 1} + '\"')",
    "60 KiB without blanks": "F.write_text('[' + '1,' * 30000 + '1]')",
    "a deep list": "F.write_text('[' * 2000 + ']' * 2000)",
    "a number of many digits": "F.write_text('1' * 9000)",
    "a list": "F.write_text('[1, null, true]')",
    "false": "F.write_text('false')",
    "with a mark of UTF-8": r"F.write_bytes(b'\xef\xbb\xbf{}')",
}


def writes(script: str) -> tuple[str, ...]:
    return (*PYTHON, f"import json, os, pathlib; F = pathlib.Path(os.environ['TASK_RESULT_FILE']); {script}")


def writing(scripts: dict[str, str]) -> dict[str, tuple[str, ...]]:
    return {name: writes(script) for name, script in scripts.items()}


async def insert_text(database: Database, payload: str) -> Row:
    """A row whose payload was parsed by Postgres itself."""
    team = await database.session("team_a")
    insert = "INSERT INTO dispatch.tasks (payload) VALUES ($1::text::jsonb) RETURNING id"
    task_id = await team.fetchval(insert, payload)
    return Row(database, task_id, await database.start_key(task_id))


async def as_text(row: Row, column: str) -> str:
    admin = await row.database.session("admin")
    return str(await admin.fetchval(f"SELECT {column}::text FROM dispatch.tasks WHERE id = $1", row.id))


PAYLOADS = {
    "an object": {"file": "naïve.csv", "lines": [1, None, "\U0001f600"]},
    "none": None,
    "a megabyte": "ü" * (500 << 10),
}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
async def test_payload_file_has_the_payload_as_json(database: Database, payload: object) -> None:
    ended = await execute(await insert_row(database, payload=payload), *SHOWS_PAYLOAD)
    assert json.loads(ended.out) == payload


async def test_numbers_keep_every_digit_both_ways(database: Database) -> None:
    row = await insert_text(database, EXACT)
    ended = await execute(row, *sh('cat "$TASK_PAYLOAD_FILE" | tee "$TASK_RESULT_FILE"'))
    assert ended.out.decode().strip() == await as_text(row, "payload")
    assert await as_text(row, "result") == await as_text(row, "payload")


WITHOUT_RESULT = {
    "it writes none": "true",
    "it removes the file": 'rm -f "$TASK_RESULT_FILE"',
    "it removes all files": 'rm -f "$TASK_PAYLOAD_FILE" "$TASK_RESULT_FILE"; rmdir "${TASK_RESULT_FILE%/*}"; true',
}


@pytest.mark.parametrize("script", WITHOUT_RESULT.values(), ids=WITHOUT_RESULT)
async def test_row_has_no_result_without_a_result_file(database: Database, script: str) -> None:
    row = await insert_row(database)
    ended = await execute(row, *sh(script))
    assert (ended.status, await row.status(), (await row.now())["result"]) == (DONE, "succeeded", None)


async def test_result_that_fits_the_row_is_kept(database: Database) -> None:
    for name, (row, ended) in (await each(database, writing(GOOD))).items():
        now = [await as_text(row, column) for column in ("status", "error")]
        assert (ended.status, *now) == (DONE, "succeeded", "None"), name
        assert await as_text(row, "result") != "None", name


@pytest.mark.slow
async def test_result_that_does_not_fit_the_row_is_a_failure(database: Database) -> None:
    for name, (row, ended) in (await each(database, writing(BAD | TOO_LARGE))).items():
        assert (ended.status, await row.status()) == (COULD_NOT, "failed"), (name, ended)
        assert "TASK_RESULT_FILE" in await error_of(row), name
        assert ("64 KiB" in await error_of(row)) == (name in TOO_LARGE), name
        assert (await row.now())["result"] is None


async def test_result_that_is_no_file_is_a_failure(database: Database) -> None:
    rows = {name: await insert_row(database) for name in ODD}
    ended = await asyncio.gather(*(execute(rows[name], *writes(ODD[name]), program=BOUNDED) for name in ODD))
    for name, status in zip(ODD, [one.status for one in ended], strict=True):
        assert (status, await rows[name].status()) == (COULD_NOT, "failed"), name
        assert "TASK_RESULT_FILE" in await error_of(rows[name]), name


async def test_files_are_in_the_folder_that_tmpdir_names(database: Database, tmp_path: Path) -> None:
    """The wrapper itself keeps nothing but the contract."""
    row, scratch = await insert_row(database), tmp_path / "scratch"
    scratch.mkdir()
    ended = await execute(row, *sh('echo "$TASK_RESULT_FILE $TMPDIR"'), TMPDIR=scratch)
    (said,) = ended.out.decode().splitlines()
    result, folder = said.split()
    assert (Path(result).parent.parent, Path(folder)) == (scratch, scratch)
    assert (ended.status, await row.status(), list(scratch.iterdir())) == (DONE, "succeeded", [])
