"""A database with live rows is upgraded from the schema before derived keys; no container notices."""

from __future__ import annotations

from dataclasses import dataclass

import asyncpg
import pytest
import pytest_asyncio

from dispatcher.model.errors import DatabaseUnfit
from dispatcher.model.identity import start_key
from dispatcher.pg.connect import open_connection
from dispatcher.pg.migrate import NEWEST, WRITING, apply, migrate, plan_migrations, prepare, read_migrations
from tests.integration.looking import looking
from tests.janitor_calls import returned
from tests.postgres import Database, Record
from tests.rows import SECOND, Row, Started, contradictions

BEFORE = 7
"""The last schema version with the keys as columns."""

# The old dispatcher's statement for the data of a Job.
OLD_REQUESTS = """
SELECT id, attempt, env::text AS env, spec::text AS spec, start_key::text AS start_key, cache_key
FROM dispatch.tasks WHERE id = ANY ($1::bigint[])
"""
QUEUES = "INSERT INTO dispatch.queues (name, owner_role) VALUES ('owned', 'dispatch_operator'), ('plain', NULL)"
CHANGED = {
    *("start_key", "run_token", "run_digest", "exit_code", "reason", "queue"),
    *("batch", "labels", "progress", "note"),
}
"""Columns that the upgrade removes or adds."""


@dataclass(frozen=True)
class LiveRows:
    """The rows of the database at the upgrade, with their old keys."""

    database: Database
    handed_out: Row
    running: Row
    other: Row
    finished: Row
    retried: Row
    tokens: dict[int, Started]
    before: tuple[list[Record], list[Record]]

    @property
    def rows(self) -> list[Row]:
        return [self.handed_out, self.running, self.other, self.finished, self.retried]


async def read(database: Database) -> tuple[list[Record], list[Record]]:
    admin = await database.session("admin")
    tasks = await admin.fetch("SELECT * FROM dispatch.tasks ORDER BY id")
    return tasks, await admin.fetch("SELECT * FROM dispatch.task_launches ORDER BY task_id, attempt, launch")


async def insert(database: Database, login: str = "team_a", **columns: object) -> Row:
    """A row of the old schema, with the key that is stored in it."""
    task_id = await database.insert_task(login, **columns)
    return Row(database, task_id, (await database.task(task_id))["start_key"])


async def make_live_rows(database: Database) -> LiveRows:
    await (await database.session("admin")).execute(QUEUES)
    handed_out, running = await insert(database, payload="p"), await insert(database, payload=[1])
    other = await insert(database, "team_b", queue="owned", dedupe_key="d")
    finished, retried = await insert(database), await insert(database)
    tokens = {row.id: await row.started() for row in (running, other, finished, retried)}
    assert await finished.finish(tokens[finished.id], "succeeded", result={"lines": 3}) == "succeeded"
    assert await retried.finish(tokens[retried.id], "retry", error="again") == "waiting"
    tokens[retried.id] = await retried.started(attempt=2)
    return LiveRows(database, handed_out, running, other, finished, retried, tokens, await read(database))


@pytest_asyncio.fixture(loop_scope="session")
async def before_upgrade(empty: Database) -> LiveRows:
    """A database of the old schema."""
    connection = await open_connection(empty.admin_url, **WRITING)
    await prepare(connection)
    for migration in plan_migrations({}, [one for one in read_migrations() if one.version <= BEFORE]):
        await apply(connection, migration)
    await connection.close()
    return await make_live_rows(empty)


@pytest_asyncio.fixture(loop_scope="session")
async def upgraded(before_upgrade: LiveRows) -> LiveRows:
    """The same database after the upgrade."""
    files = [migration.name for migration in read_migrations() if migration.version > BEFORE]
    assert await migrate(before_upgrade.database.admin_url) == files
    return before_upgrade


def without_secrets(records: list[Record]) -> list[dict[str, object]]:
    return [{name: value for name, value in record.items() if name not in CHANGED} for record in records]


async def test_rows_and_launches_stay_unchanged(upgraded: LiveRows) -> None:
    now = await read(upgraded.database)
    assert [without_secrets(records) for records in now] == [without_secrets(one) for one in upgraded.before]
    assert [contradictions(record) for record in now[0]] == [[]] * len(upgraded.rows)
    assert not {"start_key", "run_token"} & {*now[0][0].keys(), *now[1][0].keys()}


async def test_old_start_key_starts_its_row(upgraded: LiveRows) -> None:
    row = upgraded.handed_out
    assert row.start_key != await upgraded.database.start_key(row.id)
    started = await row.started()
    assert started.payload == "p"
    assert await row.start() == started
    assert await row.finish(started, "succeeded") == "succeeded"


async def test_new_start_key_starts_an_old_row(upgraded: LiveRows) -> None:
    row = upgraded.handed_out
    async with looking(upgraded.database) as rows:
        task, secret = (await rows.tasks([row.id]))[row.id], await rows.start_secret()
    key = await upgraded.database.start_key(row.id)
    assert start_key(secret, task.id, task.created_at) == str(key)
    assert await row.start(start_key=key) is not None


async def test_old_start_key_of_another_row_is_refused(upgraded: LiveRows) -> None:
    assert await upgraded.handed_out.start(start_key=upgraded.running.start_key) is None
    assert await upgraded.running.start(launch=2, pod=SECOND, start_key=upgraded.other.start_key) is None


async def test_old_run_token_heartbeats_and_finishes(upgraded: LiveRows) -> None:
    for row in (upgraded.running, upgraded.other, upgraded.retried):
        started = upgraded.tokens[row.id]
        assert await row.heartbeat(started) == "continue"
        assert await row.finish(started, "succeeded", result=[1]) == "succeeded"
        assert await row.finish(started, "succeeded") == "succeeded"
        assert (await row.now())["result"] == [1]
        assert (await row.launches())[-1]["outcome"] == "succeeded"


async def test_repeated_old_report_gets_its_answer(upgraded: LiveRows) -> None:
    row = upgraded.finished
    assert await row.finish(upgraded.tokens[row.id], "succeeded") == "succeeded"


async def test_pod_that_starts_again_gets_a_valid_token(upgraded: LiveRows) -> None:
    row = upgraded.running
    again = await row.started()
    assert again.payload == [1]
    assert await row.start() == again
    assert await row.heartbeat(again) == "continue"
    assert await row.finish(again, "succeeded") == "succeeded"
    (launch,) = await row.launches()
    assert (launch["outcome"], launch["run_digest"]) == ("succeeded", again.run_digest)


async def test_another_pod_of_the_old_launch_is_refused(upgraded: LiveRows) -> None:
    row = upgraded.running
    assert await row.start(pod=SECOND) is None
    assert await row.heartbeat(upgraded.tokens[row.id]) == "continue"


async def test_next_launch_with_the_old_key_takes_over(upgraded: LiveRows) -> None:
    row = upgraded.running
    new = await row.started(launch=2, pod=SECOND)
    assert (await row.heartbeat(upgraded.tokens[row.id]), await row.heartbeat(new)) == ("lost", "continue")


async def test_old_key_starts_later_attempts(upgraded: LiveRows) -> None:
    row = upgraded.running
    assert await row.finish(upgraded.tokens[row.id], "retry") == "waiting"
    assert await row.start(attempt=1, launch=2, pod=SECOND) is None
    assert await row.start(attempt=2) is not None


async def test_old_rows_are_cancelled_and_returned(upgraded: LiveRows) -> None:
    cancelled, silent = upgraded.handed_out, upgraded.running
    assert await cancelled.cancel() == "cancelled"
    assert await cancelled.start() is None
    await silent.silent_for(61)
    assert await returned(silent, upgraded.tokens[silent.id]) == "waiting"


async def test_owned_queue_stays_open(upgraded: LiveRows) -> None:
    operator = await upgraded.database.session("operator")
    submit_roles = {row["name"]: row["submit_role"] for row in await operator.fetch("SELECT * FROM dispatch.queues")}
    assert submit_roles == {"*": None, "default": None, "owned": "dispatch_submitter", "plain": None}
    for login in ("team_a", "team_b"):
        assert await upgraded.database.insert_task(login, queue="owned")
    await operator.execute("UPDATE dispatch.queues SET submit_role = NULL WHERE name = 'owned'")
    with pytest.raises(asyncpg.PostgresError, match="you may not insert"):
        await upgraded.database.insert_task("team_b", queue="owned")


async def test_upgrade_names_the_queues_that_it_keeps_open(before_upgrade: LiveRows) -> None:
    said: list[str] = []
    connection = await open_connection(before_upgrade.database.admin_url, **WRITING)
    connection.add_log_listener(lambda _, message: said.append(f"{message} {message.hint}"))
    for migration in read_migrations():
        if migration.version > BEFORE:
            await apply(connection, migration)
    await connection.close()
    assert [all(word in words for word in ('"owned"', "submit_role")) for words in said if "owner_role" in words] == [
        True
    ]
    assert not any('"plain"' in words for words in said)
    assert await migrate(before_upgrade.database.admin_url) == []


async def test_old_dispatcher_stops_instead_of_launching(upgraded: LiveRows) -> None:
    reader = await upgraded.database.session("reader")
    with pytest.raises(asyncpg.UndefinedColumnError):
        await reader.fetch(OLD_REQUESTS, [upgraded.handed_out.id])


async def test_old_janitor_moves_no_row(upgraded: LiveRows) -> None:
    """Its statements name functions that no longer exist."""
    janitor, row = await upgraded.database.session("janitor"), upgraded.running
    token, before = upgraded.tokens[row.id].run_token, await row.now()
    old_return = "SELECT dispatch.janitor_return($1::bigint, 1, 1, $2::uuid, 1, 'gone')"
    for statement in (old_return, "SELECT dispatch.janitor_cancel($1::bigint, 1, $2::uuid)"):
        with pytest.raises(asyncpg.UndefinedFunctionError):
            await janitor.fetchval(statement, row.id, token)
    assert await row.now() == before


async def test_new_dispatcher_does_not_read_the_old_schema(before_upgrade: LiveRows) -> None:
    with pytest.raises(DatabaseUnfit, match=f"schema version is {BEFORE}, this version needs {NEWEST}"):
        async with looking(before_upgrade.database):
            pass


async def test_deleted_old_row_leaves_no_key(upgraded: LiveRows) -> None:
    admin = await upgraded.database.session("admin")
    kept = "SELECT array_agg(task_id ORDER BY task_id) FROM dispatch.earlier_start_keys"
    live_ids = [row.id for row in upgraded.rows if row is not upgraded.finished]
    assert await admin.fetchval(kept) == live_ids
    gone = upgraded.handed_out
    await gone.cancel()
    await admin.execute("UPDATE dispatch.tasks SET finished_at = now() - interval '9 days' WHERE id = $1", gone.id)
    assert await (await upgraded.database.session("janitor")).fetchval("SELECT dispatch.janitor_delete(7, 10)") == 1
    assert await admin.fetchval(kept) == live_ids[1:]
