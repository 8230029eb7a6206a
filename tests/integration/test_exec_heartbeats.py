"""`dispatcher exec` and its heartbeats: one every 15 s, with its answers.

The interval and the patience of 30 s belong to the program, so one test has all stories that wait for them.
"""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import TypeAlias

import pytest

from tests.controlplane.waiting import wait_for
from tests.faults import postgres_verbs as verbs
from tests.faults.postgres_proxy import PostgresProxy, connects, runs
from tests.faults.rules import Gate, nth
from tests.rig.execing import DONE, FOR_EVER, TERMINATED, UNTIL_TOLD, Wrapper, sh, wrapped
from tests.rig.postgres import Database, PostgresServer
from tests.rig.rows import Row, insert_row

HEARTBEAT_SECONDS = 15
LATE_SECONDS = 10
Story: TypeAlias = "Callable[[Row, PostgresProxy], Coroutine[object, object, None]]"
IGNORES_SIGTERM = f"trap '' TERM; {FOR_EVER} & {FOR_EVER} & echo begun; while :; do sleep 1; done"
# Prints the grace of a cancel, how the command ended, and whether that took the given grace.
STOP_PROGRAM = """
import asyncio, os, sys, time
from dispatcher.container.exec import GRACE_SECONDS
from dispatcher.container.exec import CommandRun
async def main():
    command = CommandRun(sys.argv[1:], dict(os.environ))
    command.start()
    await asyncio.to_thread(sys.stdin.readline)
    began = time.monotonic()
    command.stop(0.5)
    print(GRACE_SECONDS, await command.wait(), 0.5 <= time.monotonic() - began < 5)
asyncio.run(main())
"""
# A row that asks for a cancel when the command has ended, and a process that it left still has its stderr.
LATE_CANCEL = """
import asyncio, os, sys
from dispatcher.container.exec import LaunchRun, Work
from dispatcher.container.row import Codes
class Row:
    async def start(self):
        return "token", "null"
    async def heartbeat(self, token, progress):
        while run.command.is_running:
            await asyncio.sleep(0.01)
        print("asked", flush=True)
        return "cancel"
    async def finish(self, token, report):
        print(report.outcome, flush=True)
async def main():
    global run
    run = LaunchRun(Row(), Work(sys.argv[1:], dict(os.environ), Codes(), 60, heartbeat_seconds=0))
    await run.go()
asyncio.run(main())
"""
# The row is lost while its command runs.
LOST = """
import asyncio, os, sys
from dispatcher.container.exec import LaunchRun, Work
from dispatcher.container.row import Codes
class Row:
    async def start(self):
        return "token", "null"
    async def heartbeat(self, token, progress):
        await asyncio.to_thread(sys.stdin.readline)
        return "lost"
    async def finish(self, token, report):
        print(report.outcome, flush=True)
run = LaunchRun(Row(), Work(sys.argv[1:], dict(os.environ), Codes(), 60, heartbeat_seconds=0))
sys.exit(asyncio.run(run.go()))
"""
ANSWERS = f"trap 'echo told; exit {{}}' TERM; {UNTIL_TOLD}; while :; do sleep 0.1; done"


async def test_command_that_ignores_sigterm_is_killed_after_its_grace(database: Database) -> None:
    """The grace is an argument here, so the test does not wait for half a minute."""
    row = await insert_row(database)
    async with wrapped(row, *sh(IGNORES_SIGTERM), program=(sys.executable, "-c", STOP_PROGRAM)) as stopper:
        await stopper.says("begun")
        stopper.go()
        assert (await stopper.has_ended()).out == b"begun\n30 -9 True\n"
        assert stopper.living() == []


async def test_cancel_that_is_heard_after_the_end_leaves_it_as_it_is(database: Database) -> None:
    row, leaves = await insert_row(database), sh("exec 3<&0; setsid cat <&3 >/dev/null & exit 0")
    async with wrapped(row, *leaves, program=(sys.executable, "-c", LATE_CANCEL)) as wrapper:
        await wrapper.says("asked")
        assert (await wrapper.has_ended()).out.splitlines()[-1] == b"succeeded"


async def test_command_of_a_lost_row_that_exits_with_0_is_not_done(database: Database) -> None:
    """A restore may set the row back to `waiting`. An exit with 0 would park it, as if the work might be done."""
    row = await insert_row(database)
    for end, status in (("exit 0", TERMINATED), ("exit 3", 3), ('echo 17 >"$TASK_RESULT_FILE"; exit 0', DONE)):
        stops = sh(f"trap '{end}' TERM; echo begun; while :; do sleep 0.05; done")
        async with wrapped(row, *stops, program=(sys.executable, "-c", LOST)) as wrapper:
            await wrapper.says("begun")
            wrapper.go()
            ended = await wrapper.has_ended()
        assert (ended.status, ended.out) == (status, b"begun\n"), ended


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_heartbeats_carry_cancels_and_survive_outages(postgres: PostgresServer) -> None:
    """All stories at once, because they wait. Each has its own database, and so its own connections."""
    told = await asyncio.gather(*(run_story(story, postgres) for story in STORIES), return_exceptions=True)
    if faults := [one for one in told if isinstance(one, Exception)]:
        raise ExceptionGroup("stories", faults)


async def run_story(story: Story, postgres: PostgresServer) -> None:
    database = await postgres.create_database()
    try:
        async with PostgresProxy(postgres.admin_url) as proxy:
            await story(await insert_row(database), proxy)
    except Exception as fault:  # any fault gets the name of its story
        fault.add_note(f"in {story.__name__}")
        raise
    finally:
        await database.drop()


async def beats(row: Row, after: datetime | None = None, seconds: float = HEARTBEAT_SECONDS) -> datetime:
    """The time of the next heartbeat."""
    since = after or (await row.now())["started_at"]

    async def has_beaten() -> bool:
        return bool((await row.now())["heartbeat_at"] > since)

    await wait_for(has_beaten, "a heartbeat", seconds + LATE_SECONDS)
    at: datetime = (await row.now())["heartbeat_at"]
    return at


async def ends(wrapper: Wrapper, seconds: float = HEARTBEAT_SECONDS) -> int:
    return await wrapper.is_gone(seconds + LATE_SECONDS)


async def are_regular(row: Row, _: PostgresProxy) -> None:
    script = f'echo 0.1 first >"$TASK_PROGRESS_FILE"; {UNTIL_TOLD}; echo "0.42 reading month 5" >>"$TASK_PROGRESS_FILE"'
    async with wrapped(row, *sh(f"{script}; echo told; read -r go")) as wrapper:
        await wrapper.says("begun")
        started = (await row.now())["started_at"]
        first = await beats(row)
        assert await progress_of(row) == "0.1 first"
        wrapper.go()
        await wrapper.says("told")
        second = await beats(row, first)
        assert await progress_of(row) == "0.42 reading month 5"
        wrapper.go()
        assert (await wrapper.has_ended()).status == DONE
    assert 14 < (first - started).total_seconds() < 20
    assert 14 < (second - first).total_seconds() < 20


async def progress_of(row: Row) -> str:
    now = await row.now()
    return f"{now['progress']:g} {now['note']}"


async def cancels(row: Row, _: PostgresProxy, reason: str | None = "not needed") -> None:
    """The reason becomes the error of the row, whatever the command wrote; without a reason there is no error."""
    async with wrapped(row, *sh(f"echo busy >&2; {UNTIL_TOLD}")) as wrapper:
        await wrapper.says("begun")
        await row.cancel(reason)
        assert await ends(wrapper) == TERMINATED
        assert wrapper.living() == []
    now = await row.now()
    assert (now["status"], now["error"]) == ("cancelled", reason)


async def cancels_without_a_reason(row: Row, proxy: PostgresProxy) -> None:
    await cancels(row, proxy, None)


async def cancels_a_command_that_exits_0(row: Row, _: PostgresProxy) -> None:
    """Also if the command exits with 0: it was asked to stop, so its work is not done."""
    async with wrapped(row, *sh(ANSWERS.format(0))) as wrapper:
        await wrapper.says("begun")
        await row.cancel("stop it")
        assert await ends(wrapper) == DONE
    now = await row.now()
    assert (bytes(wrapper.out), now["status"], now["error"]) == (b"begun\ntold\n", "cancelled", "stop it")


async def leaves_a_lost_row(row: Row, proxy: PostgresProxy) -> None:
    """Also if the command exits with 0: exec does not even send a report, and does not exit with 0 itself."""
    rule = proxy.add(verbs.delay(0), runs("task_finish"))
    url = proxy.url(row.database.url("task"))
    async with wrapped(row, *sh(ANSWERS.format(0)), TASK_DATABASE_URL=url) as wrapper:
        await wrapper.says("begun")
        await row.retry()
        before = await row.now()
        assert await ends(wrapper) == TERMINATED
        assert wrapper.living() == []
    assert (await wrapper.has_ended()).out == b"begun\ntold\n"
    assert (await row.now(), rule.seen) == (before, 0)


async def asks_again_after_a_lost_answer(row: Row, proxy: PostgresProxy) -> None:
    rule = proxy.add(verbs.drop_before, runs("task_heartbeat"), nth(1))
    url = proxy.url(row.database.url("task"))
    async with wrapped(row, *sh(UNTIL_TOLD), TASK_DATABASE_URL=url) as wrapper:
        await wrapper.says("begun")
        await beats(row, seconds=2 * HEARTBEAT_SECONDS)
        assert rule.hits == 1
        wrapper.go()
        assert (await wrapper.has_ended()).status == DONE
    assert await row.status() == "succeeded"


async def survives_silence(row: Row, proxy: PostgresProxy) -> None:
    """The connection stays open and passes nothing on. The report uses another one."""
    rule = proxy.add(verbs.freeze(Gate()), runs("task_heartbeat"), nth(1))
    url = proxy.url(row.database.url("task"))
    async with wrapped(row, *sh(UNTIL_TOLD), TASK_DATABASE_URL=url) as wrapper:
        await wrapper.says("begun")
        await wait_for(lambda: rule.hits, "a heartbeat is frozen", HEARTBEAT_SECONDS + LATE_SECONDS)
        wrapper.go()
        assert (await wrapper.has_ended()).status == DONE
    assert await row.status() == "succeeded"


async def goes_on_through_an_outage(row: Row, proxy: PostgresProxy) -> None:
    url = proxy.url(row.database.url("task"))
    async with wrapped(row, *sh(UNTIL_TOLD), TASK_DATABASE_URL=url) as wrapper:
        await wrapper.says("begun")
        outage = [proxy.add(verbs.drop_before, matches) for matches in (runs("task_heartbeat"), connects)]

        def hits() -> int:
            return sum(rule.hits for rule in outage)

        await wait_for(hits, "a call finds no database", HEARTBEAT_SECONDS + LATE_SECONDS, check=wrapper.check)
        wrapper.go()
        before = hits()
        await wait_for(lambda: hits() > before, "a report fails", check=wrapper.check)
        for rule in outage:
            rule.end()
        assert (await wrapper.has_ended()).status == DONE
    assert await row.status() == "succeeded"


async def goes_on_after_a_stop(row: Row, _: PostgresProxy) -> None:
    """A command that takes its time after SIGTERM keeps sending heartbeats meanwhile."""
    done = 'echo null > "$TASK_RESULT_FILE"'
    async with wrapped(row, *sh(f"trap '' TERM; {UNTIL_TOLD}; {done}")) as wrapper:
        await wrapper.says("begun")
        wrapper.terminate()
        await beats(row)
        wrapper.go()
        assert (await wrapper.has_ended()).status == DONE
    assert await row.status() == "succeeded"


async def goes_on_where_nobody_reads(row: Row, _: PostgresProxy) -> None:
    """A full pipe behind stderr stops the command's writing, but neither heartbeats nor a cancel."""
    reading, writing = os.pipe()
    try:
        async with wrapped(row, *sh("echo begun; yes >&2"), stderr=writing) as wrapper:
            await wrapper.says("begun")
            await beats(row)
            await row.cancel("enough")
            assert await ends(wrapper) == TERMINATED
            assert wrapper.living() == []
    finally:
        os.close(reading)
        os.close(writing)
    assert (await row.status(), (await row.now())["error"]) == ("cancelled", "enough")


STORIES: tuple[Story, ...] = (
    are_regular,
    cancels,
    cancels_without_a_reason,
    cancels_a_command_that_exits_0,
    leaves_a_lost_row,
    asks_again_after_a_lost_answer,
    survives_silence,
    goes_on_through_an_outage,
    goes_on_after_a_stop,
    goes_on_where_nobody_reads,
)
