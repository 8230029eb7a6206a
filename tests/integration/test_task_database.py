"""`dispatcher.task` without a database, or with lost answers: one start, one body, one report."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.controlplane.waiting import wait_for
from tests.faults import postgres_verbs as verbs
from tests.faults.postgres_proxy import PostgresProxy, connects, runs
from tests.faults.rules import Gate, nth
from tests.rig.execing import DONE, PUT_OFF, UNAVAILABLE, Ended, one_proxy, wrapped
from tests.rig.losses import LOSSES, NOWHERE, UNREADABLE, succeeded_once, through
from tests.rig.poolers import REFUSALS, pooler
from tests.rig.postgres import Database, PostgresServer, url_with
from tests.rig.postgres_fixtures import one_database
from tests.rig.rows import Row, insert_row
from tests.rig.tasking import UNTIL_TOLD, Library, either_library, is_beating

database, library, proxy = one_database, either_library, one_proxy

RESULT = "with quick() as t: say('ran'); t.finish(17)"
SECRETIVE = {
    "an @ in the password": "postgresql://task:hush@er@nowhere.invalid:5432/rows",
    "a slash in the password": "postgresql://task:hu/sher@127.0.0.1:5432/rows",
    "a bad escape": "postgresql://task:hush%zz@127.0.0.1:hush/rows",
}


@pytest.mark.slow
async def test_lost_call_is_repeated_and_done_once(
    library: Library, database: Database, postgres: PostgresServer
) -> None:
    async def losing(row: Row, name: str) -> tuple[bool, int, bytes]:
        async with PostgresProxy(postgres.admin_url) as proxy:
            rule = proxy.add(*LOSSES[name], nth(1))
            ended = await library.run(row, RESULT, TASK_DATABASE_URL=through(proxy, row))
        return rule.hits > 0, ended.status, ended.out

    rows = {name: await insert_row(database) for name in LOSSES}
    ended = {name: await losing(row, name) for name, row in rows.items()}
    assert ended == dict.fromkeys(LOSSES, (True, DONE, b"ran\n"))
    assert [await succeeded_once(row) for row in rows.values()] == [True] * len(rows)


async def test_retry_with_a_lost_answer_is_one_retry(
    library: Library, database: Database, proxy: PostgresProxy
) -> None:
    row = await insert_row(database, max_failures=5)
    rule = proxy.add(verbs.drop_after, runs("task_finish"), nth(1))
    ended = await library.run(row, "with task(): 1 / 0", TASK_DATABASE_URL=through(proxy, row))
    now = await row.now()
    assert (rule.hits, rule.seen, ended.status) == (1, 2, 1)
    assert (now["status"], now["attempt"], now["failures"]) == ("waiting", 2, 1)


async def test_absent_database_is_asked_until_it_is_there(
    library: Library, database: Database, proxy: PostgresProxy
) -> None:
    row = await insert_row(database)
    rule = proxy.add(verbs.drop_before, connects)
    async with library.runs(row, RESULT, TASK_DATABASE_URL=through(proxy, row)) as wrapper:
        await wait_for(lambda: rule.hits >= 3, "the library has asked three times", 20, check=wrapper.check)
        rule.end()
        ended = await wrapper.has_ended()
    assert (ended.status, ended.out) == (DONE, b"ran\n")
    assert "asked again" in ended.said
    assert await succeeded_once(row)


async def test_body_goes_on_without_the_database_and_is_reported_later(
    library: Library, database: Database, proxy: PostgresProxy
) -> None:
    row = await insert_row(database)
    body = f"with quick() as t: {UNTIL_TOLD}; t.finish(17)"
    async with library.runs(row, body, TASK_DATABASE_URL=through(proxy, row)) as wrapper:
        await wrapper.says("begun")
        rule = proxy.add(verbs.drop_before, connects)
        await wait_for(lambda: b"task_heartbeat: " in wrapper.err, "a heartbeat fails", check=wrapper.check)
        wrapper.go()
        await wait_for(lambda: b"task_finish: " in wrapper.err, "a report fails", check=wrapper.check)
        assert await row.status() == "processing"
        rule.end()
        assert (await wrapper.has_ended()).status == DONE
    assert await succeeded_once(row)


async def test_heartbeats_go_on_after_a_lost_answer(library: Library, database: Database, proxy: PostgresProxy) -> None:
    row = await insert_row(database)
    rule = proxy.add(verbs.drop_after, runs("task_heartbeat"), nth(1, 2))
    async with library.runs(row, f"with quick(): {UNTIL_TOLD}", TASK_DATABASE_URL=through(proxy, row)) as wrapper:
        await wrapper.says("begun")
        await wait_for(lambda: rule.seen > 3, "more heartbeats", check=wrapper.check)
        await is_beating(row)
        wrapper.go()
        assert (await wrapper.has_ended()).status == DONE


@pytest.mark.slow
@pytest.mark.parametrize("step", ["heartbeat", "connect"])
async def test_frozen_connection_is_given_up(
    library: Library, database: Database, proxy: PostgresProxy, step: str
) -> None:
    """It stays open and passes nothing on. The next heartbeat uses another one."""
    row = await insert_row(database)
    matches, turn = (runs("task_heartbeat"), 1) if step == "heartbeat" else (connects, 2)
    rule = proxy.add(verbs.freeze(Gate()), matches, nth(turn))
    body = "with quick() as t: say('begun'); waits(lambda: t.cancelled)"
    async with library.runs(row, body, TASK_DATABASE_URL=through(proxy, row)) as wrapper:
        await wait_for(lambda: rule.hits, "a connection is frozen", check=wrapper.check)
        await row.cancel()
        ended = await wrapper.has_ended(30)
    assert (ended.status, await row.status()) == (DONE, "cancelled")
    assert "task_heartbeat: " in ended.said


async def test_no_connection_is_open_between_calls(library: Library, database: Database) -> None:
    row = await insert_row(database)
    admin = await database.session("admin")
    asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND application_name = 'dispatcher/task'"

    async def is_alone() -> bool:
        return not await admin.fetchval(asked, database.name)

    async with library.runs(row, f"with task(): {UNTIL_TOLD}") as wrapper:
        await wrapper.says("begun")
        await wait_for(is_alone, "its connection is closed")
        wrapper.go()
        assert (await wrapper.has_ended()).status == DONE


@pytest.mark.slow
async def test_report_that_cannot_be_delivered_is_no_exit_with_0(
    library: Library, database: Database, proxy: PostgresProxy
) -> None:
    """The body and the program around it may do with exceptions whatever they like."""
    proxy.add(verbs.drop_before, runs("task_finish"))
    for body, word in (("pass", ""), ("sys.exit(0)", ""), ("1 / 0", "ZeroDivisionError: division by zero")):
        row = await insert_row(database)
        program = f"""
            try:
                with task() as t: {body}
            except Exception:
                say("swallowed")
        """
        ended = await library.run(row, program, TASK_DATABASE_URL=through(proxy, row), TASK_TIMEOUT_SECONDS=1)
        assert (ended.status, ended.out, await row.status()) == (UNAVAILABLE, b"", "processing"), ended
        assert "could not be reported: " in ended.said
        assert word in ended.said
        assert "task:task" not in ended.said


async def test_database_absent_at_the_start_for_longer_than_the_run_limit_ends_the_process(
    library: Library, database: Database
) -> None:
    row = await insert_row(database)
    url = url_with(database.url("task"), host=NOWHERE)
    ended = await library.run(row, RESULT, TASK_DATABASE_URL=url, TASK_TIMEOUT_SECONDS=1)
    assert (ended.status, ended.out, await row.status()) == (PUT_OFF, b"", "waiting")
    assert "asked again" in ended.said
    assert "dispatcher.task: not started: " in ended.said
    assert "task:task" not in ended.said


@pytest.mark.slow
async def test_wrong_login_is_asked_again_without_its_password(library: Library, database: Database) -> None:
    urls = [
        database.url("task").replace("task:task", "task:hush"),
        database.url("task").replace("task:task", "nobody:hush"),
        url_with(database.url("task").replace("task:task", "task:task"), database="hush_not_there"),
        database.url("observer"),
    ]
    row = await insert_row(database)
    for ended in await asyncio.gather(
        *(library.run(row, RESULT, TASK_DATABASE_URL=url, TASK_TIMEOUT_SECONDS=1) for url in urls)
    ):
        assert (ended.status, ended.out) == (PUT_OFF, b""), ended
        assert "asked again" in ended.said
        assert "hush@" not in ended.said
    assert await row.status() == "waiting"


async def test_url_that_cannot_be_read_is_reported_without_its_password(library: Library, database: Database) -> None:
    row = await insert_row(database)
    urls = UNREADABLE | SECRETIVE

    async def run(url: str) -> Ended:
        return await library.run(row, RESULT, TASK_DATABASE_URL=url, TASK_TIMEOUT_SECONDS=1)

    for name, ended in zip(urls, await asyncio.gather(*map(run, urls.values())), strict=True):
        assert (ended.status, ended.out) in {(1, b""), (PUT_OFF, b"")}, (name, ended)
        assert not any(part in ended.said for part in ("hush", "sher", "@er")), (name, ended)
        assert "TASK_DATABASE_URL" in ended.said or name == "an @ in the password", (name, ended)


async def test_variable_of_the_images_own_database_is_named(library: Library, database: Database) -> None:
    row = await insert_row(database)
    ended = await library.run(row, RESULT, PGSSLMINPROTOCOLVERSION="TLSv9", TASK_TIMEOUT_SECONDS=1)
    assert (ended.status, "PGSSLMINPROTOCOLVERSION" in ended.said, await row.status()) == (1, True, "waiting"), ended


WITHOUT_CAPABILITIES = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all") if os.geteuid() == 0 else ()


async def test_home_of_another_user_is_named(database: Database, tmp_path: Path) -> None:
    """A program that root starts, and that goes on as another user, often keeps the HOME of root."""
    row, home = await insert_row(database), tmp_path / "home"
    home.mkdir(0)
    program = (*WITHOUT_CAPABILITIES, *Library("asyncpg").program(RESULT))
    async with wrapped(row, program=program, HOME=home) as wrapper:
        ended = await wrapper.has_ended(is_traced=True)
    assert (ended.status, f"{home}/.postgresql, which is closed to this account" in ended.said) == (1, True), ended
    assert await row.status() == "waiting"


@pytest.mark.parametrize("kind", REFUSALS)
async def test_pooler_that_refuses_a_setting_is_asked_without_it(
    library: Library, database: Database, kind: str
) -> None:
    row = await insert_row(database)
    async with pooler(database.url("task"), kind) as (url, startups):
        ended = await library.run(row, RESULT, TASK_DATABASE_URL=url)
    assert (ended.status, await row.status()) == (DONE, "succeeded"), ended
    assert [b"search_path" in startup for startup in startups] == [True, False] * 2
