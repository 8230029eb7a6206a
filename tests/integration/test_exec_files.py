"""`dispatcher exec`: the payload as the command finds it, and the result as the row keeps it."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.rig.execing import COULD_NOT, DONE, PROGRAM, PYTHON, each, error_of, execute, sh
from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import Row, insert_row

database = one_database

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
    "too large once in the row": "F.write_text('[' + '1,' * 30000 + '1]')",
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
    "a deep list": "F.write_text('[' * 2000 + ']' * 2000)",
    "a number of many digits": "F.write_text('1' * 9000)",
    "a list": "F.write_text('[1, null, true]')",
    "false": "F.write_text('false')",
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
