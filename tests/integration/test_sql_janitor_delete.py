"""Old rows are deleted in batches, oldest first; other rows stay (docs/protocol.md, section 8)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from dispatcher.pg.tasks import Closings, DeletionResult
from tests.rig.janitor_calls import deleted
from tests.rig.postgres import Database
from tests.rig.rows import Row, insert_row


async def ended_days_ago(database: Database, *days: float) -> list[Row]:
    """Rows with one launch each that ended so many days ago."""
    rows = []
    admin = await database.session("admin")
    for since in days:
        row = await insert_row(database)
        await row.finish(await row.started(), "succeeded")
        at = datetime.now(UTC) - timedelta(days=since)
        await admin.execute("UPDATE dispatch_private.tasks SET finished_at = $2 WHERE id = $1", row.id, at)
        rows.append(row)
    return rows


async def left(database: Database) -> tuple[set[int], set[int]]:
    """Ids of the rows, and of the rows that launches belong to."""
    admin = await database.session("admin")
    launches = await admin.fetch("SELECT DISTINCT task_id FROM dispatch_private.task_launches")
    return {row["id"] for row in await admin.fetch("SELECT id FROM dispatch.tasks")}, {row[0] for row in launches}


async def test_old_rows_are_deleted_with_their_launches_and_others_stay(database: Database) -> None:
    old, young = await ended_days_ago(database, 3.01, 2.99)
    waiting, running = await insert_row(database), await insert_row(database)
    await running.started()
    admin = await database.session("admin")
    await admin.execute("UPDATE dispatch_private.tasks SET created_at = now() - interval '9 days', run_at = NULL")
    assert await deleted(database, 3) == 1
    assert await left(database) == ({young.id, waiting.id, running.id}, {young.id, running.id})
    assert await deleted(database, 3) == 0
    assert old.id not in (await left(database))[1]


async def test_batch_is_bounded_and_takes_the_oldest(database: Database) -> None:
    first, oldest, second, young = await ended_days_ago(database, 5, 9, 7, 2)
    assert await deleted(database, 3, most=2) == 2
    assert (await left(database))[0] == {first.id, young.id}
    assert await deleted(database, 3, most=2) == 1
    assert second.id not in (await left(database))[0]
    assert oldest.id not in (await left(database))[0]


MADE_UP = """
INSERT INTO dispatch_private.task_launches (task_id, attempt, launch, job_uid, started_at, ended_at, outcome)
SELECT $1, 1, n, 'uid', now(), now(), 'lost' FROM generate_series(2, $2::int) AS n
"""


SLOW = """
CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(0.02); RETURN OLD; END$$;
CREATE TRIGGER note BEFORE DELETE ON dispatch_private.tasks FOR EACH ROW EXECUTE FUNCTION public.note()
"""


async def test_batch_is_bounded_by_the_launches_that_containers_made_up(database: Database) -> None:
    """A container may start its row as any launch. A call that deletes millions of them would end without an effect."""
    first, second, third = await ended_days_ago(database, 9, 8, 7)
    admin = await database.session("admin")
    for row, launches in ((first, 32767), (second, 15_000), (third, 5001)):
        await admin.execute(MADE_UP, row.id, launches)
    assert await deleted(database, 3) == 0
    assert len(await first.launches()) == 12_767
    assert [await deleted(database, 3) for _ in range(3)] == [1, 1, 1]
    assert await left(database) == (set(), set())


async def test_batch_ends_before_its_statement_would_be_stopped(database: Database) -> None:
    """Large payloads on a slow disk take long, and so may a trigger. A batch that is stopped comes again for ever."""
    admin = await database.session("admin")
    await admin.execute("SET session_replication_role = replica")
    await admin.execute(
        "INSERT INTO dispatch_private.tasks (status, finished_at, kind) "
        "SELECT 'succeeded', now() - interval '9 days', 'x' FROM generate_series(1, 300)"
    )
    await admin.execute(SLOW)
    closings = Closings(lambda: database.url("janitor"))
    try:
        done = await closings.delete_old(3, [])
        assert 20 <= done.deleted < 300
    finally:
        await closings.close()


@pytest.mark.parametrize("days", [0, -5, None])
async def test_age_below_a_day_counts_as_a_day(database: Database, days: int | None) -> None:
    _, today = await ended_days_ago(database, 1.01, 0.99)
    assert await deleted(database, days) == 1
    assert (await left(database))[0] == {today.id}


@pytest.mark.slow
async def test_batch_has_at_most_ten_thousand_rows(database: Database) -> None:
    admin = await database.session("admin")
    rows = "INSERT INTO dispatch.tasks (priority) SELECT 1 FROM generate_series(1, 10050)"
    await (await database.session("team_a")).execute(rows)
    await admin.execute(
        "UPDATE dispatch_private.tasks SET status = 'cancelled', finished_at = now() - interval '2 days'"
    )
    assert await deleted(database, 1, most=1_000_000) == 10_000


async def test_two_deletions_at_once_take_different_rows_and_do_not_wait(database: Database) -> None:
    await ended_days_ago(database, 9, 8, 7, 6)
    first, second = await database.connect("janitor"), await database.connect("janitor")
    async with first.transaction():
        assert await deleted(database, 3, most=2, by=first) == 2
        async with asyncio.timeout(5):
            assert await deleted(database, 3, most=2, by=second) == 2
    assert await left(database) == (set(), set())


async def test_row_that_is_retried_meanwhile_is_not_deleted(database: Database) -> None:
    (row,) = await ended_days_ago(database, 9)
    team, janitor = await database.connect("team_a"), await database.connect("janitor")
    async with team.transaction():
        assert await team.fetchval("SELECT dispatch.task_retry($1)", row.id) == "waiting"
        assert await deleted(database, 3, by=janitor) == 0
    assert await row.status() == "waiting"


HELD = {
    "foreign key": "CREATE TABLE public.orders (task_id bigint REFERENCES dispatch_private.tasks)",
    "deferred foreign key": (
        "CREATE TABLE public.orders (task_id bigint REFERENCES dispatch_private.tasks DEFERRABLE INITIALLY DEFERRED)"
    ),
    "trigger": """
        CREATE TABLE public.orders (task_id bigint);
        CREATE FUNCTION public.keep() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$BEGIN
            IF EXISTS (SELECT FROM public.orders WHERE task_id = OLD.id) THEN RAISE 'it is ordered'; END IF;
            RETURN OLD;
        END$$;
        CREATE TRIGGER keep BEFORE DELETE ON dispatch_private.tasks FOR EACH ROW EXECUTE FUNCTION public.keep()
    """,
}


HELD["trigger that skips the DELETE"] = HELD["trigger"].replace("RAISE 'it is ordered'", "RETURN NULL")


@pytest.mark.parametrize("holder", HELD)
async def test_row_that_something_of_a_team_holds_stops_no_other_row(database: Database, holder: str) -> None:
    rows = await ended_days_ago(database, *range(4, 24))
    held = {rows[5].id, rows[6].id, rows[19].id}
    admin = await database.session("admin")
    await admin.execute(HELD[holder])
    await admin.execute("INSERT INTO public.orders SELECT unnest($1::bigint[])", list(held))
    closings = Closings(lambda: database.url("janitor"))
    try:
        done = await closings.delete_old(3, [])
        assert (done.deleted, set(done.kept)) == (17, held)
        words = ("orders", "it is ordered (P0001)", "a trigger on dispatch_private.tasks skips the DELETE")
        assert any(one in (done.why or "") for one in words)
        assert await left(database) == (held, held)
        assert await closings.delete_old(3, done.kept) == DeletionResult(0, [], None)
    finally:
        await closings.close()
