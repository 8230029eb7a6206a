"""`dispatcher exec` without a database, or with lost answers; and its costs for every container: time and memory."""

import asyncio
import sys
import time
from collections.abc import Sequence
from statistics import median

import pytest

from tests.controlplane.waiting import wait_for
from tests.faults import postgres_verbs as verbs
from tests.faults.postgres_proxy import Matches, PostgresProxy, Verb, connects, runs
from tests.faults.rules import nth
from tests.rig.execing import DONE, PROGRAM, PUT_OFF, UNAVAILABLE, UNTIL_TOLD, execute, one_proxy, sh, wrapped
from tests.rig.losses import LOSSES, NOWHERE, succeeded_once, through
from tests.rig.postgres import Database, PostgresServer, url_with
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import Row, insert_row

database, proxy = one_database, one_proxy

RESULT = sh('echo ran; echo 17 > "$TASK_RESULT_FILE"')


async def test_lost_call_is_repeated_and_done_once(database: Database, postgres: PostgresServer) -> None:
    rows = [await insert_row(database) for _ in LOSSES]
    losing_runs = (losing(row, postgres, *loss) for row, loss in zip(rows, LOSSES.values(), strict=True))
    ended = dict(zip(LOSSES, await asyncio.gather(*losing_runs), strict=True))
    assert ended == dict.fromkeys(LOSSES, (1, DONE, b"ran\n"))
    assert [await succeeded_once(row) for row in rows] == [True] * len(rows)


async def losing(row: Row, postgres: PostgresServer, verb: Verb, matches: Matches) -> tuple[int, int, bytes]:
    async with PostgresProxy(postgres.admin_url) as proxy:
        rule = proxy.add(verb, matches, nth(1))
        ended = await execute(row, *RESULT, TASK_DATABASE_URL=through(proxy, row))
    return rule.hits, ended.status, ended.out


async def test_start_with_a_lost_answer_keeps_its_token(database: Database, proxy: PostgresProxy) -> None:
    row = await insert_row(database)
    rule = proxy.add(verbs.drop_after, runs("task_start"), nth(1))
    again = proxy.add(verbs.drop_before, connects, lambda _: rule.hits > 0)
    async with wrapped(row, *RESULT, TASK_DATABASE_URL=through(proxy, row)) as wrapper:
        await wait_for(lambda: again.hits, "exec asks again", check=wrapper.check)
        before = await row.now()
        assert before["status"] == "processing"
        again.end()
        assert (await wrapper.has_ended()).status == DONE
    assert await succeeded_once(row)
    (launch,) = await row.launches()
    assert (launch["run_digest"], launch["started_at"]) == (before["run_digest"], before["started_at"])


async def test_retry_with_a_lost_answer_is_one_retry(database: Database, proxy: PostgresProxy) -> None:
    row = await insert_row(database, max_failures=5)
    rule = proxy.add(verbs.drop_after, runs("task_finish"), nth(1))
    ended = await execute(row, *sh("exit 75"), TASK_DATABASE_URL=through(proxy, row))
    now = await row.now()
    assert (rule.hits, rule.seen, ended.status) == (1, 2, 75)
    assert (now["status"], now["attempt"], now["failures"]) == ("waiting", 2, 1)


async def test_absent_database_is_asked_until_it_is_there(database: Database, proxy: PostgresProxy) -> None:
    row = await insert_row(database)
    rule = proxy.add(verbs.drop_before, connects)
    async with wrapped(row, *RESULT, TASK_DATABASE_URL=through(proxy, row)) as wrapper:
        await wait_for(lambda: rule.hits >= 3, "exec has asked three times", 20, check=wrapper.check)
        rule.end()
        ended = await wrapper.has_ended()
    assert (ended.status, ended.out) == (DONE, b"ran\n")
    assert "task" not in {word for line in ended.said.splitlines() for word in line.split(":")}, "no password"
    assert await succeeded_once(row)


async def test_database_without_free_connections_counts_as_absent(database: Database) -> None:
    """The database answers, but has no room. That is no final refusal."""
    row = await insert_row(database)
    admin = await database.session("admin")
    limit = f'ALTER DATABASE "{database.name}" CONNECTION LIMIT'
    await admin.execute(f"{limit} 0")
    try:
        async with wrapped(row, *RESULT) as wrapper:
            await wait_for(lambda: wrapper.err, "exec says that it waits", check=wrapper.check)
            await admin.execute(f"{limit} -1")
            ended = await wrapper.has_ended()
    finally:
        await admin.execute(f"{limit} -1")
    assert (ended.status, ended.out) == (DONE, b"ran\n")
    assert await succeeded_once(row)


async def test_command_goes_on_without_the_database_and_is_reported_later(
    database: Database, proxy: PostgresProxy
) -> None:
    row = await insert_row(database)
    script = sh(f'{UNTIL_TOLD}; echo went on; echo 17 > "$TASK_RESULT_FILE"')
    async with wrapped(row, *script, TASK_DATABASE_URL=through(proxy, row)) as wrapper:
        await wrapper.says("begun")
        rule = proxy.add(verbs.drop_before, connects)
        proxy.sever()
        wrapper.go()
        await wrapper.says("went on")
        await wait_for(lambda: rule.hits >= 2, "exec has asked twice", 20, check=wrapper.check)
        assert await row.status() == "processing"
        rule.end()
        ended = await wrapper.has_ended()
    assert ended.status == DONE
    assert await succeeded_once(row)


async def test_database_absent_for_longer_than_the_run_limit_is_given_up(
    database: Database, proxy: PostgresProxy
) -> None:
    """Before the start, where nothing listens; and at the report."""
    row, never = await insert_row(database), await insert_row(database)
    nowhere = url_with(database.url("task"), host=NOWHERE)
    before = asyncio.create_task(execute(never, *RESULT, TASK_DATABASE_URL=nowhere, TASK_TIMEOUT_SECONDS=1))
    rule = proxy.add(verbs.drop_before, runs("task_finish"))
    after = await execute(row, *RESULT, TASK_DATABASE_URL=through(proxy, row), TASK_TIMEOUT_SECONDS=1)
    assert rule.hits
    assert (after.status, after.out, await row.status()) == (UNAVAILABLE, b"ran\n", "processing")
    assert ((await before).status, (await before).out, await never.status()) == (PUT_OFF, b"", "waiting")
    for ended in (after, await before):
        assert ended.said.splitlines()[-1].startswith("dispatcher exec: ")
        assert "task:task" not in ended.said


async def test_row_that_was_retried_meanwhile_gets_no_report(database: Database) -> None:
    row = await insert_row(database)
    async with wrapped(row, *sh(f'{UNTIL_TOLD}; echo 17 > "$TASK_RESULT_FILE"')) as wrapper:
        await wrapper.says("begun")
        await row.retry()
        before = await row.now()
        wrapper.go()
        ended = await wrapper.has_ended()
    assert ended.status == DONE
    assert await row.now() == before


async def test_command_that_ends_before_a_heartbeat_keeps_its_own_outcome(database: Database) -> None:
    """Finished work counts. A failed command has nothing more to run."""
    rows = {status: await insert_row(database) for status in (0, 1, 75)}
    for status, row in rows.items():
        async with wrapped(row, *sh(f"{UNTIL_TOLD}; exit {status}")) as wrapper:
            await wrapper.says("begun")
            await row.cancel("not needed")
            wrapper.go()
            assert (await wrapper.has_ended()).status == status
    assert [await row.status() for row in rows.values()] == ["succeeded", "cancelled", "cancelled"]


MOST_PEAK_KIB = 40 << 10
ROUNDS, MOST_ROUNDS = 5, 40
MOST_TIMES_THE_DRIVER = 1.35
OURS = {
    "dispatcher", "dispatcher.__main__",
    "dispatcher.container.asking", "dispatcher.container.contract", "dispatcher.container.dial",
    "dispatcher.container", "dispatcher.container.exec", "dispatcher.container.isolated", "dispatcher.container.row",
}  # fmt: skip


def loaded(told: str) -> set[str]:
    """The modules in the output of `-X importtime`."""
    lines = [line for line in told.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines} - {"imported package"}


async def test_exec_loads_only_the_driver_the_library_and_itself(database: Database) -> None:
    row = await insert_row(database)
    timed = (PROGRAM[0], "-I", "-X", "importtime", *PROGRAM[1:])  # as it restarts itself
    ended = await execute(row, "true", program=timed)
    bare = await asyncio.create_subprocess_exec(
        sys.executable, "-X", "importtime", "-c", "pass", stderr=asyncio.subprocess.PIPE
    )
    _, told = await bare.communicate()
    modules = loaded(ended.said) - loaded(told.decode())
    assert (ended.status, await row.status()) == (DONE, "succeeded")
    assert {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names) == {"asyncpg", "dispatcher"}
    assert {name for name in modules if name.partition(".")[0] == "dispatcher"} <= OURS


async def test_peak_memory_of_exec_is_small(database: Database) -> None:
    row = await insert_row(database)
    await execute(row, *sh("""awk '/VmHWM/ {print $2}' /proc/$PPID/status > "$TASK_RESULT_FILE" """))
    assert 0 < (await row.now())["result"] < MOST_PEAK_KIB


@pytest.mark.slow
async def test_command_starts_soon_after_exec(database: Database) -> None:
    """Compared with a bare start of the driver, in turns. A machine whose speed changes needs more rounds."""
    rounds: list[tuple[int, int]] = []
    while len(rounds) < MOST_ROUNDS and not (len(rounds) >= ROUNDS and relation(rounds) < MOST_TIMES_THE_DRIVER):
        rounds.append((await time_of_exec(database), await time_of_the_driver()))
    assert relation(rounds) < MOST_TIMES_THE_DRIVER


def relation(rounds: Sequence[tuple[int, int]]) -> float:
    """Time of exec over time of the driver: by the best time of each, or in the median round. The smaller one."""
    best = min(ours for ours, _ in rounds) / min(driver for _, driver in rounds)
    return min(best, median(ours / driver for ours, driver in rounds))


async def time_of_exec(database: Database) -> int:
    """Nanoseconds until the command runs."""
    row = await insert_row(database)
    began = time.time_ns()
    return int((await execute(row, "date", "+%s%N")).out) - began


async def time_of_the_driver() -> int:
    """Nanoseconds that a start of the driver takes."""
    began = time.time_ns()
    driver = await asyncio.create_subprocess_exec(sys.executable, "-c", "import asyncpg")
    await driver.wait()
    return time.time_ns() - began
