"""`dispatcher submit` and `dispatcher wait`: rows from a shell, with a submitter's login, on a real Postgres."""

import asyncio
import json
import os
import pty
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dispatcher.commands.wait import AwaitedBatch, Tally
from dispatcher.pg.queries import query
from dispatcher.pg.questions import BatchNow, OwnRows
from tests.rig.cli import COULD_NOT, DONE, NOWHERE, WRONG, Answer, dispatcher
from tests.rig.pages import SUBMITTER, recipes_of
from tests.rig.postgres import Database, PostgresServer
from tests.rig.postgres_fixtures import one_database, own_database
from tests.rig.rows import Row, insert_row

database = one_database
own = own_database
TIME_IS_OVER, UNKNOWN = 3, 4


async def asked(database: Database, *arguments: str, login: str = "team_a") -> Answer:
    return await dispatcher(*arguments, DATABASE_URL=database.url(login))


async def ended(row: Row, outcome: str = "succeeded", error: str | None = None) -> None:
    await row.finish(await row.started(), outcome, error=error)


@asynccontextmanager
async def waiting(database: Database, *arguments: str) -> AsyncIterator["asyncio.subprocess.Process"]:
    """`dispatcher wait` in the background; it has looked once when the body begins."""
    environ = {"PATH": os.environ["PATH"], "DISPATCHER_DATABASE_URL": database.url("team_a")}
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dispatcher", "wait", *arguments, env=environ, stdout=asyncio.subprocess.PIPE
    )
    admin = await database.session("admin")
    async with asyncio.timeout(60):
        while not await admin.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND application_name = 'dispatcher/listen'",
            database.name,
        ):
            await asyncio.wait({asyncio.ensure_future(child.wait())}, timeout=0.05)
            assert child.returncode is None
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def rest(child: "asyncio.subprocess.Process") -> tuple[int | None, list[str]]:
    async with asyncio.timeout(60):
        out, _ = await child.communicate()
    return child.returncode, out.decode().splitlines()


# submit


async def test_row_has_all_that_the_options_say(database: Database, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"month": "2026-10"}')
    answer = await asked(
        database, "submit", "--queue", "default", "--env", "REGION=eu", "--env", "EMPTY=", "--env", "SUM=a=b",
        "--payload", f"@{tmp_path / 'in.json'}", "--batch", "october", "--label", "source=shop", "--priority", "10",
        "--run-at", "2031-12-01 03:00+01", "--timeout-seconds", "60", "--max-failures", "5", "--cache-key", "maps",
    )  # fmt: skip
    assert (answer.status, answer.err) == (DONE, "")
    row = await database.task(int(answer.out))
    assert row["env"] == {"REGION": "eu", "EMPTY": "", "SUM": "a=b"}
    assert (row["payload"], row["batch"], row["labels"]) == ({"month": "2026-10"}, "october", {"source": "shop"})
    assert (row["priority"], row["timeout_seconds"], row["max_failures"], row["cache_key"]) == (10, 60, 5, "maps")
    assert row["run_at"].isoformat() == "2031-12-01T02:00:00+00:00"
    assert row["submitted_by"] == "team_a"


async def test_row_without_options_has_the_defaults(database: Database) -> None:
    answer = await asked(database, "submit", "--json")
    row = await database.task(json.loads(answer.out)["id"])
    assert (row["queue"], row["template"], row["env"], row["payload"]) == ("default", "default", {}, None)


async def test_time_without_an_offset_is_utc(own: Database) -> None:
    admin = await own.session("admin")
    await admin.execute(f"ALTER DATABASE {own.name} SET timezone = 'Asia/Kathmandu'")
    answer = await asked(own, "submit", "--run-at", "2031-12-01 03:00")
    assert (await own.task(int(answer.out)))["run_at"].isoformat() == "2031-12-01T03:00:00+00:00"
    assert "UTC without an offset" in " ".join((await asked(own, "submit", "--help")).out.split())


async def test_dedupe_key_gives_the_row_that_is_there(database: Database) -> None:
    first, second = [await asked(database, "submit", "--dedupe-key", "night") for _ in range(2)]
    assert first == second


async def test_row_of_a_key_that_comes_meanwhile_is_given_in_any_isolation(own: Database) -> None:
    admin, team = await own.session("admin"), await own.session("team_a")
    await admin.execute(f"ALTER DATABASE {own.name} SET default_transaction_isolation = 'serializable'")
    async with asyncio.timeout(30), team.transaction():
        task_id = await own.insert_task(dedupe_key="k")
        answer = asyncio.create_task(asked(own, "submit", "--dedupe-key", "k"))
        while not await admin.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"):
            assert not answer.done()
    assert ((await answer).out, (await answer).err) == (f"{task_id}\n", "")


@asynccontextmanager
async def beginning_as_another_role(database: Database, inherit: str) -> AsyncIterator[str]:
    """A login of the server that begins as dispatch_submitter."""
    admin, name = await database.session("admin"), f"svc_{database.name}"
    await admin.execute(f"CREATE ROLE {name} LOGIN {inherit} PASSWORD '{name}' IN ROLE dispatch_submitter")
    try:
        await admin.execute(f"ALTER ROLE {name} SET role = 'dispatch_submitter'")
        yield name
    finally:
        await admin.execute(f"DROP ROLE {name}")


async def test_login_that_begins_as_another_role_submits_and_waits(own: Database) -> None:
    async with beginning_as_another_role(own, "INHERIT") as login:
        task_id = await own.insert_task(login, dedupe_key="k")
        answer = await asked(own, "submit", "--dedupe-key", "k", "--wait", "--timeout", "0", login=login)
    assert (answer.status, answer.out.splitlines()[0]) == (TIME_IS_OVER, str(task_id))


async def test_login_that_does_not_inherit_is_told_that_it_does_not_see_its_row(own: Database) -> None:
    async with beginning_as_another_role(own, "NOINHERIT") as login:
        await own.insert_task(login, dedupe_key="k")
        answer = await asked(own, "submit", "--dedupe-key", "k", login=login)
    assert (answer.status, answer.out) == (COULD_NOT, "")
    assert "a row of this dedupe_key is alive" in answer.err


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--queue", "reprots"], COULD_NOT, 'queue "reprots" is not declared (DI003)'),
        (["--priority", "5000"], COULD_NOT, "(DI004)"),
        (["--priority", "99999999999"], COULD_NOT, "priority is not of the type integer (22023)"),
        (["--run-at", "tomorow"], COULD_NOT, "run_at is not of the type timestamp with time zone (22023)"),
        (["--env", "TASK_ID=7"], WRONG, "--env 'TASK_ID'"),
        (["--env", "A"], WRONG, "--env 'A' has no `=`"),
        (["--label", "A"], WRONG, "--label 'A' has no `=`"),
        (["--label", os.fsdecode(b"A=M\xfcller")], WRONG, "'--label': no UTF-8 at character 4"),
        (["--payload", "{"], WRONG, "--payload is no JSON"),
        (["--payload", "@no such file"], WRONG, "No such file"),
        (["--spec", "{'a': 1}"], WRONG, "--spec is no JSON"),
        (["--timeout", "3"], WRONG, "--timeout needs --wait"),
    ],
)
async def test_refused_row_is_named_with_its_rule(
    database: Database, arguments: list[str], status: int, said: str
) -> None:
    answer = await asked(database, "submit", *arguments)
    assert (answer.status, answer.out) == (status, "")
    assert said in answer.err
    assert "element 1" not in answer.err


async def test_refusal_shows_no_value(database: Database) -> None:
    answer = await asked(database, "submit", "--env", f"A={'hush' * 10_000}")
    assert (answer.status, "hush" in answer.err) == (COULD_NOT, False)


async def test_login_without_the_right_is_told(database: Database) -> None:
    answer = await asked(database, "submit", login="observer")
    assert (answer.status, answer.out) == (COULD_NOT, "")
    assert "the login may not do this: permission denied" in answer.err
    assert "has to name a login of dispatch_submitter for wait and submit" in answer.err
    for command in (("wait", "1"), ("submit", "--wait")):
        answer = await asked(database, *command, login="task")
        assert (answer.status, "the login may not do this: permission denied" in answer.err) == (UNKNOWN, True)


async def test_login_that_may_only_read_is_told(own: Database) -> None:
    admin = await own.session("admin")
    await admin.execute(f"ALTER ROLE team_a IN DATABASE {own.name} SET default_transaction_read_only = on")
    answer = await asked(own, "submit")
    assert (answer.status, answer.out) == (COULD_NOT, "")
    assert "the session may only read (default_transaction_read_only of its login" in answer.err


async def test_submit_waits_for_its_row(database: Database) -> None:
    answer = await asked(database, "submit", "--wait", "--timeout", "1")
    assert answer.status == TIME_IS_OVER
    assert (await database.task(int(answer.out.splitlines()[0])))["status"] == "waiting"


async def test_shell_of_the_submitters_page_inserts_and_waits(database: Database, tmp_path: Path) -> None:
    operator = await database.session("operator")
    await operator.execute("INSERT INTO dispatch.queues (name) VALUES ('reports')")
    (block,) = [one for one in recipes_of(SUBMITTER) if one.startswith("export")]
    (tmp_path / "dispatcher").symlink_to(Path(sys.executable).with_name("dispatcher"))
    shell = await asyncio.create_subprocess_exec(
        "sh", "-ec", block.replace("--timeout 3600", "--timeout 0"),
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "MY_DATABASE_URL": database.url("team_a")},
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await shell.communicate()
    assert shell.returncode == TIME_IS_OVER
    lines = out.decode().splitlines()
    assert [(await database.task(int(one)))["env"]["REGION"] for one in lines[:2]] == ["eu", "us"]
    assert lines[3].startswith("0 of 2 rows have ended; 2 left")


# wait


async def test_rows_that_have_ended_are_told_at_once(database: Database) -> None:
    good, bad, stopped = [await insert_row(database, max_failures=1) for _ in range(3)]
    await ended(good)
    await ended(bad, "failed", "out of \x1b[31mluck")
    await stopped.cancel()
    answer = await asked(database, "wait", str(good.id), str(good.id))
    assert (answer.status, answer.err) == (DONE, "")
    assert answer.out.splitlines() == [f"{good.id} succeeded", "1 of 1 rows have ended: 1 succeeded"]
    answer = await asked(database, "wait", *(str(one.id) for one in (bad, good, stopped)))
    assert answer.status == COULD_NOT
    assert answer.out.splitlines()[-1] == "3 of 3 rows have ended: 1 succeeded, 1 failed, 1 cancelled"
    assert "\x1b" not in answer.out
    assert "31mluck" in answer.out


async def test_end_is_told_when_it_comes(database: Database) -> None:
    first, second = [await insert_row(database) for _ in range(2)]
    async with waiting(database, str(first.id), str(second.id)) as child:
        await ended(second)
        assert child.stdout is not None
        async with asyncio.timeout(20):  # sooner than a look without a notification
            assert await child.stdout.readline() == f"{second.id} succeeded\n".encode()
        await ended(first)
        assert await rest(child) == (DONE, [f"{first.id} succeeded", "2 of 2 rows have ended: 2 succeeded"])


async def test_row_that_is_deleted_meanwhile_is_told(database: Database) -> None:
    row, other = [await insert_row(database) for _ in range(2)]
    async with waiting(database, str(row.id)) as child:
        admin = await database.session("admin")
        await admin.execute("DELETE FROM dispatch_private.tasks WHERE id = $1", row.id)
        await ended(other)
        assert await rest(child) == (COULD_NOT, [f"{row.id} gone", "1 of 1 rows have ended: 1 gone"])


async def test_time_that_is_over_tells_what_is_left_and_why(database: Database) -> None:
    row = await insert_row(database)
    running = await insert_row(database)
    await running.started()
    answer = await asked(database, "wait", str(row.id), str(running.id), "--timeout", "0.5")
    assert answer.status == TIME_IS_OVER
    told, *reasons = answer.out.splitlines()
    assert told == "0 of 2 rows have ended; 2 left after 1 s:" or told.endswith("after 0 s:")
    assert sorted(one.split(":")[0] for one in reasons) == ["  1 processing", "  1 waiting"]
    document = json.loads((await asked(database, "wait", str(row.id), "--timeout", "0", "--json")).out)
    assert (document["left"], document["tally"]["rows"]) == (1, 1)
    assert [(one["status"], one["rows"]) for one in document["reasons"]] == [("waiting", 1)]


async def test_rows_of_others_are_not_waited_for(database: Database) -> None:
    foreign = await insert_row(database, login="team_b")
    mine = await insert_row(database)
    answer = await asked(database, "wait", str(mine.id), str(foreign.id))
    assert (answer.status, answer.out) == (WRONG, "")
    assert f"no row that this login sees has the id {foreign.id}" in answer.err


@pytest.mark.parametrize(
    "arguments",
    [[], ["1", "--batch", "b"], ["1", "--queue", "default"], ["--queue", "default"], ["0"], ["--batch", "b\udcff"]],
)
async def test_wrong_use_is_told(database: Database, arguments: list[str]) -> None:
    assert (await asked(database, "wait", *arguments)).status == WRONG


@pytest.mark.slow
async def test_database_that_is_not_there_ends_the_command() -> None:
    answer = await dispatcher("wait", "1", DATABASE_URL=NOWHERE)
    assert (answer.status, answer.out) == (UNKNOWN, "")
    assert "does not answer" in answer.err
    assert "hush" not in answer.err


# Batches


async def test_batch_is_waited_for_as_it_grows(database: Database) -> None:
    first = await insert_row(database, batch="grows")
    async with waiting(database, "--batch", "grows") as child:
        second = await insert_row(database, batch="grows")
        await ended(first)
        await ended(second)
        status, lines = await rest(child)
    assert (status, lines[0], lines[-1]) == (DONE, "0 of 1 rows have ended", "2 of 2 rows have ended: 2 succeeded")


async def test_batch_is_found_in_each_queue_or_in_one(database: Database) -> None:
    operator = await database.session("operator")
    await operator.execute("INSERT INTO dispatch.queues (name) VALUES ('other')")
    here = await insert_row(database, batch="two")
    there = await insert_row(database, batch="two", queue="other", max_failures=1)
    foreign = await insert_row(database, login="team_b", batch="two")
    await ended(here)
    await ended(there, "failed")
    both = await asked(database, "wait", "--batch", "two")
    words = f"2 of 2 rows have ended: 1 succeeded, 1 failed\n{there.id} failed\n"
    assert (both.status, both.out) == (COULD_NOT, words)
    as_json = json.loads((await asked(database, "wait", "--batch", "two", "--json")).out)
    assert as_json["failed"] == [{"id": there.id, "status": "failed", "error": None}]
    one = await asked(database, "wait", "--batch", "two", "--queue", "default")
    assert (one.status, one.out) == (DONE, "1 of 1 rows have ended: 1 succeeded\n")
    assert await foreign.status() == "waiting"


async def test_rows_of_others_in_a_batch_of_this_name_hold_up_nobody(own: Database) -> None:
    """An owner of a queue sees them."""
    operator = await own.session("operator")
    await operator.execute(
        "INSERT INTO dispatch.queues (name, owner_role, submit_role) VALUES ('mine', 'team_a', 'dispatch_submitter')"
    )
    mine = await insert_row(own, batch="shared", queue="mine")
    await insert_row(own, login="team_b", batch="shared", queue="mine")
    await ended(mine)
    answer = await asked(own, "wait", "--batch", "shared", "--timeout", "1")
    assert (answer.status, answer.out) == (DONE, "1 of 1 rows have ended: 1 succeeded\n")


async def test_ends_that_share_a_notification_are_told_soon(database: Database) -> None:
    rows = [await insert_row(database) for _ in range(5)]
    runs = [await row.started() for row in rows]
    async with waiting(database, *(str(row.id) for row in rows)) as child:
        for row, run in zip(rows, runs, strict=True):
            await row.finish(run, "succeeded")
        async with asyncio.timeout(15):  # sooner than a look without a notification
            assert (await rest(child))[0] == DONE


class CountedRows(OwnRows):
    """Rows of a batch, as each look counts them."""

    def __init__(self, counts: Iterable[tuple[int, int, int, int]]) -> None:
        super().__init__(lambda: None)
        self._counts = iter(counts)

    async def batch(self, queues: Sequence[str], batch: str) -> BatchNow:
        return BatchNow(*next(self._counts))


@pytest.mark.parametrize(
    ("counts", "last"),
    [
        ([(2, 1, 0, 0), (1, 0, 0, 0), (1, 1, 0, 0)], Tally(2, succeeded=2)),
        ([(3, 1, 1, 0), (1, 0, 0, 0), (0, 0, 0, 0)], Tally(3, succeeded=1, failed=1, gone=1)),
        ([(2, 0, 1, 0), (2, 0, 0, 0), (2, 1, 0, 0)], Tally(2, succeeded=1)),
        ([(1, 0, 0, 0), (4, 1, 0, 1)], Tally(4, succeeded=1, cancelled=1)),
    ],
    ids=["deleted after its end", "deleted while it waited", "run again", "more rows"],
)
async def test_row_of_a_batch_that_is_deleted_keeps_how_it_ended(
    counts: list[tuple[int, int, int, int]], last: Tally
) -> None:
    awaited = AwaitedBatch(CountedRows(counts), "default", "b")
    assert [await awaited.look(lambda _: None) for _ in counts][-1] == last


async def test_end_is_seen_without_a_notification_when_the_time_is_over(database: Database) -> None:
    row = await insert_row(database)
    admin = await database.session("admin")
    async with waiting(database, str(row.id), "--timeout", "6") as child:
        await admin.execute(
            "UPDATE dispatch_private.tasks SET status = 'cancelled', finished_at = now() WHERE id = $1", row.id
        )
        status, lines = await rest(child)
    assert (status, lines[-1]) == (COULD_NOT, "1 of 1 rows have ended: 1 cancelled")


async def test_submit_that_waits_tells_its_id_in_json(database: Database) -> None:
    answer = await asked(database, "submit", "--wait", "--timeout", "0", "--json")
    first, second = map(json.loads, answer.out.splitlines())
    assert (answer.status, second["left"]) == (TIME_IS_OVER, 1)
    assert (await database.task(first["id"]))["status"] == "waiting"


async def test_batch_without_rows_is_wrong(database: Database) -> None:
    answer = await asked(database, "wait", "--batch", "nothing")
    assert (answer.status, answer.out) == (WRONG, "")
    assert "no row in the batch 'nothing'" in answer.err
    answer = await asked(database, "wait", "--batch", "nothing", "--queue", "other")
    assert "no row in the batch 'nothing' of the queue 'other'" in answer.err


async def test_rows_of_a_batch_are_read_with_one_look_at_the_login(database: Database) -> None:
    """A look costs 40 µs. One for each of 100,000 rows took most of the time that a statement may take."""
    team = await database.session("team_a")
    plan = await team.fetch("EXPLAIN " + query("rows_of_batch", "wait"), ["default"], "b", ["failed"], 10)
    assert [row[0] for row in plan if "own_name" in row[0]] == []


async def test_batch_tells_why_its_rows_wait(database: Database) -> None:
    for _ in range(3):
        await insert_row(database, batch="slow")
    answer = await asked(database, "wait", "--batch", "slow", "--timeout", "0")
    assert answer.status == TIME_IS_OVER
    assert answer.out.splitlines()[-1].startswith("  3 waiting: ")


# The database


async def test_waiting_goes_on_while_the_database_is_away(postgres: PostgresServer, database: Database) -> None:
    row, other = [await insert_row(database) for _ in range(2)]
    started = await row.started()
    async with waiting(database, str(row.id)) as child:
        await postgres.stop(immediately=True)
        await postgres.start()
        for one in (row, other):
            one.database._kept.clear()  # sessions of before
        await row.finish(started, "succeeded")
        assert (await rest(child))[0] == DONE


async def test_terminal_has_a_bar(database: Database) -> None:
    row = await insert_row(database)
    await ended(row)
    ours, theirs = pty.openpty()
    environ = {**os.environ, "DISPATCHER_DATABASE_URL": database.url("team_a"), "TERM": "xterm"}
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "dispatcher", "wait", str(row.id), env=environ, stdout=theirs
    )
    assert await child.wait() == DONE
    os.close(theirs)
    shown = os.read(ours, 4096).decode()
    os.close(ours)
    assert "rows ended" in shown
    assert "1/1" in shown
    assert shown.rstrip().endswith("1 of 1 rows have ended: 1 succeeded")
