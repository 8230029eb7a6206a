"""A container at its limits: of descriptors, of processes, of threads. The work goes on, and its end is reported."""

import asyncio
import shutil
import signal
import struct
import sys
from pathlib import Path

import psycopg
import pytest

from dispatcher.task import by_psycopg
from tests.rig.execing import DONE, PROGRAM, PYTHON, error_of, execute, sh, wrapped
from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import insert_row
from tests.rig.tasking import Library, either_library

database, library = one_database, either_library
WITHOUT_THREADS = """
import os, resource, sys
from dispatcher.container.asking import say
if os.getuid() == 0: os.setgid(12345); os.setuid(12345)
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
say('x', 'these words are lost')
print('on')
"""
USES_ALL_DESCRIPTORS = """
import threading
with task() as t:
    kept = []
    try:
        while True: kept.append(os.dup(0))
    except OSError: pass
    threading.Timer(1, lambda: [os.close(one) for one in kept]).start()
    t.finish(17)
"""
USES_ALL_THREADS = """
import resource
with task() as t:
    if os.getuid() == 0: os.setgid(12345); os.setuid(12345)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    t.finish(17)
"""
IN_A_THREAD = """
import threading, time
def work():
    with task() as t:
        say('begun')
        threading.main_thread().join()
        t.finish(17)
threading.Thread(target=work).start()
"""
BLOCKED = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
os.execv(sys.argv[1], sys.argv[1:])
"""
COUNTS = """
import os, signal
got = []
def told(number, frame):
    got.append(number)
    os.write(1, f'told {len(got)} {signal.Signals(number).name}\\n'.encode())
    if len(got) == 2: os._exit(3)
for number in (signal.SIGTERM, signal.SIGQUIT): signal.signal(number, told)
os.write(1, b'begun\\n')
while True: signal.pause()
"""


def make_half(program: Path) -> None:
    """A program that ends where the name of its loader begins."""
    whole = Path("/bin/true").read_bytes()
    (headers,), (size, number) = struct.unpack_from("=Q", whole, 32), struct.unpack_from("=HH", whole, 54)
    program.write_bytes(whole[: headers + size * number + 1])
    program.chmod(0o755)


async def test_words_that_no_thread_can_say_stop_nothing() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WITHOUT_THREADS, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert (process.returncode, out) == (0, b"on\n"), err


async def test_command_that_cannot_start_at_the_moment_is_tried_again(database: Database, tmp_path: Path) -> None:
    """Somebody still writes the program, as an update or another container does."""
    program = tmp_path / "program"
    shutil.copy("/bin/true", program)
    row = await insert_row(database)
    with program.open("r+b"):
        ended = await execute(row, str(program))
    assert (ended.status, await row.status()) == (126, "waiting"), ended.said
    assert "busy" in await error_of(row)


async def test_command_that_its_node_cannot_read_is_tried_again(database: Database, tmp_path: Path) -> None:
    """The kernel answers EIO, as for a bad disk, or an image whose files come over the network when they are read."""
    program = tmp_path / "program"
    make_half(program)
    row = await insert_row(database)
    ended = await execute(row, str(program))
    assert (ended.status, await row.status()) == (126, "waiting"), ended.said
    assert "Input/output error" in await error_of(row)


async def test_body_that_used_up_all_descriptors_is_reported_when_one_is_free(
    library: Library, database: Database
) -> None:
    row = await insert_row(database)
    few = ("/bin/sh", "-c", 'ulimit -n 64; exec "$@"', "sh")
    async with wrapped(row, program=(*few, *library.program(USES_ALL_DESCRIPTORS))) as wrapper:
        ended = await wrapper.has_ended(is_traced=True)  # asyncio warns of the loop that it could not make
    assert (ended.status, await row.status()) == (DONE, "succeeded"), ended.said


async def test_task_in_a_thread_is_reported_after_the_main_thread_has_ended(
    library: Library, database: Database
) -> None:
    """A name of a host is looked up then, where no thread can be started any more."""
    row = await insert_row(database)
    url = database.url("task").replace("127.0.0.1", "localhost")
    ended = await library.run(row, IN_A_THREAD, TASK_DATABASE_URL=url)
    assert (ended.status, await row.status()) == (DONE, "succeeded"), ended.said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
async def test_each_signal_to_stop_reaches_the_command(database: Database, number: signal.Signals) -> None:
    """SIGQUIT is the stop signal of some images."""
    row = await insert_row(database)
    async with wrapped(row, *PYTHON, COUNTS) as wrapper:
        await wrapper.says("begun")
        for count in (1, 2):
            wrapper.process.send_signal(number)
            await wrapper.says(f"told {count} {number.name}")
        ended = await wrapper.has_ended()
    assert (ended.status, await row.status()) == (143, "processing"), ended.said


async def test_blocked_sigchld_hides_no_end(database: Database) -> None:
    row = await insert_row(database)
    async with wrapped(row, "true", program=(sys.executable, "-c", BLOCKED, *PROGRAM)) as wrapper:
        ended = await wrapper.has_ended()
    assert (ended.status, await row.status()) == (DONE, "succeeded"), ended.said


async def test_error_of_a_killed_command_names_the_signal_beside_its_last_words(database: Database) -> None:
    row = await insert_row(database)
    await execute(row, *sh("echo warning >&2; kill -KILL $$"))
    assert await error_of(row) == "warning\nCMD was ended by SIGKILL"


async def test_image_with_an_old_libpq_finds_the_primary(database: Database) -> None:
    """libpq 13 refuses a word that it does not know."""
    for libpq in (130_003, psycopg.pq.version()):
        words = by_psycopg.primary_for(libpq)
        with psycopg.connect(database.url("team_a"), target_session_attrs=words) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    assert by_psycopg.primary_for(130_003) == "read-write"


async def test_body_that_uses_up_all_threads_is_reported(library: Library, database: Database) -> None:
    row = await insert_row(database)
    ended = await library.run(row, USES_ALL_THREADS)
    now = await row.now()
    assert (ended.status, now["status"], now["result"]) == (DONE, "succeeded", 17), ended
