"""The numbers of each queue: rows that wait, starts and ends of the last minutes."""

from dispatcher.model.tasks import QueueCount
from dispatcher.pg.questions import questions
from tests.integration.looking import opened
from tests.rig.postgres import Database
from tests.rig.rows import insert_row


async def counted(database: Database) -> QueueCount:
    async with opened(database.url("reader")) as session, questions(session) as rows:
        (found,) = await rows.counts()
        return found


async def test_starts_and_ends_of_the_last_minutes_are_counted(database: Database) -> None:
    first, second, third = [await insert_row(database) for _ in range(3)]
    await first.finish(await first.started(), "succeeded")
    await second.started()
    found = await counted(database)
    assert (found.queue, found.due, found.starts, found.ends) == ("default", 1, 2, 1)
    admin = await database.session("admin")
    await admin.execute("UPDATE dispatch_private.task_launches SET started_at = now() - interval '6 min'")
    await admin.execute(
        "UPDATE dispatch_private.tasks SET finished_at = now() - interval '6 min' WHERE status = 'succeeded'"
    )
    await third.cancel()
    found = await counted(database)
    assert (found.due, found.starts, found.ends) == (0, 0, 1)


async def test_row_that_was_due_before_its_insert_has_waited_since_its_insert(database: Database) -> None:
    """`run_at` of 1900 would make the oldest wait 126 years, and hide every real one."""
    admin = await database.session("admin")
    first, late = await insert_row(database), await insert_row(database)
    await admin.execute("UPDATE dispatch_private.tasks SET run_at = '1900-01-01 UTC' WHERE id = $1", first.id)
    await admin.execute(
        "UPDATE dispatch_private.tasks SET created_at = now() - interval '1 min' WHERE id = $1", late.id
    )
    assert (await counted(database)).oldest == (await late.now())["created_at"]
    await late.cancel()
    assert (await counted(database)).oldest == (await first.now())["created_at"]
