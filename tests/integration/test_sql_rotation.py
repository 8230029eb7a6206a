"""Rotation of secrets: keys of the generation before stay valid, older ones do not, and a run keeps its token."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

from tests.rig.postgres import Database
from tests.rig.rows import Pod, Started, insert_row

ROTATE = "SELECT dispatch.rotate_secrets()"
GENERATIONS = "SELECT array_agg(generation ORDER BY generation) FROM dispatch_private.secrets"


async def rotate(database: Database, times: int = 1) -> None:
    admin = await database.session("admin")
    for _ in range(times):
        await admin.execute(ROTATE)


async def test_keys_stay_valid_after_one_rotation(database: Database) -> None:
    """Keys of a Job that has not started and of one that has, and the token of a report."""
    waiting, running = await insert_row(database), await insert_row(database, payload=[1])
    started = await running.started()
    await rotate(database)
    assert await database.start_key(waiting.id) != waiting.start_key
    assert await waiting.start() is not None
    assert await running.start() == started
    assert await running.heartbeat(started) == "continue"
    assert await running.finish(started, "succeeded") == "succeeded"
    assert await running.finish(started, "succeeded") == "succeeded"


@pytest.mark.parametrize("login", ["team_b", "task"])
async def test_login_that_locks_the_secrets_keeps_nobody_from_a_rotation(database: Database, login: str) -> None:
    """nextval locks what it is given until the end of the transaction, before it asks for a right."""
    admin, attacker = await database.session("admin"), await database.connect(login)
    number = await admin.fetchval("SELECT 'dispatch_private.secrets'::regclass::oid::bigint")
    await attacker.execute("BEGIN; SAVEPOINT a")
    with pytest.raises(asyncpg.PostgresError):
        await attacker.fetchval(f"SELECT nextval({number}::oid)")
    await attacker.execute("ROLLBACK TO a")
    held = "SELECT count(*) FROM pg_locks WHERE relation = $1::bigint::oid AND pid = $2 AND granted"
    assert await admin.fetchval(held, number, attacker.get_server_pid()) == 1
    await admin.execute("SET lock_timeout = '2s'")
    try:
        await admin.execute(ROTATE)
    finally:
        await admin.execute("RESET lock_timeout")
        await attacker.execute("ROLLBACK")


async def test_newest_key_starts_a_row_of_before_the_rotation(database: Database) -> None:
    row = await insert_row(database)
    await rotate(database)
    assert await row.start(start_key=await database.start_key(row.id)) is not None


async def test_second_launch_takes_over_after_a_rotation(database: Database) -> None:
    row = await insert_row(database)
    first = await row.started()
    await rotate(database)
    second = await row.started(launch=2, pod=Pod("pod-2", "job-2"))
    assert (await row.heartbeat(first), await row.heartbeat(second)) == ("lost", "continue")


async def test_start_key_is_refused_after_two_rotations(database: Database) -> None:
    row = await insert_row(database)
    await rotate(database, 2)
    assert await row.start() is None
    assert await row.status() == "waiting"
    assert await row.start(start_key=await database.start_key(row.id)) is not None


async def test_run_goes_on_with_its_token_after_two_rotations(database: Database) -> None:
    row = await insert_row(database)
    started = await row.started()
    await rotate(database, 2)
    assert await row.heartbeat(started) == "continue"
    assert await row.finish(started, "succeeded") == "succeeded"


async def test_repeated_start_after_two_rotations_gets_a_valid_token(database: Database) -> None:
    """No kept secret derives the token of its run. So it gets a new token, which replaces the old one."""
    row = await insert_row(database, payload="p")
    before = await row.started()
    await rotate(database, 2)
    again = await row.start(start_key=await database.start_key(row.id))
    assert again is not None
    assert (again.run_token != before.run_token, again.payload) == (True, "p")
    assert (await row.heartbeat(before), await row.heartbeat(again)) == ("lost", "continue")
    assert await row.finish(again, "succeeded") == "succeeded"
    (launch,) = await row.launches()
    assert (launch["run_digest"], launch["outcome"]) == (again.run_digest, "succeeded")


async def test_token_without_a_kept_secret_is_replaced_once(database: Database) -> None:
    row = await insert_row(database)
    await row.started()
    await rotate(database, 2)
    key = await database.start_key(row.id)
    first = await row.start(start_key=key)
    assert isinstance(first, Started)
    assert await row.start(start_key=key) == first


async def test_secrets_are_kept_for_two_generations(database: Database) -> None:
    admin = await database.session("admin")
    kept = [await admin.fetchval(GENERATIONS)]
    for _ in range(3):
        await rotate(database)
        kept.append(await admin.fetchval(GENERATIONS))
    assert kept == [[1], [1, 2], [2, 3], [3, 4]]


async def test_two_rotations_at_once_leave_two_generations(database: Database) -> None:
    admin = await database.session("admin")
    sessions = [await database.connect() for _ in range(2)]
    for _ in range(10):
        newest = (await admin.fetchval(GENERATIONS))[-1]
        made = await asyncio.gather(*(session.fetchval(ROTATE) for session in sessions))
        assert sorted(made) == [newest + 1, newest + 2]
        assert await admin.fetchval(GENERATIONS) == [newest + 1, newest + 2]


async def test_start_during_a_rotation_is_one_start(database: Database) -> None:
    row = await insert_row(database)
    rotating = await database.connect()
    async with rotating.transaction():
        await rotating.execute(ROTATE)
        started = await row.started()
    assert await row.start() == started


async def test_owner_role_rotates_the_secrets(database: Database) -> None:
    owner = await database.connect()
    await owner.execute("SET ROLE dispatch_owner")
    assert await owner.fetchval(ROTATE) == 2
