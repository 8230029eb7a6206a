"""`dispatcher exec` before the command: usage, environment, and whether the row may start."""

import asyncio
import uuid
from pathlib import Path

import pytest

from tests.rig.execing import (
    COULD_NOT,
    DONE,
    FOR_EVER,
    PROGRAM,
    PUT_OFF,
    UNTIL_TOLD,
    WRONG,
    Ended,
    execute,
    sh,
    wrapped,
)
from tests.rig.losses import UNREADABLE
from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import SECOND, Pod, insert_row

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
