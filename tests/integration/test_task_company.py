"""`dispatcher.task` beside what a program does otherwise: event loops, threads, children."""

import os
import sys
from pathlib import Path

import pytest

from tests.faults import postgres_verbs as verbs
from tests.faults.postgres_proxy import PostgresProxy, connects, runs
from tests.faults.rules import nth
from tests.house.tree import ROOT
from tests.rig.execing import DONE, one_proxy, wrapped
from tests.rig.postgres import Database
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import insert_row
from tests.rig.tasking import UNTIL_TOLD, Library, either_library, is_beating

database, library, proxy = one_database, either_library, one_proxy

BUSY = {
    "processor": "with quick() as t:\n    say('begun')\n    while not t.cancelled: sum(range(1000))",
    "event loop": """
        import asyncio
        async def main():
            async with quick() as t:
                say("begun")
                waits(lambda: t.cancelled)  # the loop has no turn
        asyncio.run(main())
    """,
}
CHILDREN = {
    "that leaves the body": "sys.exit(3)",
    "that ends the body": "t.finish(1)",
    "that raises": "1 / 0",
    "that is terminated": "say(signal.getsignal(15) is signal.SIG_DFL); os.write(writing, b'!'); waits(lambda: False)",
    "that begins a task": "with task() as u: u.finish(1)",
}
FORKING = """
import signal
reading, writing = os.pipe()
with quick() as t:
    waits(lambda: len(os.listdir("/proc/self/task")) == 2)  # a thread that ends holds a lock of OpenSSL
    pid = os.fork()
    if pid == 0:
        {child}
    else:
        if {kill}:
            os.read(reading, 1)
            os.kill(pid, signal.SIGTERM)
        say(os.waitstatus_to_exitcode(os.wait()[1]))
        say("begun")
        sys.stdin.readline()
        t.finish(17)
"""
SPAWNING = """
import multiprocessing
from dispatcher.task import task
def work(): print("worked", flush=True)
{guard}
    with task() as t:
        print("body", flush=True)
        child = multiprocessing.get_context("spawn").Process(target=work)
        child.start()
        child.join()
        t.finish(child.exitcode)
"""


async def test_async_body_takes_its_row_and_reports(library: Library, database: Database) -> None:
    row = await insert_row(database, payload=16)
    body = """
        import asyncio
        async def main():
            async with quick() as t, asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0))
                t.finish(t.payload + 1)
        asyncio.run(main())
    """
    ended = await library.run(row, body)
    assert (ended, (await row.now())["result"]) == ((DONE, b"", b""), 17)


async def test_sync_use_inside_a_running_loop_works(library: Library, database: Database) -> None:
    row = await insert_row(database)
    body = """
        import asyncio
        async def main():
            with task() as t:
                await asyncio.sleep(0)
                t.finish(17)
        asyncio.run(main())
    """
    ended = await library.run(row, body)
    assert (ended.status, (await row.now())["result"]) == (DONE, 17), ended


async def test_failed_of_an_async_task_ends_the_row(library: Library, database: Database) -> None:
    row = await insert_row(database)
    body = """
        import asyncio
        async def fails(): raise Failed("no bucket")
        async def main():
            async with task() as t, asyncio.TaskGroup() as group:
                group.create_task(fails())
        asyncio.run(main())
    """
    ended = await library.run(row, body)
    now = await row.now()
    assert (ended.status, now["status"], now["error"]) == (1, "failed", "no bucket")


async def test_report_goes_on_when_the_async_caller_is_cancelled(
    library: Library, database: Database, proxy: PostgresProxy
) -> None:
    row = await insert_row(database)
    rule = proxy.add(verbs.drop_before, runs("task_finish"), nth(1, 2, 3))
    body = """
        import asyncio
        async def main():
            try:
                async with asyncio.timeout(None) as limit:
                    async with task() as t:
                        t.finish(17)
                        limit.reschedule(asyncio.get_running_loop().time() + 0.05)
            except TimeoutError:
                say("late")
        asyncio.run(main())
    """
    ended = await library.run(row, body, TASK_DATABASE_URL=proxy.url(database.url("task")))
    assert (ended.status, ended.out, rule.hits) == (DONE, b"late\n", 3), ended
    assert (await row.now())["result"] == 17


async def test_start_that_its_caller_gave_up_is_not_asked_again(
    library: Library, database: Database, proxy: PostgresProxy
) -> None:
    row = await insert_row(database)
    rule = proxy.add(verbs.drop_before, connects)
    body = f"""
        import asyncio
        async def main():
            try:
                async with asyncio.timeout(0.5):
                    async with task() as t: ...
            except TimeoutError:
                say("TASK_TAKEN_BY" in os.environ)
                {UNTIL_TOLD}
        asyncio.run(main())
    """
    async with library.runs(row, body, TASK_DATABASE_URL=proxy.url(database.url("task"))) as wrapper:
        await wrapper.says("False\nbegun")
        assert rule.hits
        rule.end()
        wrapper.go()
        assert (await wrapper.has_ended()).status == DONE
    assert await row.status() == "waiting"


@pytest.mark.parametrize("busy", BUSY)
async def test_busy_body_does_not_stop_heartbeats(library: Library, database: Database, busy: str) -> None:
    row = await insert_row(database)
    async with library.runs(row, BUSY[busy]) as wrapper:
        await wrapper.says("begun")
        await is_beating(row)
        await is_beating(row)
        await row.cancel()
        assert (await wrapper.has_ended()).status == DONE
    assert await row.status() == "cancelled"


async def test_stderr_that_nobody_reads_does_not_stop_heartbeats(library: Library, database: Database) -> None:
    row = await insert_row(database)
    reading, writing = os.pipe()
    body = """
        import threading
        with quick() as t:
            threading.Thread(target=lambda: [os.write(2, b"x" * 4096) for _ in range(1000)], daemon=True).start()
            say("begun")
            waits(lambda: t.cancelled)
            say("seen")
            sys.stdin.readline()
            os._exit(7)
    """
    try:
        async with library.runs(row, body, stderr=writing) as wrapper:
            await wrapper.says("begun")
            await is_beating(row)
            await row.cancel()
            await wrapper.says("seen")
            await is_beating(row)
            wrapper.go()
            assert await wrapper.is_gone() == 7
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("child", CHILDREN)
async def test_forked_child_does_not_report(
    library: Library, database: Database, proxy: PostgresProxy, child: str
) -> None:
    """The child has ended before the body goes on, and the row is still ours."""
    row = await insert_row(database)
    reports = proxy.add(verbs.delay(0), runs("task_finish", "task_start"))
    body = FORKING.format(child=CHILDREN[child], kill=child == "that is terminated")
    async with library.runs(row, body, TASK_DATABASE_URL=proxy.url(database.url("task"))) as wrapper:
        await wrapper.says("begun")
        await is_beating(row)
        wrapper.go()
        ended = await wrapper.has_ended(is_traced=True)
    assert (ended.status, (await row.now())["result"], reports.hits) == (DONE, 17, 2), ended
    if child == "that is terminated":  # by the default action, which ends code in C, too
        assert ended.out == b"True\n-15\nbegun\n"


@pytest.mark.parametrize(
    ("guard", "told"), [("if __name__ == '__main__':", b"body\nworked\n"), ("if True:", b"body\n")]
)
async def test_spawned_child_does_not_take_the_task_again(
    database: Database, tmp_path: Path, guard: str, told: bytes
) -> None:
    row = await insert_row(database)
    program = tmp_path / "program.py"
    program.write_text(SPAWNING.format(guard=guard))
    async with wrapped(row, program=(sys.executable, str(program)), PYTHONPATH=ROOT) as wrapper:
        ended = await wrapper.has_ended(is_traced=True)
    assert (ended.status, ended.out, await row.status()) == (DONE, told, "succeeded"), ended
    assert ("TASK_TAKEN_BY is set: the task is taken already: begin it once" in ended.said) == (guard == "if True:")


async def test_body_on_uvloop_takes_its_row_and_reports(database: Database) -> None:
    row = await insert_row(database)
    body = """
        import asyncio, uvloop, warnings
        warnings.simplefilter("ignore")
        async def main():
            async with quick() as t:
                await asyncio.sleep(0)
                t.finish(17)
        uvloop.run(main())
    """
    ended = await Library("asyncpg").run(row, body)
    assert (ended.status, (await row.now())["result"]) == (DONE, 17), ended
