"""`dispatcher.task`: how a body ends becomes the state of its row, with either driver; and its environment."""

import asyncio
import sys
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.house.tree import python_files, shown
from tests.rig.execing import DONE, error_of
from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import Pod, insert_row
from tests.rig.tasking import BEGINNING, UNTIL_TOLD, Library, either_library, is_beating

database, library = one_database, either_library

SUCCEEDS = """
with task() as t:
    t.finish({"rows": t.payload["rows"] + 1, "name": "naïve"})
say("after")
"""


async def test_body_that_ends_is_success_with_its_result(library: Library, database: Database) -> None:
    row = await insert_row(database, payload={"rows": 16})
    ended = await library.run(row, SUCCEEDS, pod=Pod("pod-x", "job-x", "node-x"))
    now = await row.now()
    assert ended == (DONE, b"after\n", b"")
    assert (now["status"], now["error"], now["result"]) == ("succeeded", None, {"rows": 17, "name": "naïve"})
    (launch,) = await row.launches()
    assert (launch["outcome"], launch["pod_name"], launch["node_name"]) == ("succeeded", "pod-x", "node-x")


async def test_process_that_is_started_again_in_its_pod_runs_nothing(library: Library, database: Database) -> None:
    row = await insert_row(database)
    async with library.runs(row, f"with task(): {UNTIL_TOLD}") as first:
        await first.says("begun")
        held = await row.now()
    ended = await library.run(row, "with task(): say('ran')")  # the first one was killed
    assert (ended.status, ended.out) == (DONE, b"")
    assert dict(await row.now()) == {**held, "second_process": True}


@pytest.mark.parametrize("body", ["pass", "t.finish()", "sys.exit()", "sys.exit(0)", "t.finish(1); t.finish(None)"])
async def test_body_without_a_result_is_success(library: Library, database: Database, body: str) -> None:
    row = await insert_row(database)
    ended = await library.run(row, f"with task() as t: {body}")
    now = await row.now()
    assert (ended, now["status"], now["result"]) == ((DONE, b"", b""), "succeeded", None)


@pytest.mark.parametrize("payload", [None, 'it\'s `date` "|" \\ ü\n\t', {"a|b": ["|", None]}, [], 0.5, "x" * 60_000])
async def test_payload_and_result_are_unchanged(library: Library, database: Database, payload: Any) -> None:
    row = await insert_row(database, payload=payload)
    ended = await library.run(row, "with task() as t: t.finish(t.payload)")
    now = await row.now()
    assert (ended.status, now["status"], now["result"]) == (DONE, "succeeded", payload), ended


async def test_payload_that_python_cannot_read_fails_the_row_at_once(library: Library, database: Database) -> None:
    row = await insert_row(database)
    admin = await database.session("admin")
    await admin.execute("UPDATE dispatch_private.tasks SET payload = repeat('7', 5000)::jsonb WHERE id = $1", row.id)
    ended = await library.run(row, "with task() as t: t.payload")
    now = await admin.fetchrow("SELECT status, error FROM dispatch.tasks WHERE id = $1", row.id)
    assert now is not None
    assert (ended.status, now["status"]) == (1, "failed")
    assert now["error"].startswith("the payload cannot be read: Exceeds the limit")


async def test_progress_and_note_are_in_the_row_after_a_heartbeat(library: Library, database: Database) -> None:
    row = await insert_row(database)
    body = f"""
        with quick() as t:
            t.progress(0.4, "reading")
            t.progress(0.42)
            {UNTIL_TOLD}
            t.progress(note="month \\n5\\0\\ud800" + "!" * 300)
            {UNTIL_TOLD}
            t.progress(1e-60)
            {UNTIL_TOLD}
    """
    expected = [(0.42, "reading"), (0.42, "month  5 " + "!" * 191), (0, "month  5 " + "!" * 191)]
    async with library.runs(row, body) as wrapper:
        for count, told in enumerate(expected, 1):
            await wrapper.says("begun", count)
            await is_beating(row)
            await is_beating(row)
            now = await row.now()
            assert (round(now["progress"], 3), now["note"]) == told
            wrapper.go()
        assert (await wrapper.has_ended()).status == DONE
    assert await row.status() == "succeeded"


async def test_exception_is_tried_again_with_the_end_of_its_traceback(library: Library, database: Database) -> None:
    row = await insert_row(database)
    body = """
        def reads():
            raise LookupError("no bucket " + "é" * 3000 + " here\\0\\ud800")
        with task() as t:
            t.finish(17)
            reads()
    """
    ended = await library.run(row, body)
    now = await row.now()
    assert (ended.status, now["status"], now["attempt"], now["failures"]) == (1, "waiting", 2, 1)
    assert now["run_at"] > datetime.now(UTC)
    assert now["result"] is None
    (launch,) = await row.launches()
    assert (launch["outcome"], launch["error"]) == ("retry", now["error"])
    assert now["error"].endswith("éé here?\n")
    assert 4090 < len(now["error"].encode()) <= 4096
    assert "LookupError: no bucket" in ended.said


async def test_short_traceback_is_whole(library: Library, database: Database) -> None:
    row = await insert_row(database, max_failures=1)
    ended = await library.run(row, "with task(): 1 / 0")
    assert (ended.status, await row.status()) == (1, "failed")
    error = await error_of(row)
    assert error.startswith("Traceback (most recent call last):\n")
    assert error.endswith("ZeroDivisionError: division by zero\n")
    assert "run.py" not in error


@pytest.mark.parametrize(("body", "status"), [("sys.exit(3)", 3), ("sys.exit('no bucket')", 1)])
async def test_other_exit_status_is_tried_again(library: Library, database: Database, body: str, status: int) -> None:
    row = await insert_row(database)
    ended = await library.run(row, f"with task(): {body}")
    assert (ended.status, await row.status()) == (status, "waiting")
    assert "SystemExit: " in await error_of(row)


async def test_final_exit_status_fails_the_row_at_once(library: Library, database: Database) -> None:
    row = await insert_row(database)
    ended = await library.run(row, "with task(): sys.exit(65)")
    assert (ended.status, await row.status()) == (65, "failed")
    assert "SystemExit: 65" in await error_of(row)


@pytest.mark.parametrize("group", ["{}", "ExceptionGroup('some', [OSError(), ExceptionGroup('more', [{}])])"])
async def test_failed_ends_the_row_with_its_words(library: Library, database: Database, group: str) -> None:
    row = await insert_row(database)
    words = group.format("Failed('rows: \\0not a number')")
    ended = await library.run(row, f"with task(): raise {words}")
    now = await row.now()
    assert (ended.status, now["status"], now["error"]) == (1, "failed", "rows: not a number")


async def test_result_that_is_too_large_raises_at_once(library: Library, database: Database) -> None:
    row = await insert_row(database)
    body = """
        with task() as t:
            t.finish("x" * 65534)
            try:
                t.finish("x" * 65535)
            except ValueError as fault:
                say(fault)
    """
    ended = await library.run(row, body)
    assert ended.out == b"the result has 65537 bytes, 65536 at most: leave the address of large results in it\n"
    assert (ended.status, (await row.now())["result"]) == (DONE, "x" * 65534)


@pytest.mark.parametrize("result", ['"x" * 70000', "float('nan')", r"'a\0b'"])
async def test_result_that_no_second_try_can_store_fails_the_row(
    library: Library, database: Database, result: str
) -> None:
    """The work is done. `exec` fails the row alike."""
    row = await insert_row(database)
    ended = await library.run(row, f"with task() as t: t.finish({result})")
    now = await row.now()
    assert (ended.status, now["status"], now["error"][:10]) == (1, "failed", "the result"), ended


async def test_result_that_only_the_database_refuses_fails_the_row(library: Library, database: Database) -> None:
    """Postgres writes all digits of 1e300."""
    row = await insert_row(database)
    ended = await library.run(row, "with task() as t: t.finish([1e300] * 1000)")
    now = await row.now()
    assert (ended.status, now["status"], now["result"]) == (1, "failed", None), ended
    assert now["error"].startswith("the result cannot be stored: ")
    assert "larger than 64 KiB" in now["error"]


async def test_wrong_progress_raises_at_the_call(library: Library, database: Database) -> None:
    row = await insert_row(database)
    ended = await library.run(row, "with task() as t: t.progress(float('nan'))")
    assert ended.status == 1
    assert (await error_of(row)).endswith("ValueError: progress is nan: a number from 0 to 1\n")


NEEDED = ["TASK_DATABASE_URL", "TASK_ID", "TASK_START_KEY", "TASK_ATTEMPT", "TASK_LAUNCH", "JOB_UID", "POD_NAME"]


async def test_missing_variables_are_all_reported_at_once(library: Library, database: Database) -> None:
    row = await insert_row(database)
    ended = await library.run(row, "with task(): say('ran')", **dict.fromkeys(NEEDED))
    assert (ended.status, ended.out) == (1, b"")
    (said,) = [line for line in ended.said.splitlines() if "WrongEnvironment: " in line]
    assert [name for name in NEEDED if name not in said] == []


async def test_unreadable_variables_are_reported_without_their_values(library: Library, database: Database) -> None:
    row = await insert_row(database)
    faults = {"TASK_ID": "first", "TASK_START_KEY": "hush", "TASK_ATTEMPT": "1.5", "TASK_LAUNCH": 0}
    faults |= {"TASK_TIMEOUT_SECONDS": "soon", "TASK_DATABASE_URL": "hush", "TASK_RESULT_FILE": "/tmp/hush"}
    ended = await library.run(row, "with task(): say('ran')", **faults)
    assert (ended.status, ended.out, await row.status()) == (1, b"", "waiting")
    assert [name for name in faults if name not in ended.said.splitlines()[-1]] == []
    assert "hush" not in ended.said


async def test_wrong_key_takes_no_row(library: Library, database: Database) -> None:
    row = await insert_row(database)
    ended = await library.run(row, "with task(): say('ran')", TASK_START_KEY=uuid.uuid4())
    assert (ended.status, ended.out, await row.status()) == (DONE, b"", "waiting")


async def test_library_imports_nothing_else_of_the_package(library: Library, database: Database) -> None:
    """But for the files that `exec` shares. Nor anything but its driver: other packages are not there."""
    row = await insert_row(database)
    ours = {shown(path).removesuffix(".py").replace("/", ".") for path in python_files("dispatcher/task/")}
    ours |= {"dispatcher.container", "dispatcher.container.asking", "dispatcher.container.contract"}
    ours.add("dispatcher.container.dial")
    body = """
        with task() as t:
            loaded = {name for name in sys.modules if name.split(".")[0] == "dispatcher"}
            others = {"aiohttp", "click", "msgspec", "structlog"} & set(sys.modules)
            t.finish([sorted(loaded), sorted(others)])
    """
    ended = await library.run(row, body)
    loaded, others = (await row.now())["result"]
    of_drivers = {"dispatcher.task.by_asyncpg", "dispatcher.task.by_psycopg", "dispatcher.container.dial"}
    assert (ended.status, others) == (DONE, [])
    assert set(loaded) - of_drivers == {"dispatcher", *(name.removesuffix(".__init__") for name in ours)} - of_drivers


async def test_library_without_a_driver_says_what_to_install() -> None:
    beginning = BEGINNING.format(hidden=["asyncpg", "psycopg"], driver="", beat=1)
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", beginning, stderr=asyncio.subprocess.PIPE)
    _, said = await child.communicate()
    assert child.returncode == 1
    assert said.decode().endswith("ImportError: dispatcher.task needs asyncpg or psycopg 3: install one of them\n")


async def test_asyncpg_is_taken_where_both_are() -> None:
    told = "import sys, dispatcher.task; sys.exit('asyncpg' not in sys.modules or 'psycopg' in sys.modules)"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", told)
    assert await child.wait() == 0
