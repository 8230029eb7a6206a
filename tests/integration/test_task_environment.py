"""`dispatcher.task` in the environment of a container: variables, key, and what is imported."""

import asyncio
import sys
import uuid

from tests.house.tree import python_files, shown
from tests.rig.execing import DONE
from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import insert_row
from tests.rig.tasking import BEGINNING, Library, either_library

database, library = one_database, either_library

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
