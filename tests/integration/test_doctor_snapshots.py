"""A snapshot that a login keeps, on a real server: no dead row goes, and every login of ours can see whose it is."""

from typing import Any

import pytest

from dispatcher.doctor.finding import FindingState
from dispatcher.pg.tasks import Closings
from tests.controlplane.waiting import wait_for
from tests.integration.doctoring_database import findings
from tests.rig.postgres import Database, PostgresServer

DEAD = """
    INSERT INTO dispatch_private.tasks (submitted_by, kind, status)
    SELECT 'team_a', '\\x00', 'cancelled' FROM generate_series(1, 30000);
    DELETE FROM dispatch_private.tasks
"""


HOLDS: dict[str, tuple[dict[str, Any], str]] = {
    "a snapshot": ({"isolation": "repeatable_read", "readonly": True}, "SELECT count(*) FROM dispatch.tasks"),
    "an open transaction": ({}, "SELECT pg_current_xact_id()"),  # it has no snapshot, and is as old for everybody
}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["a snapshot", "an open transaction"])
async def test_session_with_an_old_snapshot_is_named(database: Database, how: str) -> None:
    options, statement = HOLDS[how]
    admin, holder = await database.session("admin"), await database.connect("team_b")
    holding = holder.transaction(**options)
    await holding.start()
    await holder.fetchval(statement)
    pid = holder.get_server_pid()
    await admin.execute(DEAD)
    for _ in range(120):
        await admin.execute("SELECT pg_current_xact_id()")
    await admin.execute("VACUUM dispatch_private.tasks")

    async def is_named() -> bool:
        found = {one.what: one for one in await findings(database.url("reader"))}["OldSnapshot"]
        is_his = (found.where, "team_b has a snapshot" in found.message) == (f"session {pid}", True)
        return found.state is FindingState.WARNING and is_his and f"pg_terminate_backend({pid})" in found.mend

    await wait_for(is_named, "the session is named", 30)
    (warned,) = [one for one in await findings(database.url("reader")) if one.state is FindingState.WARNING]
    assert warned.what == "OldSnapshot"
    calls = Closings(lambda: database.url("janitor"))
    assert (await calls.oldest_snapshot() or ())[::3] == (pid, f"pg_terminate_backend({pid})")
    await holding.rollback()
    await admin.execute("VACUUM dispatch_private.tasks")
    assert (await calls.oldest_snapshot() or (0,))[0] != pid
    await calls.close()

    async def is_over() -> bool:
        return {one.what: one for one in await findings(database.url("reader"))}[
            "OldSnapshot"
        ].state is FindingState.GOOD

    await wait_for(is_over, "nothing is kept any more", 30)


async def test_open_transaction_of_another_database_is_named_and_no_session_that_came_later(
    database: Database, postgres: PostgresServer
) -> None:
    """Snapshots that are taken while it is open are as old as it is."""
    other = await postgres.create_database()
    try:
        holder, later = await other.connect("admin"), await database.connect("team_b")
        async with holder.transaction(), later.transaction(isolation="repeatable_read", readonly=True):
            await holder.fetchval("SELECT pg_current_xact_id()")
            await later.fetchval("SELECT count(*) FROM dispatch.tasks")
            calls = Closings(lambda: database.url("janitor"))
            assert (await calls.oldest_snapshot() or (0,))[0] == holder.get_server_pid()
            await calls.close()
    finally:
        await other.drop()
